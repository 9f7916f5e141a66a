# SPDX-License-Identifier: MIT
"""The example for Python and the pieces in its page run, in the environment of these tests, and say what they are to say."""
import pathlib
import re
import runpy

import numpy

SOURCE = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = SOURCE / "examples" / "13_numpy.py"
PAGE = SOURCE / "docs" / "share-with-numpy.md"
PYTHON_PAGE = SOURCE / "docs" / "python.md"


def test_numpy_example(capsys):
    runpy.run_path(str(EXAMPLE))
    text = capsys.readouterr().out
    assert "loch.tensor([[0., 1., 2., 3.],\n             [0., 1., 2., 3.]], dtype='f32')" in text
    assert "still there in NumPy: [0. 1. 2. 3.]" in text
    assert "dtype='bf16')" in text


def test_pieces_of_the_page(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pieces = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert pieces
    for piece in pieces:
        exec(compile(piece, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == "[[5. 0. 0.]\n [0. 0. 0.]]\n"
    assert numpy.load("here.npy")[0, 0] == 5


def test_pieces_of_the_page_of_the_package(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pieces = re.findall(r"^```python\n(.*?)^```", PYTHON_PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(pieces) >= 5
    for piece in pieces:
        exec(compile(piece, str(PYTHON_PAGE), "exec"), {})
    text = capsys.readouterr().out
    assert "[[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]] (2, 2)" in text and "bf16 12" in text and "E_LIMIT" in text
    assert (tmp_path / "program.loch").stat().st_size > 0
