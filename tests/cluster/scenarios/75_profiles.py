"""Settings for the nodes with certain labels."""

from lib import api, product
from lib.devices import GPUS, MEMORY_BYTES
from lib.settings import NODE

SECONDS = 240


def test_profile_of_the_nodes_label_replaces_the_values_of_the_chart(cluster):
    product.need()
    other = {"name": "other", "nodeLabels": {"test/pool": "b"}, "seatsPerGpu": 3}
    mine = {"name": "mine", "nodeLabels": {"test/pool": "a"}, "seatsPerGpu": 7, "contextReserve": "1Gi"}
    api.kubectl("label", "node", NODE, "test/pool=a", "--overwrite")
    try:
        product.install(nodeAgent={"profiles": [other, mine]})
        cluster.until("the slots of the profile", 60, lambda: product.allocatable() == 7 * len(GPUS))
        # The contexts of seven processes on each GPU may take what is left.
        usable = len(GPUS) * (MEMORY_BYTES - (7 << 30)) >> 20
        offered = lambda: api.request("GET", f"/api/v1/nodes/{NODE}")["status"]["allocatable"]["sluice.dev/memory-mib"]
        cluster.until("the memory without its reserve", 30, lambda: offered() == str(usable))
    finally:
        api.kubectl("label", "node", NODE, "test/pool-")
        product.install()
    cluster.until("the slots of the chart's value", 60, lambda: product.allocatable() == 100 * len(GPUS))
