# SPDX-License-Identifier: MIT
"""Runs the program `loch`: python -m loch info."""

import os
import sys
from typing import NoReturn

from ._files import get_program


def main() -> NoReturn:
    """Replaces this process by the program."""
    program = get_program()
    os.execv(program, ["loch", *sys.argv[1:]])


if __name__ == "__main__":
    main()
