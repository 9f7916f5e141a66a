/* SPDX-License-Identifier: MIT */
/* Internal header of the doors: the files of the extension that put Loch under other Python libraries. Each file adds
 * its functions to the extension module with one call. */
#ifndef LOCHPY_DOORS_H
#define LOCHPY_DOORS_H

#include "core.h"

/* Adds the functions of NumPy's memory handler (numpy.c). Returns 0, or -1 with an exception set. */
int lochpy_add_numpy(PyObject *module);

/* Adds the type DeviceMemory for libraries that bring CUDA streams of their own (device_memory.c). Returns 0, or -1
 * with an exception set. */
int lochpy_add_device_memory(PyObject *module);

/* Adds the functions of loch.torch (torch.c). Returns 0, or -1 with an exception set. */
int lochpy_add_torch(PyObject *module);

/* Adds the functions of loch.safetensors (safetensors.c). Returns 0, or -1 with an exception set. */
int lochpy_add_safetensors(PyObject *module);

/* Adds all doors to the module. Returns 0, or -1 with an exception set. */
static inline int lochpy_add_doors(PyObject *module)
{
    return lochpy_add_numpy(module) || lochpy_add_device_memory(module) || lochpy_add_torch(module) ||
                   lochpy_add_safetensors(module)
               ? -1
               : 0;
}

#endif
