/* SPDX-License-Identifier: MIT */
/* Kernels of libloch_kernel on CUDA devices. Their text is as large as this library, so they are in a library of their
 * own, which is looked for once, on first use: among the libraries of the program, beside this library, by name.
 * Without it, copies go through the host. */
#include "device/cuda/kernels.h"
#include "base/fail.h"
#include "base/logging.h"
#include "device/cuda/cuda.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define KERNELS_TEXT_OF(number) #number
#define KERNELS_TEXT(number) KERNELS_TEXT_OF(number)
#define KERNELS_LIBRARY "libloch_kernel.so." KERNELS_TEXT(LOCH_VERSION_MAJOR) "." KERNELS_TEXT(LOCH_VERSION_MINOR)

/* The functions of <loch/kernel_set.h>, and its two codes. Weak: a program may have the library already. */
typedef struct loch_kernel_set loch_kernel_set;
extern int loch_kernel_set_create(void *library, loch_kernel_set **out) __attribute__((weak));
extern int loch_kernel_set_run(loch_kernel_set *set, const loch_strided *work, void *stream) __attribute__((weak));
extern void loch_kernel_set_destroy(loch_kernel_set *set) __attribute__((weak));
enum { KERNELS_NONE = 0x10c0de01, KERNELS_NO_MEMORY = 0x10c0de02 };

/* Filled once; all NULL without the library. */
static struct {
    int (*create)(void *library, loch_kernel_set **out);
    int (*run)(loch_kernel_set *set, const loch_strided *work, void *stream);
    void (*destroy)(loch_kernel_set *set);
} kernels;
static pthread_once_t kernels_once = PTHREAD_ONCE_INIT;

static void *kernels_open(void)
{
    Dl_info here;
    char path[1024];
    const char *slash = NULL;
    if (dladdr(&kernels_once, &here) && here.dli_fname) slash = strrchr(here.dli_fname, '/');
    void *library = NULL;
    if (slash && slash - here.dli_fname < 900) {
        const int length = (int)(slash - here.dli_fname);
        snprintf(path, sizeof path, "%.*s/" KERNELS_LIBRARY, length, here.dli_fname);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library ? library : dlopen(KERNELS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

static void kernels_load(void)
{
    void *create = (void *)(uintptr_t)loch_kernel_set_create, *run = (void *)(uintptr_t)loch_kernel_set_run;
    void *destroy = (void *)(uintptr_t)loch_kernel_set_destroy;
    void *library = create && run && destroy ? NULL : kernels_open();
    if (library) {
        create = dlsym(library, "loch_kernel_set_create");
        run = dlsym(library, "loch_kernel_set_run");
        destroy = dlsym(library, "loch_kernel_set_destroy");
    }
    if (!create || !run || !destroy) {
        LOCHI_LOG(INFO, "there is no " KERNELS_LIBRARY ": copies of tensors inside a GPU go through the host");
        return;
    }
    memcpy(&kernels.create, &create, sizeof create);
    memcpy(&kernels.run, &run, sizeof run);
    memcpy(&kernels.destroy, &destroy, sizeof destroy);
}

/* Returns the kernels of a device. Its context is current. Of two sets that two threads make at once, one stays. */
static int kernels_get(lochi_cuda_device *device, loch_kernel_set **out)
{
    *out = atomic_load_explicit(&device->kernels, memory_order_acquire);
    if (*out) return 0;
    pthread_once(&kernels_once, kernels_load);
    if (!kernels.create) return KERNELS_NONE;
    loch_kernel_set *made;
    const int result = kernels.create(lochi_cuda_library, &made);
    if (result != 0) return result;
    if (atomic_compare_exchange_strong_explicit(&device->kernels, out, made, memory_order_acq_rel,
                                                memory_order_acquire))
        *out = made;
    else
        kernels.destroy(made);
    return 0;
}

loch_status lochi_cuda_run_strided(void *self, const loch_strided *work, void *stream)
{
    lochi_cuda_device *device = self;
    lochi_cuda_frame frame;
    const cu_result entered = lochi_cuda_enter(device, LOCHI_CUDA_AS_IS, &frame);
    if (entered != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(entered, "cuCtxPushCurrent");
    loch_kernel_set *set;
    int result = kernels_get(device, &set);
    if (result == 0) result = kernels.run(set, work, stream);
    lochi_cuda_leave(&frame);
    if (result == 0) return LOCH_OK;
    if (result == KERNELS_NONE) return LOCH_E_UNSUPPORTED;
    if (result == KERNELS_NO_MEMORY) return LOCH_FAIL(HOST_MEMORY, "no host memory for a kernel");
    return lochi_cuda_fail((cu_result)result, "loading or launching a kernel");
}

void lochi_cuda_end_kernels(lochi_cuda_device *device)
{
    loch_kernel_set *set = atomic_load_explicit(&device->kernels, memory_order_acquire);
    if (!set || lochi_cuda_is_forked) return;
    lochi_cuda_frame frame;
    if (lochi_cuda_enter(device, LOCHI_CUDA_RELAXED, &frame) != LOCHI_CUDA_SUCCESS) return;
    kernels.destroy(set);
    lochi_cuda_leave(&frame);
}
