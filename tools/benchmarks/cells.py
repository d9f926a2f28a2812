"""What the tables have in common: verdicts, ratios of p99, the form of a table."""

import intervals
from intervals import of_blocks, of_runs


def verdict(found, goal, least=False):
    """Whether a value or an estimate meets its goal, and whether the estimate's interval contains the goal."""
    value = getattr(found, "value", found)
    low, high = getattr(found, "interval", None) or (goal, goal)
    undecided = ", within the interval" if low < goal < high else ""
    return f"{goal}: {'met' if (value >= goal if least else value <= goal) else '**not met**'}{undecided}"


def p99_of(runs, arm, alone):
    """p99 of an arm over that of `alone`, by blocks."""
    rounds = [list(zip(rows[arm]["blocks_p99"], rows[alone]["blocks_p99"])) for rows in runs if rows.get(arm, {}).get("blocks_p99")]
    return of_blocks(rounds, intervals.ratio_of_medians) if rounds else None


def over_all_requests(runs, arm):
    """p99 of all requests of a run over that of its arm alone."""
    return of_runs([rows[arm]["p99_of_alone"] for rows in runs if "p99_of_alone" in rows.get(arm, {})])


def table(head, rows):
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]
