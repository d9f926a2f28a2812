#!/usr/bin/env python3
"""Writes docs/benchmarks.md and its plot from the recorded results in docs/benchmarks, and the plot of docs/design/performance-model.md.

  tools/benchmarks/write.py            writes all
  tools/benchmarks/write.py --check    fails if one of them is not as it would be written

The prose is page.md. `{{name}}` in it is replaced by the table of that name in tables.py, `{{raw name}}` by links to the results that the
table reads.
"""

import argparse
import re
import sys

import model
import plot
from results import DOCS, FOLDER, Results
from tables import TABLES

TEMPLATE = DOCS.parent / "tools" / "benchmarks" / "page.md"
PAGE, PLOT = DOCS / "benchmarks.md", FOLDER / "pareto.svg"
PLACEHOLDER = re.compile(r"\{\{(?:(raw) )?(\w+)\}\}")


def page(results):
    """The page's text. Raises KeyError for a table that tables.py does not have."""
    tables, read = {}, {}
    for name, write in TABLES.items():
        tables[name] = "\n".join(write(results))
        read[name] = ", ".join(f"[{result}](benchmarks/{result}.json)" for result in results.take_read())
    return PLACEHOLDER.sub(lambda found: (read if found[1] else tables)[found[2]], TEMPLATE.read_text())


def files():
    """What this script writes: path and text."""
    results = Results()
    return {PAGE: page(results), PLOT: plot.draw(results), model.PLOT: model.draw()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    if options.check:
        for path in stale:
            print(f"{path.relative_to(DOCS.parent)} differs from the recorded results: run tools/benchmarks/write.py", file=sys.stderr)
        return 1 if stale else 0
    for path, text in files().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
