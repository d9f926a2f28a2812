"""The plot of docs/benchmarks.md: p99 of the latency-critical service over the rate of the training, one point an arm and run.

Written without a plotting library: the gate compares the file with the script's output byte by byte, and a library's output changes with its
version.
"""

import dataclasses
import math
import statistics

from latency import peer_points

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 430, 62, 190, 34, 48
X_LEAST, X_MOST, Y_LEAST, Y_MOST = 0.9, 9.0, 0.55, 1.02
COLOURS = {
    "Sluice": "#0b6e4f",
    "Sluice, holds off": "#6fb98f",
    "time slicing": "#555555",
    "MPS": "#8338ec",
    "HAMi-core": "#c1121f",
    "XSched level 1": "#e09f3e",
    "XSched level 3 (TSG)": "#9e5a00",
}


@dataclasses.dataclass(frozen=True)
class Point:
    """An arm of a run: p99 of alone, and the training's rate of alone."""

    arm: str
    run: str
    late: float
    kept: float


def points(results):
    """The comparisons' arms beside one training, and medians over the runs of serve.py."""
    names = {"**Sluice**, automatic holds": "Sluice", "**Sluice**, holds off": "Sluice, holds off"}
    found = [Point(names.get(arm, arm), run, late, kept) for (arm, run), (_, late, kept) in peer_points(results).items() if kept]
    runs = results.serve_since() + results.serve_before()
    for arm, name in (("auto1", "Sluice"), ("plain1", "Sluice, holds off"), ("stock1", "time slicing"), ("mps1", "MPS")):
        rows = [run[arm] for run in runs if "be_sum" in run.get(arm, {}) and "p99_of_alone" in run[arm]]
        found.append(
            Point(
                name,
                "median of runs of serve.py",
                statistics.median(row["p99_of_alone"] for row in rows),
                statistics.median(row["be_sum"] for row in rows),
            )
        )
    return found


def across(late):
    """Logarithmic, because MPS would press all others to the edge."""
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(late / X_LEAST) / math.log(X_MOST / X_LEAST)


def down(kept):
    return TOP + (HEIGHT - TOP - BOTTOM) * (Y_MOST - kept) / (Y_MOST - Y_LEAST)


def mark(run, x, y, colour, title=""):
    """A circle, a square or a diamond: one shape a run."""
    about = f"<title>{title}</title>" if title else ""
    if run == "2026-11-22":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" fill="{colour}">{about}</circle>'
    if run == "2026-11-28":
        return f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{colour}">{about}</rect>'
    return f'<path d="M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7 -7z" fill="{colour}">{about}</path>'


def text(x, y, words, anchor="start", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{words}</text>'


def draw(results):
    """The SVG's text."""
    drawn = points(results)
    for point in drawn:
        if not (X_LEAST <= point.late <= X_MOST and Y_LEAST <= point.kept <= Y_MOST):
            raise ValueError(f"{point} is outside of the plot's axes, {X_LEAST} to {X_MOST} and {Y_LEAST} to {Y_MOST}")
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(LEFT, 18, "ResNet-50 service beside a ResNet-50 training, H200: better is up and left"),
    ]
    for late in (1, 1.5, 2, 3, 5, 7):
        lines += [
            f'<path d="M{across(late):.1f} {TOP}V{bottom}" stroke="#dddddd"/>',
            text(across(late), bottom + 17, f"{late:g}", "middle"),
        ]
    for kept in (0.6, 0.7, 0.8, 0.9, 1.0):
        lines += [f'<path d="M{LEFT} {down(kept):.1f}H{right}" stroke="#dddddd"/>', text(LEFT - 8, down(kept) + 4, f"{kept:.1f}", "end")]
    middle = (TOP + bottom) / 2
    lines += [
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#333333"/>',
        text((LEFT + right) / 2, HEIGHT - 10, "service: p99 / alone (logarithmic)", "middle"),
        text(16, middle, "training: rate / alone", "middle", f' transform="rotate(-90 16 {middle:.1f})"'),
    ]
    lines += [
        mark(
            point.run,
            across(point.late),
            down(point.kept),
            COLOURS[point.arm],
            f"{point.arm}, {point.run}: p99 {point.late:.2f}, training {point.kept:.2f}",
        )
        for point in drawn
    ]
    for row, (arm, colour) in enumerate(COLOURS.items()):
        lines += [
            f'<rect x="{right + 16}" y="{TOP + 20 * row}" width="12" height="12" fill="{colour}"/>',
            text(right + 34, TOP + 20 * row + 10, arm),
        ]
    below = TOP + 20 * len(COLOURS) + 16
    for row, run in enumerate(("2026-11-22", "2026-11-28", "median of runs of serve.py")):
        lines += [
            mark(run, right + 22, below + 20 * row, "#888888"),
            text(right + 34, below + 20 * row + 4, run if row == 2 else f"run of {run}", more=' font-size="11"'),
        ]
    return "\n".join([*lines, "</svg>", ""])
