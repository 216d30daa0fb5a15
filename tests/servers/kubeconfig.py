"""Kubeconfig files of the tests: one cluster, one user with a token, one context."""

from __future__ import annotations

import base64
import json
from pathlib import Path


def write_kubeconfig(path: Path, url: str, ca: Path, user: str, token: str, context: str = "default") -> Path:
    """Write a kubeconfig, readable by its owner alone, and return its path; it holds the CA itself."""
    authority = base64.b64encode(ca.read_bytes()).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": user}}],
        "current-context": context,
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=1))
    return path
