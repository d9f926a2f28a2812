"""Cgroups like those that kubelet makes for pods, by which a pod-manager identifies processes. Needs root."""

import contextlib
import os
import pathlib
import signal
import time
import uuid

import rig

HIERARCHIES = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup")


class Pods:
    """The cgroups of pods, by name. They are removed when this script ends, and processes in them are killed."""

    def __init__(self, names):
        self.uids = {name: str(uuid.uuid4()) for name in names}
        self.root = self._make()
        self.folders = {}
        for name, uid in self.uids.items():
            self.folders[name] = self.root / "kubepods" / "burstable" / f"pod{uid}" / uid.replace("-", "").ljust(64, "0")
            self.folders[name].mkdir(parents=True)
        rig.LAST.append(self.remove)

    @staticmethod
    def _make():
        why = "no hierarchy is mounted"
        for hierarchy in HIERARCHIES:
            root = pathlib.Path(hierarchy) / f"sluice-gpu-{os.getpid()}"
            try:
                root.mkdir()
            except OSError as error:
                why = error
                continue
            if (root / "cgroup.procs").exists():
                return root
            root.rmdir()
        return rig.fail(f"no cgroup can be made here ({why}): run it as root")

    def pids(self, name):
        """Processes of a pod."""
        try:
            return [int(word) for word in (self.folders[name] / "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def remove(self):
        """Ends processes that were left in the pods, and removes the cgroups."""
        end = time.monotonic() + 10
        while self.root.exists() and time.monotonic() < end:
            for name in self.folders:
                for pid in self.pids(name):
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
            for folder, _, _ in os.walk(self.root, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
            time.sleep(0.05)
