"""``make cluster``: the control plane of the tests for work by hand, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import sys
import threading

from tests.servers.build import BuildFailed
from tests.servers.cluster import NODES, USERS, Cluster
from tests.servers.processes import StartFailed

HELP = """
{url}: etcd, API server, controllers and scheduler are real, the nodes {nodes} are simulated.
  {kubectl} get nodes        kubectl of the same version, as administrator
Words in an image's name make a container misbehave: never-ready, crashes, out-of-memory, dies-later, no-such-image
(tests/servers/stages.yaml). `kubectl logs` shows {log}; `kubectl exec` runs on this machine, as nobody if it can.
Users without any right: {users}; their kubeconfigs, and the logs of all servers, are in
{folder}, which is removed at the end. Ctrl-C ends it all.
The last line is the path of the administrator's kubeconfig:
"""


def main() -> None:
    """Run until a signal comes; the last line on stdout is the path of the kubeconfig."""
    ended = threading.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: ended.set() if started else sys.exit(130))
    started = False
    with Cluster() as cluster:
        started = True
        print(_help(cluster), file=sys.stderr, flush=True)
        print(cluster.kubeconfig, flush=True)
        ended.wait()


def _help(cluster: Cluster) -> str:
    return HELP.format(
        url=cluster.url,
        nodes=" and ".join(NODES),
        kubectl=cluster.write_kubectl(),
        log=cluster.log_file,
        users=", ".join(USERS),
        folder=cluster.folder,
    ).strip()


if __name__ == "__main__":
    try:
        main()
    except (BuildFailed, StartFailed) as failure:
        sys.exit(str(failure))
