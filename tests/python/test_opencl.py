# SPDX-License-Identifier: MIT
"""OpenCL devices in Python: the driver is a library beside the others of the package, and one call registers it."""
import ctypes
import glob
import os

import numpy as np
import pytest

import loch


@pytest.fixture(scope="module")
def device():
    found = glob.glob(os.path.join(os.path.dirname(loch.get_library()), "libloch_opencl.so*"))
    assert found, "the package has no libloch_opencl.so"
    assert ctypes.CDLL(found[0]).loch_opencl_register() == 0
    try:
        return loch.Device("opencl:0")
    except loch.Error as error:
        if os.environ.get("LOCH_REQUIRE_OPENCL") == "1":
            raise
        pytest.skip(str(error))


def test_tensors_go_to_an_opencl_device_and_back(device):
    values = np.arange(1000, dtype=np.float32)
    there = loch.tensor(values, device=device)
    assert there.device == "opencl:0"
    assert np.array_equal(there.to("cpu").numpy(), values)
    there.fill(2.5)
    assert there.tolist() == [2.5] * 1000
