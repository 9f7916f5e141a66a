# SPDX-License-Identifier: MIT
"""The program of docs/pytorch.md for machines without a GPU runs as it stands."""

import os
import pathlib
import re
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[2]


def test_the_program_without_a_gpu():
    page = (TREE / "docs" / "pytorch.md").read_text().split("## Without a GPU\n")[1]
    piece = re.search(r"```python\n(.*?)```", page, re.S)[1]
    package = pathlib.Path(os.environ["LOCH_TORCH_LIB"]).parent / "python"
    ran = subprocess.run([sys.executable, "-c", piece], env={**os.environ, "PYTHONPATH": str(package)}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "256 MiB in use, 256 MiB reserved" in ran.stdout
    assert "CUDA out of memory. Tried to allocate 2.00 GiB" in ran.stdout
