"""Pods that run a C program of the tests, compiled into a folder that pods can mount."""

import subprocess

from lib import product
from lib.settings import REPOSITORY, SIMULATION, environment

FOLDER = SIMULATION / "programs"


def pod(name: str, source: str, script: str, **keys: object) -> dict:
    """A pod whose bash runs `script`; the program is `/programs/STEM` in it."""
    _compile(source)
    made = product.program(name, "/usr/bin/bash", "-c", script, **keys)
    made["spec"]["volumes"] = [{"name": "programs", "hostPath": {"path": str(FOLDER)}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "programs", "mountPath": "/programs", "readOnly": True}]
    return made


def _compile(source: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    path = REPOSITORY / source
    words = ["cc", "-std=gnu11", "-O1", "-pthread", "-I", REPOSITORY / "tests/preload/programs", "-o", FOLDER / path.stem]
    words += [path, "-L", SIMULATION / "lib", "-Wl,--no-as-needed", "-l:libcuda.so.1", "-ldl"]
    subprocess.run(words, check=True, env=environment())
