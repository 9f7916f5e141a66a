# SPDX-License-Identifier: MIT
"""Tags of the thread, and recordings of the process, as context managers."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from . import _core

if TYPE_CHECKING:
    from types import TracebackType


class tag(contextlib.ContextDecorator):
    """Gives a tag to what this thread allocates through this package in a `with`, or in a decorated function.

    Statistics, reports and sleep go by tag. Tags nest; the innermost counts.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a tag is a name, not {name!r}")
        self.name = name
        self._local = threading.local()  # one object may be entered by several threads

    def __enter__(self) -> tag:
        before = _core.set_thread_tag(self.name)
        self._local.__dict__.setdefault("before", []).append(before)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        _core.set_thread_tag(self._local.before.pop())

    def _recreate_cm(self) -> tag:
        return tag(self.name)


class record:
    """Records what the process does with its memory, for the program `loch`.

        with loch.record("program.loch"):
            ...

    Without a path the latest events are kept in memory (`ring` bytes), and `save` writes them.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        ring: int | str | None = None,
        stack_depth: int = 0,
        pool: _core.Pool | None = None,
    ) -> None:
        self._path = path
        self._ring = ring
        self._stack_depth = stack_depth
        self._pool = pool

    def start(self) -> record:
        """Starts recording. There is one recording at a time."""
        _core.recorder_start(self._path, ring=self._ring, stack_depth=self._stack_depth, pool=self._pool)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the events of the ring to a file and goes on recording."""
        _core.recorder_save(path)

    def stop(self) -> None:
        """Stops recording and completes the file."""
        _core.recorder_stop()

    def __enter__(self) -> record:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
