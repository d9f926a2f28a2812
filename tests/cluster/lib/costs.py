"""What the programs of the cluster consume: processor time, memory, and requests to the API server."""

import os
from collections import Counter
from pathlib import Path

from lib import api
from lib.cluster import parse_metrics
from lib.processes import Program

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(program: Program) -> float:
    """User and system time since the program started; 0 if it does not run."""
    if (pid := program.pid()) is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def peak_memory(program: Program) -> int:
    """Bytes, since the program started."""
    lines = Path(f"/proc/{program.pid()}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024


def api_requests() -> Counter:
    """Requests that the API server has answered, by verb and resource, for example "POST pods/binding"."""
    counts: Counter = Counter()
    for sample in parse_metrics(api.request("GET", "/metrics")):
        if sample.name == "apiserver_request_total":
            label = sample.labels
            counts[f"{label['verb']} {'/'.join(filter(None, (label['resource'], label['subresource'])))}"] += sample.value
    return counts
