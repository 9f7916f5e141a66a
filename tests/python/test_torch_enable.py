# SPDX-License-Identifier: MIT
"""loch.torch.enable under the real PyTorch, without a GPU. Each case has a process of its own."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
if torch.version.cuda is None:
    pytest.skip("PyTorch is built without CUDA", allow_module_level=True)

import loch  # noqa: E402
from loch.torch import _shim  # noqa: E402

SIM = "sim:512MiB,backed,id=%d"


def run(program, *arguments, **environment):
    """Runs a program or arguments of Python; returns what it printed."""
    command = [sys.executable, *(["-c", program] if program else []), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


ALLOC = "torch._C._cuda_cudaCachingAllocator_raw_alloc"


def test_one_line():
    text = run(f"""
import loch.torch, torch
assert not loch.torch.is_enabled()
loch.torch.enable(device="{SIM}", limit="64MiB", headroom="1MiB")
loch.torch.enable(device="{SIM}", limit=64 << 20, headroom="1024KiB")  # equal settings
assert loch.torch.is_enabled()
{ALLOC}(1 << 20, 0)
print(torch.cuda.get_allocator_backend(), loch.torch.stats(0)["used_bytes"], loch.torch.stats()[0]["allocs"])
try:
    {ALLOC}(65 << 20, 0)
except torch.OutOfMemoryError:
    print("out of memory")
assert "cuda:0: 1.0 MiB in use" in loch.torch.report()
""")
    assert text.split("\n") == [f"loch {1 << 20} 1", "out of memory"]


def test_the_page_runs_without_a_gpu():
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "pytorch.md").read_text()
    piece = re.search(r"^## Without a GPU$.*?^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE).group(1)
    lines = run(piece).split("\n")
    assert lines[:2] == ["256 MiB in use, 256 MiB reserved", "0 MiB reserved asleep"]
    assert "Tried to allocate 2.00 GiB" in lines[2] and "1024.00 MiB allowed" in lines[2]


def test_settings_of_the_environment():
    text = run(f"""
import loch.torch, torch
loch.torch.enable()
{ALLOC}(1 << 20, 0)
figures = loch.torch.stats()[0]
assert figures == loch.torch.stats(0) == loch.torch.stats("cuda:0") and loch.torch.stats(1) == {{}}
assert figures.keys() == loch.torch.DeviceStats.__annotations__.keys(), figures.keys()
assert figures["pools"][0].keys() == loch.torch.PoolStats.__annotations__.keys()
print(figures["pools"][0]["limit_bytes"])
""", LOCH_TORCH_DEVICE=SIM, LOCH_TORCH_LIMIT="32MiB")
    assert text == str(32 << 20)


def test_too_late_and_other_settings():
    text = run(f"""
import loch.torch, torch
def refused(call, **settings):
    try:
        call(**settings)
    except (RuntimeError, ValueError) as error:
        print(str(error).replace("\\n", " "))
cuda = torch.version.cuda
torch.version.cuda = None
refused(loch.torch.enable)
torch.version.cuda = cuda
torch.cuda._initialized = True
refused(loch.torch.enable)
torch.cuda._initialized = False
refused(loch.torch.enable, limit="much")
refused(loch.torch.enable, limit=0)
refused(loch.torch.enable, limit="1MiB")
refused(loch.torch.stats)
loch.torch.enable(device="{SIM}")
refused(loch.torch.enable, limit="1GiB")
""")
    lines = text.split("\n")
    assert "is built for the CPU only" in lines[0]
    assert "too late: PyTorch has used CUDA already" in lines[1]
    assert "40GiB" in lines[2] and "much" in lines[2]
    assert "None is no limit" in lines[3] and "a limit of 1.0 MiB never serves" in lines[4]
    assert "not enabled" in lines[5]
    assert "enabled already" in lines[6]
    assert len(lines) == 7


def test_after_a_use_that_python_did_not_see():
    """The shim itself looks whether the allocator was used."""
    text = run("""
import loch.torch, torch
torch._C._cuda_beginAllocateCurrentThreadToPool  # exists: this is a build for CUDA
loch.torch.enable(device="sim:1GiB,id=%d")
try:
    torch.cuda.memory.change_current_allocator(
        torch.cuda.memory.CUDAPluggableAllocator(loch.get_library("torch"), "loch_torch_malloc", "loch_torch_free"))
    print(loch.torch.is_enabled())
except RuntimeError as error:
    print("refused")
""".replace("import loch.torch, torch", "import loch, loch.torch, torch"))
    assert text in ("False", "refused")


def test_the_plug_in_is_the_last_resort():
    text = run("""
import warnings, loch.torch, torch
from loch.torch import _shim
def find(version):
    raise _shim.ShimError("there is no C++ compiler (c++)")
_shim.find = find
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loch.torch.enable(device="sim:1GiB,id=%d", limit=1 << 30)
print(len(caught), caught[0].category.__name__, "no C++ compiler" in str(caught[0].message))
print(torch.cuda.get_allocator_backend(), loch.torch.is_enabled())
for function in (loch.torch.stats, loch.torch.report, loch.torch.sleep):
    try:
        function()
    except RuntimeError as error:
        print("as a plug-in" in str(error))
""")
    assert text.split("\n") == ["1 RuntimeWarning True", "pluggable True", "True", "True", "True"]


def test_recording(tmp_path):
    path = tmp_path / "program.loch"
    run(f"""
import loch.torch, torch
loch.torch.enable(device="{SIM}")
with loch.torch.record("{path}"):
    torch._C._cuda_cudaCachingAllocator_raw_delete({ALLOC}(5 << 20, 0))
""")
    done = subprocess.run([loch.get_program(), "stats", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert "5.00 MiB" in done.stdout
    page = tmp_path / "report.html"
    subprocess.run([loch.get_program(), "report", str(path), "-o", str(page)], check=True, stdout=subprocess.DEVNULL)
    assert page.stat().st_size > 10000


# --- the runner ---

PROGRAM = """
import sys, torch
print(torch.cuda.get_allocator_backend(), *sys.argv[1:], __name__)
"""


def test_runner(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    runner = ("-m", "loch.torch")
    assert run("", *runner, str(program), "a", "--limit", LOCH_TORCH_DEVICE=SIM) == "loch a --limit __main__"
    assert run("", *runner, "--limit", "1GiB", str(program), LOCH_TORCH_DEVICE=SIM) == "loch __main__"
    assert run("", *runner, str(program), LOCH_TORCH="0") == "native __main__"
    found = {"LOCH_TORCH_DEVICE": SIM, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    assert run("", *runner, "--no-pinned", "-m", "program", "-x", **found) == "loch -x __main__"
    done = subprocess.run([sys.executable, *runner], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and "which program?" in done.stderr


CHILD = """
import subprocess, sys
from torch_memory_saver import torch_memory_saver, configure_subprocess
import torch_memory_saver as module
print(module.__name__)
child = "import torch_memory_saver as m, torch; print(m.__name__, torch.cuda.get_allocator_backend())"
with module.configure_subprocess():
    print(subprocess.run([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
"""


def test_alias_of_torch_memory_saver(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(CHILD)
    text = run("", "-m", "loch.torch", "--memory-saver", str(program), LOCH_TORCH_DEVICE=SIM)
    assert text.split("\n") == ["loch.torch.memory_saver", "loch.torch.memory_saver loch"]


# --- the shim ---


def test_which_shim(tmp_path):
    (tmp_path / "loch_torch_2_11.so").touch()
    assert _shim.find_built("2.11.0+cu130", tmp_path) == tmp_path / "loch_torch_2_11.so"
    assert _shim.find_built("2.11.3", tmp_path) is not None
    assert _shim.find_built("2.12.0", tmp_path) is None
    for between in ("2.11.0a0+git123", "2.11.0.dev20260101", "2.11", "nightly"):
        assert _shim.find_built(between, tmp_path) is None


def make_source(folder, script):
    """A source tree whose script does what a test wants."""
    (folder / "scripts").mkdir(parents=True)
    (folder / "adapters" / "torch").mkdir(parents=True)
    (folder / "scripts" / "build-torch-shim").write_text(script)
    return folder


def test_compiled_shims_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = make_source(tmp_path / "source", f"echo run >>{tmp_path}/runs; echo code >$2/loch_torch_2_99.so")
    path = _shim.compile_shim("2.99.0", source)
    assert path.read_text() == "code\n" and path.is_relative_to(tmp_path / "cache" / "loch" / "torch-shims")
    assert _shim.compile_shim("2.99.0", source) == path
    assert (tmp_path / "runs").read_text() == "run\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["loch_torch.so"]
    assert _shim.compile_shim("2.99.1", source) != path
    (source / "adapters" / "torch" / "more.h").write_text("changed")
    assert _shim.compile_shim("2.99.0", source) != path


def test_what_cannot_be_compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = make_source(tmp_path / "source", "echo 'no headers' >&2; exit 1")
    with pytest.raises(_shim.ShimError, match="no headers"):
        _shim.compile_shim("2.99.0", source)
    assert list(_shim.get_cache("2.99.0", source).iterdir()) == []
    with pytest.raises(_shim.ShimError, match="no sources"):
        _shim.compile_shim("2.99.0", tmp_path)
    monkeypatch.setenv("CXX", "there-is-no-such-compiler")
    with pytest.raises(_shim.ShimError, match="no C\\+\\+ compiler"):
        _shim.compile_shim("2.99.0", source)
    _shim.get_cache("2.99.0", source).chmod(0o777)
    with pytest.raises(_shim.ShimError, match="can be written by others"):
        _shim.compile_shim("2.99.0", source)


def test_compile_for_this_pytorch(tmp_path):
    """The sources of the package compile without the shims of the package, and serve."""
    text = run(f"""
import pathlib, loch.torch, torch
from loch.torch import _shim
_shim.BUILT = pathlib.Path("{tmp_path}")
loch.torch.enable(device="{SIM}")
print(torch.cuda.get_allocator_backend())
""", XDG_CACHE_HOME=str(tmp_path))
    assert text == "loch"
    assert len(list(pathlib.Path(tmp_path).glob("loch/torch-shims/*/loch_torch.so"))) == 1
