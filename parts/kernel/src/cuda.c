/* SPDX-License-Identifier: MIT */
/* Loading of the CUDA driver library, its error codes, and the frame around its calls. */
#include "cuda.h"
#include "kit/fail.h"
#include <dlfcn.h>
#include <loch/option.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define CUDA_LIBRARY "libcuda.so.1"

lochi_kernel_api lochi_kernel_cuda;

static pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;
/* Stored with release when lochi_kernel_cuda is complete, loaded with acquire before it is read. */
static atomic_bool cuda_is_ready;

static const struct {
    const char *symbol;
    size_t offset; /* offset of its pointer in the table */
    enum { OPTIONAL, NEEDED } need;
} cuda_symbols[] = {
#define CUDA_SYMBOL(name, need, parameters) {#name, offsetof(lochi_kernel_api, name), need},
    LOCHI_KERNEL_CALLS(CUDA_SYMBOL)
#undef CUDA_SYMBOL
};

loch_status lochi_kernel_load_from(const char *path, lochi_kernel_api *api)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        return loch_error_set(LOCH_E_UNSUPPORTED, "cuda", 0, "kernels need the CUDA driver (%.160s)",
                              reason ? reason : path);
    }
    for (size_t i = 0; i < sizeof cuda_symbols / sizeof *cuda_symbols; i++) {
        void *address = dlsym(library, cuda_symbols[i].symbol);
        if (!address && cuda_symbols[i].need == NEEDED) {
            dlclose(library);
            return loch_error_set(LOCH_E_UNSUPPORTED, "cuda", 0, "%.120s has no %s: install a newer NVIDIA driver",
                                  path, cuda_symbols[i].symbol);
        }
        memcpy((char *)api + cuda_symbols[i].offset, &address, sizeof address);
    }
    return LOCH_OK;
}

static loch_status cuda_load(void)
{
    char path[LOCH_OPTION_VALUE_MAX];
    loch_status status = LOCH_OK;
    pthread_mutex_lock(&cuda_lock);
    if (!atomic_load_explicit(&cuda_is_ready, memory_order_relaxed)) {
        status = loch_option_get("cuda_library", path);
        if (status == LOCH_OK && !*path) memcpy(path, CUDA_LIBRARY, sizeof CUDA_LIBRARY);
        if (status == LOCH_OK) status = lochi_kernel_load_from(path, &lochi_kernel_cuda);
        if (status == LOCH_OK) atomic_store_explicit(&cuda_is_ready, true, memory_order_release);
    }
    pthread_mutex_unlock(&cuda_lock);
    return status;
}

loch_status lochi_kernel_load(const loch_device *device)
{
    void *self, *before;
    const loch_driver *driver = loch_device_get_driver(device, &self);
    if (!driver) return LOCH_FAIL(INVALID, "kernels need a device, and it is NULL");
    if (strcmp(driver->name, "cuda") != 0)
        return LOCH_FAIL(UNSUPPORTED, "%.80s is not a CUDA device, and kernels run on those only",
                         loch_device_get_name(device));
    LOCH_RETURN(driver->enter(self, &before)); /* before the lock: after a fork, no thread may be there to drop it */
    (void)driver->leave(self, before);
    return atomic_load_explicit(&cuda_is_ready, memory_order_acquire) ? LOCH_OK : cuda_load();
}

/* --- errors --- */

static loch_status cuda_classify(cu_result result)
{
    switch (result) {
    case LOCHI_CUDA_ERROR_OUT_OF_MEMORY: return LOCH_E_DEVICE_MEMORY;
    case LOCHI_CUDA_ERROR_INVALID_VALUE: return LOCH_E_INVALID;
    case LOCHI_CUDA_ERROR_NOT_FOUND: return LOCH_E_NOT_FOUND;
    case LOCHI_CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    case LOCHI_CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: return LOCH_E_LIMIT;
    case LOCHI_CUDA_ERROR_INVALID_IMAGE:
    case LOCHI_CUDA_ERROR_INVALID_PTX:
    case LOCHI_CUDA_ERROR_INVALID_SOURCE: return LOCH_E_INVALID;
    case LOCHI_CUDA_ERROR_NO_BINARY_FOR_GPU:
    case LOCHI_CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case LOCHI_CUDA_ERROR_JIT_COMPILATION_DISABLED: return LOCH_E_UNSUPPORTED;
    /* a kernel has failed: the context does not come back */
    case 214: /* CUDA_ERROR_ECC_UNCORRECTABLE */
    case 700: /* CUDA_ERROR_ILLEGAL_ADDRESS */
    case 702: /* CUDA_ERROR_LAUNCH_TIMEOUT */
    case 710: /* CUDA_ERROR_ASSERT */
    case 714: /* CUDA_ERROR_HARDWARE_STACK_ERROR */
    case 715: /* CUDA_ERROR_ILLEGAL_INSTRUCTION */
    case 716: /* CUDA_ERROR_MISALIGNED_ADDRESS */
    case 717: /* CUDA_ERROR_INVALID_ADDRESS_SPACE */
    case 718: /* CUDA_ERROR_INVALID_PC */
    case 719: /* CUDA_ERROR_LAUNCH_FAILED */ return LOCH_E_DEVICE_LOST;
    default: return LOCH_E_DRIVER;
    }
}

loch_status lochi_kernel_fail(cu_result result, const char *call)
{
    const char *name = NULL, *text = NULL;
    lochi_kernel_cuda.cuGetErrorName(result, &name);
    lochi_kernel_cuda.cuGetErrorString(result, &text);
    return loch_error_set(cuda_classify(result), "cuda", result, "%s: %s, %s", call, name ? name : "an unknown code",
                          text ? text : "without a text");
}

/* --- frames --- */

loch_status lochi_kernel_enter(const loch_device *device, lochi_kernel_mode mode, lochi_kernel_frame *frame)
{
    frame->driver = loch_device_get_driver(device, &frame->self);
    frame->is_relaxed = false;
    const loch_status status = frame->driver->enter(frame->self, &frame->before);
    if (status != LOCH_OK || mode == LOCHI_KERNEL_CAPTURED) return status;
    frame->capture_mode = LOCHI_CU_STREAM_CAPTURE_MODE_RELAXED;
    frame->is_relaxed = lochi_kernel_cuda.cuThreadExchangeStreamCaptureMode &&
                        lochi_kernel_cuda.cuThreadExchangeStreamCaptureMode(&frame->capture_mode) == LOCHI_CUDA_SUCCESS;
    return LOCH_OK;
}

void lochi_kernel_leave(const lochi_kernel_frame *frame)
{
    int mode = frame->capture_mode;
    if (frame->is_relaxed) lochi_kernel_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    /* A failure means that the context that was current has been destroyed: then none is current. */
    (void)frame->driver->leave(frame->self, frame->before);
}
