"""Kueue from its own chart, with the program that `prepare` has built."""

import json

from lib import api, images
from lib.namespaces import until
from lib.settings import BIN, VERSIONS

NAMESPACE = "kueue-system"
IMAGE = "sluice.test/kueue"
# The chart's own, except that Kueue manages Jobs only, if a test says nothing else: its other webhooks would be asked about the product's
# pods.
CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "health": {"healthProbeBindAddress": ":8081"},
    "metrics": {"bindAddress": ":8443"},
    "webhook": {"port": 9443},
    "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
    "integrations": {"frameworks": ["batch/job"]},
}


def install(values_of_claims: str | None = None, **configuration: object) -> None:
    """Kueue with these parts of its configuration, or the version that counts claims with these values of its chart. Returns when its
    webhooks answer."""
    folder, version = (BIN / "kueue-claims", VERSIONS["KUEUE_CLAIMS"]) if values_of_claims else (BIN, VERSIONS["KUEUE"])
    images.bring(images.archive(f"{IMAGE}:{version}", {"/manager": folder / "kueue"}, {}, ["/manager"]))
    manager = {
        "image": {"repository": IMAGE, "tag": version, "pullPolicy": "Never"},
        # Its own image has this user.
        "podSecurityContext": {"runAsUser": 65532},
        "resources": {"requests": {"cpu": "10m"}},
    }
    configured = json.dumps({"managerConfig": {"controllerManagerConfigYaml": json.dumps(CONFIGURATION | configuration)}})
    words = ["upgrade", "--install", "kueue", folder / "kueue-chart", "-n", NAMESPACE, "--create-namespace"]
    words += ["--set-json", f"controllerManager.manager={json.dumps(manager)}"]
    # The certificate of its webhooks reaches the pod with kubelet's next update of the secret, after a minute at most.
    api.command("helm", *words, "--wait", "--timeout", "180s", "-f", "-", stdin=values_of_claims or configured, seconds=240)
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "answers"}}
    until("Kueue's webhooks", 120, lambda: _answers(flavor), every=1)


def uninstall() -> None:
    """Its resources go first: it removes their finalizers itself."""
    for kind in ("clusterqueues", "resourceflavors"):
        api.kubectl("delete", f"{kind}.kueue.x-k8s.io", "--all", "--timeout=60s")
    api.helm("uninstall", "kueue", "-n", NAMESPACE, "--wait", "--timeout=120s")
    api.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")


def _answers(flavor: dict) -> bool:
    try:
        api.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(flavor))
    except api.Failed:
        return False
    return True
