"""The objects and the notes that the chart renders. Needs helm on the PATH and PyYAML, the tests also kubernetes-validate; .ci/run helm
brings them."""

import functools
import os
import subprocess
from pathlib import Path

import yaml

CHART = Path(__file__).parents[2] / "charts/sluice"
NAMESPACE = "sluice-system"
# The parser in C, where PyYAML has it, is ten times as fast.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Failed(Exception):
    pass


def render(*values: str, chart: Path = CHART, namespace: str = NAMESPACE, more: tuple = ()) -> list[dict]:
    """The objects of `helm template` with these values."""
    sets = [word for value in values for word in ("--set", value)]
    command = ["helm", "template", "sluice", str(chart), "--namespace", namespace, "--kube-version", "1.34.4", *sets, *more]
    # Helm renders the same only if it asks no cluster and the chart is not a copy that a test changes.
    text = printed(*command) if chart == CHART and "--dry-run=server" not in more else printed.__wrapped__(*command)
    return [one for one in yaml.load_all(text, LOADER) if one]


@functools.cache
def printed(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(done.stderr)
    return done.stdout


def notes(*values: str) -> str:
    """What `helm install` prints with these values."""
    sets = [word for value in values for word in ("--set", value)]
    command = ["helm", "install", "sluice", str(CHART), "--namespace", NAMESPACE, "--dry-run=client", "--kubeconfig", os.devnull, *sets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(done.stderr)
    return " ".join(done.stdout.partition("\nNOTES:\n")[2].split())


def of_kind(objects: list[dict], *kinds: str) -> dict[str, dict]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] in kinds}


def workloads(objects: list[dict]) -> dict[str, dict]:
    """Specifications of pods by the workload's name."""
    found = of_kind(objects, "DaemonSet", "Deployment")
    return {name: one["spec"]["template"]["spec"] for name, one in found.items()}


def containers(objects: list[dict]) -> list[dict]:
    specs = [*workloads(objects).values(), *(pod["spec"] for pod in of_kind(objects, "Pod").values())]
    return [one for spec in specs for one in spec.get("initContainers", []) + spec["containers"]]


def rules(objects: list[dict], component: str) -> list[tuple[str, str, str, bool]]:
    """(group, resource, verb, only by name) that the chart's own roles give a component."""
    roles = of_kind(objects, "Role").get(f"sluice-{component}"), of_kind(objects, "ClusterRole").get(f"sluice-{component}")
    return [
        (group, resource, verb, bool(rule.get("resourceNames")))
        for role in roles if role
        for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
    ]
