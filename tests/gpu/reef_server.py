#!/usr/bin/env python3
"""REEF's example: four best-effort clients and one real-time client of ResNet-152, in the ways to share one GPU.

The real-time (RT) client keeps the GPU busy for 30 % of the time if it is alone; the best-effort (BE) clients send the next request when
they have the answer. The load is made inside the processes with the models, so that no network is measured, except in the arms `triton`.
Interleaved blocks: each round runs every arm once, in an order that changes.

Arms:
  alone, alone2, be-alone   the server with RT only, twice (the difference is the A/A noise), and with BE only
  chosen                    one server; BE is limited to the split that the server chose at its start while RT runs
  split N, pause            one server; BE is limited to N SMs, or stopped, while RT runs: the trade-off curve
  priorities                one server; a stream of each class, with priorities alone
  pods                      two processes as pods under Sluice, RT latency-critical
  stock, mps                two processes, time sliced by the driver, and under MPS
  triton-alone, triton-be-alone, triton   `python -m sluice.serve` with the chosen split, and tritonclient in five processes
"""

import argparse
import json
import statistics
import sys
import time

import rig
import rounds
from clocks import Clocks
from order import Order
from reef_report import summarise
from serve import Mps

CLIENTS, SLACK, AROUND = 4, 60.0, 0.75
TWO = {"pods": ("lc", "be"), "stock": ("rt.stock", "be.stock"), "mps": ("rt.mps", "be.mps")}


class Stage:
    """The processes of all arms. A process that fails takes its arms away and no others."""

    def __init__(self, options):
        self.options, self.gpu, self.clocks, self.failed, self.ready = options, rig.Gpu(options.gpu), Clocks(), {}, {}
        self.manager, self.children = None, {}
        sim = ["--sim"] if self.gpu.simulated else []
        worker = lambda *models, split="priorities": rig.python("reef_worker.py", "--network", options.network, "--models", *models, "--split", split, "--bound", options.bound, *sim)  # noqa: E731
        wanted = {"one": (worker("rt", "be", split="profile"), self.gpu.plain())}
        for arm, names in TWO.items():
            if not self.wanted(arm) or arm == "mps" and self.gpu.simulated:
                continue
            env = self.attempt(arm, self.environment, arm, names)
            if env:
                wanted |= {name: (worker(model), environment) for name, model, environment in zip(names, ("rt", "be"), env)}
        for name, (command, env) in wanted.items():
            self.children[name] = rig.Child(name, command, env)
        for name in list(self.children):
            self.attempt(name, self.children[name].answer, 120)
        for name in [name for name in self.children if name not in self.failed]:
            # One after the other: kernels are selected by timing, which has to be alone.
            self.ready[name] = self.attempt(name, self.build, name)
        self.clients = self.wanted("triton") and self.attempt("triton", self.serve) or []

    def wanted(self, arm):
        """Whether the arm is one of those that were asked for."""
        return not self.options.arms or arm in self.options.arms

    def attempt(self, what, function, *arguments):
        """The result of a function. On a failure its reason is kept, and `None` returned."""
        try:
            return function(*arguments)
        except (Exception, SystemExit) as why:
            # `rig.fail` has said why it exits.
            self.failed[what] = "see the log" if isinstance(why, SystemExit) else f"{type(why).__name__}: {why}"[-600:]
            rig.say(f"{what} failed:", self.failed[what])
            return None

    def environment(self, arm, names):
        """The environments of the two processes of an arm."""
        if arm == "mps":
            mps = Mps()
            return mps.env(), mps.env()
        if arm == "stock":
            return self.gpu.plain(), self.gpu.plain()
        clients = [{"name": "be", "request": 0.2, "limit": 1.0, "memory": "20Gi"}, {"name": "lc", "request": 0.5, "limit": 1.0, "memory": "20Gi", "class": "latency-critical"}]
        self.manager = rig.Manager(clients, [f"--controls={self.gpu.controls}"])
        return tuple(self.gpu.under(self.manager, name) for name in names)

    def build(self, name):
        self.children[name].ask("build")
        told = self.children[name].answer(150)
        rig.say(name, {key: told[key] for key in ("splits", "chosen", "alone_ms", "slowdowns", "program_ms")})
        for line in self.children[name].errors().splitlines():
            if "WARNING" in line:
                rig.say(name, line[:300])
        return told

    def serve(self):
        """The server and its clients: RT first."""
        chosen = self.ready["one"]["chosen"]
        text = "\n".join([f"split: {chosen or 'priorities'}", "models:", *self.model_lines()])
        file = rig.OUT / "models.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        env = rig.serving(self.gpu.plain(), *rig.SERVER_MODULES)
        server = rig.Child("server", [sys.executable, "-m", "sluice.serve", "--models", file, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"], env)
        _, line = server.lines.get(timeout=120)
        if not line or not line.startswith("ready"):
            raise RuntimeError(f"the server ended: {server.errors()[-500:]}")
        port = line.rpartition("=")[2]
        clients = [rig.Child(f"client{index}", rig.python("reef_client.py", f"127.0.0.1:{port}"), env) for index in range(1 + CLIENTS)]
        for index, client in enumerate(clients):
            client.ask(f"connect {'be' if index else 'rt'}")
        for client in clients:
            client.answer(60)
        return clients

    def model_lines(self):
        source = "{sim: {kernels: 14, us: 100}}" if self.gpu.simulated else "{torchvision: %s}" % self.options.network
        given = "{shape: [4]}" if self.gpu.simulated else "{shape: [3, 224, 224], dtype: FP16}"
        yield f"  - {{name: rt, class: real-time, source: {source}, input: {given}}}"
        yield f"  - {{name: be, class: best-effort, source: {source}, input: {given}, batches: [1, 2, 4], delay_ms: 0.3}}"

    def arms(self):
        """The wanted arms that can run."""
        found = [] if "one" in self.failed else ["alone", "alone2", "be-alone", "chosen", "pause", "priorities", *(f"split {count}" for count in self.ready["one"]["splits"])]
        found += [arm for arm, names in TWO.items() if all(self.ready.get(name) for name in names)]
        return [arm for arm in found if self.wanted(arm)] + (["triton-alone", "triton-be-alone", "triton"] if self.clients else [])

    def warm(self):
        """Blocks that are not counted: clocks and caches settle, and the hook learns the service's times beside best effort."""
        for arm in self.arms():
            if arm in TWO or arm in ("triton", "chosen"):
                self.attempt(arm, self.run, arm, 1.5, 0)

    def run(self, arm, seconds, seed):
        """One block: RT latencies in ms, BE rows a second, and what else the processes tell."""
        start, rt, be = time.time() + 0.3, arm != "be-alone", arm not in ("alone", "alone2")
        if arm.startswith("triton"):
            return self.run_clients(arm, seconds, start, seed)
        split = arm.removeprefix("split ")
        split = int(split) if split.isdigit() else {"pause": "pause", "priorities": "all"}.get(arm, "chosen")
        load = {"start": start, "seconds": seconds, "split": split, "seed": seed, "period": self.period()}
        asked = [(name, name != TWO[arm][1], name == TWO[arm][1]) for name in TWO[arm]] if arm in TWO else [("one", rt, be)]
        for name, has_rt, has_be in asked:
            self.children[name].ask("run " + json.dumps({**load, "real_time": has_rt, "best_effort": CLIENTS * has_be}))
        told = [self.children[name].answer(seconds + SLACK) for name, _, _ in asked]
        return {
            "latencies_ms": [value for each in told for value in each["latencies_ms"]], "rate": sum(each["rate"] for each in told),
            **{key: sum(each[key] for each in told) for key in ("changed", "kinds", "failed", "preemptions")}}

    def run_clients(self, arm, seconds, start, seed):
        period = self.period()
        loads = [] if arm == "triton-be-alone" else [(self.clients[0], {"arrivals": "periodic", "rate": 1 / period, "jitter": 0.5, "seed": seed})]
        loads += [] if arm == "triton-alone" else [(client, {"arrivals": "continuous"}) for client in self.clients[1:]]
        for client, load in loads:
            client.ask("run " + json.dumps({**load, "start": start, "seconds": seconds}))
        told = [client.answer(seconds + SLACK) for client, _ in loads]
        served = [] if arm == "triton-be-alone" else told[:1]
        return {
            "latencies_ms": [value for each in served for value in each["latencies_ms"]], "rate": sum(each["rate"] for each in told[len(served):]),
            "be_p50_ms": statistics.median([each["p50_ms"] for each in told[len(served):] if each["n"]] or [0.0])}

    def period(self):
        """Seconds between RT requests: the same for all arms."""
        return self.ready["one"]["alone_ms"] / 1000 / 0.3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--network", default="resnet152")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.4, help="of a block")
    parser.add_argument("--bound", type=float, default=0.1, help="by how much the chosen split may slow the slowest RT requests")
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="only these; `triton` stands for its three")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=390)
    parser.add_argument("--name", default="reef-server")
    options = parser.parse_args()
    rig.limit(options.limit)
    stage = Stage(options)
    arms = stage.arms()
    if "alone" not in arms:
        rig.write(options.name, {"ok": False, "failed": stage.failed})
        return 1
    stage.warm()
    seconds = options.seconds * rounds.fitting(options, len(arms) * options.seconds, len(arms) * AROUND)
    blocks, order = {arm: [] for arm in arms}, Order(arms, options.seed)
    for number in rounds.numbers(options):
        for arm in order.round():
            if arm in stage.failed:
                continue
            begin = time.time() + 0.3
            made = stage.attempt(arm, stage.run, arm, seconds, options.seed + number)
            if made:
                blocks[arm].append({**made, "clock": stage.clocks.between(begin, time.time())})
                ordered = sorted(made["latencies_ms"]) or [0.0]
                rig.say(f"round {number} {arm:16} p50 {ordered[len(ordered) // 2]:.3f} p99 {ordered[int(0.99 * len(ordered))]:.3f} BE {made['rate']:.0f}", {key: made[key] for key in ("changed", "kinds", "failed", "preemptions") if made.get(key)})
        # Written after each round, because the run may be interrupted.
        rig.write(options.name, {**summarise(blocks, stage.ready.get("one")), "failed": stage.failed, "ready": stage.ready, "seconds": seconds, "network": options.network, **order.result()}, quiet=number > 0)
    for child in stage.children.values():
        child.stop()
    if stage.manager:
        stage.manager.stop()
    return 1 if stage.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
