"""The tables of docs/benchmarks.md by the names that page.md uses. Each function reads recorded results and returns the lines of one table."""

from latency import peers, preemption, serve, services
from sharing import cost, exactness, shares
from simulated import simulated

TABLES = {each.__name__: each for each in (peers, serve, services, shares, exactness, preemption, cost, simulated)}
