/* SPDX-License-Identifier: MIT */
/* Loading of the CUDA driver library, and the meaning of its result codes.
 *
 * Nothing is loaded before the first CUDA device is looked for. A library that was opened stays open until the
 * process ends: it runs threads of its own, so it cannot be unloaded. */
#include "device/cuda/api.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/fork.h"
#include "base/lock.h"
#include "base/logging.h"
#include "base/options.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define CUDA_LIBRARY "libcuda.so.1"

lochi_cuda_api lochi_cuda;
void *lochi_cuda_library;

static lochi_lock cuda_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_CUDA);
/* Stored with release when lochi_cuda is complete, loaded with acquire before it is read. */
static atomic_bool cuda_ready;
static loch_error cuda_failure; /* under cuda_lock: the reason why cuda_failure_library cannot be used */
static char cuda_failure_library[LOCH_OPTION_VALUE_MAX]; /* under cuda_lock: "" before the first failure */
static _Atomic uint64_t cuda_late_calls;

bool lochi_cuda_is_forked;

static const struct {
    const char *symbol;
    size_t offset; /* offset of its pointer in the table */
    enum { OPTIONAL, NEEDED } need;
} cuda_symbols[] = {
#define CUDA_SYMBOL(name, suffix, need, parameters) {#name #suffix, offsetof(lochi_cuda_api, name##suffix), need},
    LOCHI_CUDA_CALLS(CUDA_SYMBOL) LOCHI_CUDA_CALLS_VERSIONED(CUDA_SYMBOL)
#undef CUDA_SYMBOL
};

/* --- forks --- */

/* CUDA does not work in a child of the process that started it. */
static void cuda_forked(void)
{
    if (atomic_load_explicit(&cuda_ready, memory_order_relaxed)) lochi_cuda_is_forked = true;
}

static lochi_fork_part cuda_part = {.child = cuda_forked};

static loch_status cuda_refuse_forked(void)
{
    return loch_error_set(LOCH_E_FORKED, "cuda", 0,
                          "CUDA was started before a fork, which it does not survive: use it only in the parent, or "
                          "start the child by spawn or exec");
}

/* --- loading --- */

static loch_status cuda_read_symbols(void *library, const char *path, lochi_cuda_api *api)
{
    for (size_t i = 0; i < sizeof cuda_symbols / sizeof *cuda_symbols; i++) {
        void *address = dlsym(library, cuda_symbols[i].symbol);
        if (!address && cuda_symbols[i].need == NEEDED)
            return LOCH_FAIL(UNSUPPORTED, "%.120s has no %s: install an NVIDIA driver for CUDA %d.%d or later", path,
                             cuda_symbols[i].symbol, LOCHI_CUDA_VERSION_MIN / 1000, LOCHI_CUDA_VERSION_MIN % 1000 / 10);
        memcpy((char *)api + cuda_symbols[i].offset, &address, sizeof address);
    }
    if (!api->cuEventElapsedTime && !api->cuEventElapsedTime_v2)
        return LOCH_FAIL(UNSUPPORTED, "%.120s has no cuEventElapsedTime: it is not a CUDA driver that Loch knows",
                         path);
    return LOCH_OK;
}

static loch_status cuda_start(const char *path, lochi_cuda_api *api)
{
    cu_result result = api->cuDriverGetVersion(&api->version);
    if (result == LOCHI_CUDA_SUCCESS && api->version < LOCHI_CUDA_VERSION_MIN)
        return LOCH_FAIL(UNSUPPORTED, "the NVIDIA driver is for CUDA %d.%d: install one for %d.%d or later",
                         api->version / 1000, api->version % 1000 / 10, LOCHI_CUDA_VERSION_MIN / 1000,
                         LOCHI_CUDA_VERSION_MIN % 1000 / 10);
    if (result == LOCHI_CUDA_SUCCESS) result = api->cuInit(0);
    if (result == LOCHI_CUDA_SUCCESS) return LOCH_OK;
    if (result == LOCHI_CUDA_ERROR_STUB_LIBRARY)
        return loch_error_set(LOCH_E_NOT_FOUND, "cuda", (long)result,
                              "%.120s is the toolkit's stub: install the NVIDIA driver or set LOCH_CUDA_LIBRARY", path);
    if (result == LOCHI_CUDA_ERROR_NO_DEVICE)
        return loch_error_set(LOCH_E_NOT_FOUND, "cuda", (long)result,
                              "the NVIDIA driver finds no GPU: see nvidia-smi and CUDA_VISIBLE_DEVICES");
    const char *name = NULL, *text = NULL;
    api->cuGetErrorName(result, &name);
    api->cuGetErrorString(result, &text);
    return loch_error_set(LOCH_E_DRIVER, "cuda", (long)result,
                          "the NVIDIA driver failed to start: %s, %s; see nvidia-smi", name ? name : "an unknown code",
                          text ? text : "without a text");
}

static loch_status cuda_load_from(const char *path, lochi_cuda_api *api)
{
    LOCHI_NOT_CANCELLED;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        return LOCH_FAIL(NOT_FOUND, "no CUDA: install the NVIDIA driver or set LOCH_CUDA_LIBRARY (%.140s)",
                         reason ? reason : path);
    }
    lochi_cuda_library = library;
    LOCH_TRY_RETURN(cuda_read_symbols(library, path, api));
    return cuda_start(path, api);
}

loch_status lochi_cuda_load(void)
{
    if (lochi_cuda_is_forked) return cuda_refuse_forked();
    if (atomic_load_explicit(&cuda_ready, memory_order_acquire)) return LOCH_OK;
    lochi_fork_add(&cuda_part);
    char path[LOCH_OPTION_VALUE_MAX];
    LOCH_TRY_RETURN(lochi_option_text("cuda_library", path));
    if (!*path) memcpy(path, CUDA_LIBRARY, sizeof CUDA_LIBRARY);

    loch_status status = LOCH_OK;
    lochi_lock_take(&cuda_lock);
    if (atomic_load_explicit(&cuda_ready, memory_order_relaxed)) {
        /* another thread tried it first */
    } else if (!strcmp(path, cuda_failure_library)) {
        lochi_error_restore(&cuda_failure);
        status = cuda_failure.status;
    } else {
        lochi_cuda_api api = {.version = 0};
        status = cuda_load_from(path, &api);
        if (status == LOCH_OK) {
            lochi_cuda = api;
            atomic_store_explicit(&cuda_ready, true, memory_order_release);
            LOCHI_LOG(INFO, "loaded %s, CUDA %d.%d", path, api.version / 1000, api.version % 1000 / 10);
        } else {
            cuda_failure = lochi_error_save();
            memcpy(cuda_failure_library, path, sizeof path);
        }
    }
    lochi_lock_drop(&cuda_lock);
    return status;
}

/* --- codes --- */

static loch_status cuda_classify(cu_result result)
{
    switch (result) {
    case LOCHI_CUDA_SUCCESS: return LOCH_OK;
    case LOCHI_CUDA_ERROR_OUT_OF_MEMORY: return LOCH_E_DEVICE_MEMORY;
    case LOCHI_CUDA_ERROR_NOT_READY:
    case LOCHI_CUDA_ERROR_CAPTURED_EVENT: return LOCH_E_BUSY;
    case LOCHI_CUDA_ERROR_INVALID_VALUE:
    case LOCHI_CUDA_ERROR_INVALID_HANDLE: return LOCH_E_INVALID;
    case LOCHI_CUDA_ERROR_NOT_PERMITTED:
    case LOCHI_CUDA_ERROR_NOT_SUPPORTED:
    case LOCHI_CUDA_ERROR_TOO_MANY_PEERS: /* copies go through the host, as between devices that are not connected */
    case LOCHI_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: return LOCH_E_UNSUPPORTED;
    case LOCHI_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: return LOCH_E_EXISTS;
    case LOCHI_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: return LOCH_E_FOREIGN;
    /* After these codes the context returns the same code for every call until the process ends. */
    case LOCHI_CUDA_ERROR_DEINITIALIZED:
    case LOCHI_CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case LOCHI_CUDA_ERROR_ECC_UNCORRECTABLE:
    case LOCHI_CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case LOCHI_CUDA_ERROR_CONTAINED:
    case LOCHI_CUDA_ERROR_ILLEGAL_ADDRESS:
    case LOCHI_CUDA_ERROR_LAUNCH_TIMEOUT:
    case LOCHI_CUDA_ERROR_ASSERT:
    case LOCHI_CUDA_ERROR_HARDWARE_STACK_ERROR:
    case LOCHI_CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case LOCHI_CUDA_ERROR_MISALIGNED_ADDRESS:
    case LOCHI_CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case LOCHI_CUDA_ERROR_INVALID_PC:
    case LOCHI_CUDA_ERROR_LAUNCH_FAILED:
    case LOCHI_CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case LOCHI_CUDA_ERROR_MPS_RPC_FAILURE:
    case LOCHI_CUDA_ERROR_MPS_CLIENT_TERMINATED: return LOCH_E_DEVICE_LOST;
    default: return LOCH_E_DRIVER;
    }
}

loch_status lochi_cuda_fail(cu_result result, const char *call)
{
    if (result == LOCHI_CUDA_FORKED) return cuda_refuse_forked();
    const char *name = NULL, *text = NULL;
    lochi_cuda.cuGetErrorName(result, &name);
    lochi_cuda.cuGetErrorString(result, &text);
    return loch_error_set(cuda_classify(result), "cuda", (long)result, "%s: %s, %s", call,
                          name ? name : "an unknown code", text ? text : "without a text");
}

loch_status lochi_cuda_fail_giving_back(cu_result result, const char *call)
{
    if (result == LOCHI_CUDA_FORKED) return LOCH_OK; /* the object belongs to the parent process */
    if (result == LOCHI_CUDA_ERROR_DEINITIALIZED || result == LOCHI_CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        atomic_fetch_add_explicit(&cuda_late_calls, 1, memory_order_relaxed);
        return LOCH_OK;
    }
    return lochi_cuda_fail(result, call);
}

uint64_t lochi_cuda_late_calls(void)
{
    return atomic_load_explicit(&cuda_late_calls, memory_order_relaxed);
}
