"""The tables of docs/benchmarks.md. Each function reads recorded results and returns the lines of one table; none contains a measured figure."""

import re
import statistics

import intervals
from intervals import of_blocks, of_runs


def verdict(found, goal, least=False):
    """Whether a value or an estimate meets its goal, and whether the estimate's interval contains the goal."""
    value = getattr(found, "value", found)
    low, high = getattr(found, "interval", None) or (goal, goal)
    open_still = ", within the interval" if low < goal < high else ""
    return f"{goal}: {'met' if (value >= goal if least else value <= goal) else '**not met**'}{open_still}"


def p99_of(runs, arm, alone):
    """p99 of an arm over that of `alone`, by blocks."""
    rounds = [list(zip(rows[arm]["blocks_p99"], rows[alone]["blocks_p99"])) for rows in runs if rows.get(arm, {}).get("blocks_p99")]
    return of_blocks(rounds, intervals.ratio_of_medians) if rounds else None


def over_all_requests(runs, arm):
    """p99 of all requests of a run over that of its arm alone."""
    return of_runs([rows[arm]["p99_of_alone"] for rows in runs if "p99_of_alone" in rows.get(arm, {})])


def table(head, rows):
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]


# The arms of the two comparisons: name in the page, name in `beside_one_training`, name in `rows_ms`.
PEERS = [
    ("alone, again", "alone again", None), ("time slicing", "time slicing", "time slicing"), ("**Sluice**, automatic holds", "sluice, automatic holds", "sluice"),
    ("**Sluice**, holds off", "sluice, holds off", None), ("HAMi-core", "hami-core", None),
    ("XSched level 1", "xsched", "xsched level 1"), ("XSched level 3 (TSG)", None, "xsched level 3 TSG"),
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
            points[name, "2026-11-22"] = (row["p50_us"] / alone["p50_us"], row["p99_us"] / alone["p99_us"], row["images_per_s"] / rate if "images_per_s" in row else None)
        if late:
            row, alone = second[late], second["alone"]
            points[name, "2026-11-28"] = (row["p50"] / alone["p50"], row["p99"] / alone["p99"], row["be"] / other_rate)
    return points


def pair_shares(results):
    """Of each arm of two trainings that asked for 30 and 70 %: the first one's share in %, and the sum in images/s."""
    names = {"time slicing (asks nothing)": "time slicing", "hami-core": "HAMi-core", "xsched": "XSched level 1"}
    rows = {row["arm"]: row["images_per_s"] for row in results.load("peers")["pairs_asked_30_70"]}
    return {names.get(arm, "**Sluice**, automatic holds"): f"{100 * rates[0] / sum(rates):.1f} %, {sum(rates)}" for arm, rates in rows.items()}


def peers(results):
    points, pairs = peer_points(results), pair_shares(results)

    def cells(name, date):
        found = points.get((name, date))
        return [f"{found[0]:.2f}, **{found[1]:.2f}**", f"{found[2]:.2f}" if found[2] else ""] if found else ["not run", ""]

    head = ["of alone", "2026-11-22: LC p50, p99", "training", "2026-11-28: LC p50, p99", "training", "2026-11-22, asked 30 / 70: first, sum in images/s"]
    return table(head, [[name, *cells(name, "2026-11-22"), *cells(name, "2026-11-28"), pairs.get(name, "")] for name, *_ in PEERS])


SERVE = [
    ("alone, again (A/A)", "alone2", None), ("one training, time slicing", "stock1", None), ("one training, MPS", "mps1", None),
    ("one training, **Sluice**, holds off", "plain1", 1.05), ("one training, **Sluice**, automatic holds", "auto1", None), ("one training, **Sluice**, `sluice_hint`", "api1", 0.95),
    ("two trainings, time slicing", "stock2", None), ("two trainings, MPS", "mps2", None),
    ("two trainings, **Sluice**, holds off", "plain2", 1.05), ("two trainings, **Sluice**, automatic holds", "auto2", None),
]


def serve(results):
    since, before = results.serve_since(), results.serve_before()
    noise = abs(p99_of(since, "alone2", "alone").value - 1)

    def cells(runs, arm):
        found = p99_of(runs, arm, "alone")
        return [f"{found.text()}; {over_all_requests(runs, arm).range()}; {found.runs}" if found else ""]

    def kept(arm):
        rates = [run[arm]["be_sum"] for run in since + before if "be_sum" in run.get(arm, {})]
        return of_runs(rates).text() if rates else ""

    def judged(arm, goal):
        if not arm.startswith(("plain", "auto", "api")):
            return ""
        found = p99_of(since, arm, "alone") or p99_of(before, arm, "alone")
        return verdict(found, goal or round(1 + noise, 3))

    rows = [[name, *cells(since, arm), *cells(before, arm), kept(arm), judged(arm, goal)] for name, arm, goal in SERVE]
    return table(["LC p99 of alone", "from 2026-11-26: by blocks; all requests; runs", "before", "trainings keep", "goal"], rows)


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
        rows.append([what, " / ".join(each.text() for each in noise), " / ".join(sliced), " / ".join(each.text() for each in found), judged])

    for what, shown, goal in (("token", "decode by CUDA graphs: time per token p99", 1.0), ("first", "the same: first token p99", 1.05)):
        found, noise, sliced = ([decode_blocks(run, arm, what, "alone") for run in decode] for arm in ("auto", "alone2", "stock"))
        # Time slicing is too slow for the arrivals, so its first tokens only tell how long the block was.
        add(shown, noise, [f"{each.value:.2f}" for each in sliced] if what == "token" else ["falls behind"], found, goal)
    add("the same beside kernels that draw little power: time per token p99", [], [], [decode_blocks(run, "light", "token", "alone") for run in decode])
    add("the same: the training's rate of what the service leaves", [], [], [kept_of_left(run, "auto") for run in decode], 0.97, least=True)
    found, noise = ([p99_of(run, arm, "alone-random") for run in at_random] for arm in ("auto1-random", "alone-random2"))
    add("ResNet-50 at random times beside a training: p99", noise, [], found, 1.05)
    eager = results.load("decode-eager")
    noise = decode_blocks(eager, "alone2", "token", "alone")
    sliced = decode_blocks(eager, "stock", "token", "alone").value
    add("decode, eager: time per token p99", [noise], [f"{sliced:.3f}"], [decode_blocks(eager, "auto", "token", "alone")], round(sliced * (1 + abs(noise.value - 1)), 3))
    both = results.load("two-services")["rows"]
    resnet = {arm: {"blocks_p99": both[arm]["resnet"]["latency"]["blocks_p99"]} for arm in ("resnet-alone", "resnet-alone2", "stock", "auto")}
    sliced, noise, found = (p99_of([resnet], arm, "resnet-alone") for arm in ("stock", "resnet-alone2", "auto"))
    add("ResNet-50 beside decode and a training: p99", [noise], [f"{sliced.value:.2f}"], [found], 1.35)
    medians = {arm: of_blocks([list(zip(*(both[of]["decode"]["token"]["blocks_p50"] for of in (arm, "decode-alone"))))], intervals.ratio_of_medians) for arm in ("auto", "stock")}
    late = {arm: decode_blocks({"rows": both}, arm, "token", "decode-alone") for arm in ("auto", "stock")}
    sliced, found = (f"{medians[arm].text()}; {late[arm].text()}" for arm in ("stock", "auto"))
    rows.append(["decode beside ResNet-50 and a training: time per token p50; p99", "", sliced, found, f"p50 {verdict(medians['auto'], 1.15)}"])
    return table(["of alone, H200 / H100", "A/A", "time slicing", "Sluice", "goal"], rows)


def shares(results):
    rows, tenants = [], results.tenants()
    for name, least in (("pair 30/70", 0.98), ("four 10/20/30/40", 0.97), ("the fourth idle half of the time", None)):
        off = of_runs([run[name]["farthest_points"] for run in tenants])
        total = of_runs([run[name]["sum_of_alone"] for run in tenants])
        shown = {"pair 30/70": "30 / 70", "four 10/20/30/40": "10 / 20 / 30 / 40"}.get(name, f"the same, {name}")
        rows.append([shown, f"{off.text(2)}; {off.runs} runs", total.text(), verdict(off, 0.5), verdict(total, least, least=True) if least else ""])
    served = [run for run in results.serve_since() + results.serve_before() if "points_off" in run.get("auto2", {})]
    off = of_runs([run["auto2"]["points_off"] for run in served])
    rows.append(["two trainings 1 : 2 beside the ResNet-50 service", f"{off.text(2)}; {off.runs} runs", of_runs([run["auto2"]["be_sum"] for run in served if "be_sum" in run["auto2"]]).text(), verdict(off, 1.0), ""])
    spans = results.part("disturb-h200", "disturb")["rows"]
    after = [row["after_stop"] for row in spans.values()]
    rows.append(["30 / 70; 10 / 20 / 30 / 40: the minute after the manager was stopped for 4 s", "; ".join(f"{row['span_points']:.2f}" for row in after), "", verdict(max(row["span_points"] for row in after), after[0]["span_bar"]), ""])
    gangs = [list(zip(*(result["rows"]["gangs"]["ratio_rounds"][job] for job in "ab"))) for result in (results.load("gangs"), results.load("gangs-tp"))]
    off = of_blocks(gangs, lambda rounds: 100 * abs(statistics.median(a / (a + b) for a, b in rounds) - 0.3))
    total = of_blocks(gangs, lambda rounds: statistics.median(a + b for a, b in rounds))
    rows.append(["30 / 70, each training on the same two GPUs (`--gangs`)", f"{off.text(2)}; {off.runs} runs", total.text(), verdict(off, 2), verdict(total, 0.95, least=True)])
    return table(["asked", "points off the farthest tenant's share of the sum", "sum of alone", "goal, points", "goal, sum"], rows)


def exactness(results):
    rows = []
    for device, name in (("H200", "memory"), ("H100", "memory-h100")):
        run = results.load(name)
        # The older script recorded no limit; its limit was the same.
        limit = run.get("limit_bytes", 10 * 2**30) / 2**20
        above = [each["gpu_used_mib_at_limit"] - each["gpu_used_mib_before"] - limit for each in run["allocators"].values()]
        rows.append([f"MiB that NVML shows above a limit of 10 GiB, PyTorch's three allocators, {device}, build {run['commit'][:8]}", f"{min(above):+.0f} to {max(above):+.0f}", verdict(max(above), 0)])
    ten = results.load("ten-clients")
    rows.append([f"ten programs with {ten['limit_mib']} MiB each fill an H200", f"NVML {-max(ten['over_mib'].values())} MiB below each limit; {ten['gpu_used_mib']} of {ten['total_mib']} MiB used", "no out-of-memory of the device"])
    coverage = [row for name in ("coverage", "coverage-2", "coverage-ddp") for row in results.load(name)["rows"].values()]
    rows.append(["workloads of PyTorch, transformers, JAX, CuPy, numba, DDP under the hook", f"the same results in {sum(row['same_results'] for row in coverage)} of {len(coverage)} runs; {sum(bool(row['violations']) for row in coverage)} with a violation", "all; 0"])
    checks = [list(results.load(name)["checks"].values()) for name in ("identical", "identical-api")]
    checks += [[said == "ok" for said in results.load(name)["numbers"].values()] for name in ("contract", "contract-h100")]
    what = "the same bits: a training preempted by quanta; kernels that are not idempotent, preempted by API; the preemption contract, H200; H100"
    rows.append([what, "; ".join(f"{sum(each)} of {len(each)} checks" for each in checks), "all"])
    return table(["what", "measured", "goal"], rows)


def preemption(results):
    measured = results.load("preempt")["rows"]
    rows = []
    for level in ("full", "device", "host", "mps-gate"):
        cells = []
        for length in (10, 100, 1000, 10000):
            pair = {row["hint"]: row for row in measured if row["level"] == level and row["be_kernel_us"] == length}
            noise = pair[False]["aa_noise"] * pair[False]["lc_alone_us"]["p99"]
            cells.append(f"{pair[False]['added_p99_us']:.0f}; {pair[True]['added_p99_us']:.0f}; {noise:.0f}")
        rows.append([f"`{level}`", *cells])
    stock = {length: next(row for row in measured if row["level"] == "full" and not row["hint"] and row["be_kernel_us"] == length) for length in (10, 100, 1000, 10000)}
    rows.append(["time slicing", *(f"{row['lc_stock_us']['p99'] - row['lc_alone_us']['p99']:.0f}" for row in stock.values())])
    return table(["µs added to p99: without hint; hinted; A/A", "BE kernels of 10 µs", "100 µs", "1 ms", "10 ms"], rows)


def cost(results):
    rows = []
    for workload in ("resnet50", "compiled", "graph"):
        found = results.load(f"overhead-{workload}")["workloads"][workload]
        ratio = of_blocks([[(each["h1"] + each["h2"], each["u1"] + each["u2"]) for each in found["rounds"]]], intervals.median_of_ratios)
        noise = of_blocks([[(each["u2"], each["u1"]) for each in found["rounds"]]], intervals.median_of_ratios)
        rows.append([f"training, {workload}: rate under the hook / without", ratio.text(4), noise.text(4), verdict(ratio, 0.998, least=True)])
    later = [results.load("lc-overhead")["arms"], results.part("restructured-build", "lc-overhead")["arms"]]
    found, noise = (p99_of(later, of, "bare") for of in ("auto", "bare2"))
    rows.append(["ResNet-50 service alone, hook, manager and automatic hints: p99 / without", found.text(), noise.text(), verdict(found, round(1 + abs(noise.value - 1), 3))])
    launch = results.load("launch-bound-h200")["rows"]
    again, *found = (of_blocks([launch[arm]["ratios"]], intervals.median) for arm in ("plain2", "lc", "be"))
    rows.append(["300 launches and a wait, latency-critical; best effort: time / without", "; ".join(each.text() for each in found), again.text(), "; ".join(verdict(each, 1.005) for each in found)])
    hosts = hook_hosts(results)
    medians = [statistics.median(run["added_ns"]["p50"] for run in runs) for runs in hosts.values()]
    noise = [statistics.median(run["noise_ns"] for run in runs) for runs in hosts.values()]
    rows.append([f"ns added to a launch at p50, {'; '.join(hosts)}", "; ".join(f"{each:.0f}" for each in medians), "; ".join(f"{each:.0f}" for each in noise), "; ".join(verdict(each, 30) for each in medians)])
    hand_offs = [results.load("hand-off"), results.load("hand-off-h100")["3d41571a"]["real"]]
    polling = [next(arm for arm in run["arms"] if arm["name"] != "parked") for run in hand_offs]
    late = [arm["hand_off_us"]["p99"] for arm in polling]
    measured = "; ".join(f"{of_blocks([arm['block_p50_us']], intervals.median).text(0)}, {each:.0f}" for arm, each in zip(polling, late))
    builds = [run["commit"] for run in hand_offs]
    rows.append([f"hand-off by tokens, p50, p99 in µs, H200's host (build {builds[0]}); H100's host ({builds[1]})", measured, "", "; ".join(f"p99 {verdict(each, 60)}" for each in late)])
    inspection = [results.load("inspection-h200")["difference"], *(each["difference"] for each in results.load("inspection-processes").values())]
    found = of_runs([100 * each for each in inspection])
    rows.append(["inspection of 50 processes, % of a core", f"{found.text(2)}; {found.runs} runs", "", verdict(found, 1)])
    return table(["what", "Sluice", "A/A", "goal"], rows)


def hook_hosts(results):
    """Results of `sluice-dev bench hook` by host and build."""
    return {
        "three H200's hosts (builds 1f5d74a0": [results.load("bench-hook")["result"]],
        "21e04824": [results.load("bench-hook-h200")],
        "66d724f6)": [results.load("bench-hook-66d724f6")],
        "an H100's host (a18bace3, median of 10 runs)": [run for run in results.load("bench-hook-h100")["runs"] if run["hook"] == "a18bace3"],
    }


def cluster(results):
    """Rows of the cluster tests."""
    run, rows = results.load("cluster"), []
    figures = {test["name"]: test["figures"] for test in run["tests"]}
    asked = [[float(part) for part in re.findall(r"[\d.]+", text)] for text in figures["30_share.eight_pods_share_two_gpus"].values() if isinstance(text, str)]
    rows.append(["8 pods on 2 GPUs, 0.10 / 0.20 / 0.30 / 0.40 on each", f"farthest {100 * max(abs(want - got) for want, got in asked):.2f} points off", "2 points"])
    hundred = figures["31_hundred.hundred_pods_get_exactly_their_limits"]
    rows.append(["100 pods at once on one node", f"{hundred['mismatches']} limits wrong; all bound after {hundred['all_bound_s']} s; Allocate p99 {hundred['allocate_p99_ms']} ms", "0; 10 s; 5 ms"])
    reports = figures["61_latency.latency_critical_beside_best_effort"]["rows"]
    latency = {arm: of_blocks([[row["latency_us"]["p99"] / 1000 for row in reports if row["arm"] == arm]], intervals.median).text(2) for arm in dict.fromkeys(row["arm"] for row in reports)}
    rows.append(["LC example beside the BE example, p99 in ms", "; ".join(f"{arm} {shown}" for arm, shown in latency.items()), "below Sluice switched off"])
    unoptimised = figures["95_scale.thousand_nodes_with_and_without_the_extender"]["extender_to_plain_ratios"]
    ratios = [*(results.load(name)["tests"][0]["figures"]["extender_to_plain_ratios"] for name in ("cluster-scale", "cluster-scale-1.36")), unoptimised]
    rows.append(["1,000 nodes: pods/s with the extender / without; Kubernetes 1.36; the full set's run of a development build", "; ".join(of_blocks([each], intervals.median).text(2) for each in ratios), "0.95"])
    later = results.load("cluster-1.36")
    rows.append(["tests passed at the first try, Kubernetes 1.34 (full set); 1.36", f"{run['passed']} of {run['passed'] + run['failed']}; {later['passed']} of {later['passed'] + later['failed']}", "all"])
    return rows


def simulator(results):
    """Rows of tests and benchmarks on simulated GPUs without Kubernetes."""
    passed = [results.load(name) for name in ("disturb", "disturb-120s")]
    rows = [["shares after disturbances; a part of the scenarios over 118 s", "; ".join(f"{run['passed']} of {run['passed'] + run['failed']} pass" for run in passed), "all"]]
    floods = [results.load(name) for name in ("flood", "flood-h200", "flood-h100")]
    off = [100 * max(abs(tenant["flood_share"] - tenant["entitled"]) for tenant in run["tenants"]) for run in floods]
    late = [run["flood"]["memory_answer_us"]["p99"] / 1000 for run in floods]
    measured = "; ".join(f"{points:.2f}, {answer:.2f}" for points, answer in zip(off, late))
    judged = "; ".join(verdict(each, 1) for each in late)
    rows.append(["flood of the manager, points off, p99 of answers about memory in ms: 2 cores; H200's host; H100's host", measured, f"points {verdict(max(off), 1)}; ms {judged}"])
    real, simulated = (results.load(f"calibrate-{of}")["rows"] for of in ("real", "sim"))
    names = ("lc-beside-1ms", "lc-beside-10ms", "lc-alone")
    ratios = [simulated[name]["latency_us"]["p50"] / real[name]["latency_us"]["p50"] for name in names]
    rows.append(["simulator / H200, LC p50 beside kernels of 1 ms; of 10 ms; alone", "; ".join(f"{each:.3f}" for each in ratios), "; ".join(verdict(abs(each - 1), 0.1) for each in ratios)])
    return rows


def simulated(results):
    return table(["on simulated GPUs", "measured", "goal"], cluster(results) + simulator(results))


TABLES = {each.__name__: each for each in (peers, serve, services, shares, exactness, preemption, cost, simulated)}
