# SPDX-License-Identifier: MIT
"""Features of PyTorch on a GPU, with PyTorch's own allocator and with Loch's.

LOCH_TORCH_ALLOCATOR (native, loch or plugin; loch if it is not set) names the allocator of this process; with "package" the
test itself calls loch.torch.enable(). `run` in this folder runs every file with each allocator. LOCH_TORCH_PROGRESS names a file that gets a line before and after each
test, so that `run` knows which test ended the process.
"""

import gc
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
DOOR = HERE.parents[1] / "torch"  # door.py serves the tests without a GPU, too
sys.path[:0] = [str(HERE), str(DOOR)]

import door  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

PREFIX = f"import sys; sys.path[:0] = [{str(HERE)!r}, {str(DOOR)!r}]; import door; door.install()\n"


def pytest_configure(config):
    if not torch.cuda.is_available():
        pytest.exit("these tests need a GPU", returncode=1)
    if door.name() != "package":
        door.install()


def note(**what):
    path = os.environ.get("LOCH_TORCH_PROGRESS")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")


def pytest_runtest_logstart(nodeid, location):
    note(test=nodeid, is_start=True)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.failed or (report.when == "setup" and report.skipped):
        note(test=report.nodeid, outcome=report.outcome, seconds=report.duration, text=str(report.longrepr or "")[-4000:])


@pytest.fixture
def allocator():
    """Returns the name of the allocator of this process."""
    return door.name()


@pytest.fixture(autouse=True)
def clean():
    """Every test starts with an empty cache."""
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    yield
    torch.cuda.synchronize()
    gc.collect()


@pytest.fixture
def fresh():
    """Runs a program in a process of its own and returns the JSON of its last line. The process must return 0 and write
    nothing on stderr, unless the caller says otherwise."""

    def run(program, *arguments, allocator=None, environment=None, timeout=120, may_warn=False):
        env = {**os.environ, **(environment or {})}
        env["LOCH_TORCH_ALLOCATOR"] = allocator or door.name()
        env.pop("LOCH_TORCH_PROGRESS", None)
        done = subprocess.run([sys.executable, "-c", PREFIX + program, *map(str, arguments)], env=env, capture_output=True,
                              text=True, errors="replace", timeout=timeout, check=False)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr[-4000:]}"
        assert may_warn or not done.stderr.strip(), done.stderr[-4000:]
        lines = done.stdout.strip().splitlines()
        return json.loads(lines[-1]) if lines else None

    return run
