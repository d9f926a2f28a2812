"""The table of what was measured on simulated GPUs. No figure is written here."""

import re

import intervals
from cells import table, verdict
from intervals import of_blocks


def cluster(results):
    """Rows of the cluster tests."""
    run, rows = results.load("cluster"), []
    figures = {test["name"]: test["figures"] for test in run["tests"]}
    asked = [
        [float(part) for part in re.findall(r"[\d.]+", text)]
        for text in figures["30_share.eight_pods_share_two_gpus"].values()
        if isinstance(text, str)
    ]
    rows.append(
        [
            "8 pods on 2 GPUs, 0.10 / 0.20 / 0.30 / 0.40 on each",
            f"farthest {100 * max(abs(want - got) for want, got in asked):.2f} points off",
            "2 points",
        ]
    )
    hundred = figures["31_hundred.hundred_pods_get_exactly_their_limits"]
    rows.append(
        [
            "100 pods at once on one node",
            f"{hundred['mismatches']} limits wrong; all bound after {hundred['all_bound_s']} s; Allocate p99 {hundred['allocate_p99_ms']} ms",
            "0; 10 s; 5 ms",
        ]
    )
    reports = figures["61_latency.latency_critical_beside_best_effort"]["rows"]
    latency = {
        arm: of_blocks([[row["latency_us"]["p99"] / 1000 for row in reports if row["arm"] == arm]], intervals.median).text(2)
        for arm in dict.fromkeys(row["arm"] for row in reports)
    }
    names = {"alone": "alone", "with": "with Sluice", "off": "switched off"}
    rows.append(
        [
            "LC example beside the BE example, p99 in ms",
            "; ".join(f"{names[arm]} {shown}" for arm, shown in latency.items()),
            "less than switched off",
        ]
    )
    unoptimised = figures["95_scale.thousand_nodes_with_and_without_the_extender"]["extender_to_plain_ratios"]
    ratios = [
        *(results.load(name)["tests"][0]["figures"]["extender_to_plain_ratios"] for name in ("cluster-scale", "cluster-scale-1.36")),
        unoptimised,
    ]
    rows.append(
        [
            "1,000 nodes: pods/s with the extender / without; Kubernetes 1.36; the full set's run of a development build",
            "; ".join(of_blocks([each], intervals.median).text(2) for each in ratios),
            "0.95",
        ]
    )
    later = results.load("cluster-1.36")
    rows.append(
        [
            "tests passed at the first try, Kubernetes 1.34 (full set); 1.36",
            f"{run['passed']} of {run['passed'] + run['failed']}; {later['passed']} of {later['passed'] + later['failed']}",
            "all",
        ]
    )
    return rows


def simulator(results):
    """Rows of tests and benchmarks on simulated GPUs without Kubernetes."""
    passed = [results.load(name) for name in ("disturb", "disturb-120s")]
    rows = [
        [
            "shares after disturbances; a part of the scenarios over 118 s",
            "; ".join(f"{run['passed']} of {run['passed'] + run['failed']} pass" for run in passed),
            "all",
        ]
    ]
    floods = [results.load(name) for name in ("flood", "flood-h200", "flood-h100")]
    off = [100 * max(abs(tenant["flood_share"] - tenant["entitled"]) for tenant in run["tenants"]) for run in floods]
    late = [run["flood"]["memory_answer_us"]["p99"] / 1000 for run in floods]
    measured = "; ".join(f"{points:.2f}, {answer:.2f}" for points, answer in zip(off, late))
    judged = "; ".join(verdict(each, 1) for each in late)
    rows.append(
        [
            "flood of the manager, points off, p99 of answers about memory in ms: 2 cores; H200's host; H100's host",
            measured,
            f"points {verdict(max(off), 1)}; ms {judged}",
        ]
    )
    real, simulated = (results.load(f"calibrate-{of}")["rows"] for of in ("real", "sim"))
    names = ("lc-beside-1ms", "lc-beside-10ms", "lc-alone")
    ratios = [simulated[name]["latency_us"]["p50"] / real[name]["latency_us"]["p50"] for name in names]
    rows.append(
        [
            "simulator / H200, LC p50 beside kernels of 1 ms; of 10 ms; alone",
            "; ".join(f"{each:.3f}" for each in ratios),
            "; ".join(verdict(abs(each - 1), 0.1) for each in ratios),
        ]
    )
    return rows


def simulated(results):
    return table(["on simulated GPUs", "measured", "goal"], cluster(results) + simulator(results))
