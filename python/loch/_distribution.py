# SPDX-License-Identifier: MIT
"""The name of the package on PyPI is loch-memory. Another project has the distribution `loch`, with files in the same folder."""

from __future__ import annotations

import importlib.metadata
import warnings


def check() -> None:
    """Says so if the other distribution is installed too: each may have overwritten files of the other."""
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
