# SPDX-License-Identifier: MIT
"""The example for Python runs, in the environment of these tests, and says what it is there to say."""
import pathlib
import runpy

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "13_numpy.py"


def test_numpy_example(capsys):
    runpy.run_path(str(EXAMPLE))
    text = capsys.readouterr().out
    assert "f32[2, 4], 32 bytes on cpu" in text
    assert "still there in NumPy: [0. 1. 2. 3.]" in text
    assert "bf16[3, 4]" in text
