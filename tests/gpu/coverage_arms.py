"""The processes of one workload of coverage.py: an arm has one process, or one for each GPU."""

import contextlib
import os
import pathlib
import shutil

import rig

# Patience, seconds: for imports and the first steps of all processes together, and for a command.
PREPARED, ANSWER = 150, 40
# Part of the memory that JAX takes when it starts.
JAX_FRACTION = 0.5
ALLOCATORS = {"expandable": "expandable_segments:True", "malloc-async": "backend:cudaMallocAsync"}
LABELS = ("u1", "h", "u2")


def pin(pid, cores):
    """Has a process, its threads and its children run on these cores only, with all that they start later."""
    for task in os.listdir(f"/proc/{pid}/task"):
        # A thread or child may end meanwhile; Linux without the list of children has only the process itself pinned.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(task), cores)
            for child in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                pin(child, cores)


class ArmFailed(Exception):
    """A process of an arm ended, or did not answer. The text has the last lines of its output."""


def settings(workload, label, folder, limit, total):
    """Environment variables of a workload, apart from the hook's."""
    own = pathlib.Path(folder) / f"{workload}-{label}"
    found = {
        "TORCHINDUCTOR_CACHE_DIR": own / "inductor", "TRITON_CACHE_DIR": own / "triton", "CUPY_CACHE_DIR": own / "cupy",
        "TORCHINDUCTOR_COMPILE_THREADS": 4, "TORCHINDUCTOR_DETERMINISTIC": 1, "OMP_NUM_THREADS": 4, "HF_HUB_OFFLINE": 1,
        # The hooked process sees its limit as the GPU. The others take as many bytes.
        "XLA_PYTHON_CLIENT_MEM_FRACTION": JAX_FRACTION if label == "h" else f"{JAX_FRACTION * limit / total:.6f}",
    }
    if workload in ALLOCATORS:
        # The second name is that of newer versions.
        found |= dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), ALLOCATORS[workload])
    # numba-cuda finds NVVM there.
    if workload == "numba" and "CUDA_HOME" not in os.environ and (compiler := shutil.which("nvcc")):
        found["CUDA_HOME"] = pathlib.Path(compiler).resolve().parent.parent
    return {name: str(value) for name, value in found.items()}


class Arm:
    """A workload without the hook (label u1, u2) or under it (h)."""

    def __init__(self, node, workload, label, folder):
        self.label, self.failed = label, None
        gpus = node.gpus
        program = rig.python("coverage/run.py", "stand-in" if gpus.simulated else workload)
        more = settings(workload, label, folder, node.limits[workload], gpus.totals[0])
        self.children = []
        # As torchrun does. A process of one GPU ignores it.
        more |= {"WORLD_SIZE": str(len(gpus.devices)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": rig.free_address().split(":")[1]}
        for rank in range(len(gpus.devices)):
            env = gpus.plain(**more, RANK=str(rank), LOCAL_RANK=str(rank), SLUICE_SIM_LABEL=f"{workload}-{label}-{rank}")
            command = node.command(workload, program) if label == "h" else program
            self.children.append(rig.Child(f"{workload}-{label}-{rank}", command, env))

    def ask(self, line):
        try:
            for child in self.children:
                child.ask(line)
        except OSError as why:
            raise self.error(child, why) from why

    def answers(self, patience=ANSWER):
        """The answer of each process."""
        found = []
        for child in self.children:
            try:
                found.append(child.reply(patience))
            except rig.ChildFailed as why:
                raise self.error(child, why) from why
        return found

    def error(self, child, why):
        # What a process wrote last is at the end of its log.
        child.stop()
        lines = [line for line in child.errors().splitlines() if line.strip()]
        return ArmFailed("\n".join([str(why).splitlines()[0], *lines[-8:]]))

    def pin(self, cores):
        for child in self.children:
            with contextlib.suppress(OSError):
                pin(child.process.pid, cores)

    def do(self, line, patience=ANSWER):
        self.ask(line)
        return self.answers(patience)

    def prepare(self, step):
        """`step` is run now, or not if an earlier one failed. A failure is kept for `check`."""
        if self.failed is None:
            try:
                return step(self)
            except ArmFailed as why:
                self.failed = str(why)
        return None

    def check(self):
        if self.failed:
            raise ArmFailed(self.failed)

    def run(self, steps):
        """Steps per second. Several processes take their steps together."""
        return steps / max(answer["seconds"] for answer in self.do(f"run {steps}"))

    def digests(self):
        return [answer["digest"] for answer in self.do("digest", 120)]

    def end(self):
        """Asks the processes to end, and does not wait for that."""
        for child in self.children:
            # The process may have ended already.
            with contextlib.suppress(OSError, ValueError):
                child.ask("quit")
            with contextlib.suppress(OSError):
                child.process.stdin.close()
