"""Loads preempter.so (preempter.c) into this process: streams are preempted and restored while the program runs."""

import ctypes

LEVELS = {"host": 0, "device": 1, "full": 2}


class Counts(ctypes.Structure):
    _fields_ = [("results", ctypes.c_uint64 * 32), ("levels", ctypes.c_uint64 * 4), ("restores_failed", ctypes.c_uint64)]


class Preempter:
    """Begins at once; `streams` are handles."""

    def __init__(self, library, streams, level, hz, seed):
        self.library = ctypes.CDLL(library)
        handles = (ctypes.c_void_p * len(streams))(*streams)
        code = self.library.preempter_start(handles, len(streams), LEVELS[level], hz, ctypes.c_uint64(seed))
        if code != 0:
            raise SystemExit(f"preemption cannot be enabled: {code} (-1: the hook lacks it)")

    def stop(self):
        counts = Counts()
        self.library.preempter_stop(ctypes.byref(counts))
        names = {number: name for name, number in LEVELS.items()}
        return {
            "results": {str(code): times for code, times in enumerate(counts.results) if times},
            "achieved": {names.get(level, str(level)): times for level, times in enumerate(counts.levels) if times},
            "restores_failed": counts.restores_failed,
        }
