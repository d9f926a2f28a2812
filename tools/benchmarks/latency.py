"""The tables of latencies: beside the alternatives, beside trainings, other services, by level of preemption. No figure is written here."""

import re

import intervals
from cells import over_all_requests, p99_of, table, verdict
from intervals import of_blocks, of_runs

# The arms of the two comparisons: name in the page, name in `beside_one_training`, name in `rows_ms`.
PEERS = [
    ("alone, again", "alone again", None),
    ("time slicing", "time slicing", "time slicing"),
    ("**Sluice**, automatic holds", "sluice, automatic holds", "sluice"),
    ("**Sluice**, holds off", "sluice, holds off", None),
    ("HAMi-core", "hami-core", None),
    ("XSched level 1", "xsched", "xsched level 1"),
    ("XSched level 3 (TSG)", None, "xsched level 3 TSG"),
]


def peer_points(results):
    """Of each arm and run: p50 and p99 of alone, and the training's rate of alone (None where it was not measured)."""
    peers = results.load("peers")
    first = {row["arm"]: row for row in peers["beside_one_training"]}
    second = {row["arm"]: row for row in peers["run_2026_11_28"]["rows_ms"]}
    rate = first["training alone"]["images_per_s"]
    # Recorded in words, because it is of another machine.
    other_rate = float(re.search(r"alone ([\d.]+)", peers["run_2026_11_28"]["best_effort"])[1])
    points = {}
    for name, early, late in PEERS:
        if early:
            row, alone = first[early], first["alone"]
            points[name, "2026-11-22"] = (
                row["p50_us"] / alone["p50_us"],
                row["p99_us"] / alone["p99_us"],
                row["images_per_s"] / rate if "images_per_s" in row else None,
            )
        if late:
            row, alone = second[late], second["alone"]
            points[name, "2026-11-28"] = (row["p50"] / alone["p50"], row["p99"] / alone["p99"], row["be"] / other_rate)
    return points


def pair_shares(results):
    """Of each arm of two trainings that asked for 30 and 70 %: the first one's share in %, and the sum in images/s."""
    names = {"time slicing (asks nothing)": "time slicing", "hami-core": "HAMi-core", "xsched": "XSched level 1"}
    rows = {row["arm"]: row["images_per_s"] for row in results.load("peers")["pairs_asked_30_70"]}
    return {
        names.get(arm, "**Sluice**, automatic holds"): f"{100 * rates[0] / sum(rates):.1f} %, {sum(rates)}" for arm, rates in rows.items()
    }


def peers(results):
    points, pairs = peer_points(results), pair_shares(results)

    def cells(name, date):
        found = points.get((name, date))
        return [f"{found[0]:.2f}, **{found[1]:.2f}**", f"{found[2]:.2f}" if found[2] else ""] if found else ["not run", ""]

    head = [
        "of alone",
        "2026-11-22: LC p50, p99",
        "training",
        "2026-11-28: LC p50, p99",
        "training",
        "2026-11-22, asked 30 / 70: first, sum in images/s",
    ]
    return table(head, [[name, *cells(name, "2026-11-22"), *cells(name, "2026-11-28"), pairs.get(name, "")] for name, *_ in PEERS])


SERVE = [
    ("alone, again (A/A)", "alone2", None),
    ("one training, time slicing", "stock1", None),
    ("one training, MPS", "mps1", None),
    ("one training, **Sluice**, holds off", "plain1", 1.05),
    ("one training, **Sluice**, automatic holds", "auto1", None),
    ("one training, **Sluice**, `sluice_hint`", "api1", 0.95),
    ("two trainings, time slicing", "stock2", None),
    ("two trainings, MPS", "mps2", None),
    ("two trainings, **Sluice**, holds off", "plain2", 1.05),
    ("two trainings, **Sluice**, automatic holds", "auto2", None),
]


def is_ours(arm):
    """Whether an arm of serve.py is one of Sluice, which has goals."""
    return arm.startswith(("plain", "auto", "api"))


def serve(results):
    since, before = results.serve_since(), results.serve_before()
    noise = abs(p99_of(since, "alone2", "alone").value - 1)

    def cells(runs, arm):
        found = p99_of(runs, arm, "alone")
        return [f"{found.text()}; {over_all_requests(runs, arm).range()}; {found.runs}" if found else ""]

    def kept(arm):
        rates = [run[arm]["be_sum"] for run in since + before if "be_sum" in run.get(arm, {})]
        if not rates:
            return ""
        found = of_runs(rates)
        goal = f"; {verdict(found, 0.92 if arm.endswith('2') else 0.93, least=True)}" if is_ours(arm) else ""
        return found.text() + goal

    def judged(arm, goal):
        if not is_ours(arm):
            return ""
        found = p99_of(since, arm, "alone") or p99_of(before, arm, "alone")
        return verdict(found, goal or round(1 + noise, 3))

    rows = [[name, *cells(since, arm), *cells(before, arm), kept(arm), judged(arm, goal)] for name, arm, goal in SERVE]
    return table(
        ["LC p99 of alone", "from 2026-11-26: by blocks; all requests; runs", "before", "trainings keep; goal", "goal of p99"], rows
    )


def decode_blocks(result, arm, what, alone):
    """p99 of a decode service's `what` over that of the same in the arm `alone`."""
    of = [result["rows"][name]["decode"][what]["blocks_p99"] for name in (arm, alone)]
    return of_blocks([list(zip(*of))], intervals.ratio_of_medians)


def kept_of_left(result, arm):
    """The neighbour's rate over its rate alone, by blocks, over what the service's own GPU time leaves."""
    left = result["rows"][arm]["be"]["left"]
    alone = "light-alone" if arm == "light" else "be-alone"
    rounds = list(zip(result["rows"][arm]["be"]["rates"], (left * rate for rate in result["rows"][alone]["be"]["rates"])))
    return of_blocks([rounds], intervals.ratio_of_medians)


def services(results):
    decode = [results.load(name) for name in ("decode-graph", "decode-graph-h100")]
    at_random = [[results.load(name)["rows"]] for name in ("random", "random-h100")]
    rows = []

    def add(what, noise, sliced, found, goal="", least=False):
        """A row with an estimate of each GPU that was measured."""
        judged = " / ".join(verdict(each, goal, least) for each in found) if goal else ""
        rows.append(
            [what, " / ".join(each.text() for each in noise), " / ".join(sliced), " / ".join(each.text() for each in found), judged]
        )

    for what, shown, goal in (("token", "decode by CUDA graphs: time per token p99", 1.0), ("first", "the same: first token p99", 1.05)):
        found, noise, sliced = ([decode_blocks(run, arm, what, "alone") for run in decode] for arm in ("auto", "alone2", "stock"))
        # Time slicing is too slow for the arrivals, so its first tokens only tell how long the block was.
        add(shown, noise, [f"{each.value:.2f}" for each in sliced] if what == "token" else ["falls behind"], found, goal)
    add("the same: the training's rate of what the service leaves", [], [], [kept_of_left(run, "auto") for run in decode], 0.97, least=True)
    add(
        "decode beside kernels that draw little power: time per token p99",
        [],
        [],
        [decode_blocks(run, "light", "token", "alone") for run in decode],
    )
    found, noise = ([p99_of(run, arm, "alone-random") for run in at_random] for arm in ("auto1-random", "alone-random2"))
    add("ResNet-50 at random times beside a training: p99", noise, [], found, 1.05)
    # The arms of the rule that the hook has now; the second run has no time slicing.
    short = [results.load(f"short-requests-{build}")["rows"] for build in ("6a61e675", "5b2f09ce", "97191883")]
    short[2]["slo"] = short[2]["sluice"]
    found, noise = (p99_of(short, arm, "alone") for arm in ("slo", "alone2"))
    sliced = p99_of(short[:1], "stock", "alone")
    add("requests of 0.25 ms at random times, 300 a second, beside a training: p99, H200 only", [noise], [f"{sliced.value:.1f}"], [found], 1.8)
    eager = results.load("decode-eager")
    noise = decode_blocks(eager, "alone2", "token", "alone")
    sliced = decode_blocks(eager, "stock", "token", "alone").value
    add(
        "decode, eager: time per token p99",
        [noise],
        [f"{sliced:.3f}"],
        [decode_blocks(eager, "auto", "token", "alone")],
        round(sliced * (1 + abs(noise.value - 1)), 3),
    )
    both = results.load("two-services")["rows"]
    resnet = {
        arm: {"blocks_p99": both[arm]["resnet"]["latency"]["blocks_p99"]} for arm in ("resnet-alone", "resnet-alone2", "stock", "auto")
    }
    sliced, noise, found = (p99_of([resnet], arm, "resnet-alone") for arm in ("stock", "resnet-alone2", "auto"))
    add("ResNet-50 beside decode and a training: p99", [noise], [f"{sliced.value:.2f}"], [found], 1.35)
    medians = {
        arm: of_blocks(
            [list(zip(*(both[of]["decode"]["token"]["blocks_p50"] for of in (arm, "decode-alone"))))], intervals.ratio_of_medians
        )
        for arm in ("auto", "stock")
    }
    late = {arm: decode_blocks({"rows": both}, arm, "token", "decode-alone") for arm in ("auto", "stock")}
    sliced, found = (f"{medians[arm].text()}; {late[arm].text()}" for arm in ("stock", "auto"))
    rows.append(
        ["decode beside ResNet-50 and a training: time per token p50; p99", "", sliced, found, f"p50 {verdict(medians['auto'], 1.15)}"]
    )
    return table(["of alone, H200 / H100", "A/A", "time slicing", "Sluice", "goal"], rows)


def preemption(results):
    measured = results.load("preempt")["rows"]
    rows = []
    for level in ("full",):
        cells = []
        for length in (10, 100, 1000, 10000):
            pair = {row["hint"]: row for row in measured if row["level"] == level and row["be_kernel_us"] == length}
            noise = pair[False]["aa_noise"] * pair[False]["lc_alone_us"]["p99"]
            cells.append(f"{pair[False]['added_p99_us']:.0f}; {pair[True]['added_p99_us']:.0f}; {noise:.0f}")
        # The bars are those of level full, beside kernels that are longer than a switch.
        longer = [row for row in measured if row["level"] == level and row["be_kernel_us"] >= 1000]
        plain, hinted = (max(row["added_p99_us"] for row in longer if row["hint"] == hint) for hint in (False, True))
        rows.append([f"`{level}`", *cells, f"{verdict(plain, 210)}; {verdict(hinted, 10)}" if level == "full" else ""])
    stock = {
        length: next(row for row in measured if row["level"] == "full" and not row["hint"] and row["be_kernel_us"] == length)
        for length in (10, 100, 1000, 10000)
    }
    rows.append(["time slicing", *(f"{row['lc_stock_us']['p99'] - row['lc_alone_us']['p99']:.0f}" for row in stock.values()), ""])
    return table(
        ["µs added to p99: without hint; hinted; A/A", "BE kernels of 10 µs", "100 µs", "1 ms", "10 ms", "goal at 1 and 10 ms"], rows
    )
