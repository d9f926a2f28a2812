#!/usr/bin/env python3
"""Frameworks under the hook: the same results as without it, their throughput, their memory limit by NVML, and no false violation.

    coverage.py                         one GPU: each workload; writes $OUT/coverage.json
    coverage.py --workloads ddp         two GPUs: DDP over NCCL
    coverage.py --gpu sim               on the simulator, with a stand-in for each workload
    coverage.py --table FILE...         prints the rows of such files as a table for docs/compatibility.md

Needs root. A workload has three long-lived processes: two without the hook (u1, u2) and one under it (h), in a pod of its own, best-effort.
They run blocks of equally many steps, one process at a time; the order rotates. So each has computed the same in the end. u2 / u1 is
the noise that h / mean(u1, u2) has to be read against. Then h allocates until it is refused, twice, and goes on. The pod-manager inspects
all processes of the pods (`--adopt auto`), and this script reports NVML's figures to it as the node agent does.
"""

import argparse
import tempfile
import time

import control_api
import node as nodes
import rig
from coverage_arms import LABELS, PREPARED, Arm, ArmFailed
from coverage_rows import measure, table

GIB = 1 << 30
WORKLOADS = [
    "eager", "compile", "graphs", "expandable", "malloc-async", "loader-fork", "loader-spawn", "generate", "language-training", "jax", "cupy", "numba",
]
# What a workload takes at most, seconds: blocks, memory, end.
RESERVE = 25


def inspection_works(node):
    """Whether the manager finds a program without the hook in a pod: without that, no violation means nothing."""
    child = rig.Child("witness", node.unhooked("witness", rig.python("driver_train.py", "light")), node.gpus.plain())
    try:
        child.reply(60)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if node.usage()["witness"]["unhooked"]:
                return True
            time.sleep(0.2)
    except rig.ChildFailed as why:
        rig.say(f"witness: {why}")
    finally:
        child.stop()
    return False


def prepare(arms):
    """Everything that need not be alone on the GPU: imports, the first steps and what they compile, of all processes at once."""
    for arm in arms:
        arm.prepare(lambda arm: arm.answers(PREPARED))
        arm.prepare(lambda arm: arm.ask("build"))
    rig.say("imports have ended")
    for arm in arms:
        arm.about = arm.prepare(lambda arm: arm.answers(PREPARED))
        if arm.failed:
            rig.say(f"{arm.children[0].name}: {arm.failed}")
    rig.say("first steps have ended")


def run(options):
    gpus = nodes.Gpus(options.gpu, 2 if "ddp" in options.workloads else 1)
    limits = {name: options.gib * GIB for name in options.workloads} | {"witness": GIB}
    # All memory of these programs stays on the GPU: the capacity is more than their limits.
    memory = sum(limits.values())
    overcommit = [f"--overcommit-memory={2 * memory}", f"--host-memory={memory}"] if options.overcommit else []
    node = nodes.Node(gpus, limits, ("--adopt=auto", *overcommit), bool(overcommit))
    scratch = tempfile.TemporaryDirectory(prefix="sluice-coverage-")
    rig.LAST.append(scratch.cleanup)
    arms = {name: {label: Arm(node, name, label, scratch.name) for label in LABELS} for name in options.workloads}
    inspected = inspection_works(node)
    rig.say(f"inspection {'finds' if inspected else 'DOES NOT FIND'} a program without the hook")
    prepare([arm for row in arms.values() for arm in row.values()])
    result = {"gpu": options.gpu, "limit": options.gib * GIB, "rounds": options.rounds, "block_seconds": options.block, "rows": {}}
    for name in options.workloads:
        try:
            if time.monotonic() - rig.STARTED > options.limit - RESERVE:
                raise ArmFailed("not run: the time was over")
            row = measure(node, name, arms[name], options)
        except (ArmFailed, control_api.Refused) as why:
            failed = [label for label, arm in arms[name].items() if arm.failed] or [label for label, arm in arms[name].items() if arm.children[0].process.poll()]
            row = {"ok": False, "error": str(why), "failed_in": failed}
            rig.say(f"{name}: failed in {failed}\n{why}")
            for arm in arms[name].values():
                arm.end()
        result["rows"][name] = row
        rig.write(options.name, {**result, "ok": False}, quiet=True)
    try:
        violations = node.violations()
    except OSError as why:
        violations = {f"not read: {why}": 1}
    checks = {f"{name}: {check}": good for name, row in result["rows"].items() for check, good in row.get("checks", {"it runs": False}).items()}
    checks |= {"inspection finds a program without the hook": inspected, "sluice_violations_total is zero": not violations}
    checks["NVML was read"] = len(node.failed_readings) == 0
    result |= {"violations": violations, "violation_log": node.log("violation", "WARN", "ERROR")[-80:], "failed_readings": node.failed_readings[:5], "checks": checks}
    result["ok"] = all(checks.values())
    node.stop()
    rig.write(options.name, result)
    for check, good in checks.items():
        if not good:
            rig.say("NOT so:", check)
    return 0 if result["ok"] else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=("real", "sim"), default="real")
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS, choices=[*WORKLOADS, "ddp"], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--block", type=float, default=0.4, help="seconds of one block")
    parser.add_argument("--overcommit", action="store_true", help="h has the key `overcommit`, so its large allocations can leave the GPU")
    parser.add_argument("--gib", type=int, default=6, help="memory limit of each workload")
    parser.add_argument("--limit", type=int, default=300, help="seconds after which everything is ended")
    parser.add_argument("--name", default="coverage", help="the result is $OUT/NAME.json")
    parser.add_argument("--table", nargs="+", metavar="FILE")
    options = parser.parse_args()
    if options.table:
        return table(options.table)
    rig.limit(options.limit)
    return run(options)


if __name__ == "__main__":
    raise SystemExit(main())
