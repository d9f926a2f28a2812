//! Next steps for the user.

pub(super) const REPORT_IT: &str =
    "report it with the output of `sluice doctor --json` and the driver's version";
pub(super) const AGAIN: &str = "run the doctor again when the machine is less busy";
pub(super) const DRIVER: &str =
    "the driver refuses, not the library: see driver_library, compute_mode and mig_mode";
pub(super) const LIBRARY: &str = "build or mount libsluice.so and name it with --library; it needs glibc 2.17 or newer, and must reach the \
     manager's socket";
pub(super) const THROUGH: &str = "check that the program's driver calls go through the hook: is libcuda linked statically, or \
     SLUICE_DISABLE set?";
pub(super) const EARLY: &str = "the library must be loaded before libcuda makes its first ioctl (LD_PRELOAD, /etc/ld.so.preload); a \
     driver of another layout needs a newer Sluice";
pub(super) const LOST: &str =
    "tenants are scheduled by token instead, and a latency-critical one waits for running kernels";
pub(super) const UNMEASURED: &str = "needs the host's pid namespace and a driver that reports the memory of processes; without it memory limits \
     cover the hook's charges only, not contexts and modules";
pub(super) const UNSEEN: &str = "channel-group scheduling works without it, but its cost is not measured";
pub(super) const TRACE: &str = "needs CAP_SYS_PTRACE and the host's pid namespace; without it a process without the hook can \
     only be stopped by the driver's lock, and the channel groups that other processes announce are not checked";
pub(super) const LOCK: &str = "needs driver 570 or newer, the host's pid namespace, CAP_SYS_PTRACE and CAP_DAC_OVERRIDE; without it a \
     process without the hook cannot be stopped";
pub(super) const MEMORY_OPS: &str = "update the driver: stream memory operations are on by default since 525. Until then submitted work \
     cannot be held back on the GPU";
pub(super) const SEES_A_GPU: &str =
    "check that `nvidia-smi` lists a GPU here, and that CUDA_VISIBLE_DEVICES does not hide it";
pub(super) const UTILITY: &str =
    "give the container the driver's utility libraries (NVIDIA_DRIVER_CAPABILITIES=compute,utility)";
pub(super) const NODES: &str = "install the driver (`nvidia-modprobe -u -c 0` makes the files), or start the container with the GPU: \
     --gpus all, or the device plugin's resource";
pub(super) const SELF_TEST: &str = "run `sluice self-test`: the pod-manager's --controls auto uses its result; until then all clients \
     are scheduled by token";
pub(super) const MPS: &str = "stop it: echo quit | nvidia-cuda-mps-control. Under MPS tenants share channel groups, so none can be stopped \
     alone";
pub(super) const SHM: &str = "Sluice does without; NCCL and data loaders do not: mount an emptyDir of medium Memory, or docker run \
     --shm-size";
