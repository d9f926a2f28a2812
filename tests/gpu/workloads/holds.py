"""What the hook says of its holds, where a workload runs under it."""

import ctypes

NAMES = ("launched", "released", "planned", "late_ns", "latest_ns")


def counts():
    """All its counters so far; noughts without a hook."""
    numbers = (ctypes.c_uint64 * len(NAMES))()
    if function := getattr(ctypes.CDLL(None), "sluice_hook_holds", None):
        function(numbers, ctypes.c_size_t(len(NAMES)))
    return dict(zip(NAMES, numbers))


def since(before):
    """Holds since then: launched, released, launched ahead of a request, and how late those were on average; the latest of all times."""
    now = counts()
    made = {name: now[name] - before[name] for name in NAMES}
    late = made["late_ns"] / made["planned"] / 1000 if made["planned"] else 0.0
    return {"launched": made["launched"], "released": made["released"], "planned": made["planned"], "late_us": round(late, 1), "latest_us": now["latest_ns"] / 1000}
