# SPDX-License-Identifier: MIT
"""Memory in use on the GPU, as the driver counts it for all processes. It needs neither CUDA nor PyTorch in this process."""
import ctypes
import threading
import time


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Device:
    """The first GPU, through NVML. OSError where there is no NVML or no GPU."""

    def __init__(self):
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._handle = ctypes.c_void_p()
        status = self._nvml.nvmlInit_v2() or self._nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._handle))
        if status:
            raise OSError(f"NVML has no GPU: error {status}")

    def get_used(self):
        """Returns the bytes in use by all processes."""
        memory = _Memory()
        status = self._nvml.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(memory))
        if status:
            raise OSError(f"nvmlDeviceGetMemoryInfo failed: error {status}")
        return memory.used

    def wait_for(self, most, seconds):
        """Waits until at most so many bytes are in use. Returns the seconds that it took, or None when the time is over."""
        begin = time.monotonic()
        while self.get_used() > most:
            if time.monotonic() - begin > seconds:
                return None
            time.sleep(0.01)
        return time.monotonic() - begin


class Sampler:
    """Samples the memory in use in a thread, every 10 ms, and keeps the peak. Use it in a with statement."""

    def __init__(self, device, period_s=0.01):
        self._device, self._period_s, self._stop = device, period_s, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.before_bytes = self.peak_bytes = device.get_used()

    def _run(self):
        while not self._stop.wait(self._period_s):
            self.peak_bytes = max(self.peak_bytes, self._device.get_used())

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def get_mib(self):
        """Returns the MiB in use now beyond those in use at the start."""
        used = self._device.get_used()
        self.peak_bytes = max(self.peak_bytes, used)
        return to_mib(used - self.before_bytes)

    def get_peak_mib(self):
        """Returns the most MiB in use so far beyond those in use at the start."""
        return to_mib(self.peak_bytes - self.before_bytes)


def to_mib(number):
    return round(number / 2**20, 1)
