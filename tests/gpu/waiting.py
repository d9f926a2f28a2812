#!/usr/bin/env python3
"""A program with short kernels and commands that use no multiprocessor, beside a neighbour that always has work: what does each get?

Programs of tests/preload: waiting.c (kernels of 0.1 ms in turn with a host function of 20 ms, or with copies of 64 MiB) and busy.c (kernels
of 1 ms). Each arm runs new programs; the arms of a round come in another order each time (order.py). Arms, for each kind of command:
  alone    waiting.c without the hook and without the neighbour
  bare     both without the hook
  sluice   both under Sluice, with channel-group controls
"""

import argparse
import pathlib
import statistics
import subprocess
import tempfile
import time

import rig
import rounds
from order import Order

KINDS = ("function", "kernel-last", "copy")
PROGRAMS = rig.REPO / "tests" / "preload" / "programs"
# Until clocks and quanta have settled, seconds.
SETTLE = 0.5


class Program:
    """A running program that prints the number of its turns when its standard input ends."""

    def __init__(self, command, env):
        self.process = subprocess.Popen([str(word) for word in command], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            rig.fail(f"{command[0]} ended with status {self.process.wait()}")
        self.began = time.monotonic()

    def rate(self):
        """Ends the program. Returns its turns a second."""
        seconds = time.monotonic() - self.began
        self.process.stdin.close()
        turns = int(self.process.stdout.readline())
        if self.process.wait(20) != 0:
            rig.fail(f"a program ended with status {self.process.returncode}")
        return turns / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="only these kinds of commands")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0, help="an arm")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=240)
    options = parser.parse_args()
    rig.limit(options.limit)
    gpu, folder = rig.Gpu(options.gpu), tempfile.TemporaryDirectory(prefix="sluice-gpu-")
    manager = rig.Manager([{"name": name, "request": 0.5, "limit": 1.0, "memory": "8Gi"} for name in ("waiting", "busy")], [f"--controls={gpu.controls}"])
    driver = [f"-L{gpu.env['LD_LIBRARY_PATH']}"] if gpu.simulated else []
    waiting, busy = (pathlib.Path(folder.name) / name for name in ("waiting", "busy"))
    for program in (waiting, busy):
        rig.compile(PROGRAMS / f"{program.name}.c", program, driver)
    arms = [f"{arm} {kind}" for arm in ("alone", "bare", "sluice") for kind in options.kinds]
    order, rates = Order(arms, options.seed), {name: [] for name in arms}
    neighbour_alone = one_arm(options, [busy, 1000, 50], gpu.plain(), None, None)[0]
    for _ in rounds.numbers(options):
        for name in order.round():
            arm, kind = name.split()
            env = {client: gpu.under(manager, client) if arm == "sluice" else gpu.plain() for client in ("waiting", "busy")}
            neighbour = None if arm == "alone" else [busy, 1000, 50]
            rates[name].append(one_arm(options, [waiting, 100, kind], env["waiting"], neighbour, env["busy"]))
        rows = {name: row(made, neighbour_alone) for name, made in rates.items()}
        rig.write("waiting", {"ok": True, "rows": rows, "neighbour_alone": neighbour_alone, **order.result(), "metrics": manager.metrics()}, quiet=True)
    for name, told in rows.items():
        rig.say(f"{name:20}", {key: round(value, 3) for key, value in told.items() if isinstance(value, float)})
    manager.stop()
    return 0


def one_arm(options, command, env, neighbour, neighbours_env):
    """Turns a second of a program, and of its neighbour, if it has one."""
    beside = Program(neighbour, neighbours_env) if neighbour else None
    time.sleep(SETTLE)
    program = Program(command, env)
    time.sleep(options.seconds)
    return [program.rate(), beside.rate() if beside else None]


def row(made, neighbour_alone):
    told = {"turns": statistics.median(turns for turns, _ in made), "blocks": made}
    if made[0][1] is not None:
        told["neighbour_of_alone"] = statistics.median(rate for _, rate in made) / neighbour_alone
    return told


if __name__ == "__main__":
    raise SystemExit(main())
