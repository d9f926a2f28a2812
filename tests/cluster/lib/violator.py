"""A pod of which a process enables its disabled channel groups: a program of tests/escapes, compiled into a folder that pods can mount."""

import subprocess

from lib import product
from lib.settings import REPOSITORY, SIMULATION, environment

ATTEMPTS = SIMULATION / "attempts"


def pod(gpu: str, **keys: object) -> dict:
    _compile()
    # The program works until its input closes. The pod ends with it.
    script = "exec /attempts/own_ioctls enable < <(sleep 100000)"
    made = product.program("violator", "/usr/bin/bash", "-c", script, quota=0.3, memory="256Mi", gpu_uuid=gpu, **keys)
    made["spec"]["volumes"] = [{"name": "attempts", "hostPath": {"path": str(ATTEMPTS)}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "attempts", "mountPath": "/attempts", "readOnly": True}]
    return made


def _compile() -> None:
    ATTEMPTS.mkdir(exist_ok=True)
    words = ["cc", "-std=gnu11", "-O1", "-pthread", "-I", REPOSITORY / "tests/preload/programs", "-o", ATTEMPTS / "own_ioctls"]
    words += [REPOSITORY / "tests/escapes/programs/own_ioctls.c", "-L", SIMULATION / "lib"]
    words += ["-Wl,--no-as-needed", "-l:libcuda.so.1", "-ldl"]
    subprocess.run(words, check=True, env=environment())
