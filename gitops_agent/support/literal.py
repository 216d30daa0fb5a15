"""Recognising secrets that were written where a reference is due. The patterns are public formats."""

from __future__ import annotations

import re

_FORMATS = re.compile(
    r"""
    -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----
    | \b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}        # model providers, payment providers
    | \bgh[pousr]_[A-Za-z0-9]{20,}                # forges
    | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abeprs]-[A-Za-z0-9-]{10,}             # chat
    | \b[0-9]{8,10}:[A-Za-z0-9_-]{35}\b
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b               # clouds
    | \bAIza[0-9A-Za-z_-]{35}
    | \bhvs\.[A-Za-z0-9_-]{20,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*   # signed tokens
    | \b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,256}:[^\s/@]{1,256}@    # a password in a URL
    """,
    re.VERBOSE,
)

SHORTEST = 16
"""No known kind of credential is shorter."""


def looks_secret(text: str) -> bool:
    """Whether a text has the form of a known kind of credential."""
    return len(text) >= SHORTEST and _FORMATS.search(text) is not None
