#!/usr/bin/env python3
"""The attempts of tests/escapes that apply to a real GPU: is each blocked, or detected within a second? About 100 seconds.

    escapes.py --gpu real     on a machine with a GPU, as root: the pod-manager knows pods by their cgroups; writes $OUT/escapes.json
    escapes.py --gpu sim      anywhere with root

Some attempts are honest programs as far as inspection goes: a violation of theirs would be a false one. No program sets a time slice, and none takes managed memory.
"""

import argparse
import json
import os
import subprocess

import rig

# Honest programs among the attempts: no violation may be counted.
HONEST = ("another client's name", "persistent kernel", "open capture")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=("real", "sim"), default="real")
    parser.add_argument("--limit", type=int, default=230)
    options = parser.parse_args()
    rig.limit(options.limit)
    rows_file = rig.OUT / "escapes-rows.json"
    command = [rig.SLUICE_DEV, "escapes", "--gpu", options.gpu, "--repository", rig.REPO, "--json", rows_file, "--logs", rig.OUT / "escapes-logs"]
    # NVLink multicast stays off on lent machines.
    done = subprocess.run([str(word) for word in command], env=os.environ | {"NCCL_NVLS_ENABLE": "0"}, timeout=options.limit - 10, check=False)
    rows = json.loads(rows_file.read_text()) if rows_file.exists() else []
    false = [row["name"] for row in rows if row["name"] in HONEST and row["detected_ms"] is not None]
    checks = {"no result is worse than expected": done.returncode == 0, "there are rows": len(rows) >= 8, "no false violation": not false}
    for name, good in checks.items():
        rig.say("ok  " if good else "FAIL", name)
    ok = all(checks.values())
    rig.write("escapes", {"gpu": options.gpu, "attempts": rows, "false": false, "checks": checks, "ok": ok})
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
