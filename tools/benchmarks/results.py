"""The recorded results in docs/benchmarks, and which of them each table reads."""

import json
import pathlib

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
FOLDER = DOCS / "benchmarks"


class Results:
    """Reads results by name. `take_read` names the files that were read since it was last called, in order."""

    def __init__(self):
        self.read = {}

    def load(self, name):
        self.read[name] = None
        return json.loads((FOLDER / f"{name}.json").read_text())

    def take_read(self):
        names, self.read = list(self.read), {}
        return names

    def part(self, name, part, *path):
        """The result of a part of `tests/gpu/lease` in the file, below `path`."""
        found = self.load(name)
        for key in path:
            found = found[key]
        found = found["parts"][part]
        return found.get("result", found)

    def serve_since(self):
        """Runs of `serve.py` from 2026-11-26 on, when the service no longer made garbage in each request (docs/benchmarks/history)."""
        return [
            self.load("serve-one")["rows"],
            self.load("serve-auto-inspection")["rows"],
            self.load("serve-auto-9bee136e")["rows"],
            self.load("serve-auto-0db465c8")["rows"],
            self.load("serve-auto-6a61e675")["rows"],
            *(self.part("core-processes", "serve-auto", f"serve_auto_{build}")["rows"] for build in ("a1f25260", "3bf85530")),
        ]

    def serve_before(self):
        """The runs before that date, without those beside measurements on another GPU of the host (serve-x2.json)."""
        runs = [
            self.load(name)["rows"]
            for name in ("serve-768006f", "serve-f1087c5", "serve-auto-80af14f", "serve", "serve-auto", "serve-one-h100")
        ]
        runs += [self.part(name, "serve-auto")["rows"] for name in ("restructured-build", "restructured-final", "disturb-h200")]
        return runs + [compared(run) for run in self.load("restructured-comparison")["runs"]]

    def tenants(self):
        """Runs of `tenants.py`."""
        runs = [self.load(name)["rows"] for name in ("tenants", "tenants-inspection", "tenants-9bee136e", "tenants-0db465c8")]
        runs += [self.part(name, "tenants")["rows"] for name in ("restructured-build", "restructured-final")]
        return [*runs, self.part("core-processes", "tenants", "tenants_a1f25260")["rows"]]


def compared(run):
    """A run of restructured-comparison.json in the form of the others."""
    automatic = {"blocks_p99": run["auto1_blocks_p99_us"], "p99_of_alone": run["auto1_p99_of_alone"], "be_sum": run["training_kept"]}
    again = {"blocks_p99": [], "p99_of_alone": run["alone2_p99_us"] / run["alone_p99_us"]}
    return {"alone": {"blocks_p99": run["alone_blocks_p99_us"]}, "alone2": again, "auto1": automatic}
