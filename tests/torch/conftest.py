# SPDX-License-Identifier: MIT
"""The shim under a real PyTorch, on a machine without a GPU: simulated devices in place of CUDA's.

Tensors cannot be made without a driver, so tests allocate by the raw calls of PyTorch's allocator. torch.cuda's
functions are told that CUDA is initialised; those used here only ask the allocator. probe.cpp calls what Python reaches
on a GPU only.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("LOCH_TORCH_DEVICE", "sim:8GiB,id=%d")

import door  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

MIB = 1 << 20


@pytest.fixture(scope="session", autouse=True)
def installed():
    """Makes Loch PyTorch's allocator, from the build folder. A process has it once: files run in processes of their own."""
    door.install("loch")
    torch.cuda._initialized = True


class Probe:
    """The functions of probe.cpp. A function that returns 1 raises RuntimeError."""

    PLAIN = {"probe_error": ctypes.c_char_p, "probe_allocate": ctypes.c_void_p, "probe_oom_seen": ctypes.c_size_t,
             "probe_segment_seen": ctypes.c_size_t, "probe_pool_use_count": ctypes.c_int}

    def __init__(self, path):
        self.library = ctypes.PyDLL(str(path))  # the lock of Python is held, as in PyTorch's own bindings
        for name, result in self.PLAIN.items():
            getattr(self.library, name).restype = result

    def __getattr__(self, name):
        function = getattr(self.library, f"probe_{name}")

        def call(*arguments):
            numbers = [ctypes.c_size_t(value) if isinstance(value, int) else value.encode() for value in arguments]
            result = function(*numbers)
            if f"probe_{name}" not in self.PLAIN and result:
                raise RuntimeError(self.library.probe_error().decode())
            return result

        return call

    def seen(self, kind):
        """Returns what an observer saw: "oom" or "segment"."""
        function = getattr(self.library, f"probe_{kind}_seen")
        numbers = (ctypes.c_int64 * 5)()
        entries = []
        while len(entries) < function(ctypes.c_size_t(len(entries)), numbers):
            entries.append(tuple(numbers))
        return entries


@pytest.fixture(scope="session")
def probe(installed, tmp_path_factory):
    """Compiles probe.cpp against this PyTorch."""
    root = pathlib.Path(torch.__file__).parent
    cuda = door.cuda_headers()
    path = tmp_path_factory.mktemp("probe") / "probe.so"
    standard = "c++17" if torch.__version__ < "2.14" else "c++20"
    subprocess.run([os.environ.get("CXX", "c++"), f"-std={standard}", "-O0", "-shared", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=1",
                    "-isystem", root / "include", "-isystem", root / "include" / "torch" / "csrc" / "api" / "include",
                    "-isystem", cuda, HERE / "probe.cpp", "-o", path, f"-L{root / 'lib'}", "-lc10", "-lc10_cuda", "-ltorch_cpu",
                    "-ltorch_cuda", f"-Wl,-rpath,{root / 'lib'}"], check=True)
    return Probe(path)


class Blocks:
    """Blocks of PyTorch's allocator, freed at the end of a test."""

    def __init__(self):
        self.live = set()

    def alloc(self, size, stream=0):
        address = torch._C._cuda_cudaCachingAllocator_raw_alloc(size, stream)
        self.live.add(address)
        return address

    def free(self, *addresses):
        for address in addresses:
            self.live.remove(address)
            torch._C._cuda_cudaCachingAllocator_raw_delete(address)


@pytest.fixture
def blocks(installed):
    result = Blocks()
    yield result
    result.free(*list(result.live))
    torch._C._cuda_emptyCache()


def run_fresh(program, environment=None, is_installed=True):
    """Runs a program in a process of its own; returns the JSON of its last line."""
    lines = [f"import sys; sys.path.insert(0, {str(HERE)!r}); import door, json, torch"]
    lines += ["door.install('loch'); torch.cuda._initialized = True"] if is_installed else []
    done = subprocess.run([sys.executable, "-c", "\n".join([*lines, program])], env={**os.environ, **(environment or {})},
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture
def fresh():
    """Returns run_fresh."""
    return run_fresh
