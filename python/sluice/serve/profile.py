"""Chooses the SMs of best-effort work while a real-time model runs, from measurements at the start of the server.

The model alone and the model beside best effort in every split are measured in short blocks that take turns, so that clocks which rise
meanwhile favour none. A block's figure is the 90th percentile of its latencies, and a split's figure the median of its blocks: a block that
something else disturbed does not count. In records of about a thousand requests a split (docs/serving.md), the 90th percentile grew beside
best effort by as much as the 99th. By the longest latencies two profiles chose 64 and 80 SMs for a bound of 10 %, and the 99th percentile
was 12 and 13 % longer.
"""

from __future__ import annotations

import dataclasses
import logging
import statistics
from collections.abc import Mapping, Sequence
from typing import Optional

from sluice.serve.backend import WHOLE
from sluice.serve.config import BEST_EFFORT, REAL_TIME, Model
from sluice.serve.executor import Executor
from sluice.serve.load import measure

log = logging.getLogger(__name__)
# Blocks of a split, requests of a block, the longest time of a block in seconds, and the part of it for which real-time work runs.
BLOCKS, REQUESTS, LONGEST_S, DUTY = 5, 50, 1.0, 0.5
ALONE = "alone"


@dataclasses.dataclass(frozen=True)
class Choice:
    """The split for a real-time model, and by what factor each measured split slows the model."""

    split: Optional[int]
    slowdowns: dict[int, float]


class ProfileFailed(Exception):
    """Requests of the profile got no answer. The message names their models."""


def profile(executor: Executor, models: Sequence[Model], splits: Sequence[int], bound: float) -> dict[str, Choice]:
    """For each real-time model the largest split that slows it by at most the bound. The executor uses it from then on. If requests of a
    measurement fail, best effort pauses while that model runs."""
    # Two requests of a full batch: the next batch waits when one ends. No more than may wait: a refused request would end its client.
    beside = [(model, model.max_batch) for _ in range(2) for model in models if model.klass == BEST_EFFORT][:executor.queues.limit]
    choices: dict[str, Choice] = {}
    for model in (model for model in models if model.klass == REAL_TIME):
        try:
            choices[model.name] = choose(executor, model, beside, splits, bound) if beside else Choice(None, {})
        except ProfileFailed as failure:
            log.warning("profile failed model=%s error=%s: best effort pauses while it runs", model.name, failure)
            choices[model.name] = Choice(None, {})
        executor.splits[model.name] = choices[model.name].split
    return choices


def choose(executor: Executor, model: Model, beside: Sequence[tuple[Model, int]], splits: Sequence[int], bound: float) -> Choice:
    """Measures one real-time model. Raises `ProfileFailed`."""
    executor.splits[model.name] = None
    # The first requests are slower.
    latencies(executor, model, 0.02, [])
    period = statistics.median(latencies(executor, model, 0.02, [])) / DUTY
    arms = [ALONE, *splits, WHOLE]
    blocks: dict[object, list[list[float]]] = {arm: [] for arm in arms}
    for block in range(BLOCKS):
        for arm in arms if block % 2 else reversed(arms):
            executor.splits[model.name] = WHOLE if arm == ALONE else arm
            blocks[arm].append(latencies(executor, model, period, [] if arm == ALONE else beside))
    alone = figure(blocks.pop(ALONE))
    slowdowns = {split: figure(measured) / alone for split, measured in blocks.items()}
    chosen = choose_split(slowdowns, bound)
    log.info(
        "split chosen model=%s sms=%s bound=%.3f alone_ms=%.3f slowdowns=%s", model.name, {None: "pause", WHOLE: "all"}.get(chosen, chosen), bound,
        1000 * alone, {("all" if split == WHOLE else split): round(value, 3) for split, value in slowdowns.items()})
    return Choice(chosen, slowdowns)


def latencies(executor: Executor, model: Model, period: float, beside: Sequence[tuple[Model, int]]) -> list[float]:
    """The latencies of a block, seconds. A block in which a request failed had another load than the others."""
    made = measure(executor, min(REQUESTS * period, LONGEST_S), model, period, beside)
    if made.errors or not made.latencies:
        raise ProfileFailed("; ".join(f"{name}: {error}" for name, error in made.errors.items()) or f"{model.name} answered no request")
    return made.latencies


def figure(blocks: Sequence[Sequence[float]]) -> float:
    """The median of the blocks' 90th percentiles."""
    return statistics.median(sorted(block)[int(0.9 * len(block))] for block in blocks)


def choose_split(slowdowns: Mapping[int, float], bound: float) -> Optional[int]:
    """The largest split whose slowdown of real-time work is within the bound; `None`: best-effort work pauses.

    More SMs for best effort do not make real-time work faster. If the measurements say so, their mean counts for both splits.
    """
    by_size = sorted(slowdowns, key=lambda split: (split == WHOLE, split))
    fitting = [split for split, slowdown in zip(by_size, rising([slowdowns[split] for split in by_size])) if slowdown <= 1 + bound]
    return fitting[-1] if fitting else None


def rising(values: Sequence[float]) -> list[float]:
    """The sequence that never falls and is nearest to the values in the sum of squares: neighbours out of order get their mean."""
    runs: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while runs and runs[-1][0] / runs[-1][1] > total / count:
            before = runs.pop()
            total, count = total + before[0], count + before[1]
        runs.append((total, count))
    return [total / count for total, count in runs for _ in range(count)]
