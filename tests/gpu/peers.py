#!/usr/bin/env python3
"""The same programs under Sluice and under the alternatives, whose libraries are built elsewhere.

  tests/gpu/peers.py service --hami LIBRARY --xsched FOLDER --mps    a latency-critical service beside a training
  tests/gpu/peers.py pair --hami LIBRARY --xsched FOLDER --mps       two trainings that ask for 30 and 70 %

LIBRARY is HAMi-core's libvgpu.so; FOLDER is where XSched is installed (bin/xserver, lib/libcuda.so.1). Without a flag its arms are left out.
Arms take turns in rounds, as in serve.py, which has the service, the training and the arms of Sluice, of time slicing and of MPS. More arms:

  service   hami             service unlimited, training limited to --sm-limit percent of the SMs, both under HAMi-core
            xsched1, xsched3 service with priority 1, training with priority 0, policy HPF, preemption level 1, or level 3 by TSG
            NAME-alone, NAME-be-alone   the service and the training alone under the same library: what the library itself costs
  pair      SM limits of 30 and 70 (HAMi-core), utilisations under policy PUP (XSched), active thread percentages (MPS), requests (Sluice)

All trainings work on a stream of their own, because XSched does not schedule the default stream. The training alone has no library.
"""

import argparse
import pathlib
import shutil
import statistics
import tempfile

import rig
import rounds
import serve
import tenants
from order import Order
from peer_programs import XSERVER_PORT, Hami, XSched

ASKED = (30, 70)
OURS = {name: serve.ARMS[name] for name in ("alone", "alone2", "stock1", "plain1", "auto1")} | {"be-alone": (None, 0, ["be0.stock"])}


def arms_of(name):
    """The arms of an alternative."""
    return {
        name: (f"lc.{name}", 0, [f"be0.{name}"]),
        f"{name}-alone": (f"lc.{name}", 0, []),
        f"{name}-be-alone": (None, 0, [f"be0.{name}"]),
    }


class Peers:
    """The alternatives that the flags name."""

    def __init__(self, options, folder):
        self.options = options
        self.hami = Hami(options.hami.absolute(), pathlib.Path(folder)) if options.hami else None
        self.xsched = XSched(options.xsched.absolute()) if options.xsched else None
        # Names in arms and programs.
        self.names = (["hami"] if self.hami else []) + (["xsched1", "xsched3"] if self.xsched else [])

    def missing(self):
        """What the flags need and the machine lacks: a comparison without an arm that was asked for would mislead."""
        needs = [line for peer in (self.hami, self.xsched) if peer for line in peer.missing()]
        if self.options.mps and not shutil.which("nvidia-cuda-mps-control"):
            needs.append("--mps: no nvidia-cuda-mps-control on the PATH; it comes with the driver")
        return needs

    def start(self, gpu, policy):
        """Starts what programs need before they start. XSched's programs look for its server when they load its library."""
        if self.xsched:
            found = {"LD_LIBRARY_PATH": self.xsched.search_path(searched(gpu))}
            rig.wait_for_port(XSERVER_PORT, rig.Child("xserver", self.xsched.server(policy), under(gpu, found)))

    def variables(self, gpu, name, program, **how):
        """Variables of a program under the alternative of that name."""
        if name == "hami":
            return self.hami.environment(program, **how)
        return self.xsched.environment(int(name[-1]), before=searched(gpu), **how)

    def service(self, gpu, name):
        how = {} if name == "hami" else {"priority": 1}
        return under(gpu, self.variables(gpu, name, f"lc.{name}", **how))

    def training(self, gpu, name):
        how = {"sm_limit": self.options.sm_limit} if name == "hami" else {"priority": 0}
        return under(gpu, self.variables(gpu, name, f"be0.{name}", **how))

    def asking(self, gpu, name, percent):
        """Environment of one of the two trainings, which asks for `percent`."""
        how = {"sm_limit": percent} if name == "hami" else {"utilization": percent}
        return under(gpu, self.variables(gpu, name, f"t{percent}.{name}", **how))


def searched(gpu):
    """Where programs without an alternative search libraries."""
    return gpu.plain().get("LD_LIBRARY_PATH", "")


def under(gpu, variables):
    """The environment without Sluice's hook, with these variables instead of those that the simulator sets."""
    return {**gpu.plain(), **variables}


class Stage(serve.Stage):
    """The programs of serve.py, and those under the alternatives."""

    TRAINING = ("--own-stream",)

    def __init__(self, options, peers):
        self.peers = peers
        arms = {**OURS, **({"mps1": serve.ARMS["mps1"]} if options.mps else {})}
        for name in peers.names:
            arms |= arms_of(name)
        options.arms = list(arms)
        super().__init__(options, arms)

    def programs(self, service, training, wanted):
        self.peers.start(self.gpu, "HPF")
        children = super().programs(service, training, wanted)
        for name in self.peers.names:
            children |= {
                f"lc.{name}": (service, self.peers.service(self.gpu, name)),
                f"be0.{name}": (training, self.peers.training(self.gpu, name)),
            }
        return children


def pair(options, peers):
    """Two trainings that ask for 30 and 70 %, under each system: shares of the sum, and the sum of alone."""
    gpu = rig.Gpu(options.gpu)
    command = gpu.python("torch_model.py", "resnet50", "--batch", options.batch, "--staged", *Stage.TRAINING)
    peers.start(gpu, "PUP")
    ours = tenants.Group(gpu, [percent / 100 for percent in ASKED], command, options.manager)
    systems = {"alone": [rig.Child("alone", command, gpu.plain())], "sluice": ours.children}
    systems["time slicing"] = [rig.Child(f"stock.t{percent}", command, gpu.plain()) for percent in ASKED]
    for name in peers.names:
        systems[name] = [rig.Child(f"{name}.t{percent}", command, peers.asking(gpu, name, percent)) for percent in ASKED]
    if options.mps:
        mps = serve.Mps()
        systems["mps"] = [
            rig.Child(f"mps.t{percent}", command, {**mps.env(), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}) for percent in ASKED
        ]
    ready = rig.one_by_one({f"{name}.{number}": child for name, children in systems.items() for number, child in enumerate(children)})
    rates, order = {name: [] for name in systems}, Order(systems, options.seed)
    for number in rounds.numbers(options):
        for name in order.round():
            rates[name].append(tenants.window(systems[name], [options.seconds] * len(systems[name])))
            rig.say(f"round {number} {name:12}", [round(rate * options.batch) for rate in rates[name][-1]])
        rows = {name: shares(each, rates["alone"]) for name, each in rates.items()}
        rig.write(
            options.name,
            {
                "ok": True,
                "asked": ASKED,
                "rows": rows,
                "batch": options.batch,
                "seconds": options.seconds,
                "ready": ready,
                **order.result(),
            },
        )
    for children in systems.values():
        for child in children:
            child.stop()
    ours.manager.stop()
    return 0


def shares(rates, alone):
    """Of each round: the shares of the sum, and the sum of the training's rate alone in the same round. Medians over the rounds."""
    of_sum = [[rate / sum(each) for rate in each] for each in rates]
    sums = [sum(each) / by_itself[0] for each, by_itself in zip(rates, alone)]
    return {
        "rates": rates,
        "of_sum_rounds": of_sum,
        "sum_of_alone_rounds": sums,
        "of_sum": [statistics.median(each) for each in zip(*of_sum)],
        "sum_of_alone": statistics.median(sums),
    }


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=["service", "pair"])
    parser.add_argument("--hami", type=pathlib.Path, metavar="LIBRARY", help="HAMi-core's libvgpu.so")
    parser.add_argument("--xsched", type=pathlib.Path, metavar="FOLDER", help="where XSched is installed")
    parser.add_argument("--mps", action="store_true", help="also under an MPS server, which is part of the driver")
    parser.add_argument("--sm-limit", type=int, default=50, help="of the training beside the service under HAMi-core, percent")
    parser.add_argument("--seconds", type=float, default=9.0, help="of a window of `pair`")
    parser.add_argument("--name", help="of the result; peers-service or peers-pair without it")
    serve.add_arguments(parser)
    options = parser.parse_args()
    options.name = options.name or f"peers-{options.question}"
    return options


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="sluice-peers-") as folder:
        peers = Peers(options, folder)
        missing = peers.missing()
        if missing:
            rig.fail("\n".join(missing))
        rig.limit(options.limit)
        return pair(options, peers) if options.question == "pair" else serve.measure(options, Stage(options, peers))


if __name__ == "__main__":
    raise SystemExit(main())
