#!/usr/bin/env python3
"""How long does stopped best-effort work stand still when the process that stopped it is killed?

Cases (--cases), each --times times. The stopped tenant measures the time from just before the kill until the next end of one of its
kernels.
  manager   two best-effort programs are scheduled by quanta; the pod-manager is killed (SIGKILL) while one of them is stopped
  lc-full   a latency-critical program is busy without a pause and best effort has a slice of 1 us; the former is killed
Everything known is written after each case. The bar is 100 ms.
"""

import argparse
import json
import random
import statistics
import tempfile
import time

import rig

CLIENTS = [
    {"name": "be0", "request": 0.4, "limit": 1.0, "memory": "8Gi"},
    {"name": "be1", "request": 0.4, "limit": 1.0, "memory": "8Gi"},
    {"name": "lc", "request": 0.2, "limit": 1.0, "memory": "8Gi", "class": "latency-critical"},
]
CASES = ["manager", "lc-full"]
KERNEL_US = 500
BAR_MS = 100.0
# A tenant is stopped if none of its kernels has ended for this time.
STOOD_MS = 5.0


def unix_ns():
    return time.time_ns()


class Tenant(rig.Child):
    """Kernels back to back, with the times at which they ended."""

    def __init__(self, name, env):
        super().__init__(name, [rig.SLUICE_DEV, "bench", "preempt-be"], env)
        self.answer(60)
        self.running = False

    def begin(self, wait=True):
        self.ask(json.dumps({"command": "run", "kernel_us": KERNEL_US}))
        self.running = True
        if wait:
            self.answer(60)

    def end(self, from_ns):
        """Kernels since a time."""
        self.ask(json.dumps({"command": "stop", "from_ns": from_ns, "to_ns": unix_ns()}))
        self.running = False
        return self.answer(60)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Stage:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-kill-")
        self.gpu = {}
        if options.gpu == "sim":
            self.simulator, self.gpu = rig.simulate(self.folder.name)
        self.controls = "simulated" if options.gpu == "sim" else "auto"

    def manager(self, *flags):
        return rig.Manager(CLIENTS, [*flags, *self.options.manager])

    def tenant(self, manager, client):
        return Tenant(client, {**manager.env(client), **self.gpu})


def levels(manager):
    return {key.split('"')[1]: value for key, value in manager.metrics().items() if key.startswith("sluice_level") and value}


def quanta(manager):
    return sum(value for key, value in manager.metrics().items() if key.startswith("sluice_turns_total"))


def until(what, seen, seconds=20.0):
    end = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > end:
            rig.fail(f"{what}: not seen in {seconds:.0f} s")
        time.sleep(0.02)


def kill_manager(manager):
    manager.child.process.kill()
    manager.child.process.wait()


def manager_killed(stage, chance):
    """The tenants survive the manager; each repetition has a new manager and new tenants."""
    manager = stage.manager(f"--controls={stage.controls}")
    tenants = [stage.tenant(manager, client) for client in ("be0", "be1")]
    for tenant in tenants:
        tenant.begin(wait=False)
    before = quanta(manager)
    until("quanta", lambda: quanta(manager) >= before + 6)
    achieved = levels(manager)
    time.sleep(0.1 + 0.1 * chance.random())
    moment = unix_ns()
    kill_manager(manager)
    time.sleep(0.6)
    for tenant in tenants:
        tenant.answer(60)
    told = [tenant.end(moment) for tenant in tenants]
    for tenant in tenants:
        tenant.stop()
    manager.stop()
    return told, achieved


def critical_killed(stage, chance):
    """One best-effort program beside a busy latency-critical one, which is killed."""
    manager = stage.manager(f"--controls={stage.controls}")
    tenant, critical = stage.tenant(manager, "be0"), stage.tenant(manager, "lc")
    tenant.begin()
    critical.begin(wait=False)
    time.sleep(0.7 + 0.1 * chance.random())
    achieved = levels(manager)
    moment = unix_ns()
    critical.kill()
    time.sleep(0.6)
    told = [tenant.end(moment)]
    tenant.stop()
    critical.stop()
    manager.stop()
    return told, achieved


def case(stage, name):
    chance = random.Random(1)
    play = {"manager": manager_killed, "lc-full": critical_killed}[name]
    times, went_on, tries, achieved = [], [], 0, {}
    while len(times) < stage.options.times and tries < 3 * stage.options.times:
        tries += 1
        told, achieved = play(stage, chance)
        for tenant in told:
            stood = (tenant["before_ns"] or 0) / 1e6 >= STOOD_MS
            first = None if tenant["first_ns"] is None else tenant["first_ns"] / 1e6
            if stood or first is None:
                times.append(first)
            else:
                went_on.append(first)
        rig.say(f"{name} {tries}: {[(tenant['before_ns'], tenant['first_ns']) for tenant in told]} {achieved}")
        if "turn" not in achieved:
            return {"left_out": f"no process is scheduled by quanta; the manager reports {achieved}"}
    seen = sorted(value for value in times if value is not None)
    return {
        "stood_ms": times, "p50_ms": statistics.median(seen) if seen else None, "max_ms": seen[-1] if seen else None,
        "never": times.count(None), "of_those_that_ran_ms": rig.spread(went_on), "tries": tries, "level": achieved,
        "ok": bool(seen) and times.count(None) == 0 and seen[-1] <= BAR_MS,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--manager", nargs="*", default=[], help="more arguments of the pod-managers")
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--name", default="kill")
    options = parser.parse_args()
    rig.limit(options.limit)
    stage, cases = Stage(options), {}
    for name in options.cases:
        cases[name] = case(stage, name)
        rig.say(name, json.dumps(cases[name]))
        ok = all(each.get("ok", True) for each in cases.values())
        rig.write(options.name, {"ok": ok, "bar_ms": BAR_MS, "kernel_us": KERNEL_US, "cases": cases})
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
