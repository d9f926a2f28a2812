#!/usr/bin/env python3
"""What the blocks of reef_server.py show, and the plot of the trade-off.

  tests/gpu/reef_report.py reef-server.json tradeoff.svg     draws the curve; needs matplotlib
"""

import json
import statistics
import sys

RT_GOAL, BE_GOAL = 1.10, 0.85


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def row(blocks):
    """Latencies of all blocks together, and the median of their rates."""
    latencies = [value for block in blocks for value in block["latencies_ms"]]
    told = {"n": len(latencies), "rate": statistics.median(block["rate"] for block in blocks), "rates": [round(block["rate"], 1) for block in blocks]}
    told |= {f"p{name}_ms": percentile(latencies, share) for name, share in (("50", 0.5), ("90", 0.9), ("99", 0.99), ("999", 0.999)) if latencies}
    told["blocks_p99_ms"] = [percentile(block["latencies_ms"], 0.99) for block in blocks if block["latencies_ms"]]
    told |= {key: sum(block.get(key, 0) for block in blocks) for key in ("changed", "failed", "preemptions")}
    told["kinds"] = max(block.get("kinds", 0) for block in blocks)
    told["clocks"] = [block.get("clock") for block in blocks]
    return told


def summarise(blocks, about):
    """The rows of all arms, relative to RT alone and to BE alone in the same server, and the goals."""
    rows = {arm: row(made) for arm, made in blocks.items() if made}
    for arm, each in rows.items():
        alone, be_alone = (rows.get(f"triton-{name}") for name in ("alone", "be-alone")) if arm.startswith("triton") else (rows.get("alone"), rows.get("be-alone"))
        if alone and each["n"]:
            each |= {f"p{part}_of_alone": each[f"p{part}_ms"] / alone[f"p{part}_ms"] for part in ("50", "90", "99")}
            each["median_p99_of_alone"] = statistics.median(each["blocks_p99_ms"]) / statistics.median(alone["blocks_p99_ms"])
        if be_alone and be_alone["rate"]:
            each["be_kept"] = each["rate"] / be_alone["rate"]
    pairs = {arm: (each["p99_of_alone"], each["be_kept"]) for arm, each in rows.items() if "p99_of_alone" in each and each.get("be_kept")}
    goals = {arm: f"p99 {late:.3f} of {RT_GOAL}, best effort {kept:.3f} of {BE_GOAL}: {'met' if late <= RT_GOAL and kept >= BE_GOAL else 'NOT MET'}" for arm, (late, kept) in pairs.items()}
    noise = abs(rows["alone2"]["p99_of_alone"] - 1) if "p99_of_alone" in rows.get("alone2", {}) else None
    wrong = [arm for arm, each in rows.items() if each["changed"] or each["failed"]]
    return {"ok": not wrong, "goals": goals, "rows": rows, "aa_noise_p99": noise, "wrong": wrong, "chosen": (about or {}).get("chosen")}


def plot(result, file):
    """BE kept over RT p99, one point an arm."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    rows = {arm: each for arm, each in result["rows"].items() if "p99_of_alone" in each and each.get("be_kept") and not arm.startswith("triton")}
    curve = sorted((int(arm.split()[1]), each) for arm, each in rows.items() if arm.startswith("split"))
    axes.plot([each["p99_of_alone"] for _, each in curve], [each["be_kept"] for _, each in curve], "o-", label="best effort limited to N SMs")
    for sms, each in curve:
        axes.annotate(str(sms), (each["p99_of_alone"], each["be_kept"]), textcoords="offset points", xytext=(4, -10), fontsize=8)
    for arm in ("chosen", "pause", "priorities", "pods", "stock", "mps"):
        if arm in rows:
            axes.plot(rows[arm]["p99_of_alone"], rows[arm]["be_kept"], "D" if arm == "chosen" else "s", label=arm)
    axes.axvline(RT_GOAL, color="grey", linewidth=0.7, linestyle=":")
    axes.axhline(BE_GOAL, color="grey", linewidth=0.7, linestyle=":")
    axes.set_xlabel("real-time p99 / alone")
    axes.set_ylabel("best-effort throughput / alone")
    axes.set_title(f"{result.get('network', '')} on {result.get('device', '')}", fontsize=10)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file)


if __name__ == "__main__":
    with open(sys.argv[1]) as opened:
        plot(json.load(opened), sys.argv[2])
