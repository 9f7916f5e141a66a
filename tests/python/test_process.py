# SPDX-License-Identifier: MIT
"""Options, recordings, snapshots, files of the package, imports, the end of the interpreter."""

import json
import os
import subprocess
import sys
import textwrap

import loch
import loch.safetensors
import pytest


def run(program, code=0, **environment):
    """Runs a program in another interpreter; it has to end with a code, and nothing on stderr."""
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=120, env={**os.environ, **environment},
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (code, ""), ran.stderr
    return ran.stdout


def test_options():
    names = {row["name"] for row in loch.options()}
    assert "log" in names and all(row["environment"].startswith("LOCH_") for row in loch.options())
    before = loch.get_option("pool_idle")
    loch.set_option("pool_idle", "1MiB")
    assert loch.get_option("pool_idle") != before
    loch.set_option("pool_idle", None)
    assert loch.get_option("pool_idle") == before
    with pytest.raises(loch.Error):
        loch.get_option("no such option")
    with pytest.raises(ValueError):
        loch.set_option("log", "loudly")
    with pytest.raises(TypeError):
        loch.get_option(5)


def test_recordings(tmp_path):
    path = tmp_path / "program.loch"
    with loch.record(path, stack_depth=4):
        loch.Pool(name="recorded").alloc(12345)
        with pytest.raises(loch.Error, match="recording"):
            loch.record(tmp_path / "second.loch").start()
    read = subprocess.run([loch.get_program(), "report", str(path), str(tmp_path / "r.html")], capture_output=True)
    assert path.stat().st_size > 100 and read.returncode in (0, 1, 2)
    with loch.record(ring="1MiB") as recording:
        loch.Pool().alloc(1)
        recording.save(tmp_path / "ring.loch")
    assert (tmp_path / "ring.loch").stat().st_size > 0
    with pytest.raises(loch.Error):
        recording.stop()
    with pytest.raises(OSError):
        loch.record("/no/such/folder/x.loch").start()
    with pytest.raises((TypeError, ValueError)):
        loch.record(5.5).start()


def test_snapshots(tmp_path):
    pool = loch.Pool(name="in the picture")
    block = pool.alloc(4321, tag="seen")
    loch.snapshot(tmp_path / "now.json")
    text = json.dumps(json.loads((tmp_path / "now.json").read_text()))
    assert "in the picture" in text and "4321" in text
    with pytest.raises(OSError):
        loch.snapshot("/no/such/folder/now.json")
    with pytest.raises(TypeError):
        loch.snapshot()
    block.free()


def test_files_of_the_package():
    assert os.path.exists(os.path.join(loch.get_include(), "loch", "loch.h"))
    assert os.path.exists(loch.get_library()) and os.path.exists(loch.get_library("insight"))
    with pytest.raises(FileNotFoundError):
        loch.get_library("nonsense")
    ran = subprocess.run([sys.executable, "-m", "loch", "--version"], capture_output=True, text=True, check=True)
    assert loch.__version__ in ran.stdout
    assert subprocess.run([sys.executable, "-m", "loch", "nonsense"], capture_output=True).returncode == 2


def test_only_files_raise_errors_of_files(tmp_path):
    """No CUDA, a wrong device and an unknown option are errors of a name."""
    run("""
        import loch
        try:
            loch.Device("cuda:0")
        except loch.Error as error:
            assert not isinstance(error, OSError) and isinstance(error, LookupError) and "no CUDA" in str(error), repr(error)
        else:
            raise AssertionError
        """, LOCH_CUDA_LIBRARY="/no/such/library")
    for call in (lambda: loch.set_option("nonsense", 1), lambda: loch.get_option("nonsense")):
        with pytest.raises(LookupError, match="loch info"):
            call()
        with pytest.raises(loch.Error) as caught:
            call()
        assert not isinstance(caught.value, OSError) and caught.value.status == "E_NOT_FOUND"
    missing = tmp_path / "missing" / "file"
    for call in (lambda: loch.load(missing), lambda: loch.safetensors.open(missing)):
        with pytest.raises(FileNotFoundError) as caught:
            call()
        assert isinstance(caught.value, loch.Error) and caught.value.status == "E_NOT_FOUND"
    for call in (lambda: loch.snapshot(missing), lambda: loch.save(missing, [1]), lambda: loch.record(missing).__enter__()):
        with pytest.raises(OSError):
            call()


def test_equal_sizes_are_equal_settings():
    assert loch._core.read_limit("1GiB") == loch._core.read_limit(1 << 30) == loch._core.read_bytes("1024 MiB") == 1 << 30
    assert loch._core.read_limit(None) is None and loch._core.read_bytes("0") == 0
    with pytest.raises(ValueError, match="None is no limit"):
        loch._core.read_limit("0")
    with pytest.raises(ValueError, match="40GiB"):
        loch._core.read_limit("much")


def test_errors_are_whole():
    error = loch.Error("a sentence", "E_BUSY")
    assert str(error) == error.sentence == "a sentence" and error.status == "E_BUSY"
    for kind in vars(loch._errors).values():
        if isinstance(kind, type) and issubclass(kind, loch.Error):
            import pickle

            again = pickle.loads(pickle.dumps(kind("why", "E_IO")))
            assert type(again) is kind and again.status == "E_IO" and str(again) == "why"


def test_a_second_import_has_the_same_types():
    run("""
        import sys, loch
        first, tensor = loch.Tensor, loch.tensor([1, 2])
        for name in [name for name in sys.modules if name.split(".")[0] == "loch"]:
            del sys.modules[name]
        import loch as again
        assert again is not loch and again.Tensor is first
        assert again.from_dlpack(tensor).tolist() == [1, 2] and (again.tensor([1, 2]) == tensor).tolist() == [True, True]
        del tensor, loch
        """)


def test_subinterpreters_are_refused():
    run("""
        try:
            import _interpreters as interpreters
            make = interpreters.create
        except ImportError:
            import _xxsubinterpreters as interpreters
            make = lambda: interpreters.create(isolated=False)
        import loch
        tensor = loch.ones(3)
        other = make()
        code = "try:\\n import loch\\nexcept ImportError as error:\\n assert 'subinterpreter' in str(error)\\nelse:\\n raise SystemError"
        done = getattr(interpreters, "run_string", None) or interpreters.exec
        assert not done(other, code)
        interpreters.destroy(other)
        assert tensor.tolist() == [1, 1, 1] and loch.zeros(2).tolist() == [0, 0]
        """)


@pytest.mark.parametrize("moment", ["module", "thread", "atexit", "cycle"])
def test_the_end_of_the_interpreter(moment):
    """Whatever is held then goes in any order, without a word."""
    text = """
        import atexit, gc, sys, threading, loch
        class Holder: pass
        holder = Holder()
        pool = loch.Pool(name="last")
        holder.held = [pool, pool.child("c"), pool.alloc(10), pool.session(), pool.session().alloc(5), loch.ones(3, pool=pool),
                memoryview(loch.ones(3)), loch.ones(2).__dlpack__(), loch.Stream("cpu"), loch.Event("cpu"), loch.Device("cpu"),
                loch.from_buffer(bytearray(10)), loch.Stream("sim:16MiB"), loch.ones(3, device="sim:16MiB")]
        """
    text += {
        "module": "sys.kept = holder",
        "thread": """
        def forever():
            while True: loch.ones(100, pool=pool).tolist()
        threading.Thread(target=forever, daemon=True).start()
        """,
        "atexit": "atexit.register(lambda kept: kept.held[5].tolist(), holder)",
        "cycle": "holder.self = holder",
    }[moment]
    run(text)


def test_types_cannot_be_made_or_changed():
    for kind in (loch.Tensor, loch.Block, loch.Session):
        with pytest.raises(TypeError):
            kind()
        with pytest.raises(TypeError):
            object.__new__(kind)
    for kind in (loch.Tensor, loch.Pool, loch.Device, loch.Stream, loch.Event, loch.Block, loch.Session):
        with pytest.raises(TypeError):
            type("Sub", (kind,), {})
        assert kind.__module__ == "loch" and kind.__doc__
    with pytest.raises(AttributeError):
        loch.zeros(3).shape = (1,)
    with pytest.raises(AttributeError):
        loch.zeros(3).nonsense = 1


def test_help_has_every_name():
    for name in loch.__all__:
        assert getattr(loch, name) is not None
        assert name == "__version__" or getattr(loch, name).__doc__, name


def test_text_with_a_zero_inside_is_refused():
    """The library would read a part of it: another path, another tag."""
    for call in (loch._core.torch_load, loch._core.torch_install):
        with pytest.raises(ValueError, match="null character"):
            call("a path\0or options")
