"""A pod of which a process enables its disabled channel groups: a program of tests/escapes."""

from lib import compiled_program


def pod(gpu: str, **keys: object) -> dict:
    # The program works until its input closes. The pod ends with it.
    script = "exec /programs/own_ioctls enable < <(sleep 100000)"
    source = "tests/escapes/programs/own_ioctls.c"
    return compiled_program.pod("violator", source, script, quota=0.3, memory="256Mi", gpu_uuid=gpu, **keys)
