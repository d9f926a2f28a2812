"""Chooses the SMs of best-effort work while a real-time model runs, from measurements at the start of the server."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Optional

from sluice.serve.backend import WHOLE
from sluice.serve.config import BEST_EFFORT, REAL_TIME, Model
from sluice.serve.executor import Executor
from sluice.serve.load import measure
from sluice.serve.queues import choose_split

log = logging.getLogger(__name__)
# Requests of a measurement and its longest time in seconds, and the part of the time for which real-time work runs meanwhile.
REQUESTS, LONGEST_S, DUTY = 60, 3.0, 0.3


@dataclasses.dataclass(frozen=True)
class Choice:
    """The split for a real-time model, and by what factor each measured split slows the model."""

    split: Optional[int]
    slowdowns: dict[int, float]


def profile(executor: Executor, models: Sequence[Model], splits: Sequence[int], bound: float) -> dict[str, Choice]:
    """For each real-time model the largest split with which its 90th percentile beside best effort is within the bound.

    The executor uses it from then on.
    """
    # Two requests of a full batch: the next batch waits when one ends.
    beside = [(model, model.max_batch) for model in models if model.klass == BEST_EFFORT for _ in range(2)]
    choices: dict[str, Choice] = {}
    for model in models:
        if model.klass != REAL_TIME:
            continue
        executor.splits[model.name] = None
        if not beside:
            choices[model.name] = Choice(None, {})
            continue
        first = slow(executor, model, 0.02, [])
        period = first / DUTY
        alone = (slow(executor, model, period, []) + slow(executor, model, period, [])) / 2
        slowdowns = {}
        for split in (*splits, WHOLE):
            executor.splits[model.name] = split
            slowdowns[split] = slow(executor, model, period, beside) / alone
        chosen = executor.splits[model.name] = choose_split(slowdowns, bound)
        choices[model.name] = Choice(chosen, slowdowns)
        log.info(
            "split chosen model=%s sms=%s bound=%.3f alone_ms=%.3f slowdowns=%s", model.name, {None: "pause", WHOLE: "all"}.get(chosen, chosen), bound,
            1000 * alone, {("all" if split == WHOLE else split): round(value, 3) for split, value in slowdowns.items()})
    return choices


def slow(executor: Executor, model: Model, period: float, beside: Sequence[tuple[Model, int]]) -> float:
    """The 90th percentile of a model's latencies, seconds."""
    latencies = sorted(measure(executor, min(REQUESTS * period, LONGEST_S), model, period, beside).latencies)
    if not latencies:
        raise RuntimeError(f"model {model.name} answered no request of the profile")
    return latencies[int(0.9 * len(latencies))]
