# SPDX-License-Identifier: MIT
"""The name of the package on PyPI is loch-memory. Another project has the distribution `loch`, with files in the same folder."""

from __future__ import annotations

import os
import sys
import warnings


def _is_listed() -> bool:
    """Whether a folder of sys.path has files of a distribution `loch`. importlib.metadata would double the time of `import loch`."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        if any(name.lower().startswith("loch-") and name.endswith((".dist-info", ".egg-info")) for name in names):
            return True
    return False


def check() -> None:
    """Says so if the other distribution is installed too: each may have overwritten files of the other."""
    if not _is_listed():
        return
    import importlib.metadata

    try:
        other = importlib.metadata.version("loch")
    except importlib.metadata.PackageNotFoundError:
        return
    warnings.warn(
        f"the distribution loch {other} of another project is installed beside loch-memory and shares its folder: "
        "`pip uninstall loch loch-memory`, then `pip install loch-memory`",
        RuntimeWarning,
        stacklevel=3,
    )
