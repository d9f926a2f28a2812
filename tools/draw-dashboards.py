#!/usr/bin/env python3
"""draw-dashboards.py DATA FOLDER: draws the chart's dashboards as SVG, as Grafana lays them out. Needs matplotlib.

DATA is /var/tmp/sluice-cluster/dashboards.json, which `tests/cluster/run --keep every_panel` leaves there.
"""

import json
import math
import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot, ticker  # noqa: E402

CHART = Path(__file__).parents[1] / "charts/sluice/monitoring/dashboards"
# Inches of a cell of Grafana's grid, and the part of a panel that its legend and title leave.
CELL_WIDTH, CELL_HEIGHT = 0.6, 0.36
MOST_IN_LEGEND = 16
SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def text_of(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{value * 100:.0f} %"
    if unit == "bytes":
        name, size = next(((name, size) for name, size in SIZES if abs(value) >= size), ("B", 1))
        return f"{value / size:.3g} {name}"
    if unit == "s":
        return f"{value / 86400:.0f} days" if abs(value) >= 86400 else f"{value:.3g} s" if abs(value) >= 0.1 or value == 0 else f"{value * 1000:.2g} ms"
    return f"{value:.3g}"


def legend_of(template: str, labels: dict) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: short(labels.get(found[1], "")), template)


def short(name: str) -> str:
    """The end of a GPU's name distinguishes it."""
    return f"GPU …{name[-4:]}" if name.startswith("GPU-") else name


def draw(dashboard: dict, data: dict, file: Path) -> None:
    panels = dashboard["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = pyplot.figure(figsize=(24 * CELL_WIDTH, height * CELL_HEIGHT))
    # All panels have the same range of time.
    times = [float(when) for queries in data.values() for series in queries.values() for one in series for when, _ in one["values"]]
    begin, end = min(times), max(times)
    for panel in panels:
        at = panel["gridPos"]
        left, top = at["x"] / 24, 1 - at["y"] / height
        if panel["type"] == "row":
            figure.text(left + 0.005, top - 0.8 / height, panel["title"], fontsize=11, fontweight="bold")
            continue
        unit = panel["fieldConfig"]["defaults"]["unit"]
        figure.text(left + 0.01, top - 0.7 / height, panel["title"], fontsize=9)
        series = [
            (legend_of(target["legendFormat"], one["metric"]), [(float(when), float(value)) for when, value in one["values"]])
            for target in panel["targets"]
            for one in data[panel["title"]][target["refId"]]
        ]
        if panel["type"] == "stat":
            last = series[0][1][-1][1]
            figure.text(left + at["w"] / 48, top - 2.6 / height, text_of(last, unit), fontsize=16, ha="center")
            continue
        legend_lines = min(len(series), MOST_IN_LEGEND)
        axes = figure.add_axes((left + 0.05, top - (at["h"] - 0.9) / height, at["w"] / 24 * 0.62 - 0.045, (at["h"] - 2) / height))
        for name, values in series:
            axes.plot([when - begin for when, _ in values], [value for _, value in values], linewidth=1.2, label=name)
        axes.set_xlim(0, end - begin)
        most = max((value for _, values in series for _, value in values if not math.isnan(value)), default=0)
        axes.set_ylim(0, 1.05 * most or 1)
        if unit == "bytes" and most:
            axes.yaxis.set_major_locator(ticker.MultipleLocator(2 ** math.ceil(math.log2(most / 5))))
        axes.tick_params(labelsize=7)
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _, unit=unit: text_of(value, unit)))
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:.0f} s"))
        axes.spines[["top", "right"]].set_visible(False)
        if legend_lines:
            handles, names = axes.get_legend_handles_labels()
            axes.legend(handles[:MOST_IN_LEGEND], names[:MOST_IN_LEGEND], fontsize=6.5, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "sluice", "axes.prop_cycle": matplotlib.cycler(color=matplotlib.colormaps["tab20"].colors[::2] + matplotlib.colormaps["tab20"].colors[1::2])})
    saved, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    for path in sorted(CHART.glob("*.json")):
        one = json.loads(path.read_text())
        draw(one, saved[one["title"]], folder / f"dashboard-{path.stem}.svg")
