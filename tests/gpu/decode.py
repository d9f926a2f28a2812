#!/usr/bin/env python3
"""A language model's decode service beside a training of the same network, and beside a second service.

The service (workloads/torch_decode.py) answers requests of an arrival trace (Poisson): a prefill, then 47 tokens, a host wait after each.
Interleaved blocks in an order that changes (order.py). All arms of a round have the same trace, each round has another. `alone` and
`alone2` are the same arm; their difference is the A/A noise. No program is restarted between blocks.

Case `graph` (a CUDA graph a token) and case `eager` (some 300 launches a token):
  alone, alone2   the service without the hook and without other programs
  be-alone        the training alone, under Sluice
  stock           service and training without the hook: the driver's time slicing
  auto            under Sluice
  off             the same, the service with SLUICE_HINTS=off
  api             the same, the service begins and ends its requests by sluice_request_begin and sluice_request_end
  light, light-alone   as auto and be-alone, beside kernels that occupy the GPU and draw little power (workloads/light.py)
Case `power`: the training draws so much power that the clock falls. How much of the difference to `alone` is the clock's, and what does a lower
limit of the training buy? The SM clock is measured within each request. Arms alone, alone2, be-alone, auto and light as above, and
  limit-0.9, limit-0.8, limit-0.7   as auto; the training's `limit` is this part of the GPU time that the service leaves
Case `two-services`: ResNet-50 each 10 ms with an SLO (torch_serve.py), the decode service without one, and the training:
  resnet-alone, resnet-alone2, decode-alone, be-alone
  stock-both, both    the two services, by time slicing and under Sluice
  stock, auto         the same beside the training
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import decode_power
import decode_report
import rig
import rounds
from clocks import Clocks
from order import Order

SLACK = 60.0
# The services begin after the training, and it runs on for the requests that come last; seconds.
LEAD, TAIL = 0.2, 1.0
# In the case `power` blocks are short, and the clock falls before the first request.
POWER_LEAD, POWER_TAIL = 0.4, 0.2
LIMITED = "limit-"

# Programs of each arm. A name's first word is the kind; `0` and `.stock` run without the hook.
ALONE = {"alone": ["decode0"], "alone2": ["decode0"], "be-alone": ["be"]}
CASES = {
    "graph": {**ALONE, "stock": ["decode0", "be.stock"], "auto": ["decode", "be"], "off": ["decode-off", "be"], "api": ["decode-api", "be"], "light": ["decode", "be.light"], "light-alone": ["be.light"]},
    "eager": {**ALONE, "stock": ["decode0", "be.stock"], "auto": ["decode", "be"]},
    "power": {**ALONE, "auto": ["decode", "be"], **{f"{LIMITED}{part}": ["decode", "be"] for part in (0.9, 0.8, 0.7)}, "light": ["decode", "be.light"]},
    "two-services": {
        "resnet-alone": ["resnet0"], "resnet-alone2": ["resnet0"], "decode-alone": ["decode0"], "be-alone": ["be"],
        "stock-both": ["resnet0", "decode0"], "both": ["resnet", "decode"],
        "stock": ["resnet0", "decode0", "be.stock"], "auto": ["resnet", "decode", "be"],
    },
}
# Arms without a bar: shorter blocks suffice. A shorter trace is the beginning of the longer one.
SHORT = {("power", "light"), ("graph", "stock"), ("graph", "off"), ("graph", "light"), ("two-services", "stock-both"), ("two-services", "both")}


class Stage:
    """The programs of all arms, loaded and idle, and the manager of those under the hook."""

    def __init__(self, options):
        self.options, self.gpu, self.clocks = options, rig.Gpu(options.gpu), Clocks()
        self.manager = rig.Manager(clients(options), [f"--controls={self.gpu.controls}", *options.manager])
        wanted = sorted({program for programs in chosen(options).values() for program in programs})
        self.pin(wanted)
        self.children = {name: rig.Child(name, self.command(name), self.environment(name)) for name in wanted}
        self.ready = rig.one_by_one(self.children)
        self.limit = 1.0
        self.lead, self.tail = (POWER_LEAD, POWER_TAIL) if options.case == "power" else (LEAD, TAIL)

    def limit_training(self, limit):
        """Changes the training's limit in the manager's resource file, and returns when the manager has it."""
        if limit == self.limit:
            return
        self.limit = limit
        self.manager.define(clients(self.options, limit))
        end = time.monotonic() + 5.0
        while not any(name.startswith("sluice_limit_ratio") and 'client="be"' in name and abs(value - limit) < 1e-3 for name, value in self.manager.metrics().items()):
            if time.monotonic() > end:
                rig.fail(f"the manager does not have the limit {limit} of the training after 5 s: {[row for row in self.manager.metrics().items() if 'limit_ratio' in row[0]]}")
            time.sleep(0.02)

    def pin(self, wanted):
        """Gives each service two cores of its own, as serve.py does; everything else runs on the others."""
        cores, self.cores = sorted(os.sched_getaffinity(0)), {}
        kinds = sorted({decode_report.kind(name) for name in wanted} - {"be"})
        if self.options.pin and len(cores) >= 2 * len(kinds) + 4:
            self.cores = {kind: cores[2 * at + 2:2 * at + 4] for at, kind in enumerate(kinds)}
            os.sched_setaffinity(0, set(cores) - {core for own in self.cores.values() for core in own})

    def command(self, name):
        kind = decode_report.kind(name)
        if kind == "be":
            return self.gpu.python("torch_model.py", "light" if name.endswith(".light") else "transformer", "--staged")
        own = ["taskset", "-c", ",".join(map(str, self.cores[kind]))] if kind in self.cores else []
        if kind == "resnet":
            return [*own, *self.gpu.python("torch_serve.py", "--staged")]
        mode = "eager" if self.options.case == "eager" else "graph"
        return [*own, *self.gpu.python("torch_decode.py", mode, "--tokens", self.options.tokens, "--staged")]

    def environment(self, name):
        if name.endswith(("0", ".stock")):
            return self.gpu.plain()
        more = {"SLUICE_HINTS": "off"} if name == "decode-off" else {}
        return self.gpu.under(self.manager, decode_report.kind(name), **more)

    def block(self, programs, seconds, seed):
        """One block of these programs; the answer of each."""
        start = time.time() + 0.3
        for name in programs:
            if (kind := decode_report.kind(name)) == "be":
                line = f"run {start:.6f} {self.lead + seconds + self.tail:.3f}"
            elif kind == "resnet":
                line = f"serve {start + self.lead:.6f} {max(1, int(seconds * 1e6 / self.options.period))} {self.options.period} 0 0"
            else:
                line = f"serve {start + self.lead:.6f} {seconds} {self.options.rate} {seed} {int(name == 'decode-api')} {int(self.options.case == 'power')}"
            self.children[name].ask(line)
        return {name: self.children[name].answer(seconds + SLACK) for name in programs}

    def gpu_us(self):
        """GPU time of a request of each service, measured without the hook and without other programs."""
        found = {}
        for name in self.children:
            if name == "decode0":
                self.children[name].ask("gpu 10")
                found["decode"] = self.children[name].answer(SLACK)["request_us"]
            if name == "resnet0":
                self.children[name].ask(f"split {time.time() + 0.2:.6f} 40 {self.options.period} 20")
                found["resnet"] = statistics.median(self.children[name].answer(SLACK)["gpu_us"])
        return found

    def grants(self):
        """Grants of the clients whose programs run under the hook."""
        hooked = {decode_report.kind(name) for name in self.children if not name.endswith(("0", ".stock"))}
        return {client: self.manager.grants(client) for client in sorted(hooked)}

    def stop(self):
        for child in self.children.values():
            child.stop()
        self.manager.stop()


def clients(options, limit=1.0):
    """The manager's clients. The processes `decode`, `decode-off` and `decode-api` belong to one client, and serve one at a time."""
    critical = {"limit": 1.0, "memory": "40Gi", "class": "latency-critical"}
    made = [{"name": "be", "request": 0.3, "limit": limit, "memory": "60Gi"}, {"name": "decode", "request": 0.45, **critical}]
    if options.case == "two-services":
        if options.slo and not has_slo():
            rig.say("the manager's resource file has no slo: measured without")
            options.slo = ""
        made.append({"name": "resnet", "request": 0.2, **critical, **({"slo": options.slo} if options.slo else {})})
    return made


def has_slo():
    """Whether clients of the manager's resource file have an SLO: its complaint about an unknown key names the known ones."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "resources.yaml"
        path.write_text("clients:\n  - { unknown: 1 }\n")
        command = [rig.SLUICE, "pod-manager", "--socket", f"{folder}/socket", "--resource-file", path]
        return "slo" in subprocess.run(command, capture_output=True, text=True, timeout=20).stderr.partition("expected")[2]


def chosen(options):
    """The case's arms, or those of them that were asked for."""
    return {name: programs for name, programs in CASES[options.case].items() if not options.arms or name in options.arms}


def arms_of(options, stage):
    """The arms that can run."""
    arms = chosen(options)
    if "api" in arms and not stage.ready["decode-api"]["request_api"]:
        rig.say("the hook has no sluice_request_begin: no arm api")
        del arms["api"]
    return arms


def limit_of(options, arm, gpu_us):
    """The training's limit in an arm: all of the GPU, or the named part of what the service leaves of it."""
    if not arm.startswith(LIMITED):
        return 1.0
    return round(float(arm.removeprefix(LIMITED)) * (1 - 1e-6 * gpu_us["decode"] * options.rate), 3)


def seconds_of(options, arm):
    if arm in ("be-alone", "light-alone"):
        return min(options.seconds, 3.0)
    return options.seconds / 2 if (options.case, arm) in SHORT else options.seconds


def fit(options, arms, stage):
    """Shortens the blocks if the rounds do not fit."""
    wanted = sum(seconds_of(options, arm) for arm in arms)
    part = rounds.fitting(options, wanted, len(arms) * (0.5 + stage.lead + stage.tail))
    if part < 1.0:
        options.seconds = max(1.0, options.seconds * part)
        rig.say(f"too little: blocks of {options.seconds:.1f} s")


def brief(told):
    """A block in some words."""
    rows = {name: decode_report.measured(decode_report.kind(name), one) for name, one in told.items() if not name.startswith("be")}
    words = [f"{name} {metric} {decode_report.percentile(of, 0.5):.0f}/{decode_report.percentile(of, 0.99):.0f}" for name, by in rows.items() for metric, of in by.items()]
    return ", ".join(words + [f"{name} {one['rate']:.2f}/s" for name, one in told.items() if name.startswith("be")])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--arms", nargs="+", help="of the case's arms only these")
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12.5, help="of an arm's requests in a round")
    parser.add_argument("--rate", type=float, default=5.0, help="decode requests a second")
    parser.add_argument("--tokens", type=int, default=47, help="of a decode request after its first one")
    parser.add_argument("--period", type=float, default=10_000, help="us between ResNet-50 requests")
    parser.add_argument("--slo", default="", help="of the ResNet-50 service, in the manager's resource file")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds of each arm with several programs before the first round, not counted")
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True, help="give each service two cores of its own")
    parser.add_argument("--seed", type=int, default=1, help="of the arms' order and of the traces")
    parser.add_argument("--limit", type=int, default=250)
    parser.add_argument("--name", help="the result is $OUT/NAME.json")
    parser.add_argument("--manager", nargs="*", default=[], help="more arguments of the pod-manager")
    options = parser.parse_args()
    options.name = options.name or f"decode-{options.case}"
    rig.limit(options.limit)
    stage = Stage(options)
    arms, gpu_us = arms_of(options, stage), stage.gpu_us()
    rig.say("GPU time of a request, us:", gpu_us)
    # Meanwhile the hook learns each service's pauses, and clocks and caches settle.
    for programs in dict.fromkeys(tuple(programs) for programs in arms.values() if len(programs) > 1):
        rig.say("warm:", brief(stage.block(programs, options.warm, options.seed)))
    fit(options, arms, stage)
    order, blocks, clocks = Order(arms, options.seed), {arm: [] for arm in arms}, {arm: [] for arm in arms}
    for number in rounds.numbers(options):
        for arm in order.round():
            if options.case == "power":
                stage.limit_training(limit_of(options, arm, gpu_us))
            begin = time.time() + stage.lead
            told = stage.block(arms[arm], seconds_of(options, arm), 1000 * options.seed + number)
            blocks[arm].append(told)
            clocks[arm].append(stage.clocks.between(begin, time.time() - stage.tail))
            rig.say(f"round {number} {arm:14}", brief(told))
        # Written after each round, because the run may be interrupted.
        result = {**decode_report.result(options, blocks, gpu_us), **order.result(), "grants": stage.grants(), "ready": stage.ready, "slo": options.slo, "metrics": stage.manager.metrics(), "cores": stage.cores, "clocks": clocks}
        if options.case == "power" and blocks["alone"]:
            result |= decode_power.result(blocks, result["rows"], clocks)
            for arm, row in result.get("clock", {}).get("arms", {}).items():
                if "p99_of_alone" in row.get("fitted", {}) and row["of_left"] is not None:
                    result["goals"][f"{arm}: time per token p99 of alone at the clock alone"] = f"{row['fitted']['p99_of_alone']:.3f}, at most 1.020: {'met' if row['fitted']['p99_of_alone'] <= 1.02 else 'NOT MET'}"
        # Without grants the hook was not active.
        result["ok"] = result["ok"] and all(result["grants"].values())
        rig.write(options.name, result)
    for line in result.get("curve", []):
        rig.say(line)
    for goal, told in result["goals"].items():
        rig.say(f"{goal}: {told}")
    stage.stop()
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
