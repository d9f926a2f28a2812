"""Medians over runs, with intervals by a bootstrap over blocks. Standard library only; the same input gives the same output everywhere."""

import dataclasses
import random
import statistics

SAMPLES = 2000
SEED = 1


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A median over runs, its 95 % interval, and the least and the greatest run."""

    value: float
    # None if no run has blocks.
    interval: tuple[float, float] | None
    least: float
    greatest: float
    runs: int

    def text(self, digits=3):
        """The value with its interval; without one, with the range over the runs in words, so that the two are not confused."""
        shown = f"{self.value:.{digits}f}"
        if self.interval:
            return f"{shown} [{self.interval[0]:.{digits}f}, {self.interval[1]:.{digits}f}]"
        return f"{shown} ({self.range(digits)})" if self.runs > 1 else shown

    def range(self, digits=3):
        least, greatest = f"{self.least:.{digits}f}", f"{self.greatest:.{digits}f}"
        return least if least == greatest else f"{least} to {greatest}"


def of_runs(values):
    """The median of one value a run. There are no blocks, so there is no interval."""
    return Estimate(statistics.median(values), None, min(values), max(values), len(values))


def of_blocks(runs, statistic):
    """The median over the runs of `statistic(rounds)`. A run is a list of rounds; a round holds the blocks that were measured one after
    the other, so a sample draws whole rounds, with replacement, within each run."""
    values = [statistic(rounds) for rounds in runs]
    generator = random.Random(SEED)
    samples = []
    for _ in range(SAMPLES):
        # Only the sequence of random() is guaranteed to be the same in every version of Python.
        drawn = ([rounds[int(generator.random() * len(rounds))] for _ in rounds] for rounds in runs)
        samples.append(statistics.median(map(statistic, drawn)))
    samples.sort()
    low, high = samples[int(0.025 * SAMPLES)], samples[int(0.975 * SAMPLES) - 1]
    return Estimate(statistics.median(values), (low, high), min(values), max(values), len(values))


def ratio_of_medians(rounds):
    """The median of the first of each round over the median of the second."""
    return statistics.median(first for first, _ in rounds) / statistics.median(second for _, second in rounds)


def median_of_ratios(rounds):
    """The median of the first of each round over the second of the same round."""
    return statistics.median(first / second for first, second in rounds)


def median(rounds):
    return statistics.median(rounds)
