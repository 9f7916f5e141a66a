# SPDX-License-Identifier: MIT
"""Compiles the shim for the Arrow that runs, or finds it compiled: Arrow's C++ interface changes with each version."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import pyarrow

from .._files import get_include, get_library

SOURCE = pathlib.Path(__file__).resolve().parent / "_source"


class ShimError(RuntimeError):
    """There is no shim for this Arrow, and none could be compiled."""


def _hash_source() -> str:
    digest = hashlib.sha256()
    for path in (SOURCE / "shim.cpp", SOURCE / "loch_arrow.hpp", pathlib.Path(get_library())):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def get_cache() -> pathlib.Path:
    """Returns the folder for the shim of this Arrow and this state of the sources."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "loch" / "arrow-shims" / f"{pyarrow.__version__}-{_hash_source()}"


def _check_owner(folder: pathlib.Path) -> None:
    """Refuses a cache that another user could have filled: its files are loaded as code."""
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise ShimError(f"{folder} belongs to another user or can be written by others")


def _find_library() -> pathlib.Path:
    """Returns the path of libarrow.so.NNNN that pyarrow has loaded."""
    for folder in pyarrow.get_library_dirs():
        found = sorted(pathlib.Path(folder).glob("libarrow.so.[0-9]*"), key=lambda path: len(path.name))
        if found:
            return found[0]
    raise ShimError(f"pyarrow {pyarrow.__version__} has no libarrow.so")


def _compile(out: pathlib.Path) -> None:
    compiler = os.environ.get("CXX", "c++").split()
    if shutil.which(compiler[0]) is None:
        raise ShimError(f"there is no C++ compiler ({compiler[0]})")
    arrow = _find_library()
    library = pathlib.Path(get_library())
    command = [
        *compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", *os.environ.get("CXXFLAGS", "").split(),
        f"-I{SOURCE}", f"-I{get_include()}", "-isystem", pyarrow.get_include(), str(SOURCE / "shim.cpp"), "-o", str(out),
        f"-L{arrow.parent}", f"-l:{arrow.name}", f"-L{library.parent}", f"-l:{library.name}",
        f"-Wl,-rpath,{arrow.parent}:{library.parent}",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise ShimError(f"the shim for Arrow {pyarrow.__version__} does not compile: {done.stdout.strip()[-2000:]}")


def find() -> pathlib.Path:
    """Returns the path of the shim. Raises ShimError."""
    if not (SOURCE / "shim.cpp").is_file():
        raise ShimError("the package has no sources of the shim")
    folder = get_cache()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(folder)
    path = folder / "loch_arrow.so"
    if not path.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as work:  # processes that start together compile side by side
            made = pathlib.Path(work) / "loch_arrow.so"
            _compile(made)
            os.replace(made, path)
    return path


def load() -> ctypes.CDLL:
    """Loads the shim. Raises ShimError."""
    try:
        shim = ctypes.CDLL(str(find()))
    except OSError as error:
        raise ShimError(f"the shim for Arrow {pyarrow.__version__} cannot be loaded: {error}") from error
    shim.loch_arrow_get_version.restype = ctypes.c_char_p
    shim.loch_arrow_make.restype = ctypes.c_void_p
    shim.loch_arrow_make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    return shim
