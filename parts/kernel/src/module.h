/* SPDX-License-Identifier: MIT */
/* Modules and their kernels (module.c). */
#ifndef LOCH_KERNEL_MODULE_H
#define LOCH_KERNEL_MODULE_H

#include "cuda.h"
#include <loch/kernel.h>
#include <pthread.h>
#include <stdatomic.h>

struct loch_module {
    loch_device *device; /* retained */
    cu_module native;
    void *context; /* of the device; what is current after lochi_kernel_enter */
    char name[32];
    int compute_major;       /* of the device */
    size_t shared_max_bytes; /* shared memory that a block may have, static and dynamic */
    pthread_mutex_t lock;
    loch_kernel *kernels; /* under the lock: those that were found */
};

/* No member changes after the kernel was found, except for shared_bytes. */
struct loch_kernel {
    loch_module *module;
    loch_kernel *next;
    cu_function native;
    int arguments; /* number of parameters; -1 if the driver cannot tell */
    uint32_t threads_max, registers;
    size_t static_bytes, local_bytes;
    /* Dynamic shared memory that the driver allows the function. Only grows. Relaxed: it orders nothing. */
    atomic_size_t shared_bytes;
    uint16_t parameter_bytes[LOCH_ARGUMENTS_MAX]; /* sizes of the parameters */
    char name[];
};

#endif
