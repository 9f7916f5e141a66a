# SPDX-License-Identifier: MIT
"""Makes and drops a small tensor COUNT times, for scripts/gate: tensor.py COUNT."""
import sys

import loch

for _ in range(int(sys.argv[1])):
    loch.empty((4,))
