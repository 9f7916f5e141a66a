# SPDX-License-Identifier: MIT
"""Files of the package: headers, libraries and the program, for those who build on them."""

from __future__ import annotations

import pathlib

_HERE = pathlib.Path(__file__).resolve().parent


def _find(folder: str, pattern: str) -> str:
    found = sorted((_HERE / folder).glob(pattern), key=lambda path: len(path.name))
    if not found:
        raise FileNotFoundError(f"the package has no {folder}/{pattern}")
    return str(found[0])


def get_include() -> str:
    """The folder with <loch/loch.h>."""
    return str(_HERE / "include")


def get_library(part: str = "") -> str:
    """The shared library that this process uses, or that of a part: "insight", "onnxruntime", "torch"."""
    name = f"libloch_{part}.so" if part else "libloch.so"
    return _find("lib", name + "*")


def get_program() -> str:
    """The program `loch`."""
    return _find("bin", "loch")
