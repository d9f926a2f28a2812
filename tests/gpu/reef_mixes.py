#!/usr/bin/env python3
"""The mixes A to E of the DISB benchmark through tritonclient, one process a client, against `python -m sluice.serve`.

  A  VGG-19 100 times a second, real-time, beside ResNet-152 in a closed loop      B  both in a closed loop
  C  A beside five best-effort networks   D  five real-time networks 20 times a second each beside five best-effort ones
  E  as D with Poisson arrivals

Each mix without its best-effort part, and the best-effort part alone, come in the same rounds; A and D without best effort come twice, and
their difference is the A/A noise. The five networks of C to E are this
script's choice; DISB's own are in its model files. Latencies count from the time at which a request was due. The result is written after
each block, and the script ends within --limit with what there is by then.
"""

import argparse
import json
import queue
import statistics
import sys
import time

import rig
import rounds
from order import Order
from reef_report import percentile

NETWORKS = ("vgg19", "resnet152", "resnet50", "resnext50_32x4d", "mobilenet_v2")
# A shorter block has too few requests, seconds.
SHORTEST = 0.3
# Seconds that a client may take beyond its block, that a block takes around its load, and that are kept for the blocks while the server starts.
SLACK, AROUND, LEAST = 10.0, 0.6, 20.0
FAST, CLOSED = {"arrivals": "periodic", "rate": 100.0}, {"arrivals": "continuous"}
SLOW, POISSON = {"arrivals": "periodic", "rate": 20.0}, {"arrivals": "poisson", "rate": 20.0}
FIVE = {f"be-{name}": CLOSED for name in NETWORKS}
# The loads of each mix: real-time, best-effort.
MIXES = {
    "A": ({"rt-vgg19": FAST}, {"be-resnet152": CLOSED}), "B": ({"rt-vgg19": CLOSED}, {"be-resnet152": CLOSED}), "C": ({"rt-vgg19": FAST}, FIVE),
    "D": ({f"rt-{name}": SLOW for name in NETWORKS}, FIVE), "E": ({f"rt-{name}": POISSON for name in NETWORKS}, FIVE),
}
# The same without one of the two parts. C without best effort is A without it.
ARMS = {
    **MIXES, **{f"{mix} alone": (MIXES[mix][0], {}) for mix in "ABDE"}, **{f"{mix} again": (MIXES[mix][0], {}) for mix in "AD"},
    "one alone": ({}, MIXES["A"][1]), "five alone": ({}, FIVE),
}
ALONE = {"A": ("A alone", "one alone"), "B": ("B alone", "one alone"), "C": ("A alone", "five alone"), "D": ("D alone", "five alone"), "E": ("E alone", "five alone")}


def start_server(options, gpu, env):
    """The server with every network in both classes, and its gRPC address. Raises `rig.ChildFailed`."""
    def line(klass, short, index, name):
        source, given = "{torchvision: %s}" % name, "{shape: [3, 224, 224], dtype: FP16}"
        if gpu.simulated:
            source, given = "{sim: {kernels: %d, us: 50}}" % (4 + 2 * index), "{shape: [4]}"
        return f"  - {{name: {short}-{name}, class: {klass}, source: {source}, input: {given}}}"

    lines = [line(klass, short, index, name) for klass, short in (("real-time", "rt"), ("best-effort", "be")) for index, name in enumerate(NETWORKS)]
    file = rig.OUT / "mixes.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([f"split: {options.split}", f"bound: {options.bound}", "models:", *lines]))
    server = rig.Child("server", [sys.executable, "-m", "sluice.serve", "--models", file, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"], env)
    patience = max(10.0, rounds.left(options) - LEAST)
    try:
        _, said = server.lines.get(timeout=patience)
    except queue.Empty:
        said = f"not ready within {patience:.0f} s"
    if not (said or "").startswith("ready"):
        raise rig.ChildFailed(f"the server: {said or 'it ended'}\n{server.errors()}")
    choices = [line.partition("split chosen ")[2] for line in server.errors().splitlines() if "split chosen" in line]
    for choice in choices:
        rig.say(choice)
    return f"127.0.0.1:{said.rpartition('=')[2]}", choices


def run(clients, arm, seconds, seed):
    """One block: what each client of the arm tells. Raises `rig.ChildFailed` after all replies: one that is left would be taken for the next block's.
    A client that fails is removed from `clients`, and blocks that need it fail without being started."""
    loads = {name: load for part in ARMS[arm] for name, load in part.items()}
    if missing := [name for name in loads if name not in clients]:
        raise rig.ChildFailed(f"failed before: {', '.join(missing)}")
    start, told, failed = time.time() + 0.3, {}, {}
    for index, (name, load) in enumerate(loads.items()):
        try:
            clients[name].ask("run " + json.dumps({**load, "start": start, "seconds": seconds, "seed": 100 * seed + index}))
        except OSError as why:
            failed[name] = why
    for name in loads:
        if name not in failed:
            try:
                # All begin at once: those that are read later had as much time as the first.
                told[name] = clients[name].reply(max(1.0, start + seconds + SLACK - time.time()))
            except rig.ChildFailed as why:
                failed[name] = why
    for name in failed:
        del clients[name]
    if failed:
        raise rig.ChildFailed("; ".join(f"{name}: {why}" for name, why in failed.items()))
    return told


def summarise(blocks):
    """A row for each mix: RT latencies of all its services, relative to those of the same services alone; BE rate as a sum of each network's kept part."""
    def latencies(arm, name=None):
        return [value for block in blocks[arm] for client, told in block.items() if client.startswith(name or "rt-") for value in told["latencies_ms"]]

    def rates(arm):
        return {client: statistics.median(block[client]["rate"] for block in blocks[arm]) for client in ARMS[arm][1]}

    rows = {}
    for mix, (alone, be_alone) in ALONE.items():
        if not (blocks.get(mix) and blocks.get(alone) and blocks.get(be_alone)):
            continue
        mine, theirs, kept = latencies(mix), latencies(alone), rates(be_alone)
        if not mine or not theirs:
            continue
        row = {"n": len(mine), **{f"p{part}_ms": percentile(mine, part / 100) for part in (50, 90, 99)}}
        row |= {f"p{part}_of_alone": row[f"p{part}_ms"] / percentile(theirs, part / 100) for part in (50, 90, 99)}
        row["be_rate"], row["be_rate_alone"] = sum(rates(mix).values()), sum(kept.values())
        row["be_sum"] = row["be_rate"] / row["be_rate_alone"] if row["be_rate_alone"] else None
        row["services"] = {name: {"p99_ms": percentile(latencies(mix, name), 0.99), "p99_alone_ms": percentile(latencies(alone, name), 0.99)} for name in ARMS[mix][0] if latencies(mix, name) and latencies(alone, name)}
        rows[mix] = row
    noise = {mix: percentile(latencies(f"{mix} again"), 0.99) / percentile(latencies(f"{mix} alone"), 0.99) for mix in "AD" if blocks[f"{mix} again"] and blocks[f"{mix} alone"]}
    kinds = {name: max(told["kinds"] for made in blocks.values() for block in made for client, told in block.items() if client == name) for name in {client for made in blocks.values() for block in made for client in block}}
    # Batches have one size: each client gets the same answer each time.
    wrong = [name for name, count in kinds.items() if count > 1]
    return {"ok": not wrong and len(rows) == len(ALONE), "rows": rows, "aa_p99": noise, "wrong": wrong}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a block")
    parser.add_argument("--bound", type=float, default=0.1)
    parser.add_argument("--split", default="profile")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=150)
    parser.add_argument("--name", default="reef-mixes")
    options = parser.parse_args()
    rig.limit(options.limit)
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds are positive")
    result = {"ok": False, "complete": False, "failed": {}}
    # In place of an earlier run's result.
    rig.write(options.name, result, quiet=True)
    try:
        measure(options, result)
    except rig.ChildFailed as why:
        result["failed"]["start"] = str(why)[-1500:]
        rig.say("failed:", why)
        rig.write(options.name, result)
    return 0 if result["ok"] else 1


def measure(options, result):
    """Runs the rounds; keeps `result` and its file as the blocks so far show it."""
    gpu = rig.Gpu(options.gpu)
    env = rig.serving(gpu.plain(), *rig.SERVER_MODULES)
    rig.say("starts the server")
    address, choices = start_server(options, gpu, env)
    names = sorted({name for arm in ARMS.values() for part in arm for name in part})
    clients = {name: rig.Child(name, rig.python("reef_client.py", address), env) for name in names}
    for name, client in clients.items():
        client.ask(f"connect {name}")
    for client in clients.values():
        client.reply(60)
    # Fewer rounds are better than blocks of a few requests.
    requested = options.rounds
    while (seconds := options.seconds * rounds.fitting(options, len(ARMS) * options.seconds, len(ARMS) * AROUND)) < min(1.0, options.seconds) and options.rounds > 1:
        options.rounds -= 1
    if seconds < SHORTEST:
        raise rig.ChildFailed(f"{rounds.left(options):.0f} s are left after the start, for blocks of {seconds:.2f} s: raise --limit")
    order, blocks = Order(ARMS, options.seed), {arm: [] for arm in ARMS}
    for number in range(options.rounds):
        for arm in order.round():
            if rounds.left(options) < seconds + 2 * AROUND:
                rig.say(f"no time for {arm} in round {number}")
                return
            try:
                told = run(clients, arm, seconds, options.seed + number)
                blocks[arm].append(told)
                rig.say(f"round {number} {arm:10}", {name: (each.get("p99_ms") and round(each["p99_ms"], 2), round(each["rate"], 1)) for name, each in told.items()})
            except rig.ChildFailed as why:
                result["failed"].setdefault(arm, str(why)[-600:])
                rig.say(f"round {number} {arm} failed:", why)
            result |= summarise(blocks)
            result |= {"ok": result["ok"] and not result["failed"], "complete": all(len(made) == requested for made in blocks.values())}
            short = {arm: [{name: {key: value for key, value in each.items() if key != "latencies_ms"} for name, each in block.items()} for block in made] for arm, made in blocks.items()}
            rig.write(options.name, {**result, "choices": choices, "seconds": seconds, "rounds": options.rounds, "rounds_requested": requested, "blocks": short, **order.result()}, quiet=True)
    rig.say(f"{options.name}.json: ok={result['ok']}")


if __name__ == "__main__":
    raise SystemExit(main())
