"""First process of the cluster's namespaces: sets them up as a separate machine, then reaps orphaned processes.

Everything of the cluster is below this process, its mounts and addresses exist only here: ending it leaves nothing.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path


def call(*argv: str) -> None:
    subprocess.run(argv, check=True)


def make_mounts(state: Path) -> None:
    call("mount", "--make-rprivate", "/")
    call("mount", "-t", "proc", "proc", "/proc")
    call("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for of_the_host in ("/var/lib", "/var/log"):
        ours = state / of_the_host.strip("/").replace("/", "-")
        ours.mkdir(exist_ok=True)
        call("mount", "--bind", str(ours), of_the_host)
    # What kubelet and the runtime mount must reach the containers.
    call("mount", "--make-rshared", "/")
    Path("/run/lock").mkdir()


def make_network(address: str) -> None:
    # This kernel may have no dummy device; a bridge holds an address as well.
    for command in (
        "link set lo up",
        "link add node0 type bridge",
        f"addr add {address}/24 dev node0",
        "link set node0 up",
        "route add default dev node0",
    ):
        call("ip", *command.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def reap() -> None:
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.sigwait({signal.SIGCHLD})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    _state, _address = Path(sys.argv[1]), sys.argv[2]
    make_mounts(_state)
    make_network(_address)
    (_state / "namespaces-ready").touch()
    reap()
