/* SPDX-License-Identifier: MIT */
/* Sets of Loch's own kernels: found by a number in a table of lists, compiled on first use.
 *
 * Lists only grow, at their heads: a thread that looks needs no lock. The lock is held while a kernel is compiled, so
 * that it is compiled once. A kernel that the driver cannot compile stays in its list without a function, so that the
 * next call goes another way at once. */
#include "plan.h"
#include <dlfcn.h>
#include <loch/kernel_set.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SET_LISTS = 128, SET_CAPTURE_RELAXED = 2, SET_COMPUTE_MAJOR = 75 };

/* Results of the driver that mean that it cannot compile the text: an old driver, or none of the compiler. */
enum {
    SET_NO_BINARY = 209,
    SET_INVALID_PTX = 218,
    SET_NO_COMPILER = 221,
    SET_UNSUPPORTED_PTX_VERSION = 222,
    SET_COMPILATION_DISABLED = 223
};

typedef struct set_kernel {
    struct set_kernel *next;
    uint32_t key;
    void *module, *function; /* NULL: the driver cannot compile it */
} set_kernel;

struct loch_kernel_set {
    int (*cuModuleLoadData)(void **module, const void *image);
    int (*cuModuleUnload)(void *module);
    int (*cuModuleGetFunction)(void **function, void *module, const char *name);
    int (*cuFuncGetAttribute)(int *value, int attribute, void *function);
    int (*cuLaunchKernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters,
                          void **extra);
    int (*cuThreadExchangeStreamCaptureMode)(int *mode);
    int (*cuCtxGetDevice)(int *device);
    int (*cuDeviceGetAttribute)(int *value, int attribute, int device);
    int compute_major;    /* of the device; 0 if it cannot be read */
    pthread_mutex_t lock; /* held by the thread that adds a kernel */
    /* Heads of the lists. Stored with release when the kernel is complete, loaded with acquire. */
    _Atomic(set_kernel *) lists[SET_LISTS];
};

int loch_kernel_set_create(void *library, loch_kernel_set **out)
{
    *out = NULL;
    loch_kernel_set *set = calloc(1, sizeof *set);
    if (!set) return LOCH_KERNEL_SET_NO_MEMORY;
    const struct {
        const char *symbol;
        void *to;
    } symbols[] = {
        {"cuModuleLoadData", &set->cuModuleLoadData},
        {"cuModuleUnload", &set->cuModuleUnload},
        {"cuModuleGetFunction", &set->cuModuleGetFunction},
        {"cuFuncGetAttribute", &set->cuFuncGetAttribute},
        {"cuLaunchKernel", &set->cuLaunchKernel},
        {"cuThreadExchangeStreamCaptureMode", &set->cuThreadExchangeStreamCaptureMode},
        {"cuCtxGetDevice", &set->cuCtxGetDevice},
        {"cuDeviceGetAttribute", &set->cuDeviceGetAttribute},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].symbol);
        if (!address) {
            free(set);
            return LOCH_KERNEL_SET_NONE;
        }
        memcpy(symbols[i].to, &address, sizeof address);
    }
    int device;
    if (set->cuCtxGetDevice(&device) != 0 ||
        set->cuDeviceGetAttribute(&set->compute_major, SET_COMPUTE_MAJOR, device) != 0)
        set->compute_major = 0;
    pthread_mutex_init(&set->lock, NULL);
    *out = set;
    return 0;
}

static bool set_is_refusal(int result)
{
    return result == SET_NO_BINARY || result == SET_INVALID_PTX || result == SET_NO_COMPILER ||
           result == SET_UNSUPPORTED_PTX_VERSION || result == SET_COMPILATION_DISABLED;
}

/* Loads a text, and its function with it: a driver that loads lazily would load the function at the first launch, which
 * may be captured. The thread's capture mode is relaxed meanwhile, because loading is no part of a capture. */
static int set_load(const loch_kernel_set *set, const char *text, const char *name, set_kernel *out)
{
    int mode = SET_CAPTURE_RELAXED, unused;
    const bool is_relaxed = set->cuThreadExchangeStreamCaptureMode(&mode) == 0;
    int result = set->cuModuleLoadData(&out->module, text);
    if (result != 0) out->module = NULL;
    if (result == 0) result = set->cuModuleGetFunction(&out->function, out->module, name);
    if (result == 0) result = set->cuFuncGetAttribute(&unused, 0, out->function);
    if (result != 0 && out->module) {
        set->cuModuleUnload(out->module);
        out->module = out->function = NULL;
    }
    if (is_relaxed) set->cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

static set_kernel *set_look(const loch_kernel_set *set, uint32_t key, unsigned list)
{
    set_kernel *kernel = atomic_load_explicit(&set->lists[list], memory_order_acquire);
    while (kernel && kernel->key != key)
        kernel = kernel->next;
    return kernel;
}

/* Compiles the kernel of a plan, and adds it. The lock is held. */
static int set_add(loch_kernel_set *set, const lochi_plan *plan, uint32_t key, unsigned list, set_kernel **out)
{
    char name[32];
    const lochi_text_file file = lochi_kernel_plan_name(plan, set->compute_major, name);
    const lochi_text_types types = {plan->from, plan->to, plan->from_bytes, plan->to_bytes};
    char *text = lochi_kernel_text_make(file, name, &types);
    set_kernel *kernel = calloc(1, sizeof *kernel);
    int result = text && kernel ? set_load(set, text, name, kernel) : LOCH_KERNEL_SET_NO_MEMORY;
    free(text);
    if (result != 0 && !set_is_refusal(result)) {
        free(kernel);
        return result;
    }
    kernel->key = key;
    kernel->next = atomic_load_explicit(&set->lists[list], memory_order_relaxed);
    atomic_store_explicit(&set->lists[list], kernel, memory_order_release);
    *out = kernel;
    return 0;
}

/* Finds the kernel of a plan, or compiles it. */
static int set_find(loch_kernel_set *set, const lochi_plan *plan, set_kernel **out)
{
    const uint32_t key = lochi_kernel_plan_key(plan);
    const unsigned list = key * 0x9e3779b1u >> 25;
    *out = set_look(set, key, list);
    if (*out) return 0;
    int result = 0;
    pthread_mutex_lock(&set->lock);
    *out = set_look(set, key, list);
    if (!*out) result = set_add(set, plan, key, list, out);
    pthread_mutex_unlock(&set->lock);
    return result;
}

int loch_kernel_set_run(loch_kernel_set *set, const loch_strided *work, void *stream)
{
    lochi_plan plan;
    size_t done = 0;
    do {
        set_kernel *kernel;
        if (!lochi_kernel_plan_make(work, &done, &plan)) return LOCH_KERNEL_SET_NONE;
        int result = set_find(set, &plan, &kernel);
        if (result != 0) return result;
        if (!kernel->function) return LOCH_KERNEL_SET_NONE;
        void *parameters[] = {&plan.job};
        result =
            set->cuLaunchKernel(kernel->function, plan.blocks, 1, 1, KERNEL_BLOCK, 1, 1, 0, stream, parameters, NULL);
        if (result != 0) return result;
    } while (!plan.is_last);
    return 0;
}

void loch_kernel_set_destroy(loch_kernel_set *set)
{
    if (!set) return;
    int mode = SET_CAPTURE_RELAXED;
    const bool is_relaxed = set->cuThreadExchangeStreamCaptureMode(&mode) == 0;
    for (size_t i = 0; i < SET_LISTS; i++)
        for (set_kernel *kernel = atomic_load_explicit(&set->lists[i], memory_order_acquire), *next; kernel;
             kernel = next) {
            next = kernel->next;
            if (kernel->module) set->cuModuleUnload(kernel->module);
            free(kernel);
        }
    if (is_relaxed) set->cuThreadExchangeStreamCaptureMode(&mode);
    pthread_mutex_destroy(&set->lock);
    free(set);
}
