"""The part of the result of `decode.py power` that concerns the SM clock: token times at the clock that the service has alone, and the
trade-off between the service's latency and the training's rate.

Each request has two readings of the clock (torch_decode.py, `clock_mhz`); x is how much longer a cycle is than alone. Two corrections:
  full     a token's time divided by 1 + x, as if all of it were cycles of that clock. Memory has a clock of its own, so this is too much
  fitted   divided by 1 + s x. The sensitivity s comes from requests of the same arm with different clocks: a request's median token over x,
           both without their arm's mean. What the arms beside the training have in common besides the clock does not enter it
"""

import random
import statistics

from decode_report import kind, percentile

# A reading this far from the service's clock alone was interrupted by a context switch.
CREDIBLE = (0.6, 1.05)
SAMPLES = 1000


def requests_of(told, reference):
    """The requests of a block: times of the tokens after the first, us, and the mean of the credible clock readings, MHz."""
    count = len(told["tokens_us"]) // len(told["clocks_mhz"]) if told["clocks_mhz"] else 0
    for number, readings in enumerate(told["clocks_mhz"]):
        credible = [clock for clock in readings if CREDIBLE[0] <= clock / reference <= CREDIBLE[1]]
        if credible:
            yield told["tokens_us"][number * count:(number + 1) * count], statistics.fmean(credible)


def slope(points):
    """Sensitivity from (arm, x, y) triples, after each arm's means are taken off; `None` without any difference in x."""
    by_arm = {}
    for arm, x, y in points:
        by_arm.setdefault(arm, []).append((x, y))
    above = below = 0.0
    for of in by_arm.values():
        mean_x, mean_y = (statistics.fmean(values) for values in zip(*of))
        above += sum((x - mean_x) * (y - mean_y) for x, y in of)
        below += sum((x - mean_x) ** 2 for x, _ in of)
    return above / below if below > 1e-12 else None


def sensitivity(blocks, reference, token_us):
    """The sensitivity, its 95 % interval from bootstrap samples of whole blocks, and the number of requests."""
    groups = []
    for arm, of in blocks.items():
        for block in of:
            if any(kind(program) == "be" and program != "be.light" for program in block) and "decode" in block:
                groups.append([(arm, reference / clock - 1, statistics.median(tokens) / token_us - 1) for tokens, clock in requests_of(block["decode"], reference)])
    found, chance = slope([point for group in groups for point in group]), random.Random(1)
    if found is None:
        return None, [], 0
    samples = [slope([point for _ in groups for point in chance.choice(groups)]) for _ in range(SAMPLES)]
    samples = sorted(value for value in samples if value is not None)
    return found, [samples[int(0.025 * len(samples))], samples[int(0.975 * len(samples))]], sum(map(len, groups))


def service(block):
    return next((told for program, told in block.items() if kind(program) == "decode"), None)


def quantiles(of, reference, share):
    """Medians over blocks of p50 and p99 of an arm's token times, each divided by 1 + `share` x."""
    by_block = []
    for block in of:
        tokens = [token / (1 + share * (reference / clock - 1)) for tokens, clock in requests_of(service(block), reference) for token in tokens]
        if tokens:
            by_block.append((percentile(tokens, 0.5), percentile(tokens, 0.99)))
    return [statistics.median(values) for values in zip(*by_block)] if by_block else [0.0, 0.0]


def result(blocks, rows, clocks):
    """What is told of the clock, and the lines of the curve."""
    readings = [clock for block in blocks["alone"] for pair in service(block)["clocks_mhz"] for clock in pair]
    if not readings:
        return {}
    reference = statistics.median(readings)
    token_us = statistics.median(token for block in blocks["alone"] for token in service(block)["tokens_us"])
    found, range_of_it, count = sensitivity(blocks, reference, token_us)
    alone, arms = {}, {}
    for arm, of in blocks.items():
        if not of or service(of[0]) is None:
            continue
        taken = [clock for block in of for _, clock in requests_of(service(block), reference)]
        made = [clock for block in of for pair in service(block)["clocks_mhz"] for clock in pair]
        row = {"clock_mhz": statistics.median(taken) if taken else None, "clock_mhz_least": min(taken, default=None), "not_credible": sum(not CREDIBLE[0] <= clock / reference <= CREDIBLE[1] for clock in made) / max(1, len(made))}
        for name, share in (("raw", 0.0), ("fitted", found), ("full", 1.0)):
            if share is None:
                continue
            values = quantiles(of, reference, share)
            if arm == "alone":
                alone[name] = values
            row[name] = {"p50": values[0], "p99": values[1]} | ({"p50_of_alone": values[0] / alone[name][0], "p99_of_alone": values[1] / alone[name][1]} if alone.get(name, [0])[0] else {})
        power = [sample["power_w"] for sample in clocks.get(arm, []) if sample]
        row |= {"power_w": statistics.median(power) if power else None, "of_left": rows[arm].get("be", {}).get("of_left")}
        arms[arm] = row
    told = {"reference_mhz": reference, "sensitivity": found, "sensitivity_interval": range_of_it, "requests": count, "arms": arms}
    return {"clock": told, "curve": lines(told)}


def lines(told):
    fitted = "none" if told["sensitivity"] is None else f"{told['sensitivity']:.2f} {[round(value, 2) for value in told['sensitivity_interval']]}"
    out = [f"clock alone {told['reference_mhz']:.0f} MHz; a token's sensitivity to the clock: {fitted}, from {told['requests']} requests"]
    for arm, row in told["arms"].items():
        words = [f"{name} p50 {row[name]['p50_of_alone']:.3f} p99 {row[name]['p99_of_alone']:.3f}" for name in ("raw", "fitted", "full") if "p99_of_alone" in row.get(name, {})]
        training = "" if row["of_left"] is None else f", training {row['of_left']:.3f} of what is left"
        out.append(f"{arm:10} {row['clock_mhz'] or 0:.0f} MHz, {row['power_w'] or 0} W{training}; of alone: {'; '.join(words)}")
    return out
