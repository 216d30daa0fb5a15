"""What Kubernetes itself costs, without us: bare requests from Python over kept connections, nothing checked."""

from __future__ import annotations

import base64
import queue
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import urllib3

APPLY = {"Content-Type": "application/apply-patch+yaml"}
CONNECTIONS = 8
Json = dict[str, Any]


class Bare:
    """Requests to one API server with the credentials of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        found = orjson.loads(kubeconfig.read_bytes())  # as the control plane of the tests writes it
        cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
        trust = ssl.create_default_context()
        if "certificate-authority-data" in cluster:
            trust.load_verify_locations(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        else:
            trust.load_verify_locations(cafile=cluster["certificate-authority"])
        self._host = cluster["server"]
        self._headers = {"Authorization": f"Bearer {user['token']}", "Accept": "application/json"}
        self._pool = urllib3.PoolManager(maxsize=CONNECTIONS + 4, ssl_context=trust, retries=False)

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None, **headers: str) -> Json:
        """What the server answers, decoded."""
        data = None if body is None else orjson.dumps(body)
        sent = {**self._headers, **({"Content-Type": "application/json"} if data else {}), **headers}
        answer = self._pool.request(method, self._host + path, body=data, headers=sent)
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.data[:300]!r}")
        decoded: Json = orjson.loads(answer.data)
        return decoded

    def apply(self, manifest: Mapping[str, Any], manager: str = "bench") -> Json:
        """One server-side apply."""
        return self.request("PATCH", f"{path_of(manifest)}?fieldManager={manager}&force=true", manifest, **APPLY)

    def apply_all(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """A loop of server-side applies on eight connections."""
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            for _ in pool.map(self.apply, manifests):
                pass

    def namespaces(self, names: Sequence[str]) -> None:
        """Make namespaces."""
        for name in names:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.request("POST", "/api/v1/namespaces", body)

    def listed(self, path: str, selector: str) -> int:
        """How many objects one list has, all decoded."""
        return len(self.request("GET", f"{path}?labelSelector={selector}")["items"])

    @contextmanager
    def watching(self, path: str, selector: str) -> Iterator[Watch]:
        """The events of a watch that begins now."""
        version = self.request("GET", f"{path}?{selector}&limit=1")["metadata"]["resourceVersion"]
        url = f"{self._host}{path}?{selector}&watch=true&resourceVersion={version}"
        answer = self._pool.request("GET", url, headers=self._headers, preload_content=False)
        watch = Watch(answer)
        try:
            yield watch
        finally:
            watch.close()


class Watch:
    """Events with the moment at which each arrived, read by a thread of its own."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self._events: queue.Queue[tuple[float, str, Json]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        rest = b""
        try:
            while chunk := self._answer.read1(2**16):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = orjson.loads(line)
                    self._events.put((time.perf_counter(), event["type"], event["object"]))
        except Exception:
            return  # closed: nobody waits for more

    def next(self, seconds: float = 60.0) -> tuple[float, str, Json]:
        """The next event."""
        return self._events.get(timeout=seconds)

    def first(self, wanted: Callable[[str, Json], bool]) -> float:
        """When the first event of a kind with an object that is wanted arrived."""
        while True:
            at, kind, found = self.next()
            if wanted(kind, found):
                return at

    def close(self) -> None:
        """End it."""
        try:
            self._answer.shutdown()
        except Exception:
            pass  # it is over already


def path_of(manifest: Mapping[str, Any]) -> str:
    """Where the API serves an object."""
    group, meta = manifest["apiVersion"], manifest["metadata"]
    root = f"/api/{group}" if group == "v1" else f"/apis/{group}"
    return f"{root}/namespaces/{meta['namespace']}/{manifest['kind'].lower()}s/{meta['name']}"


def image_of(deployment: Json) -> str:
    """The image that a Deployment asks for."""
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


def moved(manifest: Json, name: str, other: str) -> Json:
    """The same object in a namespace whose name begins otherwise."""
    metadata = manifest["metadata"]
    namespace = other + metadata["namespace"].removeprefix(name)
    return {**manifest, "metadata": {**metadata, "namespace": namespace}}
