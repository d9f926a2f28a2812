"""A row of coverage.py: one workload's results and throughput with and without the hook, its memory limit, and what the manager counted."""

import json
import os
import pathlib
import statistics
import time

import node as nodes
import rig
from coverage_arms import JAX_FRACTION, LABELS

MIB = 1 << 20
# A block of the driver.
BLOCK = 2 * MIB
# Steps of the first trial of a workload, and the fewest of a block.
TRIAL = 4
# A workload that keeps less, the noise of its row taken off, has a fault.
LEAST_RATIO = 0.95
# Cores of a row's processes: all the same, so that no arm has the better ones.
CORES = 4


def blocks(arms, options):
    """Steps of a block, and the rates of each block by label. All arms take the same steps."""
    steps = TRIAL
    # The first trial ends what is left of the preparation; the second is long enough to find the speed.
    for seconds in (options.block / 4, options.block):
        trial = {label: arms[label].run(steps) for label in LABELS}
        steps = max(TRIAL, round(seconds * trial["u1"]))
    found = []
    for number in range(options.rounds):
        first = number % len(LABELS)
        found.append({label: arms[label].run(steps) for label in LABELS[first:] + LABELS[:first]})
    return steps, found


def compared(rounds, over, under):
    """The ratio of the medians of two sets of arms, and the ratio in each round."""
    def median(labels):
        return statistics.median(block[label] for block in rounds for label in labels)

    each = [statistics.fmean(block[label] for label in over) / statistics.fmean(block[label] for label in under) for block in rounds]
    return median(over) / median(under), rig.spread(each)


def at_limit(node, name, arm):
    """Has a process of a pod allocate until it is refused, and again after two readings of the manager."""
    arm.do("fill")
    time.sleep(2.5 * nodes.READING_PERIOD)
    answers = arm.do("fill")
    used = node.report()[name]
    works = all(answer["works"] for answer in arm.do("recover"))
    return {
        "nvml_at_limit": used, "out_of_memory": [answer["refused"] for answer in answers], "held": [answer["held"] for answer in answers],
        "works_after": works, "nvml_after": node.report()[name],
    }


def judge(name, row, limit, simulated):
    """The checks of a row."""
    # JAX reports the memory that it may take.
    expected = limit * JAX_FRACTION if name == "jax" and not simulated else limit
    return {
        "the same results without the hook": row["deterministic"],
        "the same results": row["same_results"],
        "the limit is seen as the GPU's memory": all(0.9 * expected <= seen <= expected for seen in row["total_memory"]),
        "a normal out-of-memory error": all(row["out_of_memory"]),
        "it goes on after that": row["works_after"],
        "NVML at most the limit and one block": max(row["nvml_at_limit"], row["nvml_after"]) <= limit + BLOCK and row["nvml_at_limit"] > 0,
        "it was governed": row["grants"] > 0,
        "no violation": not row["violations"],
        f"throughput at least {LEAST_RATIO} less the A/A noise": simulated or row["ratio"] >= LEAST_RATIO - abs(1 - row["aa"]),
    }


def measure(node, name, arms, options):
    """The row of a workload. Raises ArmFailed."""
    begun, limit = time.monotonic(), node.limits[name]
    for arm in arms.values():
        arm.check()
        arm.pin(sorted(os.sched_getaffinity(0))[-CORES:])
    node.prefer(name)
    steps, rounds = blocks(arms, options)
    digests = {label: arms[label].digests() for label in LABELS}
    for label in ("u1", "u2"):
        arms[label].end()
    row = at_limit(node, name, arms["h"])
    row["nvml_peak"] = node.peaks[name]
    usage = node.usage()[name]
    arms["h"].end()
    (ratio, spread), (noise, noise_spread) = compared(rounds, ["h"], ["u1", "u2"]), compared(rounds, ["u2"], ["u1"])
    row |= {
        "limit": limit, "version": arms["h"].about[0].get("version"), "total_memory": [about["total_memory"] or 0 for about in arms["h"].about],
        "same_results": digests["h"] == digests["u1"], "deterministic": digests["u1"] == digests["u2"], "digests": digests,
        "ratio": ratio, "ratio_spread": spread, "aa": noise, "aa_spread": noise_spread, "steps": steps,
        "rate": rounds[0]["u1"], "rounds": rounds, **{key: usage[key] for key in ("violations", "bypassed", "unhooked", "grants", "denied")},
        "seconds": round(time.monotonic() - begun, 1),
    }
    row["checks"] = judge(name, row, limit, node.gpus.simulated)
    row["ok"] = all(row["checks"].values())
    rig.say(
        f"{name}: ratio {row['ratio']:.4f} ({spread['min']:.4f} to {spread['max']:.4f}), A/A {row['aa']:.4f}, NVML {row['nvml_at_limit'] / MIB:.0f} of "
        f"{limit // MIB} MiB, bypassed {row['bypassed']}, failed {[check for check, good in row['checks'].items() if not good]}")
    return row


def table(files):
    """Rows of result files as Markdown."""
    print("| workload | version | same results | throughput, hooked / not (blocks) | A/A | NVML at the limit, MiB of | calls past the hook | violations |")
    print("|---|---|---|---|---|---|---|---|")
    for file in files:
        for name, row in json.loads(pathlib.Path(file).read_text())["rows"].items():
            if "error" in row:
                print(f"| {name} | | failed: {row['error'].splitlines()[-1]} | | | | | |")
                continue
            spread = row["ratio_spread"]
            bypassed = ", ".join(f"{reason} {count}" for reason, count in row["bypassed"].items()) or "none"
            print(
                f"| {name} | {row['version']} | {'yes' if row['same_results'] else 'NO' if row['deterministic'] else 'differ without it too'} "
                f"| {row['ratio']:.4f} ({spread['min']:.4f} to {spread['max']:.4f}) | {row['aa']:.4f} "
                f"| {row['nvml_at_limit'] / MIB:.0f} of {row['limit'] / MIB:.0f} | {bypassed} | {sum(row['violations'].values())} |")
    return 0
