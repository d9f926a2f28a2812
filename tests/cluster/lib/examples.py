"""The examples as users get them, but for what a machine without network or GPU cannot run: image, command, probes."""

import copy
from pathlib import Path

import yaml

from lib.settings import REPOSITORY

FOLDER = REPOSITORY / "examples"
WORKLOADS = ("Deployment", "StatefulSet")


def names() -> list[str]:
    """training, inference, notebook."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str, image: str, namespace: str) -> list[dict]:
    """The objects of an example, made to run `sluice load` of this image; annotations and all else stay."""
    return [in_place(one, image, namespace) for one in yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text())]


def in_place(one: dict, image: str, namespace: str) -> dict:
    one = copy.deepcopy(one)
    one["metadata"]["namespace"] = namespace
    if one["kind"] in WORKLOADS:
        template = one["spec"]["template"]
        critical = template["metadata"]["annotations"].get("sluice.dev/priority") == "latency-critical"
        main = template["spec"]["containers"][0]
        main |= {"image": image, "imagePullPolicy": "Never", "args": ["load", "lc" if critical else "be"]}
        for key in ("command", "readinessProbe"):
            main.pop(key, None)
    return one
