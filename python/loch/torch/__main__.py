# SPDX-License-Identifier: MIT
"""Runs a program with Loch under PyTorch, without a change of the program.

    python -m loch.torch [--limit 40GiB] [--headroom 1GiB] [--no-pinned] [--memory-saver] program.py [arguments]
    python -m loch.torch [...] -m module [arguments]

LOCH_TORCH=0 runs the program without Loch. LOCH_TORCH_LIMIT and LOCH_TORCH_DEVICE have effect, too.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys


def _read_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loch.torch", description="Runs a program with Loch under PyTorch.",
        usage="%(prog)s [options] (program.py | -m module) [arguments]")
    parser.add_argument("--limit", help="the most that the pool of each device holds, like 40GiB")
    parser.add_argument("--headroom", help="memory of each device that is left to other libraries, like 1GiB")
    parser.add_argument("--no-pinned", action="store_true", help="leave pinned host memory to PyTorch")
    parser.add_argument("--memory-saver", action="store_true", help="stand for the package torch_memory_saver, too")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="program and its arguments")
    options = parser.parse_args(arguments)
    if not options.module and not options.program:
        parser.error("which program?")
    return options


def _enable(options: argparse.Namespace) -> None:
    import loch.torch

    loch.torch.enable(limit=options.limit, pinned=not options.no_pinned, headroom=options.headroom)
    if options.memory_saver:
        import loch.torch.memory_saver

        loch.torch.memory_saver.install_alias()


def main() -> None:
    """Reads the arguments, enables Loch and runs the program in this process."""
    options = _read_arguments(sys.argv[1:])
    if os.environ.get("LOCH_TORCH", "1") != "0":
        _enable(options)
    if options.module:
        sys.argv = options.module
        sys.path[0] = os.getcwd()
        runpy.run_module(options.module[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = options.program
        sys.path[0] = os.path.dirname(os.path.abspath(options.program[0]))
        runpy.run_path(options.program[0], run_name="__main__")


if __name__ == "__main__":
    main()
