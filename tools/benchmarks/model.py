"""The plot of docs/design/performance-model.md: how far the simulation is from the queueing model and from the GPU, one mark a row of the page's
tables, whose figures a test of crates/policy-sim compares with the simulation."""

import dataclasses

from plot import text
from results import DOCS

PAGE, PLOT = DOCS / "design" / "performance-model.md", DOCS / "design" / "model.svg"
WIDTH, LEFT, TOP, ROW, PANEL, GAP = 900, 330, 46, 20, 240, 40
COLOURS = {"sluice": "#0072b2", "sluice-holds": "#009e73", "priority": "#cc79a7", "time-slicing": "#555555"}


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table: what it is of, the policy, by how many percent the time and by how many points the part deviates."""

    what: str
    policy: str
    time: float
    part: float


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table(head):
    """The rows of the page's table whose first line begins so."""
    lines = PAGE.read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(head)) + 2
    for line in lines[begin:]:
        if not line.startswith("|"):
            return
        yield cells(line)


def rows():
    """By table: the limit of its deviations, in percent and points, and its rows."""
    queue = []
    for what, policy, computed, simulated, rest, rest_simulated in table("| requests, distribution of X |"):
        computed, simulated, rest, rest_simulated = (float(cell) for cell in (computed, simulated, rest, rest_simulated))
        queue.append(Row(what, policy.strip("`"), 100 * (simulated / computed - 1), 100 * (rest_simulated - rest)))
    gpu = []
    for what, policy, measured, simulated, _, kept, kept_simulated in table("| case | policy | measured p99"):
        measured, simulated, kept, kept_simulated = (float(cell) for cell in (measured, simulated, kept, kept_simulated))
        gpu.append(Row(what, policy.strip("`"), 100 * (simulated / measured - 1), 100 * (kept_simulated - kept)))
    return [("Simulated against computed: mean response, best effort's rest", 2, queue), ("Simulated against one H200: p99, what best effort keeps", 10, gpu)]


def panel(lines, top, left, most, unit, values):
    """Marks at the `values` of rows, between -most and +most, with the limits drawn."""
    middle = left + PANEL / 2
    bottom = top + ROW * len(values)
    at = lambda value: middle + PANEL / 2 * value / (1.2 * most)  # noqa: E731
    for value in (-most, 0, most):
        lines.append(f'<path d="M{at(value):.1f} {top}V{bottom}" stroke="{"#bbbbbb" if value else "#333333"}"/>')
        lines.append(text(at(value), bottom + 14, f"{value:+d} {unit}" if value else "0", "middle"))
    for number, (policy, value) in enumerate(values):
        if abs(value) > 1.2 * most:
            raise ValueError(f"{value:.1f} {unit} of row {number + 1} is outside of the panel, {1.2 * most:.1f}")
        y = top + ROW * (number + 0.5)
        lines.append(f'<circle cx="{at(value):.1f}" cy="{y:.1f}" r="4.5" fill="{COLOURS[policy]}"><title>{policy}: {value:+.1f} {unit}</title></circle>')


def draw():
    """The SVG's text."""
    found = rows()
    height = TOP + sum(ROW * len(each) + 66 for _, _, each in found)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (policy, colour) in enumerate(COLOURS.items()):
        x = 10 + 120 * number
        lines += [f'<circle cx="{x + 5}" cy="14" r="4.5" fill="{colour}"/>', text(x + 16, 18, policy)]
    top = TOP
    for title, most, each in found:
        lines.append(text(10, top, title))
        lines += [text(LEFT - 10, top + 12 + ROW * (number + 0.5) + 4, row.what, "end") for number, row in enumerate(each)]
        panel(lines, top + 12, LEFT, most, "%", [(row.policy, row.time) for row in each])
        panel(lines, top + 12, LEFT + PANEL + GAP, 2, "points", [(row.policy, row.part) for row in each])
        top += ROW * len(each) + 66
    return "\n".join([*lines, "</svg>", ""])
