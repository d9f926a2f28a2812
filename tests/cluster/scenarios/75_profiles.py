"""Settings for the nodes with certain labels."""

from lib import api, product
from lib.devices import GPUS
from lib.settings import NODE

SECONDS = 240


def test_profile_of_the_nodes_label_replaces_the_values_of_the_chart(cluster):
    product.need()
    other = {"name": "other", "nodeLabels": {"test/pool": "b"}, "seatsPerGpu": 3}
    mine = {"name": "mine", "nodeLabels": {"test/pool": "a"}, "seatsPerGpu": 7}
    api.kubectl("label", "node", NODE, "test/pool=a", "--overwrite")
    try:
        product.install(nodeAgent={"profiles": [other, mine]})
        cluster.until("the slots of the profile", 60, lambda: product.allocatable() == 7 * len(GPUS))
    finally:
        api.kubectl("label", "node", NODE, "test/pool-")
        product.install()
    cluster.until("the slots of the chart's value", 60, lambda: product.allocatable() == 100 * len(GPUS))
