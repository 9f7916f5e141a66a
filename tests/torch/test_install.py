# SPDX-License-Identifier: MIT
"""Installing the shim: once, early, with options that are checked."""

import os
import pathlib
import subprocess

import door
import pytest
import torch


def test_the_allocator_has_loch_s_name():
    assert torch.cuda.get_allocator_backend() == "loch"
    assert door.get().is_installed() == 1
    assert door.get().version.decode() == ".".join(torch.__version__.split(".")[:2])


def test_a_second_installation_does_nothing_or_is_refused():
    door.install("loch")
    with pytest.raises(RuntimeError, match="installed already, with other options"):
        door.install("loch", "limit=1GiB")


LATE = """
import ctypes
_, plug, probe = %r
pluggable = torch.cuda.memory.CUDAPluggableAllocator(plug, "plug_alloc", "plug_free")
torch.cuda.memory.change_current_allocator(pluggable)
assert ctypes.PyDLL(probe).probe_init(1) == 0  # what PyTorch calls at the first use of CUDA
try:
    door.install("loch")
    print(json.dumps("installed"))
except RuntimeError as error:
    print(json.dumps([str(error), torch.cuda.get_allocator_backend()]))
"""


def test_a_late_installation_is_refused(fresh, probe, tmp_path):
    """There is no GPU, so another allocator stands for PyTorch's own: it can be initialised."""
    (tmp_path / "plug.c").write_text("void *plug_alloc(unsigned long n, int d, void *s) { return 0; }\nvoid plug_free(void *p, unsigned long n, int d, void *s) {}\n")
    plug = tmp_path / "plug.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", tmp_path / "plug.c", "-o", plug], check=True)
    text, backend = fresh(LATE % ((str(tmp_path), str(plug), str(probe.library._name)),), is_installed=False)
    assert text.startswith("too late: PyTorch has used CUDA already") and backend == "pluggable"


@pytest.mark.parametrize("options,text", [("limit=lots", "size like 40GiB"), ("nonsense", "name=value"), ("colour=red", "no option \"colour\""),
                                          ("pinned=perhaps", "on or off")])
def test_wrong_options_are_refused_and_nothing_is_installed(fresh, options, text):
    program = f"""
try:
    door.install("loch", {options!r})
except RuntimeError as error:
    print(json.dumps([str(error), torch.cuda.get_allocator_backend(), door.get().is_installed()]))
"""
    message, backend, is_installed = fresh(program, is_installed=False)
    assert text in message and backend == "native" and is_installed == 0
    assert "\n" not in message


def test_a_device_that_does_not_exist(fresh):
    program = """
try:
    torch._C._cuda_cudaCachingAllocator_raw_alloc(100, 0)
except RuntimeError as error:
    print(json.dumps(str(error)))
"""
    assert "Loch could not open a device" in fresh(program, {"LOCH_TORCH_DEVICE": "nothing:%d"})


def test_a_limit(fresh):
    program = """
keep = torch._C._cuda_cudaCachingAllocator_raw_alloc(40 << 20, 0)
try:
    torch._C._cuda_cudaCachingAllocator_raw_alloc(40 << 20, 0)
except torch.OutOfMemoryError as error:
    print(json.dumps(str(error)))
"""
    for environment in ({"LOCH_TORCH_LIMIT": "64MiB"}, {"LOCH_TORCH_LIMIT": "67108864"}):
        text = fresh(program, environment)
        assert text.startswith("CUDA out of memory. Tried to allocate 40.00 MiB.") and "64 MiB" in text


def test_nothing_is_printed_at_the_end_of_the_process(fresh):
    program = """
keep = [torch._C._cuda_cudaCachingAllocator_raw_alloc(size, 0) for size in (10, 5000, 9 << 20)]
print(json.dumps("done"))
"""
    assert fresh(program) == "done"
    assert fresh("print(json.dumps('done'))") == "done"


def test_registration_of_all_tensors_is_switched_off_with_a_word(fresh):
    program = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
print(json.dumps(libc.getenv(b"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK").decode()))
"""
    assert fresh(program, {"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "0"}) == "0"
    with pytest.raises(AssertionError, match="Register a torch.cuda.MemPool"):
        fresh(program, {"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1"})


def test_headers_of_cuda_without_crt_are_passed_over(tmp_path):
    """Packages of NVIDIA beside PyTorch may have cuda_runtime_api.h without crt/, which it includes."""
    def write(path, text=""):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    write(tmp_path / "torch/include/torch/headeronly/version.h", "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n")
    write(tmp_path / "nvidia/cu13/include/cuda_runtime_api.h")
    write(tmp_path / "nvidia/cudnn/include/cudnn.h")
    whole = write(tmp_path / "toolkit/include/cuda_runtime_api.h").parent
    write(whole / "crt/host_config.h")
    compiler = write(tmp_path / "c++", "#!/bin/sh\necho \"$*\"\nexit 1\n")
    compiler.chmod(0o755)

    def build():
        done = subprocess.run([door.TREE / "scripts/build-torch-shim", tmp_path / "torch/include", tmp_path / "out", pathlib.Path(door.shim()).parent],
                              env={**os.environ, "CUDA_HOME": str(tmp_path / "toolkit"), "CXX": str(compiler)}, capture_output=True, text=True, check=False)
        return done.stdout

    assert f"-isystem {whole} " in build()
    write(tmp_path / "nvidia/cu13/include/crt/host_config.h")
    assert f"-isystem {tmp_path}/nvidia/cu13/include " in build()


def test_reports():
    address = torch._C._cuda_cudaCachingAllocator_raw_alloc(123_456, 0)
    assert "torch cuda:0" in door.print_text(door.get().print_report)
    assert "requested_bytes" in door.print_text(door.get().print_stats, 0)
    assert door.get().get_pool(0) and not door.get().get_pool(5)
    torch._C._cuda_cudaCachingAllocator_raw_delete(address)
