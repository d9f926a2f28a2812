#!/usr/bin/env python3
"""The same rows on a GPU and on the simulator: `sluice load` alone, in pairs and in fours, without the hook.

    calibrate.py --gpu real             on a machine with a GPU: writes $OUT/calibrate-real.json
    calibrate.py --gpu sim              anywhere: starts `sluice sim`, writes $OUT/calibrate-sim.json
    calibrate.py --compare real.json sim.json

Rows: latency of a 100 us request alone and beside kernels of 1 and 10 ms (stock time slicing), and the shares of two and
four tenants that never pause. A comparison wants p50 within 10 % and shares within 1 point. "added" is p50 beside a neighbour less
p50 alone: the simulator's host, whose own latency is in both, drops out of it. On a busy machine: nice -n -15 calibrate.py --gpu sim.
"""

import argparse
import json
import pathlib
import tempfile
import time

import rig

P50_WITHIN = 0.10
SHARE_WITHIN = 0.01


class Gpu:
    """The GPU of the load: the machine's driver, or a simulator."""

    def __init__(self, kind):
        self.kind, self.env, self.daemon = kind, rig.plain_env(), None
        if kind == "sim":
            self.folder = tempfile.TemporaryDirectory(prefix="sluice-gpu-")
            folder = pathlib.Path(self.folder.name)
            library = rig.BUILD / "libcuda.so"
            if not library.is_file():
                rig.fail(f"{library} is missing: build it with `cargo xtask build`")
            for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
                (folder / name).symlink_to(library)
            self.daemon = rig.Child("sim", [rig.SLUICE, "sim", "--socket", folder / "sim.sock"])
            rig.wait_for_socket(folder / "sim.sock", self.daemon)
            self.env = rig.plain_env(LD_LIBRARY_PATH=str(folder), SLUICE_SIM_SOCKET=str(folder / "sim.sock"))

    def be(self, name, duration_us, depth=8):
        return rig.Child(name, [rig.SLUICE, "load", "be", "--duration-us", duration_us, "--depth", depth, "--stop-with-stdin"], self.env)

    def lc(self, name, seconds, duration_us=100, period_us=4000):
        command = [rig.SLUICE, "load", "lc", "--duration-us", duration_us, "--period-us", period_us, "--jitter", 0.5, "--seconds", seconds]
        return rig.Child(name, command, self.env)

    def stop(self):
        if self.daemon:
            self.daemon.stop()
            self.folder.cleanup()


def started(child, patience=60):
    while child.answer(patience)["record"] != "started":
        pass
    return child


def finish(child, patience):
    """The last record of a load that ends by itself."""
    while True:
        record = child.answer(patience)
        if record["record"].endswith("final"):
            if record["errors"]:
                rig.fail(f"{child.name}: {record['errors']}")
            return record


def rates(children, seconds):
    """Kernels per second of each child over the same stretch of time, from its progress records (one each 0.5 s)."""
    for child in children:
        child.records()
    time.sleep(seconds)
    found = []
    for child in children:
        progress = [record for _, record in child.records() if record["record"] == "be_progress"]
        if len(progress) < 2:
            rig.fail(f"{child.name} reported no progress\n{child.errors()}")
        first, last = progress[0], progress[-1]
        found.append((last["completed"] - first["completed"]) / (last["seconds"] - first["seconds"]))
    return found


def latency(gpu, seconds, be_us=None, be_alone=None):
    """One LC tenant, with or without a BE neighbour."""
    neighbour = started(gpu.be("be", be_us)) if be_us else None
    lc = started(gpu.lc("lc", seconds))
    row = {"be_kernel_us": be_us}
    if neighbour:
        time.sleep(0.7)
        row["be_kept"] = rates([neighbour], max(2.0, seconds - 2.5))[0] / be_alone
    final = finish(lc, seconds + 60)
    if neighbour:
        neighbour.stop()
    return {**row, "latency_us": final["latency_us"], "requests": final["requests"]}


def saturating(gpu, tenants, seconds, alone=None, kernel_us=200):
    """Tenants that never pause: their shares and the GPU's total throughput."""
    children = [started(gpu.be(f"be{number}", kernel_us)) for number in range(tenants)]
    time.sleep(1.0)
    measured = rates(children, seconds)
    for child in children:
        child.stop()
    if alone is None:
        return {"rate": measured[0]}
    return {"rates": measured, "shares": [rate / sum(measured) for rate in measured], "sum_of_alone": sum(measured) / alone}


def measure(kind, seconds):
    gpu = Gpu(kind)
    rows = {"be-200us-alone": saturating(gpu, 1, seconds)}
    alone = rows["be-200us-alone"]["rate"]
    rows["be-pair"] = saturating(gpu, 2, seconds, alone)
    rows["be-four"] = saturating(gpu, 4, seconds, alone)
    rows["lc-alone"] = latency(gpu, seconds)
    for name, kernel in (("1ms", 1000), ("10ms", 10000)):
        rate = saturating(gpu, 1, seconds / 2, kernel_us=kernel)["rate"]
        rows[f"be-{name}-alone"] = {"rate": rate}
        rows[f"lc-beside-{name}"] = latency(gpu, seconds, kernel, rate)
    gpu.stop()
    for name, row in rows.items():
        rig.say(name, json.dumps(row))
    return rows


def compare(real, sim):
    """Rows of the comparison: name, quantity, GPU, simulator, within bounds, or None without a bound."""
    table = []
    alone = real["lc-alone"]["latency_us"]["p50"], sim["lc-alone"]["latency_us"]["p50"]
    for name in real:
        a, b = real[name], sim[name]
        if "latency_us" in a:
            p50, p99 = (a["latency_us"]["p50"], b["latency_us"]["p50"]), (a["latency_us"]["p99"], b["latency_us"]["p99"])
            table.append((name, "p50 us", *p50, abs(p50[1] / p50[0] - 1) <= P50_WITHIN))
            table.append((name, "p99 us", *p99, None))
            if a["be_kernel_us"]:
                added = p50[0] - alone[0], p50[1] - alone[1]
                table.append((name, "added us", *added, abs(added[1] / added[0] - 1) <= P50_WITHIN))
        if "be_kept" in a:
            table.append((name, "BE kept", a["be_kept"], b["be_kept"], None))
        if "shares" in a:
            pairs = list(zip(sorted(a["shares"]), sorted(b["shares"])))
            table.extend((name, f"share {n + 1}", x, y, abs(x - y) <= SHARE_WITHIN) for n, (x, y) in enumerate(pairs))
            table.append((name, "sum of alone", a["sum_of_alone"], b["sum_of_alone"], None))
    return table


def show(table):
    print(f"{'row':<18}{'quantity':<14}{'GPU':>12}{'simulator':>12}{'off':>9}  within")
    for name, quantity, a, b, good in table:
        off = f"{(b - a) * 100:+.2f} pt" if quantity.startswith(("share", "sum", "BE")) else f"{(b / a - 1) * 100:+.1f} %"
        print(f"{name:<18}{quantity:<14}{a:>12.3f}{b:>12.3f}{off:>9}  {'' if good is None else 'yes' if good else 'NO'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"])
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement")
    parser.add_argument("--compare", nargs=2, metavar=("REAL", "SIM"))
    parser.add_argument("--limit", type=int, default=240, help="seconds after which everything is ended")
    options = parser.parse_args()
    if options.compare:
        real, sim = (json.loads(pathlib.Path(path).read_text())["rows"] for path in options.compare)
        table = compare(real, sim)
        show(table)
        return 0 if all(good is not False for *_, good in table) else 1
    if not options.gpu:
        parser.error("--gpu real, --gpu sim or --compare is needed")
    rig.limit(options.limit)
    rows = measure(options.gpu, options.seconds)
    rig.write(f"calibrate-{options.gpu}", {"gpu": options.gpu, "seconds": options.seconds, "rows": rows, "ok": True})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
