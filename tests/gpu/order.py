"""In what order the arms of a round come.

An arm that always came first would have the GPU as the pause before it left it, and clocks that drift would favour one arm. So the arms
are shuffled once, begin with another one in each round, and go backwards in every other round: none keeps its place, nor who comes before it.
"""

import math
import random


class Order:
    """The same seed gives the same order."""

    def __init__(self, names, rounds, seed):
        self.seed, self.names = seed, list(names)
        random.Random(seed).shuffle(self.names)
        self.step = max(1, math.ceil(len(self.names) / max(1, rounds)))
        self.taken = []

    def round(self, number):
        """The names in the order of this round."""
        by = number * self.step % max(1, len(self.names))
        names = self.names[by:] + self.names[:by]
        if number % 2:
            names.reverse()
        self.taken.append(names)
        return names

    def result(self):
        """What a result says of it: the orders of the rounds that were begun."""
        return {"seed": self.seed, "order": self.taken}
