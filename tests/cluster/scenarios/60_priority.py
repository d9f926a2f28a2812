"""Pods of all four priorities on one GPU, by annotation alone."""

from lib import product
from lib.devices import GPUS

CORE = {"priority_reaches_the_pod_manager"}


def test_priority_reaches_the_pod_manager(cluster):
    product.need()
    with cluster.namespace() as ns:
        product.create(
            ns,
            product.tenant("serve", "load", "lc", "--seconds", "100000", priority="latency-critical", slo="5ms", quota=0.2, memory="256Mi", gpu_uuid=GPUS[0]),
            product.tenant("batch", priority="high", quota=0.15, memory="256Mi", gpu_uuid=GPUS[0]),
            product.tenant("notebook", priority="normal", quota=0.15, memory="256Mi", gpu_uuid=GPUS[0]),
            product.tenant("train-a", priority="best-effort", quota=0.15, memory="256Mi", gpu_uuid=GPUS[0]),
            product.tenant("train-b", quota=0.15, memory="256Mi", gpu_uuid=GPUS[0]),
        )
        product.all_running(ns)
        cluster.until("five clients", 30, lambda: sum(at == ns for at, _ in product.clients()) == 5)
        classes = {pod: client["class"] for (at, pod), client in product.clients().items() if at == ns}
        assert classes == {"serve": "latency-critical", "batch": "high", "notebook": "normal", "train-a": "best-effort", "train-b": "best-effort"}, classes
        assert product.clients()[(ns, "serve")]["slo_ns"] == 5_000_000
        assert all(client["gpu"] == GPUS[0] for (at, _), client in product.clients().items() if at == ns)
        # And all of them work on that GPU: each has its quota, whatever the better levels want.
        cluster.until("kernels of all", 60, lambda: {f"{ns}/{pod}" for pod in classes} <= {pod for pod, row in product.counted(GPUS[0])[1].items() if row.kernels > 10})
