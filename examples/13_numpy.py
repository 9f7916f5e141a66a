# SPDX-License-Identifier: MIT
"""One piece of memory, seen by NumPy and by Loch: the last release frees it.

Needs NumPy, and the package: `pip install .`, or PYTHONPATH=build/python after `make`.
"""
import loch
import numpy

# Loch's memory in NumPy: no copy, so each sees the writes of the other.
weights = loch.zeros((2, 4), "f32")
array = numpy.from_dlpack(weights)
array += numpy.arange(4)
print(repr(weights))
print(weights)
weights[1].fill(-1)
assert array[1].tolist() == [-1, -1, -1, -1]
del weights
print("still there in NumPy:", array[0])

# NumPy's memory in Loch: with strides, also negative ones.
numbers = numpy.arange(12, dtype=numpy.int64).reshape(3, 4)
turned = loch.from_dlpack(numbers[:, ::-1])
print(turned, turned.strides)
numbers[0, 0] = 100
assert numpy.from_dlpack(turned)[0, 3] == 100

# Loch converts types that NumPy lacks; a device that NumPy cannot access raises an error.
half = turned.to(dtype="bf16")
print(repr(half))
assert numpy.array_equal(numpy.from_dlpack(half.to(dtype="f32")), numbers[:, ::-1])
try:
    numpy.from_dlpack(turned.to("sim:1GiB"))
    raise SystemExit("this should not work")
except BufferError as error:
    print(error)
