"""The result of decode.py: what each arm measured, against the arm without other programs, and the goals."""

import statistics

QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
# The arms that the others are compared with, and those that repeat them.
BASE = {"graph": {"decode": "alone"}, "eager": {"decode": "alone"}, "power": {"decode": "alone"}, "two-services": {"decode": "decode-alone", "resnet": "resnet-alone"}}


def kind(program):
    """decode, resnet or be."""
    return program.rstrip("0").partition(".")[0].partition("-")[0]


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measured(kind, told):
    """The series of a service's block, in us: time per token and first tokens, or latencies."""
    if kind == "resnet":
        return {"latency": told["latencies_us"]}
    return {"token": told["tokens_us"] or [0.0], "first": [row[1] for row in told["requests"]] or [0.0]}


def series(blocks):
    """Statistics of a series over an arm's blocks. Values that are compared are medians over blocks: a stall of the host affects one block only."""
    pooled = [value for block in blocks for value in block]
    row = {"n": len(pooled), "mean": statistics.fmean(pooled), "pooled_p50": percentile(pooled, 0.5), "pooled_p99": percentile(pooled, 0.99)}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        row[f"blocks_{name}"] = [percentile(block, share) for block in blocks]
        row[name] = statistics.median(row[f"blocks_{name}"])
    row["blocks_quantiles"] = [[percentile(block, share) for share in QUANTILES] for block in blocks]
    return row


def training(options, blocks, alone, gpu_us):
    """The training's rate, the part of its rate alone, and of what the services' own GPU time leaves."""
    name = next(program for program in blocks[0] if kind(program) == "be")
    row = {"rates": [block[name]["rate"] for block in blocks]}
    row["rate"] = statistics.median(row["rates"])
    row["longest_step_s"] = max(block[name]["longest_step_s"] for block in blocks)
    left, alone = [], alone.get(name)
    for block in blocks:
        busy_us = sum(gpu_us[kind(program)] * count(kind(program), told) for program, told in block.items() if kind(program) != "be")
        left.append(1 - 1e-6 * busy_us / block[name]["seconds"] if block[name]["seconds"] else 0.0)
    if alone:
        row |= {"kept": row["rate"] / alone, "left": statistics.median(left)}
        row["of_left"] = statistics.median(rate / alone / free for rate, free in zip(row["rates"], left) if free > 0)
    return row


def count(kind, told):
    """Requests of a block."""
    return len(told["latencies_us"] if kind == "resnet" else told["requests"])


def rows_of(options, blocks, gpu_us):
    rows = {}
    alone = {name: statistics.median(block[name]["rate"] for block in blocks[arm]) for arm, name in (("be-alone", "be"), ("light-alone", "be.light")) if blocks.get(arm)}
    for arm, of in blocks.items():
        if not of:
            continue
        rows[arm] = row = {}
        for program in of[0]:
            if kind(program) == "be":
                row["be"] = training(options, of, alone, gpu_us)
                continue
            told = [block[program] for block in of]
            by_block = [measured(kind(program), one) for one in told]
            row[kind(program)] = {metric: series([one[metric] for one in by_block]) for metric in by_block[0]}
            row[kind(program)] |= {"requests": sum(count(kind(program), one) for one in told), "holds": [one["holds"] for one in told]}
            if kind(program) == "decode":
                row["decode"] |= {"behind_s": [one["behind_s"] for one in told], "timeline": [one["requests"] for one in told], "timeline_is": told[0]["requests_are"], "request_api": [one["request_api"] for one in told]}
            else:
                row["resnet"]["slowest"] = [one["slowest"] for one in told]
    for row in rows.values():
        for service, base in BASE[options.case].items():
            if service in row and base in rows:
                for metric in ("token", "first", "latency"):
                    if metric in row[service]:
                        than = rows[base][service][metric]
                        row[service][metric] |= {f"{q}_of_alone": row[service][metric][q] / than[q] for q in ("p50", "p99", "mean", "pooled_p50", "pooled_p99") if than[q]}
    return rows


def wrong_answers(blocks):
    """Blocks whose answers differ from those of another arm with the same trace, or from the service's first answer."""
    wrong = []
    for number in range(max(map(len, blocks.values()))):
        found = {}
        for arm, of in blocks.items():
            for program, told in (of[number] if number < len(of) else {}).items():
                if "checksum" in told:
                    found.setdefault(len(told["requests"]), {})[f"{arm} {program}"] = told["checksum"]
                elif not told.get("answer_unchanged", True):
                    wrong.append([number, arm, program])
        wrong += [[number, sums] for sums in found.values() if len(set(sums.values())) > 1]
    return wrong


def goals(options, rows):
    """The bars of the measured arms: value, bar, whether it is met."""
    told = {}

    def value(arm, *path):
        at = rows.get(arm)
        for word in path:
            at = at.get(word) if at else None
        return at

    def noise(repeated, *path):
        found = value(repeated, *path)
        return abs(found - 1) if found else 0.0

    def goal(name, found, limit, at_most=True):
        if found is not None:
            met = found <= limit if at_most else found >= limit
            told[name] = f"{found:.3f}, {'at most' if at_most else 'at least'} {limit:.3f}: {'met' if met else 'NOT MET'}"

    if options.case == "graph":
        for arm in ("auto", "api"):
            p99, first = ("decode", "token", "p99_of_alone"), ("decode", "first", "pooled_p99_of_alone")
            goal(f"{arm}: time per token p99 of alone", value(arm, *p99), 1.0 + noise("alone2", *p99))
            goal(f"{arm}: first token p99 of alone", value(arm, *first), 1.05)
            goal(f"{arm}: training of what is left", value(arm, "be", "of_left"), 0.97, at_most=False)
    elif options.case == "power":
        for arm in rows:
            if arm == "auto" or arm.startswith("limit-"):
                goal(f"{arm}: time per token p99 of alone", value(arm, "decode", "token", "p99_of_alone"), 1.02)
                goal(f"{arm}: training of what is left", value(arm, "be", "of_left"), 0.93, at_most=False)
    elif options.case == "eager":
        p99, kept, stock = ("decode", "token", "p99"), value("auto", "be", "kept"), value("stock", "be", "kept")
        if value("stock", *p99) and value("auto", *p99):
            goal("auto: time per token p99 of time slicing", value("auto", *p99) / value("stock", *p99), 1.0 + noise("alone2", "decode", "token", "p99_of_alone"))
        if kept and stock:
            goal("auto: training of time slicing", kept / stock, 0.95, at_most=False)
    else:
        goal("auto: ResNet-50 p99 of alone", value("auto", "resnet", "latency", "p99_of_alone"), 1.35)
        goal("auto: time per token p50 of alone", value("auto", "decode", "token", "p50_of_alone"), 1.15)
    return told


def numbers(rows):
    """The rows in short: p50, p99 and mean of each series in us, and their ratios to alone; the training's rate, and its part of the rate alone and of what is left."""
    told = {}
    for arm, row in rows.items():
        told[arm] = {
            f"{service} {metric}": [[round(of[q]), round(of.get(f"{q}_of_alone", 0.0), 3)] for q in ("p50", "p99", "mean")]
            for service, by in row.items() if service != "be" for metric, of in by.items() if isinstance(of, dict)
        }
        if "be" in row:
            told[arm]["be"] = [round(row["be"][what], 3) for what in ("rate", "kept", "of_left") if what in row["be"]]
    return told


def result(options, blocks, gpu_us):
    rows = rows_of(options, blocks, gpu_us)
    wrong = wrong_answers(blocks)
    repeated = {"alone2": "decode", "resnet-alone2": "resnet"}
    noise = {
        f"{arm} {metric} {q}": abs(of[f"{q}_of_alone"] - 1)
        for arm, service in repeated.items() if arm in rows for metric, of in rows[arm][service].items() if isinstance(of, dict)
        for q in ("p50", "p99") if f"{q}_of_alone" in of
    }
    return {
        "ok": not wrong, "goals": goals(options, rows), "numbers": numbers(rows), "rows": rows, "aa_noise": noise, "gpu_us_of_a_request": gpu_us, "wrong_answers": wrong,
        "case": options.case, "rounds": options.rounds, "seconds": options.seconds, "rate": options.rate, "tokens": options.tokens, "quantiles": QUANTILES,
    }
