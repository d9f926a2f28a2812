#!/usr/bin/env python3
"""Does `sluice doctor` find on this GPU what it should, also beside another busy program, and does it leave nothing behind?

About 40 seconds.  Needs target/release/{sluice,libsluice.so}.
"""

import argparse
import json
import os
import subprocess
import time

import rig


def doctor(arguments, limit=40):
    begin = time.monotonic()
    done = subprocess.run([str(rig.SLUICE), "doctor", "--json", "--library", str(rig.HOOK), *arguments],
                          capture_output=True, text=True, timeout=limit, env=rig.simulated_env())
    if not done.stdout.strip():
        rig.fail(f"the doctor said nothing: {done.stderr[-2000:]}")
    report = json.loads(done.stdout)
    for check in report["checks"]:
        rig.say(f"  {check['standing']:12} {check['check']:20} {check['found']}")
    rig.say(f"status {done.returncode}, level {report['level']}: {report['why']}")
    return done.returncode, report, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=("real", "sim"), default="real")
    parser.add_argument("--limit", type=int, default=110)
    options = parser.parse_args()
    rig.limit(options.limit)
    if options.gpu == "sim" and "SLUICE_SIM_SOCKET" not in os.environ:
        os.environ.update(rig.Gpu("sim").env)
    checks, result = {}, {}

    code, report, took = doctor(["--gpu", options.gpu])
    standings = {check["check"]: check["standing"] for check in report["checks"]}
    result["alone"], result["alone_s"] = report, took
    checks["level full"] = report["level"] == "full"
    checks["every control is proven by its effect"] = all(
        standings.get(name) == "ok"
        for name in ("token", "channel_groups", "set_timeslice", "disable_channels", "ctxsw_stats", "process_lock", "memory_ops", "outside"))
    checks["the exit status says the same"] = code == {"ok": 0, "degraded": 1, "broken": 2}[report["verdict"]]
    checks["less than 20 seconds"] = took < 20

    # A program without the hook: it uses its part of the time, which must not look like a failed control.
    stranger = rig.Child("stranger", [rig.SLUICE, "load", "be", "--duration-us", "200", "--depth", "8", "--stop-with-stdin"],
                         rig.simulated_env())
    stranger.answer(60)
    _, report, took = doctor(["--gpu", options.gpu])
    result["beside"], result["beside_s"] = report, took
    checks["beside a busy stranger nothing is called without effect"] = not any(
        "nothing comes of it" in check["found"] for check in report["checks"])
    checks["less than 20 seconds beside one, too"] = took < 20
    stranger.process.stdin.close()
    final = stranger.answer(30)
    while final["record"] != "be_final":
        final = stranger.answer(30)
    result["stranger"] = final
    checks["the stranger was left alone"] = not final["errors"] and final["completed"] == final["launches"]

    result["checks"], result["ok"] = checks, all(checks.values())
    for name, good in checks.items():
        rig.say("ok  " if good else "FAIL", name)
    rig.write("doctor", result)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
