#!/usr/bin/env python3
"""Best-effort memory that leaves the GPU and comes back (docs/design/residency.md).

The manager's --overcommit-memory takes the place of the GPU's memory: 1.4 times what one program has, so that two of them do not fit together.
Parts (--parts), each with interleaved blocks:
  moves     a best-effort program (workloads/movable.py) holds --gib GiB and runs; a latency-critical one starts with half of the capacity. How fast
            does the memory leave and return, by the hook's own clock, beside copies between pinned memory and the GPU in a plain program? How much
            longer until the latency-critical program has filled its memory than without the first one? No byte may be wrong at the end
  turns     two trainings of --gib GiB each (workloads/torch_large.py), one after the other without Sluice before and afterwards, and together under
            Sluice: their time, and the same bits. Then a latency-critical service with and without the trainings beside it
  suspend   a best-effort program of --gib GiB that runs is suspended and resumed by `sluice suspend` and `sluice resume`: how long until nothing of it
            is on the GPU and it gets no grants, and until all of it is back? In one suspension another program of the same size runs: no
            memory moves meanwhile. No byte may be wrong at the end
  overhead  a ResNet-50 training and a language model's tokens (CUDA graphs): without the hook twice, and under it without and with
            overcommitment; all memory stays on the GPU
The host needs 2.5 times --gib GiB of memory. Results are written after each part.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

import order
import rig
import rounds

GIB = 1 << 30
# Memory that can leave is a multiple of this.
GRANULE = 2 << 20
# Bars of issue 38.
SPEED, TOGETHER, TAIL, LATER_S, OVERHEAD, SUSPEND_S = 0.95, 0.85, 1.10, 1.5, 0.01, 1.0
# Capacity over what one program has.
CAPACITY = 1.4
PARTS = ["moves", "suspend", "turns", "overhead"]


class Bench:
    """The GPU, the options, and what has been found."""

    def __init__(self, options):
        self.options, self.found, self.checks = options, {}, {}
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-residency-")
        # Contexts of the simulator are small beside the memory of a rehearsal.
        self.gpu = rig.Gpu(options.gpu, "--context-memory=16Mi")
        self.bytes = int(options.gib * GIB) // GRANULE * GRANULE
        # What a program has beside its large allocations: its context, small allocations, workspaces.
        self.beside = int(options.beside_gib * GIB)

    def limit(self):
        return self.bytes + self.beside

    def capacity(self):
        return int(CAPACITY * self.bytes) + 2 * self.beside

    def manager(self, clients, capacity, host):
        return rig.Manager(clients, [
            f"--controls={self.gpu.controls}", f"--overcommit-memory={capacity}", f"--host-memory={host}",
            f"--memory-quantum-ms={self.options.quantum_ms}", *self.options.manager])

    def check(self, name, holds):
        self.checks[name] = bool(holds)
        rig.say(f"{name}: {'ok' if holds else 'FAILED'}")

    def save(self, part, **result):
        self.found[part] = result
        done = set(self.options.parts) <= set(self.found)
        rig.write(self.options.name, {
            "ok": done and all(self.checks.values()), "checks": self.checks, "gib": self.options.gib, "quantum_ms": self.options.quantum_ms,
            **self.found}, quiet=True)


def best_effort(name, memory):
    return {"name": name, "request": 0.3, "limit": 1.0, "memory": memory, "overcommit": "true"}


def of_client(manager, client, series):
    """The series of a client by their other labels."""
    found = {}
    for name, value in manager.metrics().items():
        if name.startswith(series + "{") and f'client="{client}"' in name:
            labels = [label for label in name[len(series) + 1:-1].split(",") if not label.startswith("client=")]
            found[",".join(labels)] = value
    return found


class HookLog:
    """The log of the hook in one process, which has a line for each move."""

    LINE = re.compile(r"([\d.]+) \d+ memory (left|returned to) the GPU bytes=(\d+) us=(\d+)")

    def __init__(self, bench, name):
        self.path = pathlib.Path(bench.folder.name) / f"{name}.log"
        self.variable = {"SLUICE_LOG": str(self.path)}

    def moves(self):
        """Bytes and seconds of the moves so far, by direction."""
        text = self.path.read_text() if self.path.exists() else ""
        found = {"out": [], "in": []}
        for _, kind, size, us in self.LINE.findall(text):
            found["out" if kind == "left" else "in"].append((int(size), int(us) / 1e6))
        return found

    def intervals(self):
        """When each move began and ended, on the monotonic clock, and its direction."""
        text = self.path.read_text() if self.path.exists() else ""
        return [(float(end) - int(us) / 1e6, float(end), "out" if kind == "left" else "in") for end, kind, _, us in self.LINE.findall(text)]


def wait_for(what, holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            rig.fail(f"{what}: not after {seconds:.0f} s")
        time.sleep(0.005)


def started(bench, name, size, env):
    """A program with this much memory, and the seconds from its start until it has filled it."""
    begun = time.monotonic()
    child = rig.Child(name, rig.python("movable.py", "--bytes", size), env)
    child.answer(60)
    return child, time.monotonic() - begun


def resident(manager, client):
    return of_client(manager, client, "sluice_memory_resident_bytes").get("", 0.0)


def moves(bench, options):
    urgent = int(bench.capacity() * 0.5) - bench.beside
    clients = [best_effort("be", bench.limit()), {"name": "lc", "request": 0.3, "memory": urgent + bench.beside, "class": "latency-critical"}]
    manager = bench.manager(clients, bench.capacity(), bench.limit() + (2 << 20))
    log = HookLog(bench, "be")
    holder, _ = started(bench, "be", bench.bytes, bench.gpu.under(manager, "be", **log.variable))
    copies, _ = started(bench, "copies", bench.bytes, bench.gpu.plain())
    rows = {"copy_out": [], "copy_in": [], "out": [], "in": [], "alone_s": [], "beside_s": [], "longest_kernel_s": []}

    def copy():
        copies.ask("copy")
        told = copies.answer(60)
        rows["copy_out"].append(bench.bytes / GIB / told["out_s"])
        rows["copy_in"].append(bench.bytes / GIB / told["in_s"])

    def alone():
        child, seconds = started(bench, "lc-alone", urgent, bench.gpu.plain())
        child.stop()
        rows["alone_s"].append(seconds)

    def beside():
        before = {way: len(found) for way, found in log.moves().items()}
        holder.ask(f"run {options.seconds}")
        time.sleep(0.3)
        child, seconds = started(bench, "lc", urgent, bench.gpu.under(manager, "lc"))
        rows["beside_s"].append(seconds)
        child.stop()
        rows["longest_kernel_s"].append(holder.answer(60)["longest_s"])
        wait_for("the memory is back", lambda: resident(manager, "be") >= bench.bytes)
        for way, found in log.moves().items():
            rows[way] += [size / GIB / seconds for size, seconds in found[before[way]:]]

    # The first move may register the host memory and is not measured.
    copy(), beside()
    first = {name: values.pop() for name, values in rows.items() if values}
    arms = {"copy": copy, "alone": alone, "beside": beside}
    arm_order = order.Order(list(arms), options.seed)
    for _ in range(options.rounds):
        for name in arm_order.round():
            arms[name]()
    holder.ask("verify")
    right = holder.answer(120)["right"]
    told = {name: rig.spread(values) for name, values in rows.items()}
    speeds = {way: told[way]["median"] / told[f"copy_{way}"]["median"] for way in ("out", "in")}
    later = told["beside_s"]["median"] - told["alone_s"]["median"]
    rig.say(f"out {speeds['out']:.3f} and in {speeds['in']:.3f} of a pinned copy; the latency-critical program is {later:.2f} s later; bytes right: {right}")
    bench.check("no byte is wrong", right)
    bench.check(f"out and in at {SPEED} of a pinned copy", min(speeds.values()) >= SPEED)
    bench.check(f"latency-critical program at most {LATER_S} s later", later <= LATER_S)
    for child in (holder, copies):
        child.stop()
    manager.stop()
    bench.save("moves", of_pinned_copy=speeds, later_s=later, right=right, rows=told, all_rows=rows, first=first, **arm_order.result())


def suspend(bench, options):
    clients = [best_effort("be", bench.limit()), best_effort("other", bench.limit())]
    manager = bench.manager(clients, bench.capacity(), 2 * bench.limit() + (4 << 20))
    log = HookLog(bench, "be")
    holder, _ = started(bench, "be", bench.bytes, bench.gpu.under(manager, "be", **log.variable))
    rows = {"left_s": [], "returned_s": [], "longest_kernel_s": []}

    def edit(command):
        subprocess.run([rig.SLUICE, command, "be", "--resource-file", manager.resources], check=True, stdout=subprocess.DEVNULL)

    def timed(command, done):
        begun = time.monotonic()
        edit(command)
        wait_for(f"{command} has an effect", done)
        return time.monotonic() - begun

    def is_suspended():
        return of_client(manager, "be", "sluice_client_suspended").get("") == 1.0

    def leave():
        rows["left_s"].append(timed("suspend", lambda: is_suspended() and resident(manager, "be") == 0))

    def come_back():
        rows["returned_s"].append(timed("resume", lambda: not is_suspended() and resident(manager, "be") >= bench.bytes))

    granted = []
    # The first move may register the host memory and is not measured.
    for number in range(options.rounds + 1):
        holder.ask(f"run {options.seconds}")
        time.sleep(0.5)
        leave()
        before = manager.grants("be")
        time.sleep(0.5)
        granted.append(manager.grants("be") - before)
        come_back()
        rows["longest_kernel_s"].append(holder.answer(60)["longest_s"])
    first = {name: values.pop(0) for name, values in rows.items()}

    leave()
    other_log = HookLog(bench, "other")
    moves = lambda: sum(len(found) for one in (log, other_log) for found in one.moves().values())
    moves_before = moves()
    other, started_s = started(bench, "other", bench.bytes, bench.gpu.under(manager, "other", **other_log.variable))
    other.ask("run 2")
    ran = other.answer(60)
    other.ask("verify")
    other_right = other.answer(120)["right"]
    stayed = moves() == moves_before
    other.stop()
    come_back()
    holder.ask("verify")
    right = holder.answer(120)["right"] and other_right
    told = {name: rig.spread(values) for name, values in rows.items()}
    rig.say(
        f"suspended: nothing on the GPU after {max(rows['left_s']):.2f} s at most; resumed: all back after {max(rows['returned_s']):.2f} s at most; "
        f"another program ran {ran['kernels']} kernels meanwhile; bytes right: {right}")
    bench.check("no byte is wrong after suspensions", right)
    bench.check(f"nothing on the GPU at most {SUSPEND_S} s after the suspension", max(rows["left_s"]) <= SUSPEND_S)
    bench.check(f"all memory back at most {SUSPEND_S} s after the resumption", max(rows["returned_s"]) <= SUSPEND_S)
    bench.check("no grants while it is suspended", not any(granted))
    bench.check("another program of its size runs meanwhile, and no memory moves", stayed and ran["kernels"] > 0)
    holder.stop()
    manager.stop()
    bench.save("suspend", right=right, granted=granted, rows=told, all_rows=rows, first=first, other={"started_s": started_s, **ran}, moves=log.moves())


def trained(child, start, steps):
    child.ask(f"train {start:.6f} {steps}")


def digest(child):
    child.ask("digest")
    return child.answer(120)["digest"]


def turns(bench, options):
    service_bytes = int(options.service_gib * GIB)
    command = bench.gpu.python("torch_large.py", "--gib", options.gib)

    def alone(steps):
        """A training without Sluice: its steps, time and bits. Without `steps`, as many as take the given time."""
        child = rig.Child("alone", command, bench.gpu.plain())
        child.answer(90)
        trained(child, time.time(), 5)
        warm = child.answer(90)
        steps = steps or max(10, int(options.train_seconds / warm["seconds"] * 5))
        trained(child, time.time() + 0.1, steps)
        told = child.answer(120)
        bits = digest(child)
        child.stop()
        return steps, told, bits

    steps, first, bits = alone(None)
    names = ("a", "b")
    clients = [best_effort(name, bench.limit()) for name in names]
    clients.append({"name": "lc", "request": 0.3, "memory": service_bytes, "class": "latency-critical"})
    manager = bench.manager(clients, bench.capacity() + service_bytes, 2 * bench.limit() + (4 << 20))
    service = rig.Child("lc", bench.gpu.python("torch_serve.py"), bench.gpu.under(manager, "lc"))
    service.answer(90)
    logs = {name: HookLog(bench, name) for name in names}
    children = {name: rig.Child(name, command, bench.gpu.under(manager, name, **logs[name].variable)) for name in names}
    for child in children.values():
        child.answer(120)
    for child in children.values():
        trained(child, time.time(), 5)
    for child in children.values():
        child.answer(120)
    before = {name: len(log.moves()["out"]) for name, log in logs.items()}
    start = time.time() + 0.2
    for child in children.values():
        trained(child, start, steps)
    told = {name: child.answer(180) for name, child in children.items()}
    wall = max(row["seconds"] for row in told.values())
    left = {name: log.moves()["out"][before[name]:] for name, log in logs.items()}
    switches = sum(len(moves) for moves in left.values())
    found = {name: digest(child) for name, child in children.items()}
    rig.say(f"{steps} steps: {first['seconds']:.1f} s alone, {wall:.1f} s together, {switches} moves, the same bits: {set(found.values()) == {bits}}")

    # The service without and with the trainings beside it.
    latencies, begun_at, period = {"alone": [], "beside": []}, 0.0, 0.01
    for arm in ("alone", "beside", "alone"):
        requests = options.requests // (2 if arm == "alone" else 1)
        if arm == "beside":
            for child in children.values():
                trained(child, time.time(), max(5, int(options.requests * period / wall * steps)))
            begun_at = time.monotonic() + 0.2
        service.ask(f"serve {time.time() + 0.2:.6f} {requests} 10000 0 0")
        latencies[arm] += service.answer(120)["latencies_us"]
        if arm == "beside":
            for child in children.values():
                child.answer(180)
    # The requests beside the trainings by what moves meanwhile.
    moved = [interval for log in logs.values() for interval in log.intervals()]
    meanwhile = {"out": [], "in": [], "nothing": []}
    for number, latency in enumerate(latencies["beside"]):
        due = begun_at + number * period
        ways = {way for begin, end, way in moved if begin <= due + latency / 1e6 and due <= end}
        meanwhile[ways.pop() if len(ways) == 1 else "out" if ways else "nothing"].append(latency)
    by_move = {way: {"n": len(values), "p50": statistics.median(values), "p99": sorted(values)[int(len(values) * 0.99)]} for way, values in meanwhile.items() if values}
    rig.say("the service's requests by what moves meanwhile, us:", by_move)
    tails = {arm: sorted(values)[int(len(values) * 0.99)] for arm, values in latencies.items()}
    for child in (*children.values(), service):
        child.stop()
    manager.stop()

    _, last, again = alone(steps)
    sequence = first["seconds"] + last["seconds"]
    rig.say(
        f"{steps} steps each: {sequence:.1f} s one after the other, {wall:.1f} s together ({sequence / wall:.3f}), {switches:.0f} times memory left; "
        f"the service's p99 {tails['beside']:.0f} us beside, {tails['alone']:.0f} us alone")
    bench.check("two trainings alone agree to the bit", bits == again)
    bench.check("both trainings together have the same bits", set(found.values()) == {bits})
    bench.check("memory left the GPU", switches >= 2)
    bench.check(f"together at least {TOGETHER} of one after the other", sequence / wall >= TOGETHER)
    bench.check(f"the service's p99 is at most {TAIL} x alone", tails["beside"] <= TAIL * tails["alone"])
    bench.save(
        "turns", steps=steps, alone=[first, last], together=told, sequence_s=sequence, together_s=wall, of_sequence=sequence / wall, left=left,
        switches=switches, quantum_s=wall / switches if switches else None, same_bits=[value == bits for value in found.values()], p99_us=tails, by_move=by_move,
        p50_us={arm: statistics.median(values) for arm, values in latencies.items()})


def overhead(bench, options):
    memory = {"train": 24 * GIB, "tokens": 12 * GIB} if not bench.gpu.simulated else {"train": GIB // 4, "tokens": GIB // 8}
    arms = ("plain", "off", "on", "plain2")
    clients = []
    for program, limit in memory.items():
        clients.append({"name": f"{program}-off", "request": 0.2, "limit": 1.0, "memory": limit})
        clients.append(best_effort(f"{program}-on", limit) | {"request": 0.2})
    # All of it is resident.
    manager = bench.manager(clients, 2 * sum(memory.values()), sum(memory.values()) + 2 * GRANULE)
    commands = {"train": bench.gpu.python("torch_model.py", "resnet50"), "tokens": bench.gpu.python("torch_decode.py", "graph")}
    env = lambda name, arm: bench.gpu.plain() if arm.startswith("plain") else bench.gpu.under(manager, f"{name}-{arm}")
    children = {}
    for name, command in commands.items():
        for arm in arms:
            children[name, arm] = rig.Child(f"{name}-{arm}", command, env(name, arm))
    for child in children.values():
        child.answer(150)
    rig.say("all programs are ready")
    rows = {name: {arm: [] for arm in arms} for name in commands}
    arm_order = order.Order(list(children), options.seed)
    for number in rounds.numbers(options):
        if number == options.rounds:
            break
        for name, arm in arm_order.round():
            child, start = children[name, arm], time.time() + 0.1
            child.ask(f"run {start:.6f} {options.block}" if name == "train" else f"tokens {start:.6f} {options.block}")
            told = child.answer(60)
            rows[name][arm].append(told["rate"] if name == "train" else 1e6 / told["median_us"])
        over = {name: {arm: statistics.median(a / b for a, b in zip(values["plain"], values[arm])) - 1 for arm in arms[1:]} for name, values in rows.items()}
        bench.save("overhead", over=over, rows=rows, reserved={client["name"]: resident(manager, client["name"]) for client in clients}, **arm_order.result())
    for name, values in over.items():
        rig.say(f"{name}: over a program without the hook", {arm: round(value, 4) for arm, value in values.items()})
        # The difference of the two programs without the hook is the noise.
        bench.check(f"{name}: at most {OVERHEAD} with overcommitment", values["on"] <= OVERHEAD + abs(values["plain2"]))
        bench.check(f"{name}: its memory can leave", resident(manager, f"{name}-on") > 0)
    bench.save("overhead", **bench.found["overhead"])
    for child in children.values():
        child.stop()
    manager.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--gib", type=float, default=20.0, help="memory of a program that leaves the GPU")
    parser.add_argument("--beside-gib", type=float, default=2.0, help="what a program may have besides: context, workspaces")
    parser.add_argument("--service-gib", type=float, default=6.0, help="memory of the service")
    parser.add_argument("--quantum-ms", type=int, default=2000, help="shortest quantum of memory")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of blocks of `moves`, `suspend` and `overhead`")
    parser.add_argument("--seconds", type=float, default=4.0, help="for how long the best-effort program of `moves` and `suspend` runs in a block")
    parser.add_argument("--train-seconds", type=float, default=15.0, help="of a training alone")
    parser.add_argument("--requests", type=int, default=1200, help="of the service beside the trainings, 100 a second")
    parser.add_argument("--block", type=float, default=1.5, help="seconds of a block of `overhead`")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--manager", nargs="*", default=[], help="more arguments of the pod-manager")
    parser.add_argument("--limit", type=int, default=240, help="seconds after which everything is ended")
    parser.add_argument("--name", default="residency")
    options = parser.parse_args()
    rig.limit(options.limit)
    bench = Bench(options)
    for part in options.parts:
        {"moves": moves, "suspend": suspend, "turns": turns, "overhead": overhead}[part](bench, options)
    rig.say("written:", rig.OUT / f"{options.name}.json")
    return 0 if all(bench.checks.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
