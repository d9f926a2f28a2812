#!/usr/bin/env python3
"""The black-box tests of the preemption contract on this machine's GPU: the programs of tests/preload under the real hook.

    contract.py --gpu real [NUMBER ...]     on a machine with a GPU: writes $OUT/contract.json
    contract.py --gpu sim  [NUMBER ...]     anywhere: starts `sluice sim`, writes $OUT/contract-sim.json

`contract.c` is compiled with cc and linked with libcuda.so.1; each number runs at levels 0 (host) and 1 (device), some at 2
(full), 21 and 22 with a second process; 31 is our own; 23 is forks.c and execs.c under a manager, 24 is frameworks.py's. The result says for each number
"ok", "failed: why" or "cannot: why", and what the programs measured: 1, 2, 13 and 30 how often a second they preempted. What is timed runs alone, the rest several at a time. Everything known
is written after each run ("not_run" names the rest); what does not end in its time is killed; what dies of a signal is run again with its stack told (trace.c). About 80 seconds on a GPU.
"""

import argparse
import concurrent.futures
import pathlib
import subprocess
import sys
import tempfile
import threading

import rig

PROGRAMS = rig.REPO / "tests" / "preload" / "programs"
TIMED = [4, 6, 27]
TOGETHER = [11, 1, 2, 5, 7, 9, 10, 12, 13, 14, 16, 17, 18, 19, 20, 26, 28, 29, 30, 31]
WITH_OTHERS = [21, 22]
# Further programs, which run beside a second tenant so that grants expire: their arguments, and their output.
FORKS = {"forks fresh": ("forks", ["fresh"]), "forks used": ("forks", ["used"]), "execs": ("execs", [])}
# Cases that do not depend on other users of the context, which end level full.
AT_FULL = [1, 2, 13, 14, 22, 28, 30]
# Numbers that another number's program covers.
SAME = {3: 1, 8: 7, 15: 14}
CANNOT = 77
# Time limit of a number, and of the slowest ones.
PATIENCE = 15
LONG = {1: 40, 2: 40, 11: 40, 28: 40}
# A killed program must end in this time; a program that hangs in the driver is not waited for.
FAREWELL = 3


class Stage:
    """The GPU, and the program compiled for it."""

    def __init__(self, kind):
        self.kind, self.driver = kind, []
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-contract-")
        folder = pathlib.Path(self.folder.name)
        self.more = {}
        if kind == "sim":
            for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
                (folder / name).symlink_to(rig.BUILD / "libcuda.so")
            rig.wait_for_socket(folder / "sim.sock", rig.Child("sim", [rig.SLUICE, "sim", "--socket", folder / "sim.sock"]))
            self.more = {"LD_LIBRARY_PATH": str(folder), "SLUICE_SIM_SOCKET": str(folder / "sim.sock")}
            self.driver = ["-L", folder]
        self.program = self.compiled("contract")
        self.trace = folder / "trace.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.trace, rig.HERE / "workloads" / "trace.c"], check=True, timeout=60)

    def compiled(self, name):
        program = pathlib.Path(self.folder.name) / name
        rig.compile(PROGRAMS / f"{name}.c", program, self.driver)
        return program

    def env(self, hooked=True, **more):
        preload = {"LD_PRELOAD": str(rig.HOOK)} if hooked else {}
        return rig.plain_env(**self.more, **preload, **more)

    def run(self, number, level, hooked=True):
        """(outcome, what it printed)"""
        env = self.env(hooked)
        outcome, said = ended([self.program, number, level], env, LONG.get(number, PATIENCE))
        if outcome.startswith("failed: status -"):
            again, _ = ended([self.program, number, level], {**env, "LD_PRELOAD": f"{env.get('LD_PRELOAD', '')}:{self.trace}"}, LONG.get(number, PATIENCE))
            outcome += f" (again with its stack: {again})"
        return outcome, said

    def start(self, name, number, level, env):
        return Talker(name, [self.program, number, level], env)


def ended(command, env, patience=PATIENCE):
    """Runs a program to its end: (outcome, what it printed)."""
    done = subprocess.Popen([str(word) for word in command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    try:
        out, errors = done.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        done.kill()
        try:
            out, errors = done.communicate(timeout=FAREWELL)
        except subprocess.TimeoutExpired:
            return f"failed: still running after {patience} s, and cannot be killed", []
        return f"failed: still running after {patience} s, {' '.join(errors.split())[-300:]}", out.splitlines()
    said = [line for line in out.splitlines() if line != "done"]
    # A stack is longer than a message.
    errors = " ".join(errors.split())[-3000 if done.returncode < 0 else -300:]
    if done.returncode == CANNOT:
        return f"cannot: {errors}", said
    return ("ok" if done.returncode == 0 else f"failed: status {done.returncode}, {errors}"), said


class Talker(rig.Child):
    """A program that answers each line with a line."""

    def line(self, patience=30):
        _, line = self.lines.get(timeout=patience)
        if line is None:
            raise RuntimeError(f"{self.name} ended with status {self.process.wait()}: {self.errors()[-300:]}")
        return line

    def does(self):
        """Has it launch twenty kernels; returns the number of kernels before."""
        self.ask("go")
        return int(self.line().split()[1])

    def ends(self):
        self.process.stdin.close()
        return self.process.wait(30)


def goes_on(tenant, before):
    """Completed kernels, once there are more than before or the time is over."""
    end = rig.time.monotonic() + 15
    done = before
    while done <= before and rig.time.monotonic() < end:
        rig.time.sleep(0.02)
        done = tenant.does()
    return done


def a_manager_is_killed(stage):
    manager = rig.Manager([{"name": "tenant", "request": 0.5, "limit": 1.0, "memory": 8 << 30}])
    tenant = stage.start("tenant", 21, 1, {**manager.env("tenant"), **stage.more})
    tenant.line()
    tenant.does()
    manager.child.process.kill()
    manager.child.process.wait(5)
    before = tenant.does()
    done = goes_on(tenant, before)
    status = tenant.ends()
    return "ok" if done > before and status == 0 else f"failed: {before} then {done} kernels, status {status}"


def a_holder_is_killed(stage, level):
    holder = stage.start("holder", 22, level, stage.env())
    holder.line()
    other = stage.start("other", 21, level, stage.env())
    other.line()
    other.does()
    holder.process.kill()
    holder.process.wait(10)
    before = other.does()
    done = goes_on(other, before)
    status = other.ends()
    return "ok" if done > before and status == 0 else f"failed: {before} then {done} kernels, status {status}"


def forks_and_execs(stage):
    """Each program's outcome under a manager, beside a second tenant."""
    clients = [{"name": name, "request": 0.5, "limit": 1.0, "memory": 8 << 30} for name in ("tenant", "rival")]
    manager = rig.Manager(clients, ["--controls=simulated" if stage.kind == "sim" else "--controls=auto"])
    rival = rig.Load("rival", {**manager.env("rival"), **stage.more}, 500, 4)
    env = {**manager.env("tenant"), **stage.more}
    outcomes = {name: ended([stage.compiled(program), *arguments], env, 40)[0] for name, (program, arguments) in FORKS.items()}
    rival.stop()
    manager.stop()
    for name, outcome in outcomes.items():
        if outcome.startswith("failed"):
            # A real driver's locks may be held at a fork; a deadlock without the hook is not counted.
            program, arguments = FORKS[name]
            alone = ended([stage.compiled(program), *arguments], stage.env(hooked=False), 40)[0]
            if alone.startswith("failed"):
                outcomes[name] = f"cannot: without Sluice it is no better ({alone}); {outcome}"
    return outcomes


def together(outcomes):
    """The worst outcome of a number's levels."""
    bad = [f"{level}: {outcome}" for level, outcome in outcomes.items() if outcome != "ok"]
    return "; ".join(bad) if bad else "ok"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", type=int)
    parser.add_argument("--gpu", choices=("real", "sim"), default="real")
    parser.add_argument("--levels", default="0,1,2")
    parser.add_argument("--at-a-time", type=int, default=4)
    parser.add_argument("--limit", type=int, default=180)
    options = parser.parse_args()
    rig.limit(options.limit)
    stage = Stage(options.gpu)
    asked = [int(level) for level in options.levels.split(",")]

    def levels_of(number):
        return [level for level in asked if level < 2 or number in AT_FULL] if number != 26 else [2]

    wanted = set(options.numbers or [*TOGETHER, *TIMED, *WITH_OTHERS, *SAME, 23])
    wanted |= {SAME[number] for number in wanted if number in SAME}
    outcomes, said, took, telling = {}, {}, {}, threading.Lock()

    def tell(number, level, outcome, lines=(), seconds=0.0):
        """Records an outcome and writes all results."""
        with telling:
            for same in [number, *(other for other, like in SAME.items() if like == number and other in wanted)]:
                outcomes.setdefault(same, {})[level] = outcome
            if lines:
                said[f"{number}/{level}"] = list(lines)
            took[f"{number}/{level}"] = round(seconds, 1)
            result = {str(each): together(outcomes[each]) for each in sorted(outcomes)}
            missing = sorted(wanted - set(outcomes))
            ok = not missing and not any("failed" in each for each in result.values())
            rig.say(f"{number} at {level}: {outcome}")
            rig.write("contract" if options.gpu == "real" else "contract-sim", {"numbers": result, "not_run": missing, "said": said, "took_s": took, "ok": ok}, quiet=True)
            return ok

    def one(number, level):
        begun = rig.time.monotonic()
        outcome, lines = stage.run(number, level)
        return tell(number, level, outcome, lines, rig.time.monotonic() - begun)

    pool = concurrent.futures.ThreadPoolExecutor(options.at_a_time)
    try:
        # Slow numbers start first.
        list(pool.map(lambda pair: one(*pair), [(number, level) for number in TOGETHER if number in wanted for level in levels_of(number)]))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    for number in sorted(wanted & set(TIMED)):
        for level in levels_of(number):
            one(number, level)
    if 27 in wanted:
        said["27/without"] = stage.run(27, 0, hooked=False)[1]
    for number, tried in ((21, lambda level: a_manager_is_killed(stage)), (22, lambda level: a_holder_is_killed(stage, level))):
        for level in levels_of(number) if number in wanted else []:
            try:
                outcome = tried(level)
            except (RuntimeError, OSError, rig.queue.Empty, subprocess.TimeoutExpired) as error:
                outcome = f"failed: {error!r}"
            tell(number, level, outcome)
    for name, outcome in forks_and_execs(stage).items() if 23 in wanted else []:
        tell(23, name, outcome)
    rig.say({number: together(outcomes[number]) for number in sorted(outcomes)})
    failed = [number for number in sorted(wanted) if "failed" in together(outcomes.get(number, {"": "failed: not run"}))]
    rig.say("all hold" if not failed else f"failed: {failed}")
    # Threads of a program that hangs are not waited for.
    sys.stdout.flush()
    rig.leave(1 if failed else 0)


if __name__ == "__main__":
    main()
