#!/usr/bin/env python3
"""REEF's example on this machine's GPU: compiled as by a user, run linked and preloaded; then PyTorch is preempted.

    reef.py --gpu real      writes $OUT/reef.json: the driver-API port (c++), the runtime-API original (nvcc), PyTorch
    reef.py --gpu sim       anywhere: the driver-API port on `sluice sim`, writes $OUT/reef-sim.json

Each program copies out a number that the preempted stream counts up: it must stand while the stream is preempted, and be complete in
the end. What cannot be tried is named with the reason, and is no failure. About 40 seconds.
"""

import argparse
import importlib.util
import json
import pathlib
import shutil
import subprocess
import tempfile

import rig

EXAMPLES, HEADERS = rig.REPO / "examples" / "reef", rig.REPO / "hook" / "include"


class Stage:
    def __init__(self, kind):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-reef-")
        self.path = pathlib.Path(self.folder.name)
        self.library, self.more, search = self.path / "lib", {}, []
        self.library.mkdir()
        for name in ("libsluice.so", "libcudareef.so"):
            (self.library / name).symlink_to(rig.HOOK)
        if kind == "sim":
            driver = self.path / "driver"
            driver.mkdir()
            for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
                (driver / name).symlink_to(rig.BUILD / "libcuda.so")
            rig.wait_for_socket(self.path / "sim.sock", rig.Child("sim", [rig.SLUICE, "sim", "--socket", self.path / "sim.sock"]))
            self.more, search = {"SLUICE_SIM_SOCKET": str(self.path / "sim.sock")}, [str(driver)]
        self.search = [*search, *filter(None, rig.os.environ.get("LD_LIBRARY_PATH", "").split(":"))]

    def compiled(self, name, compiler, *flags):
        """The program, or the reason why it was not built."""
        program = self.path / name.replace(".", "-")
        command = [compiler, *flags, "-I", HEADERS, "-o", program, EXAMPLES / name, "-L", self.library, "-lcudareef"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, check=False)
        return (program, "") if done.returncode == 0 else (None, done.stderr[-800:])

    def run(self, command, preload):
        """`preload`: the library is preloaded, from a folder outside the library path; otherwise it is only linked."""
        search = self.search if preload else [str(self.library), *self.search]
        more = {"LD_PRELOAD": str(rig.HOOK)} if preload else {}
        env = rig.plain_env(**{**self.more, **more, "LD_LIBRARY_PATH": ":".join(search)})
        try:
            done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True, timeout=40, check=False)
        except subprocess.TimeoutExpired:
            return {"ok": False, "why": "still running after 40 s"}
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        found = json.loads(lines[-1]) if lines else {}
        return {**found, "status": done.returncode, "ok": done.returncode == 0, **({} if done.returncode == 0 else {"why": done.stderr[-600:]})}


def architecture():
    """The GPU architecture for nvcc."""
    asked = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True, text=True, check=False)
    digits = asked.stdout.split("\n")[0].replace(".", "").strip()
    return f"sm_{digits}" if digits.isdigit() else "native"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=("real", "sim"), default="real")
    parser.add_argument("--limit", type=int, default=240)
    options = parser.parse_args()
    rig.limit(options.limit)
    stage, result, written = Stage(options.gpu), {}, "reef" if options.gpu == "real" else "reef-sim"

    def tried(name, command, ways=((False, "linked"), (True, "preloaded"))):
        for preload, way in ways:
            result[f"{name}, {way}"] = seen = stage.run(command, preload)
            rig.say(f"{name}, {way}:", seen)
            rig.write(written, {"runs": result, "ok": False}, quiet=True)

    program, why = stage.compiled("preempt.cpp", "c++", "-std=c++17", "-O1")
    if program:
        for level in ("host", "device", "all"):
            tried(f"driver API at {level}", [program, level])
    else:
        result["driver API"] = {"ok": False, "why": why}
    if options.gpu == "real":
        nvcc = shutil.which("nvcc") or next((str(path) for path in sorted(pathlib.Path("/usr/local").glob("cuda*/bin/nvcc"))), None)
        program, why = stage.compiled("preempt.cu", nvcc, "-std=c++20", "-O1", f"-arch={architecture()}") if nvcc else (None, "no nvcc on this machine")
        if program:
            tried("runtime API", [program])
        else:
            result["runtime API"] = {"ok": not nvcc, "cannot": why}
        if importlib.util.find_spec("torch"):
            for level in (0, 1):
                tried(f"PyTorch at {level}", rig.python("torch_preempt.py", level), [(True, "preloaded")])
        else:
            result["PyTorch"] = {"ok": True, "cannot": "not installed"}
        for name in ("onnxruntime", "tensorrt"):
            found = importlib.util.find_spec(name) is not None
            result[name] = {"ok": True, "cannot": "installed, but there is no workload for it here" if found else "not installed"}
    ok = all(seen["ok"] for seen in result.values())
    rig.write(written, {"runs": result, "ok": ok})
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
