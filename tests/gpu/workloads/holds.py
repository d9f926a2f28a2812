"""What the hook reports of its hold kernels and of copies by a kernel, where a workload runs under it."""

import ctypes

NAMES = ("launched", "released", "planned", "late_ns", "latest_ns", "missed", "unreleased")
# Both are made once: each CDLL and each array type is cyclic garbage. A look-up in each request made the collector of Python stop each
# 64th request under the hook, and each 99th without it, for 0.2 to 0.4 ms.
FUNCTION = getattr(ctypes.CDLL(None), "sluice_hook_holds", None)
NUMBERS = (ctypes.c_uint64 * len(NAMES))()
COPIES = ("made", "size", "capturing", "no_grant", "stream", "not_prepared", "memory", "refused", "busy")
COPIES_FUNCTION = getattr(ctypes.CDLL(None), "sluice_hook_copies", None)
COPIES_NUMBERS = (ctypes.c_uint64 * len(COPIES))()


def counts():
    """All its counters so far; noughts without a hook."""
    if FUNCTION:
        FUNCTION(NUMBERS, ctypes.c_size_t(len(NAMES)))
    return dict(zip(NAMES, NUMBERS))


def copies():
    """Copies so far: made by the hook's kernel, and left to the driver by reason; noughts without a hook."""
    if COPIES_FUNCTION:
        COPIES_FUNCTION(COPIES_NUMBERS, ctypes.c_size_t(len(COPIES)))
    return dict(zip(COPIES, COPIES_NUMBERS))


def since(before):
    """Holds since then: launched, released, launched ahead of a request, how late those were on average, planned in vain; the latest of all times."""
    now = counts()
    made = {name: now[name] - before[name] for name in NAMES}
    late = made["late_ns"] / made["planned"] / 1000 if made["planned"] else 0.0
    return {"launched": made["launched"], "released": made["released"], "planned": made["planned"], "missed": made["missed"], "unreleased": made["unreleased"], "late_us": round(late, 1), "latest_us": now["latest_ns"] / 1000}


# Requests of a block of which is told when they came and whether they were held for ahead.
SLOWEST = 10


class Requests:
    """A block's requests: latencies, the slowest with their time line, and the numbers of those that were not held for ahead."""

    def __init__(self):
        self.before, self.copies_before = counts(), copies()
        self.planned = self.before["planned"]
        self.latencies, self.ahead, self.lines = [], [], []

    def over(self, due, times):
        """The request due `due` seconds after the block's begin ended at the last of `times`, which are seconds since it was due."""
        line = [round(1e6 * time) for time in times]
        self.latencies.append(round(1e6 * times[-1], 1))
        self.lines.append([round(1e3 * due, 2), line])
        # Between two requests there is time for that.
        planned = counts()["planned"]
        self.ahead.append(planned > self.planned)
        self.planned = planned

    def told(self):
        numbers = range(len(self.latencies))
        slowest = sorted(numbers, key=lambda at: -self.latencies[at])[:SLOWEST]
        return {
            "latencies_us": self.latencies, "holds": since(self.before),
            "copies": {name: count - self.copies_before[name] for name, count in copies().items()},
            # serve.py names the columns.
            "slowest": [[at, round(self.latencies[at]), self.ahead[at], *self.lines[at]] for at in slowest],
            "not_ahead": [at for at in numbers if not self.ahead[at]],
        }
