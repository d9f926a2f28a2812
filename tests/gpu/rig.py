"""Common parts of the GPU tests: paths, child processes that end with the script, a pod-manager, results with their conditions.

Standard library only, so that every script starts where nothing but Python is installed.
"""

import atexit
import datetime
import functools
import json
import os
import pathlib
import queue
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parent.parent
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", REPO / "target" / "release")).resolve()
SLUICE = BUILD / "sluice"
SLUICE_DEV = BUILD / "sluice-dev"
HOOK = pathlib.Path(os.environ.get("SLUICE_HOOK", BUILD / "libsluice.so"))
OUT = pathlib.Path(os.environ.get("OUT", tempfile.gettempdir()))
STARTED = time.monotonic()
# What `python -m sluice.serve` and its clients import.
SERVER_MODULES = ("aiohttp", "grpc", "google.protobuf", "numpy", "prometheus_client", "yaml", "tritonclient.grpc")
CHILDREN = []
# Called when this script ends, after its children have ended.
LAST = []


def say(*words):
    """Prints with the time since the start, at once."""
    print(f"[{time.monotonic() - STARTED:7.1f}]", *words, flush=True)


def fail(message):
    say("error:", message)
    sys.exit(2)


class ChildFailed(Exception):
    """A child process ended, or did not answer in time."""


class Child:
    """A child process whose output lines can be waited for. It ends with this script."""

    def __init__(self, name, command, env=None):
        self.name, self.lines = name, queue.Queue()
        self.log = tempfile.NamedTemporaryFile("w+", prefix=f"sluice-gpu-{name}-", suffix=".log", delete=False)
        self.process = subprocess.Popen(
            [str(word) for word in command], env=env, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
        )
        self.is_read = False
        CHILDREN.append(self)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put((time.time(), line.rstrip("\n")))
        self.lines.put((time.time(), None))
        self.is_read = True

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self, timeout):
        """The next line that is a JSON object. Other output is shown. Without one this script ends."""
        try:
            return self.reply(timeout)
        except ChildFailed as why:
            return fail(why)

    def reply(self, timeout):
        """The same, but raises ChildFailed."""
        end = time.monotonic() + timeout
        while True:
            try:
                _, line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                self.stop()
                raise ChildFailed(f"{self.name} said nothing for {timeout:.0f} s\n{self.errors()}") from None
            if line is None:
                raise ChildFailed(f"{self.name} ended with status {self.process.wait()}\n{self.errors()}")
            if line.startswith("{"):
                return json.loads(line)
            say(f"{self.name}:", line)

    def records(self):
        """All JSON lines so far, each with the time at which it came."""
        found = []
        while not self.lines.empty():
            when, line = self.lines.get()
            if line and line.startswith("{"):
                found.append((when, json.loads(line)))
        return found

    def errors(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()[-4000:]

    def stop(self, patience=5.0):
        for send in (self.process.terminate, self.process.kill):
            if self.process.poll() is None:
                send()
                try:
                    self.process.wait(patience)
                except subprocess.TimeoutExpired:
                    continue
        return self.process.returncode


@atexit.register
def _stop_all():
    for child in CHILDREN:
        if child.process.poll() is None:
            child.process.terminate()
    for child in CHILDREN:
        child.stop()
        try:
            os.unlink(child.log.name)
        except OSError:
            pass
    for last in LAST:
        last()


def leave(status):
    """Ends this script and its children now, without waiting for its threads."""
    signal.alarm(0)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


def end_soon(status):
    """Ends this script in order, and by force if that takes too long."""
    signal.signal(signal.SIGALRM, lambda *_: leave(status))
    signal.alarm(4)
    sys.exit(status)


signal.signal(signal.SIGTERM, lambda *_: end_soon(143))


def limit(seconds):
    """Ends this script and its children after this time."""
    def ring(*_):
        say(f"error: took longer than its limit of {seconds} s")
        end_soon(2)
    signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)


def one_by_one(children):
    """Lets children load together and compile one after the other: a program that selects its kernels by timing must run alone meanwhile.
    Returns the ready message of each, by name."""
    for child in children.values():
        child.answer(120)
    ready = {}
    for name, child in children.items():
        child.ask("build")
        ready[name] = child.answer(120)
        say(name, "is ready")
    return ready


class Manager:
    """A `sluice pod-manager` with the clients given as dictionaries of the resource file."""

    def __init__(self, clients, extra=()):
        for path in (SLUICE, HOOK):
            if not path.is_file():
                fail(f"{path} is missing: build it with `cargo xtask build` and carry target/release")
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-gpu-")
        folder = pathlib.Path(self.folder.name)
        self.socket = folder / "manager.sock"
        self.resources = folder / "resources.yaml"
        self.define(clients)
        self.metrics_at = free_address()
        command = [SLUICE, "pod-manager", "--socket", self.socket, "--resource-file", self.resources]
        command += ["--metrics", self.metrics_at, *extra, *node_flags(extra)]
        self.child = Child("pod-manager", command)
        wait_for_socket(self.socket, self.child)

    def define(self, clients):
        """Writes the resource file. A manager that runs reads it again."""
        text = "clients:\n" + "".join(f"  - {{ {', '.join(f'{k}: {v}' for k, v in c.items())} }}\n" for c in clients)
        part = self.resources.with_suffix(".part")
        part.write_text(text)
        os.replace(part, self.resources)

    def env(self, client, **more):
        """Environment of a program under the hook, as the client of that name."""
        return plain_env(LD_PRELOAD=str(HOOK), SLUICE_SOCKET=str(self.socket), SLUICE_CLIENT=client, **more)

    def metrics(self):
        """The samples of /metrics by name and labels, without histogram buckets."""
        return scrape(self.metrics_at)

    def grants(self, client):
        """Number of grants of a client; zero means that the hook was not active."""
        found = [v for k, v in self.metrics().items() if k.startswith("sluice_grants_total") and f'client="{client}"' in k]
        return sum(found)

    def stop(self):
        try:
            VIOLATIONS.update({name: count for name, count in self.metrics().items() if name.startswith("sluice_violations_total") and count})
        except OSError:
            # A script has killed it.
            pass
        self.child.stop()
        self.folder.cleanup()


def free_address():
    """A loopback address with a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def scrape(address):
    """The samples of a manager's /metrics by name and labels, without histogram buckets and quantiles of nothing, which are no JSON."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    samples = [line.rpartition(" ") for line in lines if line.startswith("sluice_") and "_bucket{" not in line]
    return {name: float(value) for name, _, value in samples if value != "NaN"}


# What the managers have counted. The programs of these tests keep to their limits, so each violation is a false one.
VIOLATIONS = {}


def node_flags(flags):
    """Flags of a manager that depend on the machine: which GPU it has, as NVML readings need to know beside other GPUs. With ADOPT=auto in the
    environment (as root) it also inspects its processes, as the chart's default has it."""
    adopts = ["--adopt=auto"] if os.environ.get("ADOPT") == "auto" else []
    if "--controls=simulated" in flags:
        return adopts
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    asked = subprocess.run(["nvidia-smi", "-i", gpu, "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, timeout=20, check=False)
    return [*adopts, "--gpu-uuid", asked.stdout.strip()] if asked.returncode == 0 else []


def wait_for_socket(path, child, seconds=10.0):
    """Returns when something accepts connections at `path`."""
    wait_for(socket.AF_UNIX, str(path), child, seconds)


def wait_for_port(port, child, seconds=10.0):
    """Returns when something accepts connections at this port of the loopback address."""
    wait_for(socket.AF_INET, ("127.0.0.1", port), child, seconds)


def wait_for(family, address, child, seconds):
    """Returns when something accepts connections there. Ends this script if the child that should do so ends, or after this time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if child.process.poll() is not None:
            fail(f"{child.name} ended with status {child.process.returncode}\n{child.errors()}")
        with socket.socket(family) as probe:
            try:
                probe.connect(address)
                return
            except OSError:
                time.sleep(0.02)
    fail(f"{child.name} does not answer at {address} after {seconds:.0f} s\n{child.errors()}")


class Load(Child):
    """A generator whose rate can be read."""

    def __init__(self, name, env, kernel_us, depth=8):
        super().__init__(name, [SLUICE, "load", "be", "--duration-us", kernel_us, "--depth", depth, "--stop-with-stdin"], env)
        self.started = self.answer(60)
        self.pid = self.process.pid


def load_rates(loads, seconds):
    """Kernels per second of each load in a window that begins now. A stopped load reports nothing."""
    for load in loads:
        load.records()
    time.sleep(seconds)
    def rate(load):
        seen = [record for _, record in load.records() if record["record"] == "be_progress"]
        if len(seen) < 2:
            return 0.0
        first, last = seen[0], seen[-1]
        return (last["completed"] - first["completed"]) / max(1e-9, last["seconds"] - first["seconds"])
    return [rate(load) for load in loads]


def simulate(folder, *arguments):
    """A simulator in `folder`: its process, and the environment variables with which programs find it."""
    socket_path, driver = pathlib.Path(folder) / "gpu.sock", pathlib.Path(folder) / "driver"
    driver.mkdir()
    for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
        (driver / name).symlink_to(BUILD / "libcuda.so")
    simulator = Child("simulator", [SLUICE, "sim", "--socket", socket_path, *arguments], plain_env())
    wait_for_socket(socket_path, simulator)
    return simulator, {"LD_LIBRARY_PATH": str(driver), "SLUICE_SIM_SOCKET": str(socket_path)}


def plain_env(**more):
    """This environment without the variables of the hook, plus `more`."""
    kept = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("SLUICE_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **more}


def simulated_env(**more):
    """The plain environment, plus a simulator that this one names."""
    kept = {k: v for k, v in os.environ.items() if k.startswith("SLUICE_SIM_")}
    return plain_env(**kept, **more)


def compile(source, program, driver=()):
    """Compiles a C program of the driver API. `driver` are the linker's options that find the driver, if it is not the machine's."""
    # Driver functions are resolved at run time; the linker need not find them.
    command = ["cc", "-std=gnu11", "-O1", "-pthread", "-o", program, source, *driver, "-l:libcuda.so.1", "-ldl"]
    built = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if built.returncode:
        command[-2:-1] = ["-Wl,--unresolved-symbols=ignore-all", "-Wl,--no-as-needed", *found_driver()]
        built = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if built.returncode:
        fail(f"cc: {built.stderr}")


def compile_library(source, library):
    """Compiles a C library that is preloaded."""
    built = subprocess.run(["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread", "-o", str(library), str(source)], capture_output=True, text=True, check=False)
    if built.returncode:
        fail(f"cc: {built.stderr}")


def found_driver():
    """The driver's library where the loader finds it, if the linker's folders have none."""
    asked = "import ctypes; ctypes.CDLL('libcuda.so.1'); print(*{line.split()[-1] for line in open('/proc/self/maps') if 'libcuda.so' in line})"
    return subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False).stdout.split()[:1]


def python(name, *arguments):
    """Command line of a workload."""
    return [sys.executable, HERE / "workloads" / name, *arguments]


# On the simulator there is no PyTorch: substitutes on the driver API with the same messages.
STAND_INS = {"torch_model.py": "driver_train.py", "torch_serve.py": "driver_serve.py", "torch_identical.py": "driver_identical.py", "torch_decode.py": "driver_decode.py", "torch_generate.py": "driver_generate.py", "torch_pair.py": "driver_pair.py", "torch_large.py": "driver_large.py"}


class Gpu:
    """The GPU on which a script runs its programs: the machine's, or a simulator of its own."""

    def __init__(self, kind, *simulator):
        self.simulated, self.env, self.controls = kind == "sim", {}, "auto"
        if self.simulated:
            # Exists as long as this script; the simulator's folder is removed last.
            self.folder = tempfile.TemporaryDirectory(prefix="sluice-sim-")
            LAST.append(self.folder.cleanup)
            self.simulator, self.env = simulate(self.folder.name, *simulator)
            self.controls = "simulated"

    def python(self, name, *arguments):
        return python(STAND_INS[name] if self.simulated else name, *arguments)

    def plain(self, **more):
        """Environment of a program without the hook."""
        return plain_env(**self.env, **more)

    def under(self, manager, client, **more):
        """Environment of a program that is this client of a manager."""
        return manager.env(client, **self.env, **more)


def serving(env, *modules):
    """The environment `env` of programs that use the tree's `sluice.serve` and these modules. Ends the script if they get others, or none."""
    path = [str(REPO / "python"), str(REPO / ".gpu" / "python"), *filter(None, [env.get("PYTHONPATH")])]
    env, expected = {**env, "PYTHONPATH": os.pathsep.join(path)}, REPO / "python" / "sluice" / "serve" / "__init__.py"
    asked = f"import importlib, sluice.serve; [importlib.import_module(name) for name in {modules!r}]; print(sluice.serve.__file__)"
    # Not in this folder: -c would search it first.
    done = subprocess.run([sys.executable, "-c", asked], env=env, capture_output=True, text=True, timeout=120, check=False, cwd="/")
    found = done.stdout.strip() if done.returncode == 0 else (done.stderr.strip().splitlines() or ["nothing"])[-1]
    if found != str(expected):
        fail(f"sluice.serve with {', '.join(modules)}: found {found!r}, expected {str(expected)!r}; {sys.executable}, PYTHONPATH={env['PYTHONPATH']}")
    return env


@functools.cache
def machine():
    """Device, driver and commit; cached, because the query takes a second."""
    def run(*command):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, cwd=REPO)
            return done.stdout.strip() if done.returncode == 0 else ""
        except (OSError, subprocess.TimeoutExpired):
            return ""
    card = run("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader").split("\n")[0].split(", ")
    card += [""] * (3 - len(card))
    commit = os.environ.get("SLUICE_COMMIT") or run("git", "rev-parse", "HEAD") or "unknown"
    return {"device": card[0] or "none", "driver": card[1], "device_memory": card[2], "commit": commit}


def facts():
    """Device, driver, commit, date and command of a result."""
    return {
        **machine(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv), "host_cores": os.cpu_count(),
    }


def write(name, result, quiet=False):
    """Writes `result` and its conditions to $OUT/name.json by renaming, and prints the path."""
    path = OUT / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    found = {"adopt": os.environ["ADOPT"], "violations": VIOLATIONS} if "ADOPT" in os.environ else {}
    part.write_text(json.dumps({**facts(), **found, **result}, indent=1) + "\n")
    os.replace(part, path)
    if not quiet:
        say(f"{path}: ok={result.get('ok')}", *([f"violations: {VIOLATIONS}"] if found else []))
    return path


def spread(values):
    """Median, extremes and count of a series."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)} if values else {}
