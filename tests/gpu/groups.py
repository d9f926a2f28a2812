#!/usr/bin/env python3
"""Are a CUDA program's channel groups found by the hook, and do another process's controls take effect on them?

Two best-effort generators run under the hook; `watch` (an example of crates/nvrm) is their manager, gets their descriptors
and makes the controls. Judged by what the generators complete and by the GPU's own counts of context switches, never by the
driver's status. About 45 seconds.

  cargo build --release -p sluice-nvrm --example watch -p sluice-hook && cargo build --release -p sluice-cli
  tests/gpu/groups.py        needs target/release/{sluice,libsluice.so,examples/watch}
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

import rig


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="each window")
    parser.add_argument("--kernel-us", type=int, default=200)
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--limit", type=int, default=110)
    options = parser.parse_args()
    rig.limit(options.limit)
    folder = tempfile.TemporaryDirectory(prefix="sluice-groups-")
    socket, log = pathlib.Path(folder.name) / "watch.sock", pathlib.Path(folder.name) / "hook.log"
    watch_command = [rig.BUILD / "examples" / "watch", socket] + (["simulated"] if options.simulated else [])
    result, checks = {"kernel_us": options.kernel_us, "rates": {}, "took_us": {}}, {}

    def new_watch():
        socket.unlink(missing_ok=True)
        child = rig.Child("watch", watch_command)
        rig.wait_for_socket(socket, child)
        return child

    def tell(command):
        watch.ask(command)
        return watch.answer(10)

    def tenants():
        return {tenant["pid"]: tenant for tenant in tell("list")["tenants"] if tenant["groups"]}

    def control(command):
        made = tell(command)
        failed = [each["error"] for each in made.get("made", []) if each["error"]] or made.get("error")
        if failed:
            rig.fail(f"{command}: {failed}")
        result["took_us"].setdefault(command.split()[0], []).extend(each["took_us"] for each in made["made"])

    def both(name):
        """Rates of both over one window, after earlier launches have ended."""
        time.sleep(0.6)
        begin = tenants()
        rate_a, rate_b = rig.load_rates([a, b], options.seconds)
        end = tenants()
        def saves(load):
            group = lambda when: when.get(load.process.pid, {}).get("groups", [{}])[0].get("saves")
            return [group(begin), group(end)]
        result["rates"][name] = {"a": rate_a, "b": rate_b, "saves": {"a": saves(a), "b": saves(b)}}
        rig.say(f"{name}: a {rate_a:.0f}/s, b {rate_b:.0f}/s, saves {result['rates'][name]['saves']}")
        return rate_a, rate_b

    def until(what, seen, seconds=15.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if seen():
                return
            time.sleep(0.05)
        rig.fail(f"{what}: not seen in {seconds:.0f} s; watch: {tell('list')}; log: {log.read_text()[-2000:]}")

    watch = new_watch()
    simulator = {k: v for k, v in os.environ.items() if options.simulated and k.startswith("SLUICE_SIM_")}
    env = rig.plain_env(LD_PRELOAD=str(rig.HOOK), SLUICE_SOCKET=str(socket), SLUICE_LOG=str(log), **simulator)
    a = rig.Load("a", env, options.kernel_us)
    [alone] = rig.load_rates([a], options.seconds)
    rig.say(f"a alone: {alone:.0f}/s")
    b = rig.Load("b", env, options.kernel_us)
    pids = [load.process.pid for load in (a, b)]
    until("both announced", lambda: set(pids) <= set(tenants()))
    found = tenants()
    result["found"], result["inventory"] = found, [line for line in log.read_text().splitlines() if "channel groups:" in line]
    for pid in pids:
        rig.say(f"pid {pid}: {json.dumps(found[pid]['groups'])}")
    for line in result["inventory"]:
        rig.say(line)
    result["device"] = a.started["device"]
    checks["one compute group each"] = all(len(found[pid]["groups"]) == 1 for pid in pids)
    checks["it has channels and a slice"] = all(
        group["channels"] and isinstance(group["timeslice_us"], int) and group["timeslice_us"] > 0
        for pid in pids for group in found[pid]["groups"])

    both("untouched")
    control(f"slice {pids[0]} 2000")
    control(f"slice {pids[1]} 8000")
    rate_a, rate_b = both("slices 2000 / 8000")
    share = rate_a / max(1e-9, rate_a + rate_b)
    checks["slices in proportion: 0.17 to 0.23"] = 0.17 <= share <= 0.23
    result["share_of_a_at_2000_8000"] = share
    control(f"stop {pids[1]}")
    rate_a, rate_b = both("b stopped")
    checks["the stopped one stands, the other has all"] = rate_b <= 0.01 * alone and rate_a >= 0.9 * alone
    control(f"start {pids[1]}")
    rate_a, rate_b = both("b started")
    checks["it goes on"] = rate_b > 0.2 * alone

    # The manager ends while b is stopped: b's hook must enable its groups and restore its slice.
    control(f"stop {pids[1]}")
    control(f"slice {pids[0]} 30000")
    watch.ask("leave")
    left = time.time()
    watch.process.wait(10)
    watch = new_watch()
    until("both announced again", lambda: set(pids) <= set(tenants()))
    result["reattached_after_s"] = time.time() - left
    both("manager lost")
    slices = {pid: tenants()[pid]["groups"][0]["timeslice_us"] for pid in pids}
    result["slices_after_loss_us"] = slices
    checks["both run again after the manager's death, with the slices that they had"] = (
        result["rates"]["manager lost"]["b"] > 0.3 * alone
        and all(slices[pid] == found[pid]["groups"][0]["timeslice_us"] for pid in pids))
    result["restored"] = [line for line in log.read_text().splitlines() if "lost the manager" in line]

    result["endings"] = []
    for load in (a, b):
        load.process.stdin.close()
        final = load.answer(20)
        while final["record"] != "be_final":
            final = load.answer(20)
        result["endings"].append({"errors": final["errors"], "completed": final["completed"], "launches": final["launches"]})
    checks["nothing was lost"] = all(not end["errors"] and end["completed"] == end["launches"] for end in result["endings"])
    result["checks"], result["ok"] = checks, all(checks.values())
    for name, good in checks.items():
        rig.say("ok  " if good else "FAIL", name)
    rig.write("groups", result)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
