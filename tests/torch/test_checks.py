# SPDX-License-Identifier: MIT
"""Runs the checks of checks.cpp. Each leaves the allocator as it was."""

import ctypes
import os
import pathlib
import subprocess

import door
import pytest
import torch

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]


def names():
    """Returns the names of the checks, from the table in checks.cpp."""
    minor = int(torch.__version__.split(".")[1])
    found, is_in = [], True
    for line in (HERE / "checks.cpp").read_text().splitlines():
        if line.startswith("#if TORCH_VERSION_MINOR >= "):
            is_in = minor >= int(line.split()[-1])
        elif line.startswith("#endif"):
            is_in = True
        elif line.startswith("    CHECK(") and is_in:
            found.append(line.strip()[len("CHECK("):].rstrip("),"))
    return found


@pytest.fixture(scope="session")
def library(installed, tmp_path_factory):
    """Compiles checks.cpp against this PyTorch."""
    root = pathlib.Path(torch.__file__).parent
    cuda = door.cuda_headers()
    lib = pathlib.Path(door.shim()).parent
    path = tmp_path_factory.mktemp("checks") / "checks.so"
    standard = "c++17" if torch.__version__ < "2.14" else "c++20"
    subprocess.run([os.environ.get("CXX", "c++"), f"-std={standard}", "-O0", "-g1", "-shared", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=1",
                    f"-I{TREE}", f"-I{TREE / 'include'}", f"-I{TREE / 'parts' / 'plan' / 'include'}", "-isystem", root / "include", "-isystem", cuda, HERE / "checks.cpp", "-o", path,
                    f"-L{root / 'lib'}", "-lc10", "-lc10_cuda", "-ltorch_cuda", f"-L{lib}", "-lloch",
                    f"-Wl,-rpath,{root / 'lib'}:{lib}"], check=True)
    loaded = ctypes.CDLL(str(path))
    loaded.checks_name.restype = loaded.checks_run.restype = ctypes.c_char_p
    return loaded


@pytest.mark.parametrize("name", names())
def test_check(library, name):
    index = next(i for i in range(1000) if library.checks_name(ctypes.c_size_t(i)) == name.encode())
    wrong = library.checks_run(ctypes.byref(door.get()), ctypes.c_size_t(index)).decode()
    assert not wrong, wrong


def test_all_checks_are_in_the_table(library):
    assert [library.checks_name(ctypes.c_size_t(i)).decode() for i in range(len(names()))] == names()
    assert not library.checks_name(ctypes.c_size_t(len(names())))
