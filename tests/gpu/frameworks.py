#!/usr/bin/env python3
"""JAX, CuPy and PyTorch (cuBLAS, cuDNN, trainings, a language model) give the same result, bit for bit, with and without the hook.

Each computation runs twice without the hook (what differs there is no fault of ours) and once under it, with a memory limit
that the framework must also see.
"""

import argparse

import rig

GIB = 1 << 30
PROGRAMS = {"torch": "torch_apps.py", "jax": "jax_train.py", "cupy": "cupy_compute.py"}


def run(name, env, patience):
    child = rig.Child(name, rig.python(PROGRAMS[name.split("-")[0]]), env)
    answer = child.answer(patience)
    answer["status"] = child.process.wait(30)
    return answer


def compare(name, manager, limit, patience):
    plain = [run(f"{name}-{label}", rig.plain_env(), patience) for label in ("plain", "again")]
    hooked = run(f"{name}-hooked", manager.env(name), patience)
    seen = hooked.get("total") or hooked.get("bytes_limit")
    result = {
        "plain": plain, "hooked": hooked, "deterministic": plain[0]["digest"] == plain[1]["digest"],
        "same": bool(hooked["digest"]) and hooked["digest"] == plain[0]["digest"], "skipped": hooked.get("skipped", []), "sees_the_limit": seen is not None and seen <= limit,
        "on_the_gpu": all(one.get("platform", "gpu") == "gpu" for one in (*plain, hooked)),
        "ended_well": all(one["status"] == 0 for one in (*plain, hooked)),
    }
    result["ok"] = result["deterministic"] and result["same"] and result["sees_the_limit"] and result["on_the_gpu"] and result["ended_well"]
    rig.say(f"{name} {hooked['version']}:", {key: result[key] for key in ("deterministic", "same", "skipped", "sees_the_limit", "on_the_gpu", "ended_well")})
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=20)
    parser.add_argument("--limit", type=int, default=420, help="seconds after which everything is ended")
    options = parser.parse_args()
    rig.limit(options.limit)
    manager = rig.Manager([{"name": n, "request": 0.3, "limit": 1.0, "memory": f"{options.gib}Gi"} for n in PROGRAMS])
    found = {}
    for name in PROGRAMS:
        found[name] = compare(name, manager, options.gib * GIB, 120)
        rig.write("frameworks", {"frameworks": found, "ok": False}, quiet=True)
    grants = {name: manager.grants(name) for name in PROGRAMS}
    manager.stop()
    ok = all(one["ok"] for one in found.values()) and min(grants.values()) > 0
    rig.write("frameworks", {"frameworks": found, "grants": grants, "ok": ok})
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
