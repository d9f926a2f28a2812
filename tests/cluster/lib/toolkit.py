"""NVIDIA's container toolkit on the node: the CDI specification that it writes, of the simulated GPUs."""

import contextlib
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

from lib import devices
from lib.settings import BIN, SIMULATION, environment

# The driver as the toolkit searches for it: libraries whose names end in the version, and device nodes.
ROOT = SIMULATION / "driver"
VERSION = "580.159.04"
# Major number of NVIDIA's devices, and the minor number of the one that controls them.
MAJOR, CONTROL = 195, 255


@contextlib.contextmanager
def cdi():
    """Where NVIDIA's systemd service `nvidia-cdi-refresh` writes it."""
    make_driver()
    devices.CDI.parent.mkdir(exist_ok=True)
    specification = with_simulators(generate())
    devices.CDI.write_text(json.dumps(specification, indent=1))
    try:
        yield
    finally:
        devices.CDI.unlink(missing_ok=True)


def make_driver() -> None:
    libraries, nodes = ROOT / "usr/lib/x86_64-linux-gnu", ROOT / "dev"
    for folder in (libraries, nodes):
        folder.mkdir(parents=True, exist_ok=True)
    for name in ("libcuda.so", "libnvidia-ml.so"):
        shutil.copy2(SIMULATION / "lib" / name, libraries / f"{name}.{VERSION}")
        # By this name the toolkit's hook makes a link to the library, as ldconfig does.
        subprocess.run(["patchelf", "--set-soname", f"{name}.1", libraries / f"{name}.{VERSION}"], check=True)
        with contextlib.suppress(FileExistsError):
            (libraries / f"{name}.1").symlink_to(f"{name}.{VERSION}")
    for name, minor in (*((f"nvidia{number}", number) for number in range(len(devices.GPUS))), ("nvidiactl", CONTROL)):
        with contextlib.suppress(FileExistsError):
            os.mknod(nodes / name, 0o666 | stat.S_IFCHR, os.makedev(MAJOR, minor))


def generate() -> dict:
    """The specification with the toolkit's defaults: each GPU by index and by UUID, and `all`."""
    words = [BIN / "nvidia-ctk", "cdi", "generate", "--format=json", f"--driver-root={ROOT}", f"--nvidia-cdi-hook-path={BIN}/nvidia-cdi-hook"]
    simulators = ",".join(str(devices.socket(uuid)) for uuid in devices.GPUS)
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment() | {"SLUICE_SIM_SOCKET": simulators})
    if done.returncode != 0:
        raise RuntimeError(f"nvidia-ctk: {done.stderr}")
    return json.loads(done.stdout)


def with_simulators(specification: dict) -> dict:
    """Adds to each device the socket of its simulated GPU, which takes the part of the device node."""
    of = {device["name"]: device["containerEdits"] for device in devices.cdi_specification()["devices"]}
    of |= {str(number): of[uuid] for number, uuid in enumerate(devices.GPUS)}
    for device in specification["devices"]:
        simulator, edits = of[device["name"]], device["containerEdits"]
        edits["env"] = [*edits.get("env", []), *simulator["env"]]
        edits["mounts"] = [*edits.get("mounts", []), *simulator["mounts"]]
    return specification


def files() -> dict[str, str]:
    """The node's CDI specifications."""
    folders = [Path("/etc/cdi"), devices.CDI.parent]
    return {str(file): file.read_text() for folder in folders if folder.is_dir() for file in folder.iterdir()}
