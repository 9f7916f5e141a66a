# SPDX-License-Identifier: MIT
"""A short look at an installed wheel: it runs without NumPy, finds its own library, and has its program and headers."""

import os
import pickle
import subprocess
import sys

import loch

here = os.path.dirname(loch.__file__)
assert "numpy" not in sys.modules
for path in (loch.get_library(), loch.get_program(), loch.get_include(), loch.get_library("insight")):
    assert os.path.exists(path) and path.startswith(os.path.realpath(here)), path
assert os.path.exists(os.path.join(loch.get_include(), "loch", "loch.h"))
with open("/proc/self/maps") as maps:
    loaded = {line.split()[-1] for line in maps if "libloch" in line}
loaded = {os.path.realpath(path) for path in loaded}
library = os.path.realpath(loch.get_library())
assert library in loaded and all(os.path.dirname(path) == os.path.dirname(library) for path in loaded), loaded

tensor = loch.tensor([[1, 2], [3, 4]], "f32")
assert pickle.loads(pickle.dumps(tensor)).tolist() == tensor.T.T.tolist() == [[1, 2], [3, 4]]
assert memoryview(tensor).tolist() == tensor.tolist()
with loch.Pool(limit="64MiB", name="smoke") as pool:
    with pool.alloc("1MiB") as block:
        assert block.address and pool.stats().blocks == 1
    try:
        pool.alloc("65MiB")
    except loch.OutOfMemoryError as error:
        assert isinstance(error, MemoryError) and isinstance(error, loch.Error) and error.status == "E_LIMIT"

script = os.path.join(os.path.dirname(sys.executable), "loch")
for command in ([script], [sys.executable, "-m", "loch"]):
    ran = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert loch.__version__ in ran.stdout, ran.stdout
    assert subprocess.run([*command, "no-such-command"], capture_output=True).returncode == 2
print(f"loch {loch.__version__} works in {sys.version.split()[0]}")
