# SPDX-License-Identifier: MIT
"""The Python of README.md runs as it stands, and says what the page promises."""

import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_the_lines_run():
    pieces = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len(pieces) == 1
    said = subprocess.run([sys.executable, "-c", pieces[0]], capture_output=True, text=True, check=True).stdout
    assert "[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]" in said and "limit 1 GiB" in said
