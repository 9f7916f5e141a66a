/* SPDX-License-Identifier: MIT */
/* Loading of the OpenCL loader, and the meaning of its result codes.
 *
 * Nothing is loaded before the first device is looked for. A library that was opened stays open until the process
 * ends: OpenCL drivers run threads of their own. */
#include "api.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define OPENCL_LIBRARY "libOpenCL.so.1"

lochi_opencl_api lochi_opencl;

static pthread_mutex_t opencl_lock = PTHREAD_MUTEX_INITIALIZER;
/* Stored with release when lochi_opencl is complete, loaded with acquire before it is read. The process that loaded
 * OpenCL: a child of it must not use OpenCL. */
static _Atomic pid_t opencl_process;

static const struct {
    const char *name;
    size_t offset; /* offset of its pointer in the table */
} opencl_symbols[] = {
#define OPENCL_SYMBOL(name, result, parameters) {#name, offsetof(lochi_opencl_api, name)},
    LOCHI_OPENCL_CALLS(OPENCL_SYMBOL)
#undef OPENCL_SYMBOL
};

loch_status lochi_opencl_load_from(const char *path, lochi_opencl_api *api)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        return loch_error_set(LOCH_E_NOT_FOUND, "opencl", 0,
                              "no OpenCL: install a driver for the device and the loader %s (%.140s)", OPENCL_LIBRARY,
                              reason ? reason : path);
    }
    for (size_t i = 0; i < sizeof opencl_symbols / sizeof *opencl_symbols; i++) {
        void *address = dlsym(library, opencl_symbols[i].name);
        if (!address)
            return loch_error_set(LOCH_E_UNSUPPORTED, "opencl", 0,
                                  "%.120s has no %s: install an OpenCL loader for OpenCL 2.0 or later", path,
                                  opencl_symbols[i].name);
        memcpy((char *)api + opencl_symbols[i].offset, &address, sizeof address);
    }
    return LOCH_OK;
}

static loch_status opencl_check_process(pid_t process)
{
    if (process == getpid()) return LOCH_OK;
    return loch_error_set(LOCH_E_FORKED, "opencl", 0,
                          "OpenCL was started before a fork, which its drivers do not survive: use it only in the "
                          "parent, or start the child by spawn or exec");
}

loch_status lochi_opencl_load(void)
{
    pid_t process = atomic_load_explicit(&opencl_process, memory_order_acquire);
    if (process) return opencl_check_process(process);
    loch_status status = LOCH_OK;
    pthread_mutex_lock(&opencl_lock);
    process = atomic_load_explicit(&opencl_process, memory_order_relaxed);
    if (!process) {
        lochi_opencl_api api = {.clFlush = NULL};
        status = lochi_opencl_load_from(OPENCL_LIBRARY, &api);
        if (status == LOCH_OK) {
            lochi_opencl = api;
            atomic_store_explicit(&opencl_process, getpid(), memory_order_release);
        }
    }
    pthread_mutex_unlock(&opencl_lock);
    return status;
}

/* --- codes --- */

/* The codes that the functions of the table return, with their meaning for Loch. */
static const struct {
    cl_result result;
    loch_status status;
    const char *name;
} opencl_codes[] = {
#define OPENCL_CODE(name, status)                                                                                      \
    {                                                                                                                  \
        LOCHI_CL_##name, LOCH_E_##status, "CL_" #name                                                                  \
    }
    OPENCL_CODE(DEVICE_NOT_FOUND, NOT_FOUND),
    OPENCL_CODE(DEVICE_NOT_AVAILABLE, DEVICE_LOST),
    OPENCL_CODE(MEM_OBJECT_ALLOCATION_FAILURE, DEVICE_MEMORY),
    OPENCL_CODE(OUT_OF_RESOURCES, DEVICE_MEMORY),
    OPENCL_CODE(OUT_OF_HOST_MEMORY, HOST_MEMORY),
    OPENCL_CODE(PROFILING_INFO_NOT_AVAILABLE, UNSUPPORTED),
    OPENCL_CODE(EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, DRIVER),
    OPENCL_CODE(INVALID_VALUE, INVALID),
    OPENCL_CODE(INVALID_DEVICE, INVALID),
    OPENCL_CODE(INVALID_CONTEXT, INVALID),
    OPENCL_CODE(INVALID_COMMAND_QUEUE, INVALID),
    OPENCL_CODE(INVALID_EVENT_WAIT_LIST, INVALID),
    OPENCL_CODE(INVALID_EVENT, INVALID),
    OPENCL_CODE(INVALID_OPERATION, UNSUPPORTED),
#undef OPENCL_CODE
};

loch_status lochi_opencl_fail(cl_result result, const char *call)
{
    for (size_t i = 0; i < sizeof opencl_codes / sizeof *opencl_codes; i++)
        if (opencl_codes[i].result == result)
            return loch_error_set(opencl_codes[i].status, "opencl", result, "%s: %s", call, opencl_codes[i].name);
    return loch_error_set(LOCH_E_DRIVER, "opencl", result, "%s: the OpenCL driver returned the code %d", call,
                          (int)result);
}
