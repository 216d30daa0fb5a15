"""The settings in force in a pod of docker/kubernetes: its file and environment together, with every option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gitops_agent.drivers.kubernetes.options import Settings
from gitops_agent.settings import build_settings
from tests.kubernetes.install import MANIFESTS, USER, Object, copied, one
from tests.servers.cluster import Cluster

pytestmark = pytest.mark.servers

BY_OVERLAY: dict[str, dict[str, Any]] = {
    "single": {"in_cluster": True},
    "ha": {"in_cluster": True},
    "tenants": {"in_cluster": True, "create_namespaces": False, "namespaces": ("acme", "globex", "initech")},
}
BY_COMPONENT: dict[str, dict[str, Any]] = {
    "fencing": {"fence_as": USER},
    "namespace-deletion": {"delete_namespaces": True},
}
"""What of ``drivers.kubernetes`` is set, and by whom; all else is as without settings."""


def offered(overlay: str) -> list[str]:
    """The options that an overlay has as comments."""
    text = (MANIFESTS / "overlays" / overlay / "kustomization.yaml").read_text()
    return re.findall(r"^  # - \.\./\.\./components/(\S+)$", text, re.MULTILINE)


CASES = [(overlay, option) for overlay in BY_OVERLAY for option in (*offered(overlay), "all", "none")]


@pytest.mark.parametrize(("overlay", "option"), CASES)
def test_an_option_changes_its_own_settings_and_no_others(
    control: Cluster, tmp_path: Path, overlay: str, option: str
) -> None:
    chosen = {"all": offered(overlay), "none": []}.get(option, [option])
    text = control.kubectl("kustomize", str(copied(tmp_path, overlay, chosen)))
    objects = list(YAML(typ="safe").load_all(text))
    data = one(objects, "ConfigMap", "gitops-agent-settings")["data"]
    file = YAML(typ="safe").load(data["settings.yaml"])
    settings = build_settings(file, environment_of(objects), {})

    expected = dict(BY_OVERLAY[overlay])
    for each in chosen:
        expected |= BY_COMPONENT.get(each, {})
    assert Settings.model_validate(settings.drivers["kubernetes"]) == Settings(**expected)
    assert set(settings.drivers) == {"kubernetes"}
    assert settings.listen == "0.0.0.0:9733"
    assert settings.identity == "the-pod"
    shared = overlay != "single"
    assert (settings.election, bool(settings.journal_url_file)) == ("kubernetes" if shared else "", shared)


def environment_of(objects: list[Object]) -> dict[str, str]:
    """What the container finds in its environment; values that the cluster fills in are the name of the pod."""
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each.get("value", "the-pod") for each in container["env"]}
