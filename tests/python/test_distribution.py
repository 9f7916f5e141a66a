# SPDX-License-Identifier: MIT
"""The other distribution with the name `loch`: importing says in one sentence that it is installed too."""

import os
import pathlib
import subprocess
import sys

import loch


def import_beside(folder):
    paths = [str(pathlib.Path(loch.__file__).parents[1]), str(folder)]
    return subprocess.run([sys.executable, "-c", "import loch"], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}).stderr


def add_distribution(folder, name, version):
    path = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    path.mkdir()
    (path / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_other_distribution_is_named(tmp_path):
    add_distribution(tmp_path, "loch", "7.5")
    said = import_beside(tmp_path)
    assert said.count("RuntimeWarning") == 1
    assert "the distribution loch 7.5 of another project is installed beside loch-memory" in said


def test_our_own_distribution_says_nothing(tmp_path):
    add_distribution(tmp_path, "loch-memory", "0.2.0")
    assert import_beside(tmp_path) == ""
