"""An exec probe: exit 0 while the agent's heartbeat is younger than the seconds given as argument."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main() -> int:
    """Say how old the heartbeat is; 0 when it is young enough."""
    limit = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
    try:
        age = time.time() - Path(os.environ["MANAGED_AGENT_HEARTBEAT"]).stat().st_mtime
    except (KeyError, OSError) as problem:
        sys.stdout.write(f"no heartbeat to look at: {problem}\n")
        return 1
    sys.stdout.write(f"heartbeat {age:.1f} s old, allowed {limit:.0f} s\n")
    return 0 if age <= limit else 1


if __name__ == "__main__":
    raise SystemExit(main())
