"""In what order the arms of a round come.

An arm that always came first would have the GPU as the pause before left it, one that always came behind the same other what that left
behind, and clocks that drift would favour one of them. So each round has an order of its own: of many shuffled ones that in which the
arms have had most nearly the same places so far, and the fewest come behind an arm that they came behind before.
"""

import random


class Order:
    """The same seed gives the same orders."""

    TRIED = 300

    def __init__(self, names, seed):
        self.seed, self.names, self.chance = seed, list(names), random.Random(seed)
        self.places, self.behind, self.taken = {name: 0 for name in self.names}, set(), []

    def round(self):
        """The names in the order of the next round."""
        best = min((self.chance.sample(self.names, len(self.names)) for _ in range(self.TRIED)), key=self.badness)
        for place, name in enumerate(best):
            self.places[name] += place
        self.behind |= set(zip(best, best[1:]))
        self.taken.append(best)
        return best

    def badness(self, names):
        sums = [self.places[name] + place for place, name in enumerate(names)]
        repeated = sum(pair in self.behind for pair in zip(names, names[1:]))
        return max(sums) - min(sums) + repeated

    def result(self):
        """The orders of the started rounds, for the result."""
        return {"seed": self.seed, "order": self.taken}
