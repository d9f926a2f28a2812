"""Common parts of up, run and down: builds the programs, creates the namespaces, starts the inner part in them."""

import datetime
import fcntl
import os
import resource
import subprocess
import sys

from lib import namespaces
from lib.settings import BUILT, HERE, PROGRAMS, REPOSITORY, STATE

INSIDE = [sys.executable, HERE / "lib/inside.py"]


def need_root() -> None:
    if os.geteuid() != 0:
        sys.exit("tests/cluster: needs root: it makes namespaces, mounts and cgroups (cargo test and cargo demo do not)")


def one_at_a_time():
    """Two clusters would share kubelet's cgroups; the second waits for the first."""
    held = open(STATE.with_suffix(".lock"), "w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another run of tests/cluster is in progress, waiting for it", flush=True)
        fcntl.flock(held, fcntl.LOCK_EX)
    return held


DESCRIPTORS = 1 << 20  # what systemd's units of containerd ask for; a hundred pods do with 8,000, and not with a shell's 1,024


def raise_descriptors() -> None:
    """Raises the limit of open descriptors to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(hard, DESCRIPTORS)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ValueError, PermissionError):  # root without CAP_SYS_RESOURCE
        if hard < 8192:
            print(f"warning: only {hard} descriptors are allowed here (ulimit -Hn), a hundred pods need more", flush=True)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def build(core: bool) -> None:
    """Builds the release programs unless SLUICE_CLUSTER_PROGRAMS names a folder with built ones, then Kubernetes and the other programs
    that the core set, or the full set, uses."""
    if not PROGRAMS:
        packages = ["-p", "sluice-cli", "-p", "sluice-hook", "-p", "sluice-sim-cuda"]
        subprocess.run(["cargo", "build", "-q", "--release", "--locked", *packages], cwd=REPOSITORY, check=True)
    need_programs()
    subprocess.run([HERE / "prepare", *(["--core"] if core else [])], stdout=subprocess.DEVNULL, check=True)


DAEMONS = ("node-agent", "pod-manager", "scheduler", "webhook")


def need_programs() -> None:
    """Ends the run if a program is absent or `sluice` lacks daemons: `cargo test -p CRATE` replaces it by one with fewer features."""
    lacks = [name for name in ("sluice", "libsluice.so", "libcuda.so") if not (BUILT / name).exists()]
    if "sluice" not in lacks:
        lacks += [f"sluice {name}" for name in DAEMONS if subprocess.run([BUILT / "sluice", name, "--help"], capture_output=True).returncode != 0]
    if lacks:
        sys.exit(f"tests/cluster: {BUILT} has no {', '.join(lacks)}. Build them all: cargo build --workspace --lib --bins")


def facts() -> dict:
    """The conditions of the figures: commit, date, command, machine."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout.strip()
    model = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return {
        "commit": commit or "unknown",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
        "machine": f"{model}, {os.cpu_count()} CPUs, simulated GPUs",
    }


def up(core: bool = False) -> None:
    raise_descriptors()
    namespaces.end()
    build(core)
    namespaces.make()
    if namespaces.run_inside(*INSIDE, "up", seconds=600) != 0:
        raise SystemExit("up: failed; tests/cluster/down removes what it left")
    namespaces.mark_up()
