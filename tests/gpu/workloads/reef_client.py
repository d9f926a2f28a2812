"""A client of the server through tritonclient, as a process that stays: its start would otherwise disturb the others.

  reef_client.py URL     then `connect MODEL` and `run <JSON of sluice.serve.client.Load>` lines; each is answered with one JSON line
"""

import json
import pathlib
import sys

REPO = pathlib.Path(__file__).resolve().parents[3]
# The tree's package first: `.gpu/python` has tritonclient (tests/gpu/README.md), and may have a wheel of another build of this package.
sys.path[:0] = [str(REPO / "python"), str(REPO / ".gpu" / "python")]

from sluice.serve.client import Client, Load  # noqa: E402


def main():
    client = None
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "connect":
            client = Client(sys.argv[1], rest)
            told = {"connected": rest}
        else:
            told = client.run(Load(**json.loads(rest)))
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
