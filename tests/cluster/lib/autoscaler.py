"""What an autoscaler decides about a pod of this cluster: the program of modules/kubernetes-1.34/autoscaler with the cluster's objects."""

import json
from dataclasses import dataclass

from lib import api


@dataclass(frozen=True)
class Decision:
    """Nodes on which the pod fits, and nodes of which a new copy would take it."""

    existing: list[str]
    new: list[str]

    @property
    def adds_a_node(self) -> bool:
        return not self.existing and bool(self.new)


def decide(namespace: str, name: str) -> Decision:
    """About a pod that no scheduler could place: an autoscaler considers no other."""
    pod = api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
    conditions = {one["type"]: one.get("reason") for one in pod["status"].get("conditions", [])}
    assert conditions.get("PodScheduled") == "Unschedulable", conditions
    bound = [one for one in api.request("GET", "/api/v1/pods")["items"] if one["spec"].get("nodeName")]
    given = {"pod": pod, "nodes": api.request("GET", "/api/v1/nodes")["items"], "pods": bound}
    return Decision(**json.loads(api.command("autoscaler", stdin=json.dumps(given))))
