"""NVML's memory of processes, read by this script itself. It does not pass the hook."""

import ctypes

NOT_AVAILABLE = (1 << 64) - 1
INSUFFICIENT_SIZE = 7


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t."""

    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Nvml:
    """The GPUs of this machine. `library`: a path or a name."""

    def __init__(self, library="libnvidia-ml.so.1"):
        self.library = ctypes.CDLL(str(library))
        self.do("nvmlInit_v2")

    def do(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            raise OSError(f"{name}: NVML error {status}")

    def device(self, index):
        handle = ctypes.c_void_p()
        self.do("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def uuid(self, device):
        text = ctypes.create_string_buffer(96)
        self.do("nvmlDeviceGetUUID", device, text, ctypes.c_uint(len(text)))
        return text.value.decode()

    def total(self, device):
        """Bytes of the GPU."""
        memory = Memory()
        self.do("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
        return memory.total

    def processes(self, device):
        """{pid: bytes} of the processes with contexts. None where the driver does not report the bytes."""
        room = 128
        while True:
            count, infos = ctypes.c_uint(room), (ProcessInfo * room)()
            status = self.library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), infos)
            if status == INSUFFICIENT_SIZE and room < 1 << 14:
                room *= 2
                continue
            if status:
                raise OSError(f"nvmlDeviceGetComputeRunningProcesses_v3: NVML error {status}")
            return {info.pid: None if info.bytes == NOT_AVAILABLE else info.bytes for info in infos[:count.value]}
