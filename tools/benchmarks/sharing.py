"""The tables of shares, of memory and results, and of the hook's own cost. No figure is written here."""

import statistics

import intervals
from cells import p99_of, table, verdict
from intervals import of_blocks, of_runs


def shares(results):
    rows, tenants = [], results.tenants()
    for name, least in (("pair 30/70", 0.98), ("four 10/20/30/40", 0.97), ("the fourth idle half of the time", None)):
        off = of_runs([run[name]["farthest_points"] for run in tenants])
        total = of_runs([run[name]["sum_of_alone"] for run in tenants])
        shown = {"pair 30/70": "30 / 70", "four 10/20/30/40": "10 / 20 / 30 / 40"}.get(name, f"the same, {name}")
        rows.append(
            [shown, f"{off.text(2)}; {off.runs} runs", total.text(), verdict(off, 0.5), verdict(total, least, least=True) if least else ""]
        )
    served = [run for run in results.serve_since() + results.serve_before() if "points_off" in run.get("auto2", {})]
    off = of_runs([run["auto2"]["points_off"] for run in served])
    rows.append(
        [
            "two trainings 1 : 2 beside the ResNet-50 service",
            f"{off.text(2)}; {off.runs} runs",
            of_runs([run["auto2"]["be_sum"] for run in served if "be_sum" in run["auto2"]]).text(),
            verdict(off, 1.0),
            "",
        ]
    )
    spans = results.part("disturb-h200", "disturb")["rows"]
    after = [row["after_stop"] for row in spans.values()]
    rows.append(
        [
            "30 / 70; 10 / 20 / 30 / 40: the minute after the manager was stopped for 4 s",
            "; ".join(f"{row['span_points']:.2f}" for row in after),
            "",
            verdict(max(row["span_points"] for row in after), after[0]["span_bar"]),
            "",
        ]
    )
    gangs = [
        list(zip(*(result["rows"]["gangs"]["ratio_rounds"][job] for job in "ab")))
        for result in (results.load("gangs"), results.load("gangs-tp"))
    ]
    off = of_blocks(gangs, lambda rounds: 100 * abs(statistics.median(a / (a + b) for a, b in rounds) - 0.3))
    total = of_blocks(gangs, lambda rounds: statistics.median(a + b for a, b in rounds))
    rows.append(
        [
            "30 / 70, each training on the same two GPUs (`--gangs`)",
            f"{off.text(2)}; {off.runs} runs",
            total.text(),
            verdict(off, 2),
            verdict(total, 0.95, least=True),
        ]
    )
    return table(["asked", "points off the farthest tenant's share of the sum", "sum of alone", "goal, points", "goal, sum"], rows)


def exactness(results):
    rows = []
    for device, name in (("H200", "memory"), ("H100", "memory-h100")):
        run = results.load(name)
        # The older script recorded no limit; its limit was the same.
        limit = run.get("limit_bytes", 10 * 2**30) / 2**20
        above = [each["gpu_used_mib_at_limit"] - each["gpu_used_mib_before"] - limit for each in run["allocators"].values()]
        rows.append(
            [
                f"MiB that NVML shows above a limit of 10 GiB, PyTorch's three allocators, {device}, build {run['commit'][:8]}",
                f"{min(above):+.0f} to {max(above):+.0f}",
                verdict(max(above), 0),
            ]
        )
    ten = results.load("ten-clients")
    rows.append(
        [
            f"ten programs with {ten['limit_mib']} MiB each fill an H200",
            f"NVML {-max(ten['over_mib'].values())} MiB below each limit; {ten['gpu_used_mib']} of {ten['total_mib']} MiB used",
            "no out-of-memory of the device",
        ]
    )
    coverage = [row for name in ("coverage", "coverage-2", "coverage-ddp") for row in results.load(name)["rows"].values()]
    same, violating = (sum(bool(row[key]) for row in coverage) for key in ("same_results", "violations"))
    what = "workloads of PyTorch, transformers, JAX, CuPy, numba, DDP under the hook"
    rows.append([what, f"the same results in {same} of {len(coverage)} runs; {violating} with a violation", "all; 0"])
    checks = [list(results.load(name)["checks"].values()) for name in ("identical", "identical-api")]
    checks += [[said == "ok" for said in results.load(name)["numbers"].values()] for name in ("contract", "contract-h100")]
    what = "the same bits: a training preempted by quanta; kernels that are not idempotent, preempted by API"
    what += "; the preemption contract, H200; H100"
    rows.append([what, "; ".join(f"{sum(each)} of {len(each)} checks" for each in checks), "all"])
    return table(["what", "measured", "goal"], rows + moved(results))


def moved(results):
    """Rows of memory that leaves the GPU and comes back."""
    first, last, older = (results.load(name) for name in ("residency", "residency-turns", "residency-f005c98e"))
    speeds, later = first["moves"]["of_pinned_copy"], first["moves"]["later_s"]
    stopped, over = first["suspend"]["rows"], older["overhead"]["over"]
    together = [result["turns"]["of_sequence"] for result in (last, first, older)]
    tail = last["turns"]["p99_us"]["beside"] / last["turns"]["p99_us"]["alone"]
    seconds = [later, stopped["left_s"]["max"], stopped["returned_s"]["max"]]
    return [
        [
            "20 GiB leave, return, in speeds of pinned copies; s later that an LC program is ready; until all has left, returned at suspension",
            "; ".join(f"{value:.2f}" for value in (speeds["out"], speeds["in"], *seconds)),
            f"{verdict(min(speeds.values()), 0.95, least=True)}; {verdict(later, 1.5)}; {verdict(max(seconds[1:]), 1.0)}",
        ],
        [
            "two trainings in 1.4 times one's memory against one after the other, builds " + ", ".join(each["commit"][:8] for each in (last, first, older)) + "; LC p99 beside them",
            "; ".join(f"{value:.3f}" for value in (*together, tail)) + "; the same bits",
            f"{verdict(together[0], 0.85, least=True)}; {verdict(tail, 1.1)}",
        ],
        [
            "memory that can leave and stays: rate lost by a training, a decode", f"{100 * over['train']['on']:.1f} %; {100 * over['tokens']['on']:.1f} %",
            f"{verdict(100 * over['train']['on'], 1)}; {verdict(100 * over['tokens']['on'], 1)}",
        ],
    ]


def cost(results):
    rows = []
    for workload in ("resnet50", "compiled", "graph"):
        found = results.load(f"overhead-{workload}")["workloads"][workload]
        ratio = of_blocks([[(each["h1"] + each["h2"], each["u1"] + each["u2"]) for each in found["rounds"]]], intervals.median_of_ratios)
        noise = of_blocks([[(each["u2"], each["u1"]) for each in found["rounds"]]], intervals.median_of_ratios)
        rows.append(
            [f"training, {workload}: rate under the hook / without", ratio.text(4), noise.text(4), verdict(ratio, 0.998, least=True)]
        )
    later = [results.load("lc-overhead")["arms"], results.part("restructured-build", "lc-overhead")["arms"]]
    found, noise = (p99_of(later, of, "bare") for of in ("auto", "bare2"))
    rows.append(
        [
            "ResNet-50 service alone, hook, manager and automatic hints: p99 / without",
            found.text(),
            noise.text(),
            verdict(found, round(1 + abs(noise.value - 1), 3)),
        ]
    )
    launch = results.load("launch-bound-h200")["rows"]
    again, *found = (of_blocks([launch[arm]["ratios"]], intervals.median) for arm in ("plain2", "lc", "be"))
    rows.append(
        [
            "300 launches and a wait, latency-critical; best effort: time / without",
            "; ".join(each.text() for each in found),
            again.text(),
            "; ".join(verdict(each, 1.005) for each in found),
        ]
    )
    hosts = hook_hosts(results)
    medians = [statistics.median(run["added_ns"]["p50"] for run in runs) for runs in hosts.values()]
    noise = [statistics.median(run["noise_ns"] for run in runs) for runs in hosts.values()]
    rows.append(
        [
            f"ns added to a launch at p50, {'; '.join(hosts)}",
            "; ".join(f"{each:.0f}" for each in medians),
            "; ".join(f"{each:.0f}" for each in noise),
            "; ".join(verdict(each, 30) for each in medians),
        ]
    )
    hand_offs = [results.load("hand-off"), results.load("hand-off-h100")["3d41571a"]["real"]]
    polling = [next(arm for arm in run["arms"] if arm["name"] != "parked") for run in hand_offs]
    late = [arm["hand_off_us"]["p99"] for arm in polling]
    measured = "; ".join(f"{of_blocks([arm['block_p50_us']], intervals.median).text(0)}, {each:.0f}" for arm, each in zip(polling, late))
    builds = [run["commit"] for run in hand_offs]
    rows.append(
        [
            f"hand-off by tokens, p50, p99 in µs, H200's host (build {builds[0]}); H100's host ({builds[1]})",
            measured,
            "",
            "; ".join(f"p99 {verdict(each, 60)}" for each in late),
        ]
    )
    inspection = [
        results.load("inspection-h200")["difference"],
        *(each["difference"] for each in results.load("inspection-processes").values()),
    ]
    found = of_runs([100 * each for each in inspection])
    rows.append(["inspection of 50 processes, % of a core", f"{found.text(2)}; {found.runs} runs", "", verdict(found, 1)])
    return table(["what", "Sluice", "A/A", "goal"], rows)


def hook_hosts(results):
    """Results of `sluice-dev bench hook` by host and build."""
    return {
        "three H200's hosts (builds 1f5d74a0": [results.load("bench-hook")["result"]],
        "21e04824": [results.load("bench-hook-h200")],
        "66d724f6)": [results.load("bench-hook-66d724f6")],
        "an H100's host (a18bace3, median of 10 runs)": [
            run for run in results.load("bench-hook-h100")["runs"] if run["hook"] == "a18bace3"
        ],
    }
