"""NetworkPolicies in force: the cluster's CNI plugins ignore them, so this translates those of a namespace into rules of iptables."""

import contextlib
import subprocess
from pathlib import Path

from lib import api

CHAIN = "TEST-POLICIES"
# Packets between pods pass a bridge; with this they pass iptables, too.
BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


@contextlib.contextmanager
def enforced(namespace: str):
    """Enforces the policies for ingress of a namespace between the pods that run now. Connections from the node stay open, as Kubernetes
    requires."""
    rules = ["-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"]
    for policy in api.request("GET", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies")["items"]:
        spec = policy["spec"]
        assert spec["policyTypes"] == ["Ingress"], policy
        for address in addresses(namespace, spec["podSelector"]):
            for one in spec["ingress"]:
                sources = [f"-s {source}" for peer in one["from"] for source in of_peer(namespace, peer)] if "from" in one else [""]
                rules += [f"{source} -d {address} -p tcp --dport {port['port']} -j ACCEPT" for source in sources for port in one["ports"]]
        rules += [f"-d {address} -j DROP" for address in addresses(namespace, spec["podSelector"])]
    before = BRIDGED.read_text()
    BRIDGED.write_text("1")
    iptables("-N", CHAIN)
    try:
        for rule in rules:
            iptables("-A", CHAIN, *rule.split())
        iptables("-I", "FORWARD", "1", "-j", CHAIN)
        yield
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            iptables("-D", "FORWARD", "-j", CHAIN)
        iptables("-F", CHAIN)
        iptables("-X", CHAIN)
        BRIDGED.write_text(before)


def iptables(*words: str) -> None:
    subprocess.run(["iptables", "-w", *words], check=True, capture_output=True)


def of_peer(own: str, peer: dict) -> list[str]:
    """Addresses of the pods that a `from` selects."""
    namespaces = [own]
    if "namespaceSelector" in peer:
        found = api.request("GET", "/api/v1/namespaces")["items"]
        namespaces = [one["metadata"]["name"] for one in found if matches(peer["namespaceSelector"], one["metadata"]["labels"])]
    return [address for name in namespaces for address in addresses(name, peer.get("podSelector", {}))]


def addresses(namespace: str, selector: dict) -> list[str]:
    pods = api.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [pod["status"]["podIP"] for pod in pods if "podIP" in pod["status"] and matches(selector, pod["metadata"].get("labels", {}))]


def matches(selector: dict, labels: dict) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    for one in selector.get("matchExpressions", []):
        assert one["operator"] == "In", one
        wanted = wanted and labels.get(one["key"]) in one["values"]
    return wanted
