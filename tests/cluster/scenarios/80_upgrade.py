"""helm upgrade leaves running pods alone, also when it replaces every part of Sluice."""

import time

from lib import product
from lib.devices import GPUS

SECONDS = 300


def test_helm_upgrade_leaves_pods_alone(cluster):
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, product.tenant("a", quota=0.3, memory="1Gi", gpu_uuid=GPUS[0]), product.tenant("b", quota=0.7, memory="1Gi", gpu_uuid=GPUS[0]))
        product.all_running(ns)
        before = {pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"], pod["status"]["containerStatuses"][0]["restartCount"]) for pod in product.pods(ns)}
        where = product.assigned(ns)
        agent = product.agent()["metadata"]["uid"]
        # The same values: nothing of ours restarts either.
        product.install()
        assert product.agent()["metadata"]["uid"] == agent
        # Another log level: every pod of ours is replaced.
        began = time.monotonic()
        product.install(logLevel="debug")
        cluster.until("another agent", 120, lambda: product.agent()["metadata"]["uid"] != agent)
        cluster.record("upgrade_s", round(time.monotonic() - began, 1))
        after = {pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"], pod["status"]["containerStatuses"][0]["restartCount"]) for pod in product.pods(ns)}
        assert after == before and product.assigned(ns) == where
        seen = product.shares(10)
        gpu = where["a"]
        assert where["b"] == gpu
        got = seen[gpu][f"{ns}/a"] / sum(seen[gpu].values())
        assert abs(got - 0.3) <= 0.03, seen
        product.install()
