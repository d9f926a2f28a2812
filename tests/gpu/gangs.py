#!/usr/bin/env python3
"""Jobs that span two GPUs, with a pod-manager for each GPU: DDP trainings that share both, and what agreement between the managers gives.

Interleaved blocks in an order that changes (order.py). A job is a process for each GPU (workloads/ddp_train.py, tp_decode.py) that lives through
all blocks. Jobs with a 0 in their name run without the hook. Managers are started anew for each block; hooked processes attach again.
Arms by default:
  alone, local-alone    a DDP training on both GPUs; a training on each GPU: without the hook and other programs
  slicing               two DDP trainings a and b without the hook: the driver's time slicing
  independent           a 0.3, b 0.7, each manager for itself
  gangs, gangs50        managers with --gangs: 0.3 and 0.7; 0.5 each
  grants                managers with --gangs and without controls of channel groups: 0.3 and 0.7
  local                 managers with --gangs: a 0.4 on both GPUs, and the trainings c and d 0.6 on one GPU each
By --tp: a latency-critical decode on both GPUs, with all-reduces in its CUDA graph: tp-alone, and beside a training tp-slicing, tp-gangs.
By --arms also: hooked-alone (a alone under managers with --gangs), local-slicing, local-independent, tp-independent; tp-hooked (the decode alone under
managers: no hold kernels); light-alone and tp-light, with kernels that draw little power in place of the training: a training at the GPU's power limit reduces the clock of the decode beside it.

A job that makes no step in 6 s has frozen: its block ends, the managers are ended, and the next block begins. $OUT/gangs.json is written after
each block; $OUT/gangs-steps.json has when each step ended.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import node
import rig
import rounds
from clocks import Clocks
from order import Order

sys.path.insert(0, str(rig.HERE / "workloads"))
from ddp_train import Board  # noqa: E402

# Patience, seconds: for imports of all programs together, for a job's first steps, for processes to attach again, for controls of them.
LOADED, BUILT, ATTACHED, CONTROLLED = 150, 90, 15, 5
# Seconds without a step after which a job has frozen, and for which a frozen job may take to go on once the managers have ended.
FROZEN, THAW = 6.0, 15.0
# Time of a block beside what it measures, seconds: without and with managers.
LEAD, AROUND, AROUND_MANAGED = 0.3, 0.8, 2.5
# A restart of a lost job is not tried with less time left, seconds.
RESTART = 60
GANGS = ("--gangs", "{gangs}")


@dataclasses.dataclass(frozen=True)
class Arm:
    """What runs in a block. Without `shares` there is no hooked job."""

    jobs: tuple
    shares: dict | None = None
    # More arguments of the managers.
    flags: tuple = ()
    controls: bool = True
    # Part of the usual length of a block.
    part: float = 1.0


# The decode needs about 0.5 of the time, so DECODE has room for it, and SHORT has not.
PAIR, LOCAL, DECODE, SHORT = {"a": 0.3, "b": 0.7}, {"a": 0.4, "c": 0.6, "d": 0.6}, {"tp": 0.6, "a": 0.4}, {"tp": 0.45, "a": 0.55}
ARMS = {
    "alone": Arm(("a0",)),
    "local-alone": Arm(("c0", "d0"), part=0.5),
    "slicing": Arm(("a0", "b0")),
    "independent": Arm(("a", "b"), PAIR),
    "gangs": Arm(("a", "b"), PAIR, GANGS),
    "gangs50": Arm(("a", "b"), {"a": 0.5, "b": 0.5}, GANGS),
    "grants": Arm(("a", "b"), PAIR, GANGS, controls=False),
    "local": Arm(("a", "c", "d"), LOCAL, GANGS),
    "hooked-alone": Arm(("a",), PAIR, GANGS),
    "local-slicing": Arm(("a0", "c0", "d0")),
    "local-independent": Arm(("a", "c", "d"), LOCAL),
    "light-alone": Arm(("l0",), part=0.5),
    "tp-alone": Arm(("tp0",)),
    "tp-slicing": Arm(("tp0", "a0")),
    "tp-independent": Arm(("tp", "a"), DECODE),
    "tp-gangs": Arm(("tp", "a"), DECODE, GANGS),
    "tp-short": Arm(("tp", "a"), SHORT, GANGS),
    "tp-hooked": Arm(("tp",), {"tp": 0.6}, GANGS, part=0.5),
    "tp-light": Arm(("tp", "l"), {"tp": 0.6, "l": 0.4}, GANGS),
}
USUAL = ["alone", "local-alone", "slicing", "independent", "gangs", "gangs50", "grants", "local"]
TP = ["tp-alone", "tp-slicing", "tp-gangs", "tp-short"]
# GPUs of a job, by its name without the 0; and the arm and job that are its base.
PLACES = {"a": (0, 1), "b": (0, 1), "c": (0,), "d": (1,), "l": (0, 1), "tp": (0, 1)}
BASES = {"a": ("alone", "a0"), "b": ("alone", "a0"), "c": ("local-alone", "c0"), "d": ("local-alone", "d0"), "l": ("light-alone", "l0"), "tp": ("tp-alone", "tp0")}


def client(name):
    return name.rstrip("0")


class Managers:
    """A pod-manager for each GPU, with sockets in one folder. They are started anew for each configuration."""

    def __init__(self, gpus, options, hooked):
        self.gpus, self.options = gpus, options
        # Names of the clients that exist. One without a share in an arm is idle in it; its processes stay attached.
        self.clients = [client(name) for name in hooked]
        # A short path: socket names contain UUIDs, and their length is limited.
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-", dir="/tmp")
        rig.LAST.append(self.folder.cleanup)
        self.path, self.number, self.children = pathlib.Path(self.folder.name), 0, []
        said = subprocess.run([str(rig.SLUICE), "pod-manager", "--help"], capture_output=True, text=True, timeout=20, check=False)
        self.has_gangs = "--gangs" in said.stdout

    def env(self, name):
        """Environment of a job's hooked process."""
        return self.gpus.plain(LD_PRELOAD=str(rig.HOOK), SLUICE_SOCKET_DIR=str(self.path), SLUICE_CLIENT=client(name), SLUICE_HINTS=self.options.hints if name == "tp" else "auto")

    def start(self, arm):
        """Starts managers as the arm has them."""
        self.stop()
        self.number += 1
        gangs = self.path / f"gangs-{self.number}"
        gangs.mkdir()
        for index, uuid in enumerate(self.gpus.uuids):
            resources, socket, metrics = self.path / f"resources-{index}.yaml", self.path / f"{uuid}.sock", rig.free_address()
            resources.write_text("clients:\n" + "".join(f"  - {entry}\n" for entry in self.entries(index, arm.shares)))
            socket.unlink(missing_ok=True)
            controls = "off" if not arm.controls else "simulated" if self.gpus.simulated else "auto"
            flags = [word.replace("{gangs}", str(gangs)) for word in (arm.flags if self.has_gangs else ())]
            command = [rig.SLUICE, "pod-manager", "--gpu-uuid", uuid, "--socket", socket, "--resource-file", resources, "--metrics", metrics]
            command += [f"--controls={controls}", f"--node-gpus={len(self.gpus.uuids)}", *flags, *self.options.manager]
            child = rig.Child(f"pod-manager-{index}", command, self.gpus.plain(RUST_LOG="info", NO_COLOR="1"))
            self.children.append((child, socket, metrics))
        for child, socket, _ in self.children:
            rig.wait_for_socket(socket, child)

    def entries(self, index, shares):
        """The clients with processes on this GPU, for the resource file."""
        for name in self.clients:
            if index in PLACES[name]:
                critical = ", class: latency-critical" if name == "tp" else ""
                yield f"{{ name: {name}, request: {shares.get(name, 0)}, limit: 1.0, memory: {self.options.memory}{critical} }}"

    def metrics(self):
        return [rig.scrape(metrics) for _, _, metrics in self.children]

    def attach(self, jobs, arm):
        """Waits until all processes of these jobs are attached, and their channel groups are controlled if the arm has that. What came of it."""
        begun = time.monotonic()
        wanted = [[client(job.name) for job in jobs if index in PLACES[client(job.name)]] for index in range(len(self.gpus.uuids))]
        level = 'sluice_level{level="turn"}' if arm.controls else 'sluice_level{level="token"}'

        def count(seen, name):
            return seen.get(f'sluice_processes{{client="{name}"}}', 0)

        def until(what, seconds):
            while not (samples := self.safe_metrics()) or not all(what(seen, names) for seen, names in zip(samples, wanted)):
                if time.monotonic() > begun + seconds:
                    return False
                time.sleep(0.05)
            return True

        attached = until(lambda seen, names: all(count(seen, name) >= 1 for name in names), ATTACHED)
        # An idle process may be controlled only once it works.
        controlled = attached and until(lambda seen, names: seen.get(level, 0) >= len(names), time.monotonic() - begun + CONTROLLED)
        told = {"attached": attached, "controlled": controlled, "seconds": round(time.monotonic() - begun, 2)}
        if not attached:
            told["processes"] = [{name: count(seen, name) for name in names} for seen, names in zip(self.safe_metrics(), wanted)]
        return told

    def safe_metrics(self):
        """The metrics of all managers; none if one does not answer."""
        try:
            return self.metrics()
        except OSError:
            return []

    def told(self):
        """What the managers have counted in this block, and what they have warned of."""
        samples = [{name: value for name, value in seen.items() if value and "memory" not in name} for seen in self.safe_metrics()]
        ended = {child.name: f"status {child.process.returncode}: {child.errors()[-1500:]}" for child, _, _ in self.children if child.process.poll() is not None}
        return {"metrics": samples, "warnings": self.warnings(), **({"ended": ended} if ended else {})}

    def warnings(self):
        lines = []
        for child, _, _ in self.children:
            child.log.flush()
            text = pathlib.Path(child.log.name).read_text(errors="replace")
            lines += [line[:400] for line in text.splitlines() if " WARN" in line or " ERROR" in line or "panicked" in line]
        return lines[:8]

    def stop(self):
        for child, _, _ in self.children:
            if child.process.poll() is None:
                child.process.terminate()
        for child, socket, _ in self.children:
            child.stop(2.0)
            socket.unlink(missing_ok=True)
            pathlib.Path(child.log.name).unlink(missing_ok=True)
            rig.CHILDREN.remove(child)
        self.children = []


class Job:
    """The processes of a job, one a GPU; idle until a block."""

    def __init__(self, name, gpus, managers, options):
        self.name, self.gpus, self.managers, self.options = name, gpus, managers, options
        self.lost, self.ready, self.children = None, None, []
        with tempfile.NamedTemporaryFile(prefix=f"sluice-board-{name}-", delete=False) as file:
            self.board_at = file.name
        rig.LAST.append(lambda: pathlib.Path(self.board_at).unlink(missing_ok=True))
        self.board = Board(self.board_at, create=True)
        self.board.reset()

    @property
    def hooked(self):
        return not self.name.endswith("0")

    def spawn(self):
        """Starts its processes. They only load their libraries until `build`."""
        places, options = PLACES[client(self.name)], self.options
        env = self.managers.env(self.name) if self.hooked else self.gpus.plain()
        port = rig.free_address().split(":")[1]
        program = "tp_decode.py" if client(self.name) == "tp" else "ddp_train.py"
        common = ["--board", self.board_at, "--device", "sim" if self.gpus.simulated else "cuda"]
        model = "light" if client(self.name) == "l" else options.model
        common += ["--tokens", options.tokens, "--every", options.every] if program == "tp_decode.py" else ["--model", model, "--batch", options.batch]
        self.lost, self.children = None, []
        for rank, gpu in enumerate(places):
            more = {"RANK": str(rank), "WORLD_SIZE": str(len(places)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "2", "SLUICE_SIM_LABEL": f"{self.name}-{rank}"}
            self.children.append(rig.Child(f"{self.name}.{rank}", rig.python(program, *common, "--gpu", gpu), {**env, **more}))

    def begin_build(self):
        """Waits until its processes have loaded, and has them make their first steps."""
        try:
            for child in self.children:
                child.reply(LOADED)
            for child in self.children:
                child.ask("build")
        except (rig.ChildFailed, OSError) as why:
            self.lose(str(why))

    def end_build(self):
        """Waits for its first steps."""
        if self.lost:
            return
        try:
            self.ready = [child.reply(BUILT) for child in self.children]
            rig.say(self.name, "is ready:", self.ready[0])
        except (rig.ChildFailed, OSError) as why:
            self.lose(str(why))

    def lose(self, why):
        """Ends its processes."""
        self.lost = why
        rig.say(f"{self.name} is lost:", why)
        for child in self.children:
            child.process.kill()
        for child in self.children:
            child.stop()

    def begin(self, begin, end):
        self.board.reset()
        self.answers = [None] * len(self.children)
        with contextlib.suppress(OSError):
            for child in self.children:
                child.ask(f"run {begin:.6f} {end:.6f}")

    def collect(self):
        """Whether all of its processes have answered."""
        for rank, child in enumerate(self.children):
            for _, record in child.records():
                self.answers[rank] = record
        return all(self.answers)

    def ended(self):
        """The reason if a process has ended."""
        for child in self.children:
            if child.process.poll() is not None:
                return f"{child.name} ended with status {child.process.returncode}\n{child.errors()[-1500:]}"
        return None

    def steps(self):
        """Steps that all ranks have finished in this block."""
        return min(self.board.words[Board.DONE:Board.DONE + len(self.children)])


class Bed:
    """The jobs of all arms, and the managers."""

    def __init__(self, options):
        self.options, self.gpus, self.clocks = options, node.Gpus(options.gpu, 2), Clocks()
        names = sorted({name for arm in options.arms for name in ARMS[arm].jobs}, key=lambda name: (name.endswith("0"), name))
        self.managers = Managers(self.gpus, options, [name for name in names if not name.endswith("0")])
        self.jobs = {name: Job(name, self.gpus, self.managers, options) for name in names}
        self.restarts = 0
        self.first()
        for job in self.jobs.values():
            job.spawn()
        self.build(list(self.jobs.values()))

    def build(self, jobs):
        """Has jobs make their first steps. Hooked ones that span GPUs do so one after the other: no job's start then depends on another job.
        So do all if kernels are selected by timing."""
        apart = [job for job in jobs if self.options.model == "resnet50" or (job.hooked and len(job.children) > 1)]
        for group in [*([job] for job in apart), [job for job in jobs if job not in apart]]:
            for job in group:
                job.begin_build()
            for job in group:
                job.end_build()

    def first(self):
        """Managers under which hooked jobs start: as little as possible, so that an arm's fault does not show already here."""
        if self.managers.clients:
            share = round(1 / len(self.managers.clients), 3)
            self.managers.start(Arm((), dict.fromkeys(self.managers.clients, share)))

    def revive(self):
        """Starts lost jobs again, each at most twice in sum, if there is time."""
        lost = [job for job in self.jobs.values() if job.lost]
        if lost and self.restarts < 2 and rounds.left(self.options) > RESTART:
            self.restarts += 1
            self.first()
            for job in lost:
                job.spawn()
            self.build(lost)

    def block(self, name):
        """A block of an arm."""
        arm, seconds = ARMS[name], self.options.seconds * ARMS[name].part
        jobs = [self.jobs[job] for job in arm.jobs]
        told = {"arm": name, "at_s": round(time.monotonic() - rig.STARTED, 1)}
        if missing := [job.name for job in jobs if job.lost]:
            return {**told, "left_out": f"lost jobs: {missing}"}
        if arm.shares:
            try:
                self.managers.start(arm)
            except SystemExit:
                # rig has printed why.
                left_out = {**told, "left_out": "the managers did not start", "managers": self.managers.told()}
                self.managers.stop()
                return left_out
            told["attach"] = self.managers.attach([job for job in self.jobs.values() if job.hooked and not job.lost], arm)
        told |= self.window(jobs, seconds)
        if arm.shares and self.managers.children:
            told["managers"] = self.managers.told()
        return told

    def window(self, jobs, seconds):
        """Runs the jobs at the same time; what each did after it had time to settle."""
        begin, unix = time.monotonic() + LEAD, time.time() + LEAD
        end = begin + self.options.settle + seconds
        for job in jobs:
            job.begin(begin, end)
        frozen, lost, managers, cut = self.watch(jobs, begin)
        to = min(cut or end, end) - begin
        told = {"seconds": round(to - self.options.settle, 3), "jobs": {}, "frozen": frozen, "clock": self.clocks.between(unix + self.options.settle, unix + to)}
        if managers:
            told["managers"] = managers
        for job in jobs:
            if job.name in lost:
                job.lose(lost[job.name])
                told.setdefault("lost", []).append(job.name)
            else:
                told["jobs"][job.name] = measured(job.answers[0], self.options.settle, to)
        return told

    def watch(self, jobs, begin):
        """Waits for the answers. Returns the jobs that froze, those that are lost with the reason, and what the managers had counted and
        when they were ended if that was done for a frozen job."""
        pending, seen, frozen, lost, managers, cut = set(jobs), {job: (0, begin) for job in jobs}, {}, {}, None, None
        while pending:
            time.sleep(0.02)
            now = time.monotonic()
            for job in sorted(pending, key=lambda job: job.name):
                if job.collect():
                    pending.remove(job)
                elif why := job.ended():
                    lost[job.name] = why
                    pending.remove(job)
                elif (steps := job.steps()) != seen[job][0]:
                    seen[job] = (steps, now)
                elif now - seen[job][1] > FROZEN and job.name not in frozen:
                    frozen[job.name] = {"after_steps": steps, "at_s": round(now - begin, 2)}
                    rig.say(f"{job.name} has made no step in {FROZEN:.0f} s, after {steps}")
            if frozen and cut is None:
                cut = now
                if self.managers.children:
                    managers = self.managers.told()
                    self.managers.stop()
            if cut and now > cut + THAW:
                lost |= {job.name: f"no answer {THAW:.0f} s after it froze" for job in pending}
                break
        return frozen, lost, managers, cut

    def stop(self):
        for job in self.jobs.values():
            for child in job.children:
                with contextlib.suppress(OSError, ValueError):
                    child.ask("quit")
        self.managers.stop()


def measured(answer, begin, end):
    """A job's rate and times of steps from `begin` to `end`, seconds since its start. A step under way at either end counts in part."""
    ends = [0.0, *answer["ends"]]

    def finished(at):
        index = sum(when <= at for when in ends) - 1
        if index + 1 == len(ends):
            return float(index)
        return index + (at - ends[index]) / (ends[index + 1] - ends[index])

    # Rates of requests that come with pauses are not interpolated.
    paused = "ms" in answer
    inside = [when for when in ends if begin <= when <= end]
    gaps = [1000 * (late - early) for early, late in zip(inside, inside[1:])]
    steps = len(inside) if paused else finished(end) - finished(begin)
    # The time since the last step of a job that froze counts as the longest one.
    open_ms = 0.0 if paused or not inside else 1000 * (end - inside[-1])
    told = {"rate": steps / (end - begin), "steps": len(inside), "ms": answer["ms"] if paused else gaps, "open_ms": open_ms, "ends": answer["ends"]}
    if not paused:
        return told
    # All tokens since the start, so that the first requests after a pause count; and those after it had time to settle.
    later = [ms for when, ms in zip(answer["ms_ends"], answer["ms"]) if when >= begin]
    return {**told, "first_ms": answer["first_ms"], "settled_ms": later}


def quantile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def times(series, open_ms=0.0):
    if not series:
        return {"max": round(open_ms, 3), "n": 0}
    return {"p50": round(statistics.median(series), 3), "p99": round(quantile(series, 0.99), 3), "max": round(max(*series, open_ms), 3), "n": len(series)}


def kept(values):
    return [round(value, 4) for value in values]


def row(arm, blocks, base_rates):
    """An arm's row from its blocks (None: left out), and the rates of jobs' bases by round."""
    done = [block for block in blocks if block and block.get("jobs")]
    told = {
        "blocks": len(done), "frozen_blocks": sum(bool(block["frozen"]) for block in done), "lost": sum(len(block.get("lost", [])) for block in blocks if block),
        "managers_ended": sum(len(block.get("managers", {}).get("ended", {})) for block in blocks if block),
        "rates": {}, "ratio": {}, "ratio_rounds": {}, "step_ms": {}, "sm_mhz": [block["clock"]["sm_mhz"] for block in done if block["clock"]],
        "power_capped": [block["clock"]["power_capped"] for block in done if block["clock"]],
    }
    for job in ARMS[arm].jobs:
        mine = [block["jobs"].get(job) if block and block.get("jobs") else None for block in blocks]
        there = [one for one in mine if one]
        if not there:
            continue
        told["rates"][job] = kept(one["rate"] for one in there)
        pooled = [value for one in there for value in one["ms"]]
        told["step_ms"][job] = times(pooled, max(one["open_ms"] if block["frozen"] else 0.0 for one, block in zip(mine, blocks) if one))
        for name, part in (("blocks_p50", 0.5), ("blocks_p99", 0.99)):
            told["step_ms"][job][name] = [round(quantile(one["ms"], part), 3) for one in there if one["ms"]]
        if settled := [one["settled_ms"] for one in there if one.get("settled_ms")]:
            told["step_ms"][f"{job} settled"] = {**times([value for of in settled for value in of]), **{f"blocks_{name}": [round(quantile(of, part), 3) for of in settled] for name, part in (("p50", 0.5), ("p99", 0.99))}}
        if firsts := [value for one in there for value in one.get("first_ms", [])]:
            told["step_ms"][f"{job} first token"] = times(firsts)
        bases = base_rates(job)
        # A block with a lost job does not count: the others had more of the GPU.
        both = [(one["rate"], base) for one, base, block in zip(mine, bases, blocks) if one and base and not block.get("lost")]
        if both:
            # In each round against the base of the same round: the clock may change from round to round.
            told["ratio_rounds"][job] = kept(rate / base for rate, base in both)
            told["ratio"][job] = round(sum(rate for rate, _ in both) / sum(base for _, base in both), 4)
    ratio = told["ratio"]
    spanning = next(iter(ARMS[arm].jobs))
    # A decode that keeps up with its requests has no part in a sum.
    if set(ARMS[arm].jobs) in ({"a", "b"}, {"a0", "b0"}) and len(ratio) == 2:
        told["sum"] = round(sum(ratio.values()), 4)
        told["of_sum"] = [round(value / told["sum"], 4) for value in ratio.values()] if told["sum"] else []
    elif len(ARMS[arm].jobs) == 3 and len(ratio) == 3:
        # On each GPU the job that spans both, and the local one.
        pairs = [(ratio[spanning], ratio[job]) for job in ARMS[arm].jobs[1:]]
        told["sum"] = [round(sum(pair), 4) for pair in pairs]
        told["of_sum"] = [round(pair[0] / sum(pair), 4) if sum(pair) else None for pair in pairs]
    return told


def report(blocks):
    """The rows, and alone's A/A."""
    def rates(arm, job):
        return [block["jobs"][job]["rate"] if block and job in block.get("jobs", {}) else None for block in blocks.get(arm, [])]

    def base_rates(job):
        arm, base = BASES[client(job)]
        found = rates(arm, base)
        known = [rate for rate in found if rate]
        # A round without a base block (yet): the mean of the others.
        mean = statistics.fmean(known) if known else None
        most = max(len(of) for of in blocks.values())
        return [rate or mean for rate in found] + [mean] * (most - len(found))

    rows = {arm: row(arm, of, base_rates) for arm, of in blocks.items() if of}
    for arm, (name, job) in {base[0]: base for base in BASES.values()}.items():
        known = [rate for rate in rates(name, job) if rate]
        if arm in rows and len(known) > 1:
            half = len(known) // 2
            rows[arm]["aa"] = round(statistics.fmean(known[half:]) / statistics.fmean(known[:half]), 4)
    add_tokens(rows)
    return rows


def add_tokens(rows):
    """Adds the decode's time per token against its time alone, and alone's A/A: the second half of its blocks against the first."""
    alone = rows.get("tp-alone", {}).get("step_ms", {}).get("tp0")
    for of in rows.values():
        for token in [of["step_ms"][job] for job in ("tp", "tp0") if alone and job in of["step_ms"]]:
            for part in ("p50", "p99"):
                if token[f"blocks_{part}"] and alone[f"blocks_{part}"]:
                    of[f"{part}_of_alone"] = round(statistics.median(token[f"blocks_{part}"]) / statistics.median(alone[f"blocks_{part}"]), 4)
                    of[f"pooled_{part}_of_alone"] = round(token[part] / alone[part], 4)
    if alone and len(alone["blocks_p50"]) > 1:
        for part in ("p50", "p99"):
            blocks = alone[f"blocks_{part}"]
            half = len(blocks) // 2
            rows["tp-alone"][f"aa_{part}"] = round(statistics.median(blocks[half:]) / statistics.median(blocks[:half]), 4)


def goals(rows):
    """What agreement between the managers has to give."""
    told = {}
    for arm, asked in (("gangs", [0.3]), ("gangs50", [0.5]), ("local", [0.4, 0.4])):
        if arm not in rows or "of_sum" not in rows[arm]:
            continue
        of, sums = rows[arm]["of_sum"], rows[arm]["sum"]
        sums = sums if isinstance(sums, list) else [sums]
        off = max(100 * abs((got or 0.0) - want) for got, want in zip(of, asked))
        least = min(sums)
        met = off <= 2.0 and least >= 0.95 and not rows[arm]["frozen_blocks"]
        told[arm] = f"{off:.2f} points off (2), sum {least:.3f} (0.95), {rows[arm]['frozen_blocks']} frozen (0): {'met' if met else 'NOT MET'}"
    return told


def brief(block):
    """A block in some words."""
    if "left_out" in block:
        return block["left_out"]
    words = [f"{name} {one['rate']:.2f}/s p50 {times(one['ms']).get('p50', 0):.1f} max {times(one['ms'], one['open_ms']).get('max'):.0f} ms" for name, one in block["jobs"].items()]
    words += [f"FROZEN {sorted(block['frozen'])}"] if block["frozen"] else []
    words += [f"LOST {block['lost']}"] if block.get("lost") else []
    words += [f"ENDED {list(block['managers']['ended'])}"] if block.get("managers", {}).get("ended") else []
    words += [f"attach {block['attach']}"] if block.get("attach") else []
    words += [f"{block['clock']['sm_mhz']:.0f} MHz"] if block["clock"] else []
    return ", ".join(words)


def in_short(row):
    return {key: row[key] for key in ("ratio", "sum", "of_sum", "aa", "p50_of_alone", "p99_of_alone", "pooled_p50_of_alone", "pooled_p99_of_alone", "aa_p50", "aa_p99", "frozen_blocks", "lost", "managers_ended") if row.get(key)}


def without_series(block):
    """A block for the result: quantiles in place of the series."""
    if not block or "jobs" not in block:
        return block
    jobs = {name: {"rate": round(one["rate"], 4), "steps": one["steps"], **times(one["ms"], one["open_ms"] if block["frozen"] else 0.0)} for name, one in block["jobs"].items()}
    return {**block, "jobs": jobs}


def save(options, bed, blocks, order, final=False):
    rows = report(blocks)
    told = goals(rows)
    started = len(order.taken)
    complete = started >= 2 and all(arm in rows and rows[arm]["blocks"] == started and not rows[arm]["managers_ended"] for arm in options.arms)
    # Goals are of a GPU.
    met = options.gpu == "sim" or all("NOT MET" not in text for text in told.values())
    result = {
        "ok": complete and met if final else None,
        "rows": rows, "goals": told, "seconds": options.seconds, "settle": options.settle, "rounds": options.rounds, "model": options.model,
        "has_gangs": bed.managers.has_gangs, "left_out_arms": options.left_out_arms, "shares": {arm: ARMS[arm].shares for arm in options.arms},
        "ready": {name: job.ready for name, job in bed.jobs.items()}, "lost_jobs": {name: job.lost for name, job in bed.jobs.items() if job.lost},
        "blocks": [without_series(block) for of in blocks.values() for block in of], **order.result(),
    }
    rig.write(options.name, result, quiet=not final)
    steps = [{"arm": block["arm"], "round": block["round"], "ends": {name: one["ends"] for name, one in block["jobs"].items()}} for of in blocks.values() for block in of if "jobs" in block]
    path = rig.OUT / f"{options.name}-steps.json"
    path.with_suffix(".part").write_text(json.dumps(steps) + "\n")
    os.replace(path.with_suffix(".part"), path)
    return result


def options_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=ARMS, help="only these")
    parser.add_argument("--tp", action="store_true", help=f"also {', '.join(TP)}")
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=7.0, help="measured in a block, shortened if the rounds do not fit")
    parser.add_argument("--settle", type=float, default=1.0, help="seconds before that, not measured")
    parser.add_argument("--model", choices=["transformer", "resnet50"], default="transformer", help="of the trainings")
    parser.add_argument("--batch", type=int, default=0, help="of the trainings, per GPU; 0: 6 texts, or 64 images")
    parser.add_argument("--memory", default="16Gi", help="limit of each client on each GPU")
    parser.add_argument("--hints", choices=["auto", "api", "off"], default="auto", help="SLUICE_HINTS of the decode under the hook")
    parser.add_argument("--tokens", type=int, default=32, help="of a decode request")
    parser.add_argument("--every", type=float, default=80.0, help="milliseconds between decode requests")
    parser.add_argument("--manager", action="append", default=[], help="one more argument of all managers, as in --manager=--turn-ms=40; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="of the arms' order")
    parser.add_argument("--limit", type=int, default=480)
    parser.add_argument("--name", default="gangs", help="the result is $OUT/NAME.json")
    options = parser.parse_args()
    options.arms = options.arms or [*USUAL, *(TP if options.tp else [])]
    return options


def main():
    options = options_of()
    rig.limit(options.limit)
    # Before any program: NVLink multicast stays off.
    os.environ.update(node.NO_MULTICAST)
    # The driver then numbers the GPUs as NVML does.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    said = subprocess.run([str(rig.SLUICE), "pod-manager", "--help"], capture_output=True, text=True, timeout=20, check=False).stdout
    # On the simulator such arms run without the option, to try the script.
    options.left_out_arms = [arm for arm in options.arms if "--gangs" in ARMS[arm].flags and "--gangs" not in said and options.gpu == "real"]
    options.arms = [arm for arm in options.arms if arm not in options.left_out_arms]
    if options.left_out_arms:
        rig.say(f"{rig.SLUICE} has no --gangs: without {options.left_out_arms}")
    bed = Bed(options)
    around = sum(options.settle + (AROUND_MANAGED if ARMS[arm].shares else AROUND) for arm in options.arms)
    wanted = sum(options.seconds * ARMS[arm].part for arm in options.arms)
    part = rounds.fitting(options, wanted, around)
    if part < 1.0:
        options.seconds = max(1.0, options.seconds * part)
        rig.say(f"too little: blocks of {options.seconds:.1f} s")
    order, blocks = Order(options.arms, options.seed), {arm: [] for arm in options.arms}
    for number in rounds.numbers(options):
        for arm in order.round():
            bed.revive()
            block = {"round": number, **bed.block(arm)}
            blocks[arm].append(block)
            rig.say(f"round {number} {arm:13}", brief(block))
            save(options, bed, blocks, order)
    result = save(options, bed, blocks, order, final=True)
    for arm, of in result["rows"].items():
        rig.say(f"{arm:13}", in_short(of), {job: {key: one.get(key) for key in ("p50", "p99", "max")} for job, one in of["step_ms"].items()})
    for goal, told in result["goals"].items():
        rig.say(f"{goal}: {told}")
    bed.stop()
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
