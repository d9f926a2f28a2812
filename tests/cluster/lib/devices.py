"""The node's simulated GPUs: one daemon each, and the simulated driver library where the runtime takes it from."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lib.namespaces import until
from lib.processes import Program
from lib.settings import SIMULATION, environment

MODEL = "Sluice Simulated H200"
MEMORY = "141Gi"
MEMORY_BYTES = 141 << 30
# A context takes little here, so that a hundred pods with small limits fit. It counts towards a pod's memory.
CONTEXT_BYTES = 16 << 20
GPUS = ["GPU-00000000-0000-4000-8000-00000000000a", "GPU-00000000-0000-4000-8000-00000000000b"]
PCI = {uuid: f"0000:{0x18 + number:02x}:00.0" for number, uuid in enumerate(GPUS)}
CDI = Path("/run/cdi/nvidia.json")
NAMES = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"]


def socket(uuid: str) -> Path:
    return SIMULATION / "gpus" / f"{uuid}.sock"


def program(uuid: str) -> Program:
    words = [SIMULATION / "sluice", "sim", "--socket", socket(uuid), "--memory", MEMORY, "--uuid", uuid, "--model", MODEL]
    words += ["--context-memory", f"{CONTEXT_BYTES >> 20}Mi"]
    links = [word for other in GPUS if other != uuid for word in ("--nvlink", PCI[other])]
    return Program(f"sim-{uuid}", [*words, "--pci", PCI[uuid], "--numa", "0", *links])


def start(programs: Path) -> None:
    library = SIMULATION / "lib"
    for folder in (library, SIMULATION / "gpus"):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy2(programs / "sluice", SIMULATION / "sluice")
    for name in NAMES:
        shutil.copy2(programs / "libcuda.so", library / name)
    for uuid in GPUS:
        program(uuid).start()
    for uuid in GPUS:
        until(f"simulated {uuid}", 60, lambda uuid=uuid: program(uuid).check() or socket(uuid).exists())


@contextlib.contextmanager
def cdi(instances: Sequence[str] = ()):
    """The node's CDI specification, as `nvidia-ctk cdi generate` writes it: a device for each GPU and each MIG instance by UUID, and `all`."""
    CDI.parent.mkdir(exist_ok=True)
    CDI.write_text(json.dumps(cdi_specification(instances), indent=1))
    yield
    CDI.unlink(missing_ok=True)


def cdi_specification(instances: Sequence[str] = ()) -> dict:
    def bind(source: Path, inside: str) -> dict:
        return {"hostPath": str(source), "containerPath": inside, "options": ["bind", "ro", "nosuid", "nodev"]}

    def device(name: str, uuids: list[str]) -> dict:
        inside = {uuid: f"/run/sluice-sim/{uuid}.sock" for uuid in uuids}
        mounts = [bind(socket(uuid), path) for uuid, path in inside.items()]
        return {"name": name, "containerEdits": {"env": [f"SLUICE_SIM_SOCKET={','.join(inside.values())}"], "mounts": mounts}}

    libraries = [bind(SIMULATION / "lib" / name, f"/usr/lib/x86_64-linux-gnu/{name}") for name in NAMES]
    devices = [*(device(uuid, [uuid]) for uuid in (*GPUS, *instances)), device("all", GPUS)]
    edits = {"env": ["NVIDIA_VISIBLE_DEVICES=void"], "mounts": libraries}
    return {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": edits}


def sim(*words: object) -> str:
    """Runs `sluice sim WORDS` on a simulated GPU."""
    done = subprocess.run(
        [SIMULATION / "sluice", "sim", *map(str, words)], capture_output=True, text=True, timeout=30, env=environment()
    )
    if done.returncode != 0:
        raise RuntimeError(f"sluice sim {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def ledger(uuid: str) -> dict:
    """The simulated GPU's ledger."""
    return json.loads(sim("ledger", "--socket", socket(uuid)))


def xid(uuid: str, code: int) -> None:
    """Injects a fault: 79 loses the GPU, 48 breaks it until a reset, 94 degrades it, 13 is a program's fault."""
    sim("xid", socket(uuid), code)


def heal(uuid: str) -> None:
    sim("heal", socket(uuid))
