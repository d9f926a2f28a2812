#!/usr/bin/env python3
"""`sluice-dev bench` and `sluice demo` on this machine; their JSON is kept with device, driver, commit, date and command.

    bench.py hook token ...     each result is $OUT/bench-NAME.json; names that end in -sim run on the simulator
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import rig

# Name: arguments, time limit in seconds.
RUNS = {
    "hook": (["bench", "hook", "--gpu", "real"], 90),
    "hook-sim": (["bench", "hook", "--gpu", "sim"], 90),
    "comm": (["bench", "comm"], 60),
    "token": (["bench", "token"], 90),
    "scenarios": (["bench", "scenarios"], 240),
    "demo": (["demo", "--gpu", "real", "--seconds", "20"], 70),
    "demo-sim": (["demo", "--gpu", "sim", "--seconds", "20"], 70),
}


def one(name):
    arguments, timeout = RUNS[name]
    program = rig.SLUICE if arguments[0] == "demo" else rig.SLUICE_DEV
    with tempfile.TemporaryDirectory(prefix="sluice-gpu-") as folder:
        path = pathlib.Path(folder) / "result.json"
        command = [str(program), *arguments, "--json", str(path)]
        done = subprocess.run(command, env=rig.plain_env(), timeout=timeout, check=False)
        found = json.loads(path.read_text()) if path.is_file() else {}
    shown = " ".join([program.name, *arguments])
    rig.write(f"bench-{name}", {"command": shown, "status": done.returncode, "result": found, "ok": done.returncode == 0 and bool(found)})
    return done.returncode == 0 and bool(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=RUNS)
    return 0 if all([one(name) for name in parser.parse_args().names]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
