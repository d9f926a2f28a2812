#!/usr/bin/env python3
"""What do nvidia-smi and nvidia-ml-py show in a tenant with a limit, beside another tenant?

Client "a" has a limit of 10 GiB and two processes, client "b" has 20 GiB and one. Both programs run as a client and without the hook.
    nvml.py              on a machine with a GPU: writes $OUT/nvml.json
    nvml.py --gpu sim    anywhere: nvidia-ml-py on the simulator, without nvidia-smi; writes $OUT/nvml-sim.json
nvidia-ml-py is searched in .gpu/python (`pip install --target .gpu/python nvidia-ml-py`) and where Python finds it. A program that is
missing is reported ("cannot"), and its checks are left out. The names of the NVML functions that nvidia-smi looks up are recorded.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import xml.etree.ElementTree

import rig

GIB, MIB = 1 << 30, 1 << 20
LIMITS = {"a": 10 * GIB, "b": 20 * GIB}
PACKAGES = [rig.REPO / ".gpu" / "python", rig.BUILD.parent / "python"]


def run(command, env):
    """(output, seconds); the output is None if the program fails."""
    begun = time.monotonic()
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    if done.returncode:
        rig.say(f"{command[0]} ended with status {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
    return (None if done.returncode else done.stdout), time.monotonic() - begun


def query(env, uuid):
    """What nvidia-ml-py shows; None without it."""
    path = os.pathsep.join(filter(None, [*map(str, PACKAGES), env.get("PYTHONPATH")]))
    child = rig.Child("query", rig.python("nvml_query.py", "--uuid", uuid), {**env, "PYTHONPATH": path})
    child.process.wait(60)
    while not child.is_read:
        time.sleep(0.01)
    records = child.records()
    if not records:
        rig.say(f"nvidia-ml-py: {child.errors()[-300:]}")
    return records[0][1] if records else None


def smi(env, uuid):
    """What nvidia-smi shows; None without it."""
    if not shutil.which("nvidia-smi"):
        return None
    numbers, seconds = run(["nvidia-smi", "-i", uuid, "--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits"], env)
    apps, _ = run(["nvidia-smi", "-i", uuid, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"], env)
    table, _ = run(["nvidia-smi", "-i", uuid], env)
    report, _ = run(["nvidia-smi", "-i", uuid, "-q", "-x"], env)
    found = {"seconds": seconds, "table": table}
    found["memory_mib"] = [int(number) for number in numbers.split(",")] if numbers else None
    found["pids"] = sorted(int(line.split(",")[0]) for line in apps.splitlines() if line.strip()[:1].isdigit()) if apps is not None else None
    if report:
        gpu = xml.etree.ElementTree.fromstring(report).find("gpu")
        found["report_total"] = gpu.findtext("fb_memory_usage/total")
        found["report_pids"] = sorted(int(pid.text) for pid in gpu.findall("processes/process_info/pid"))
    return found


def looked_up(uuid):
    """The NVML functions that nvidia-smi looks up, by the loader's own record."""
    if not shutil.which("nvidia-smi"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        run(["nvidia-smi", "-i", uuid], rig.plain_env(LD_DEBUG="symbols", LD_DEBUG_OUTPUT=f"{folder}/log"))
        text = "".join(path.read_text(errors="replace") for path in pathlib.Path(folder).iterdir())
    return sorted(set(re.findall(r"symbol=(nvml\w+)", text)))


def is_near(mib, limit):
    return mib is not None and abs(mib - limit // MIB) <= 1


def judge(found, users, own, others):
    """The checks by name, of those programs that are here."""
    checks = {}
    limit, taken = LIMITS["a"], sum(user["bytes"] for user in users["a"])
    seen, bare = found["pynvml"], found["pynvml_bare"]
    if seen and bare:
        for name in ("memory", "memory_v2"):
            shown = seen.get(name)
            if shown and "error" not in shown:
                checks[f"{name}: total is the limit"] = shown["total"] == limit
                checks[f"{name}: total is free and used"] = shown["free"] + shown["used"] == limit
                checks[f"{name}: used covers what was allocated"] = taken <= shown["used"] <= limit
        checks["without the hook the total is the GPU's"] = bare["memory"]["total"] > 2 * limit
        lists = [name for name in seen if re.match("Compute|Graphics|MPS", name) and isinstance(seen[name], list)]
        for name in lists:
            checks[f"{name}: no process of others"] = not {pid for pid, _ in seen[name]} & others
        # A driver that translates no pids, or a sandbox, may list no process at all.
        if {pid for pid, _ in bare.get("Compute_v3") or bare["Compute"]} >= own | others:
            checks["own processes are listed"] = {pid for pid, _ in seen.get("Compute_v3") or seen["Compute"]} == own
        if isinstance(seen["samples"], list):
            checks["samples: no process of others"] = not set(seen["samples"]) & others
    seen, bare = found["smi"], found["smi_bare"]
    if seen and bare:
        total, used, free = seen["memory_mib"] or (None, 0, 0)
        checks["nvidia-smi: total is the limit"] = is_near(total, limit)
        checks["nvidia-smi: total is free and used"] = is_near(used + free, limit)
        checks["nvidia-smi: used covers what was allocated"] = taken // MIB - 1 <= used
        checks["nvidia-smi -q: total is the limit"] = seen.get("report_total") == f"{limit // MIB} MiB"
        # nvidia-smi takes its list of processes from the driver's private table, which does not pass the hook: `pids` and `report_pids`
        # are recorded only.
        checks["nvidia-smi: the table shows the limit"] = f"{limit // MIB}MiB" in (seen["table"] or "")
    return checks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--limit", type=int, default=110, help="seconds after which everything is ended")
    options = parser.parse_args()
    rig.limit(options.limit)
    folder = tempfile.TemporaryDirectory(prefix="sluice-nvml-")
    more = rig.simulate(folder.name)[1] if options.gpu == "sim" else {}
    bare = rig.plain_env(**more)
    first = rig.Child("uuid", rig.python("nvml_user.py"), bare)
    uuid = first.answer(60)["uuid"]
    manager = rig.Manager([{"name": name, "request": 0.5, "limit": 1.0, "memory": limit} for name, limit in LIMITS.items()])
    # As in a pod: the manager of a GPU is found by its UUID. A machine may have several GPUs.
    sockets = pathlib.Path(folder.name) / "sockets"
    sockets.mkdir()
    (sockets / f"GPU-{uuid}.sock").symlink_to(manager.socket)

    def env(client):
        hooked = {**manager.env(client, **more), "SLUICE_SOCKET_DIR": str(sockets)}
        del hooked["SLUICE_SOCKET"]
        return hooked

    tenants = [(client, rig.Child(f"user-{client}", rig.python("nvml_user.py", "--bytes", GIB), env(client))) for client in ("a", "a", "b")]
    users = {"a": [], "b": []}
    for client, child in tenants:
        users[client].append(child.answer(60))
    own, others = ({user["pid"] for user in users[client]} for client in ("a", "b"))
    # The driver takes samples some times a second.
    time.sleep(1.5)
    levels = {name: value for name, value in manager.metrics().items() if name.startswith("sluice_level")}
    name = f"GPU-{uuid}"
    found = {"uuid": name, "users": users, "looked_up": None if options.gpu == "sim" else looked_up(name)}
    found |= {"pynvml": query(env("a"), name), "pynvml_bare": query(bare, name)}
    found |= {"smi": None, "smi_bare": None} if options.gpu == "sim" else {"smi": smi(env("a"), name), "smi_bare": smi(bare, name)}
    checks = judge(found, users, own, others)
    checks["cuMemGetInfo shows the same limit"] = all(user["total"] == LIMITS["a"] for user in users["a"])
    checks["programs that use only NVML are not scheduled"] = levels == {
        name: value for name, value in manager.metrics().items() if name.startswith("sluice_level")}
    for check, held in checks.items():
        if not held:
            rig.say(f"NOT so: {check}")
    cannot = [program for program, key in (("nvidia-ml-py", "pynvml"), ("nvidia-smi", "smi")) if not found[key]]
    manager.stop()
    ok = all(checks.values()) and cannot != ["nvidia-ml-py", "nvidia-smi"]
    rig.write("nvml-sim" if options.gpu == "sim" else "nvml", {**found, "checks": checks, "cannot": cannot, "ok": ok})
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
