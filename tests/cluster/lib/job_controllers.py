"""JobSet and LeaderWorkerSet from their own charts, with the programs that `prepare` has built."""

import contextlib
import json

from lib import api, images
from lib.namespaces import until
from lib.settings import BIN, VERSIONS

# Their own images have a user without rights.
SECURITY = {"runAsNonRoot": True, "runAsUser": 65532}
REQUESTS = {"requests": {"cpu": "10m"}}
JOBSET, LWS = (f"sluice.test/{name}:{VERSIONS[name.upper()]}" for name in ("jobset", "lws"))


@contextlib.contextmanager
def installed():
    """Both controllers; their webhooks answer. Afterwards they and their kinds are gone."""
    releases = {"jobset": (JOBSET, _values_of_jobset()), "lws": (LWS, _values_of_lws())}
    try:
        for name, (image, values) in releases.items():
            images.bring(images.archive(image, {"/manager": BIN / name}, {}, ["/manager"]))
            words = ["upgrade", "--install", name, BIN / f"{name}-chart", "-n", f"{name}-system", "--create-namespace"]
            api.command("helm", *words, "--wait", "--timeout", "180s", "-f", "-", stdin=json.dumps(values), seconds=240)
        until("the webhook of JobSet", 120, lambda: _answers(_probe("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": []})), every=1)
        lws = {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": {"spec": {"containers": [{"name": "main", "image": "none"}]}}}}
        until("the webhook of LeaderWorkerSet", 120, lambda: _answers(_probe("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", lws)), every=1)
        yield
    finally:
        for name in releases:
            api.helm("uninstall", name, "-n", f"{name}-system", "--ignore-not-found", "--wait", "--timeout=120s")
            api.kubectl("delete", "namespace", f"{name}-system", "--ignore-not-found")
        # Helm leaves the kinds of a chart.
        kinds = ["jobsets.jobset.x-k8s.io", "leaderworkersets.leaderworkerset.x-k8s.io"]
        api.kubectl("delete", "crd", *kinds, "--ignore-not-found", "--timeout=60s")


def _values_of_jobset() -> dict:
    repository, _, tag = JOBSET.rpartition(":")
    controller = {"podSecurityContext": SECURITY, "resources": REQUESTS | {"limits": {"cpu": "2"}}}
    return {"image": {"repository": repository, "tag": tag, "pullPolicy": "Never"}, "controller": controller}


def _values_of_lws() -> dict:
    repository, _, tag = LWS.rpartition(":")
    manager = {"repository": repository, "tag": tag, "pullPolicy": "Never"}
    return {"image": {"manager": manager}, "podSecurityContext": SECURITY, "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}}


def _probe(version: str, kind: str, spec: dict) -> dict:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "answers", "namespace": "default"}, "spec": spec}


def _answers(probe: dict) -> bool:
    try:
        api.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(probe))
    except api.Failed:
        return False
    return True
