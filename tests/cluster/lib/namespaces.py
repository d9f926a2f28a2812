"""The cluster's namespaces from outside: made, entered, ended together with everything in them."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from lib.settings import ADDRESS, HERE, MINOR, STATE

INIT = HERE / "lib/init.py"
CGROUPS = Path("/sys/fs/cgroup")


def until(what: str, seconds: float, condition, every: float = 0.05):
    """Polls condition() and returns its first true value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(every)
    return value


def first_process() -> int | None:
    """The running cluster's init, found by its command line, because a pid file could be out of date."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            numbers = next(line for line in (process / "status").read_text().splitlines() if line.startswith("NSpid"))
        except (OSError, StopIteration):
            continue
        if str(INIT).encode() in words and str(STATE).encode() in words and numbers.split()[-1] == "1":
            return int(process.name)
    return None


def make() -> None:
    STATE.mkdir(parents=True, exist_ok=True)
    (STATE / "home").mkdir(exist_ok=True)
    arguments = ["--mount", "--net", "--pid", "--fork", "--propagation", "private", sys.executable, INIT, STATE, ADDRESS]
    with open(STATE / "init.log", "wb") as log:
        starter = subprocess.Popen(
            ["unshare", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )

    def ready() -> bool:
        if starter.poll() is not None:
            raise RuntimeError(f"no namespaces: {(STATE / 'init.log').read_text()}")
        return (STATE / "namespaces-ready").exists()

    until("namespaces", 10, ready)


def entering() -> list[str]:
    """The arguments before a command that runs inside."""
    init = first_process()
    if init is None:
        raise RuntimeError("no cluster is up: tests/cluster/up")
    return ["nsenter", f"--target={init}", "--mount", "--net", "--pid", "--wd=/", "--"]


def mark_up() -> None:
    (STATE / "up").write_text(MINOR)


def is_up() -> bool:
    """Whether the cluster was started completely, with the Kubernetes that is wanted now."""
    mark = STATE / "up"
    return first_process() is not None and mark.exists() and mark.read_text() == MINOR


def end() -> None:
    """Ends all processes inside, then removes their files. Also works after an interrupted start."""
    if (init := first_process()) is not None:
        os.kill(init, signal.SIGKILL)  # the kernel ends every process of the namespace with it
        until("end of the cluster's processes", 30, lambda: not Path(f"/proc/{init}").exists())
    remove_cgroups()
    if STATE.exists():
        shutil.rmtree(STATE)


def remove_cgroups() -> None:
    """Removes kubelet's cgroups, which outlive it. Cgroups of another kubelet still have processes and remain."""
    for top in [*CGROUPS.glob("*/kubepods"), *CGROUPS.glob("kubepods")]:
        folders = [Path(folder) for folder, _, _ in os.walk(top, topdown=False)]
        if any((folder / "cgroup.procs").read_text().strip() for folder in folders):
            raise RuntimeError(f"{top} has processes: another kubelet runs here, and two would disturb each other")
        for folder in folders:
            folder.rmdir()


def run_inside(*argv: object, seconds: float | None = None) -> int:
    """Runs a command in the cluster and returns its exit code."""
    return subprocess.run([*entering(), *map(str, argv)], timeout=seconds).returncode
