"""How programs run under the alternatives to Sluice, whose libraries are built elsewhere: the environment of each program, and what has to be there.

HAMi-core is a library that is preloaded; its limits are variables. XSched's library takes the place of libcuda.so.1 by the search path of
libraries, and a server of its own, `xserver`, decides by a policy. Both follow the variables in their documentation.
"""

import dataclasses
import os
import pathlib

# The port on which xserver answers its command-line tool, and by which the script sees that it runs.
XSERVER_PORT = 50000
# In-flight commands and commands of a batch, as XSched's example has them for a high and for a low priority.
XSCHED_HIGH, XSCHED_LOW = (16, 8), (4, 2)


@dataclasses.dataclass(frozen=True)
class Hami:
    """HAMi-core."""

    library: pathlib.Path
    # A folder for the files by which the processes of one container share their state. Each program here is a container of its own.
    folder: pathlib.Path

    def missing(self):
        return [] if self.library.is_file() else [f"--hami {self.library}: no such file; expected HAMi-core's libvgpu.so"]

    def environment(self, program, sm_limit=None, memory="40g"):
        """Variables of a program. Without `sm_limit`, in percent, its time on the SMs is not limited."""
        limit = {"CUDA_DEVICE_SM_LIMIT": str(sm_limit)} if sm_limit else {}
        return {
            "LD_PRELOAD": str(self.library),
            "CUDA_DEVICE_MEMORY_LIMIT": memory,
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.folder / f"{program}.cache"),
            # Errors only.
            "LIBCUDA_LOG_LEVEL": "0",
            **limit,
        }


@dataclasses.dataclass(frozen=True)
class XSched:
    """XSched as `make cuda INSTALL_PATH=folder` installs it."""

    folder: pathlib.Path

    def missing(self):
        needed = (("bin/xserver", "its server"), ("lib/libcuda.so.1", "its library in the place of the driver's"))
        return [f"--xsched {self.folder}: no {path} in it; expected {what}" for path, what in needed if not (self.folder / path).exists()]

    def server(self, policy):
        """The server's command. Only one server can run on a host."""
        return [self.folder / "bin" / "xserver", policy, XSERVER_PORT]

    def search_path(self, before):
        """LD_LIBRARY_PATH with XSched's libraries ahead of `before`."""
        return os.pathsep.join(filter(None, [str(self.folder / "lib"), before]))

    def environment(self, level, before="", priority=None, utilization=None):
        """Variables of a program at preemption level 1 or 3. `priority` is for policy HPF (greater goes first), `utilization` in percent for
        policy PUP. Level 3 is the variant TSG, which every architecture has."""
        threshold, batch = XSCHED_HIGH if priority else XSCHED_LOW
        chosen = {"PRIORITY": priority, "UTILIZATION": utilization}
        settings = {
            "LEVEL": level,
            "THRESHOLD": threshold,
            "BATCH_SIZE": batch,
            **{name: value for name, value in chosen.items() if value is not None},
        }
        return {
            "LD_LIBRARY_PATH": self.search_path(before),
            "XSCHED_SCHEDULER": "GLB",
            "XSCHED_AUTO_XQUEUE": "ON",
            **{f"XSCHED_AUTO_XQUEUE_{name}": str(value) for name, value in settings.items()},
            **({"XSCHED_CUDA_LV3_IMPL": "TSG"} if level == 3 else {}),
        }
