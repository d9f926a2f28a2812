"""The models of docs/design/predictors.md: what the hook's smoothing and the online models predict of them."""

import json
import os
import pathlib
import re
import subprocess
import sys

from conftest import BUILD

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs/design/predictors.md"
TABLES = {"Arrival:": "arrivals", "Preparation:": "preparations"}


def cells():
    """Each cell of the page's tables without a forest or a thread: quantity, series, predictor, text."""
    for head, quantity in TABLES.items():
        table = PAGE.read_text().split(f"\n{head}\n")[1].strip().split("\n\n")[0]
        names, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        for series, *texts in rows:
            for predictor, text in zip(names[1:], texts, strict=True):
                if series.startswith("model:") and predictor != "forest":
                    yield quantity, series, predictor, text


def test_tables_have_what_the_predictors_make_of_the_models(tmp_path):
    found = tmp_path / "predictors.json"
    measure = [sys.executable, REPOSITORY / "tools/predictors/measure.py", "--models", "--json", found]
    subprocess.run(measure, check=True, env={**os.environ, "SLUICE_BUILD": str(BUILD)}, stdout=subprocess.DEVNULL)
    measured = json.loads(found.read_text())
    recorded = json.loads((REPOSITORY / "docs/benchmarks/predictors.json").read_text())
    assert measured["requests"] == recorded["requests"]
    count = 0
    for quantity, series, predictor, text in cells():
        row = measured[quantity][series][predictor]
        for figure, within in (("hits", 0.005), ("held_us", 0.5)):
            assert abs(row[figure] - recorded[quantity][series][predictor][figure]) <= within, (quantity, series, predictor, figure)
        shown = re.match(r"(\d+) %, (\d+) µs", text)
        part, held = (int(shown[1]), int(shown[2])) if shown else (0, 0)
        assert abs(100 * row["hits"] - part) <= 1 and abs(row["held_us"] - held) <= 1, (quantity, series, predictor, text)
        count += 1
    assert count == 6 * 3 * 2
