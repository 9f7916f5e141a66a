# SPDX-License-Identifier: MIT
"""Finds the shim of the PyTorch that runs: built into the package, compiled before, or compiled now."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from .._files import get_include, get_library

_PACKAGE = pathlib.Path(__file__).resolve().parent.parent
BUILT = _PACKAGE / "lib"  # loch_torch_2_11.so and so on, beside libloch.so
SOURCE = _PACKAGE / "torch" / "_source"  # what a shim is compiled from, in the places that the files have in Loch's tree


class ShimError(RuntimeError):
    """There is no shim for this PyTorch, and none could be compiled."""


def _get_minor(version: str) -> tuple[int, int] | None:
    """Returns (2, 11) for "2.11.0+cu130"; None for a version between releases, whose headers may be different."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.\d+(?:\+[\w.]+)?", version)
    return (int(found.group(1)), int(found.group(2))) if found else None


def find_built(version: str, folder: pathlib.Path | None = None) -> pathlib.Path | None:
    """Returns the path of a shim in the package, or None."""
    minor = _get_minor(version)
    path = (folder or BUILT) / "loch_torch_{}_{}.so".format(*minor) if minor else None
    return path if path and path.is_file() else None


def _hash_source(source: pathlib.Path) -> str:
    digest = hashlib.sha256()
    for folder in ("adapters/torch", "parts/plan", "parts/share", "scripts", "src/kit"):
        for path in sorted((source / folder).rglob("*")):
            if path.suffix in (".c", ".cpp", ".h", ".map") or path.name == "build-torch-shim":
                digest.update(str(path.relative_to(source)).encode())
                digest.update(path.read_bytes())
    digest.update(pathlib.Path(get_library()).read_bytes())
    return digest.hexdigest()[:16]


def get_cache(version: str, source: pathlib.Path | None = None) -> pathlib.Path:
    """Returns the folder for compiled shims of one PyTorch and one state of the sources."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "loch" / "torch-shims" / f"{version}-{_hash_source(source or SOURCE)}"


def _check_owner(folder: pathlib.Path) -> None:
    """Refuses a cache that another user could have filled: its files are loaded as code."""
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise ShimError(f"{folder} belongs to another user or can be written by others")


def _run_build(source: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """Runs the script in the folder `out`, which is empty."""
    library = pathlib.Path(get_library())
    for path in sorted(library.parent.glob("libloch*.so*")):
        name = out / (path.name.partition(".so")[0] + ".so")  # the linker looks for names without a version
        if not name.exists():
            name.symlink_to(path)
    flags = {
        "CFLAGS": f"{os.environ.get('CFLAGS', '')} -I{get_include()}",
        "CXXFLAGS": f"{os.environ.get('CXXFLAGS', '')} -I{get_include()}",
        "LDFLAGS": f"{os.environ.get('LDFLAGS', '')} -Wl,-rpath,{library.parent}",
    }
    done = subprocess.run(
        ["sh", str(source / "scripts" / "build-torch-shim"), sys.executable, str(out), str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env={**os.environ, **flags})
    if done.returncode != 0:
        raise ShimError(f"the shim does not compile: {done.stdout.strip()[-2000:]}")
    return next(out.glob("loch_torch_*.so"))


def compile_shim(version: str, source: pathlib.Path | None = None) -> pathlib.Path:
    """Compiles the shim for a PyTorch of this Python, or finds it compiled, and returns its path."""
    source = source or SOURCE
    if not (source / "scripts" / "build-torch-shim").is_file():
        raise ShimError("the package has no sources of the shim")
    folder = get_cache(version, source)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(folder)
    path = folder / "loch_torch.so"
    if path.is_file():
        return path
    compiler = os.environ.get("CXX", "c++").split()[0]
    if shutil.which(compiler) is None:
        raise ShimError(f"there is no C++ compiler ({compiler})")
    with tempfile.TemporaryDirectory(dir=folder) as work:  # processes that start together compile side by side
        os.replace(_run_build(source, pathlib.Path(work)), path)
    return path


def find(version: str) -> pathlib.Path:
    """Returns the path of a shim for a version of PyTorch. Raises ShimError."""
    return find_built(version) or compile_shim(version)
