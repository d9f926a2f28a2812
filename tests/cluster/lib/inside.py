"""Runs within the cluster's namespaces: `up`, or `test FILE [--core] [TEST…]`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lib import assemble, runner  # noqa: E402

if __name__ == "__main__":
    if sys.argv[1] == "up":
        assemble.up()
    else:
        sys.exit(runner.main(Path(sys.argv[2]), sys.argv[3:]))
