# SPDX-License-Identifier: MIT
"""Sizes as people write them."""

import re

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def parse_bytes(size):
    """Returns the number of bytes of 1000000, "40GiB", "40G" or "512M"; 0 for None. Units are binary."""
    if size is None:
        return 0
    if isinstance(size, str):
        found = re.fullmatch(r"\s*(\d+)\s*([KMGT]?)(?:iB|B)?\s*", size, re.IGNORECASE)
        if not found:
            raise ValueError(f"a size is written like 40GiB, not {size!r}")
        return int(found.group(1)) << _UNITS[found.group(2).upper()]
    size = int(size)
    if size < 0:
        raise ValueError(f"a size of {size} bytes")
    return size


def show_bytes(size):
    """Returns a size for people: "1.5 GiB"."""
    for shift, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f} {unit}"
    return f"{size} B"
