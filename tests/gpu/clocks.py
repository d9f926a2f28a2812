"""What the GPU's SM clock was in each block, and what limited it. A training draws more power than the GPU may take, so its clock falls, and
a service beside it is slower whatever shares the GPU."""

import datetime
import statistics
import subprocess
import tempfile

import rig

FIELDS = "timestamp,clocks.sm,power.draw.instant,clocks_event_reasons.active"
# NVML's reason: the clock is reduced to keep the power below its limit.
POWER_CAP = 0x4
INTERVAL_MS = 20


class Clocks:
    """Samples of a GPU from now to the end of this script. Without an nvidia-smi there are none."""

    def __init__(self):
        self.log = tempfile.NamedTemporaryFile("r", prefix="sluice-clocks-", suffix=".csv")
        command = ["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits", f"-lms={INTERVAL_MS}", f"--filename={self.log.name}"]
        try:
            self.sampler = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            rig.LAST.append(self.stop)
        except OSError:
            self.sampler = None
        self.samples = []

    def between(self, begin, end):
        """Median and least SM clock (MHz), mean power (W) and the part of the samples in which power limited the clock, from the Unix time
        `begin` to `end`."""
        for line in self.log.readlines():
            at, *words = (word.strip() for word in line.split(","))
            try:
                when = datetime.datetime.strptime(at, "%Y/%m/%d %H:%M:%S.%f").timestamp()
                self.samples.append((when, float(words[0]), float(words[1]), int(words[2], 16)))
            except (ValueError, IndexError):
                # A line that is being written, or a value that this GPU does not have.
                continue
        taken = [sample for sample in self.samples if begin <= sample[0] <= end]
        if not taken:
            return {}
        clocks = [clock for _, clock, _, _ in taken]
        return {
            "sm_mhz": statistics.median(clocks), "sm_mhz_least": min(clocks), "power_w": round(statistics.fmean(power for _, _, power, _ in taken)),
            "power_capped": round(sum(bool(reasons & POWER_CAP) for *_, reasons in taken) / len(taken), 3), "samples": len(taken),
        }

    def stop(self):
        self.sampler.terminate()
        self.sampler.wait(10)
