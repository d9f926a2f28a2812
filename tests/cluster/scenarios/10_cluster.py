"""The cluster itself does what the other scenarios take for granted."""

import json

from lib import images
from lib.devices import GPUS


def test_pod_runs_with_logs_and_exec(cluster):
    with cluster.namespace() as ns:
        cluster.kubectl("apply", "-n", ns, "-f", "-", stdin=json.dumps(cluster.pod("a", "sh", "-c", "echo it works; sleep 1000")))
        cluster.wait("pod/a", "condition=Ready", ns)
        assert cluster.logs(ns, "a") == "it works\n"
        assert cluster.exec(ns, "a", "sh", "-c", "echo inside").strip() == "inside"
