#!/usr/bin/env python3
"""Does the driver answer cuGetProcAddress as the table of crates/driver-api does, and which exports does the table lack? Writes $OUT/check-table.json."""

import json
import os
import pathlib
import subprocess
import tempfile

import rig


def main():
    with tempfile.TemporaryDirectory(prefix="sluice-table-") as folder:
        program = pathlib.Path(folder) / "check_table"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-Wall", "-o", program, rig.HERE / "check_table.c", "-ldl"], check=True, timeout=60)
        done = subprocess.run([program, rig.HERE / "driver-table.txt"], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    rig.write("check-table", json.loads(done.stdout))
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
