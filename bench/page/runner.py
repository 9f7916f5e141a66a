# SPDX-License-Identifier: MIT
"""Runs commands for one part of the page: with a time limit for all of them, without settings of the user, each noted."""
import ctypes
import json
import os
import shlex
import signal
import subprocess
import time

KEPT = ("LOCH_CUDA_LIBRARY", "LOCH_CHROMIUM", "LOCH_TORCH_SHIM", "LOCH_OPENCL_LIBRARY")
OF_LOCH = ("pool", "copy", "calls", "record")  # benchmarks of `loch bench`; bench/core has the others


class Left(Exception):
    """A part that is left out; the text says why."""


class Failed(Exception):
    """A part that failed; the text says how. `tables` has what was measured before."""

    def __init__(self, reason, tables=()):
        super().__init__(reason)
        self.tables = list(tables)


MISREAD = (KeyError, IndexError, ValueError, TypeError)


def say_misread(error):
    """Returns a sentence for output of a benchmark that has not the expected form."""
    return f"the output was not understood: {type(error).__name__}: {error}"


def adopt_orphans():
    """Makes processes whose parents end children of this one, so that their time counts as that of the benchmark (Chromium's, for one)."""
    subreaper = 36  # PR_SET_CHILD_SUBREAPER
    ctypes.CDLL(None).prctl(subreaper, 1, 0, 0, 0)


def end_rest(group, wait_s=2):
    """Ends what a command left of its process group, and takes in orphans that end."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return


class Runner:
    """Commands of one part. `commands` has each once, as a reader of the page would type it."""

    def __init__(self, root, build, is_quick, limit_s, scratch, programs=None):
        self.programs, self.root, self.build, self.is_quick, self.scratch = programs, root, build, is_quick, scratch
        self.limit_s, self.deadline = limit_s, time.monotonic() + limit_s
        self.loch = os.path.join(build, "bin", "loch")
        self.commands, self.raw, self.shown = [], [], {}  # words of commands that the page shows in another way

    def rounds(self):
        return range(1 if self.is_quick else 3)

    def source(self, *path):
        return os.path.join(self.root, *path)

    def note(self, command, environment):
        words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        words += [self.shown.get(word) or shlex.quote(word) for word in command]
        text = " ".join(words).replace(self.root + os.sep, "").replace(self.scratch, "/tmp")
        if text not in self.commands:
            self.commands.append(text)
        return text

    def run(self, command, **environment):
        """Runs a command and returns what it prints. The command and all its children end at the limit of the part."""
        noted = self.note(command, environment)
        variables = {name: value for name, value in os.environ.items()
                     if name != "LD_PRELOAD" and (not name.startswith("LOCH_") or name in KEPT)}
        variables.update(environment, PYTHONDONTWRITEBYTECODE="1")
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Failed(f"not ended after {self.limit_s:.0f} s")
        try:
            child = subprocess.Popen(command, env=variables, cwd=self.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        except OSError as error:
            raise Failed(f"{os.path.basename(command[0])}: {error.strerror}") from error
        try:
            out, problems = child.communicate(timeout=left)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{os.path.basename(command[0])} had not ended after {self.limit_s:.0f} s") from late
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
            end_rest(child.pid)
        if child.returncode:
            last = (problems.strip() or out.strip() or "it printed nothing").splitlines()[-1]
            raise Failed(f"{os.path.basename(command[0])} ended with {child.returncode}: {last[:300]}")
        self.raw.append({"command": noted, "output": out})
        return out

    def run_json(self, command, **environment):
        text = self.run(command, **environment)
        try:
            return json.loads(text)
        except ValueError as error:
            raise Failed(f"{os.path.basename(command[0])} printed no JSON: {text[:100]!r}") from error

    def bench(self, name, device="cpu"):
        """Runs one benchmark: of `loch bench`, or of bench/core."""
        program = [self.loch, "bench"] if name in OF_LOCH else [os.path.join(self.build, "bench", "core")]
        command = program + [name, "--json"] + ["--quick"] * self.is_quick
        return self.run_json(command + (["--device", device] if device != "cpu" else []))
