/* SPDX-License-Identifier: MIT */
/* Loads modules, and finds and describes their functions. */
#include "module.h"
#include "image.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include "kit/sized.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_BYTES 8192
#define NO_OPTIN_BYTES ((size_t)48 << 10)

/* --- the compiler's log --- */

/* Copies the first line of a log that reports an error, or else its first line, on one line for a sentence. */
static void log_summarise(const char *log, char *out, size_t bytes)
{
    const char *from = strstr(log, "error");
    while (from && from > log && from[-1] != '\n')
        from--;
    if (!from) from = log;
    while (isspace((unsigned char)*from))
        from++;
    size_t length = 0;
    for (; *from && *from != '\n' && length + 1 < bytes; from++)
        if (!isspace((unsigned char)*from) || (length && out[length - 1] != ' '))
            out[length++] = isspace((unsigned char)*from) ? ' ' : *from;
    out[length] = 0;
}

/* --- loading --- */

static loch_status module_refuse(const loch_module *module, cu_result result, const char *log, unsigned architecture,
                                 const loch_device_properties *properties)
{
    char summary[160];
    loch_status status = lochi_kernel_fail(result, "cuModuleLoadDataEx");
    const loch_error error = *loch_error_get();
    log_summarise(log, summary, sizeof summary);
    if (architecture > 10U * (unsigned)properties->compute_major + (unsigned)properties->compute_minor)
        status = LOCH_E_UNSUPPORTED; /* the compiler reports it as invalid PTX */
    if (status == LOCH_E_UNSUPPORTED && architecture)
        return loch_error_set(status, "cuda", result, "%s is for sm_%u, the device is sm_%d%d, the driver CUDA %s: %s",
                              module->name, architecture, properties->compute_major, properties->compute_minor,
                              properties->driver_version, *summary ? summary : error.sentence);
    return loch_error_set(status, "cuda", result, "%s: %s", module->name, *summary ? summary : error.sentence);
}

static loch_status module_load(loch_module *module, const void *image, size_t bytes, lochi_image_kind kind,
                               const loch_module_options *options)
{
    loch_device_properties properties = {.size = sizeof properties};
    LOCH_RETURN(loch_device_get_properties(module->device, &properties));
    module->compute_major = properties.compute_major;
    char *log = calloc(1, LOG_BYTES + bytes + 1); /* the log, and a copy of the image with a final zero */
    if (!log) return LOCH_FAIL(HOST_MEMORY, "no host memory to load %s", module->name);
    memcpy(log + LOG_BYTES, image, bytes);
    lochi_kernel_frame frame;
    loch_status status = lochi_kernel_enter(module->device, LOCHI_KERNEL_RELAXED, &frame);
    if (status == LOCH_OK) {
        int names[] = {LOCHI_CU_JIT_ERROR_LOG_BUFFER, LOCHI_CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {log, (void *)(uintptr_t)(LOG_BYTES - 1)};
        const cu_result result =
            lochi_kernel_cuda.cuModuleLoadDataEx(&module->native, log + LOG_BYTES, 2, names, values);
        log[LOG_BYTES - 1] = 0;
        if (result != LOCHI_CUDA_SUCCESS) {
            module->native = NULL;
            status =
                module_refuse(module, result, log, lochi_kernel_image_architecture(image, bytes, kind), &properties);
        }
        if (lochi_kernel_cuda.cuCtxGetCurrent(&module->context) != LOCHI_CUDA_SUCCESS) module->context = NULL;
        int value = 0, device = 0;
        if (lochi_kernel_cuda.cuCtxGetDevice(&device) == LOCHI_CUDA_SUCCESS &&
            lochi_kernel_cuda.cuDeviceGetAttribute(&value, LOCHI_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                                   device) == LOCHI_CUDA_SUCCESS)
            module->shared_max_bytes = (size_t)value;
        lochi_kernel_leave(&frame);
        if (options->log && options->log_bytes) snprintf(options->log, options->log_bytes, "%s", log);
    }
    free(log);
    return status;
}

loch_status loch_module_create(loch_device *device, const void *image, size_t bytes, const loch_module_options *options,
                               loch_module **out)
{
    loch_module_options given = {.size = sizeof given};
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for a module is NULL");
    *out = NULL;
    LOCH_RETURN(lochi_sized_read("the options of a module", options, &given, sizeof given));
    if (given.log && given.log_bytes) *given.log = 0;
    lochi_image_kind kind;
    LOCHI_NOT_CANCELLED;
    LOCH_RETURN(lochi_kernel_image_check(image, bytes, &kind));
    LOCH_RETURN(lochi_kernel_load(device));
    loch_module *module = calloc(1, sizeof *module);
    if (!module) return LOCH_FAIL(HOST_MEMORY, "no host memory for a module");
    pthread_mutex_init(&module->lock, NULL);
    module->device = loch_device_retain(device);
    module->shared_max_bytes = NO_OPTIN_BYTES;
    snprintf(module->name, sizeof module->name, "%s", given.name ? given.name : "module");
    const loch_status status = module_load(module, image, bytes, kind, &given);
    if (status == LOCH_OK)
        *out = module;
    else
        loch_module_destroy(module);
    return status;
}

/* Keeps the error record. */
void loch_module_destroy(loch_module *module)
{
    if (!module) return;
    LOCHI_NOT_CANCELLED;
    const loch_error saved = *loch_error_get();
    lochi_kernel_frame frame;
    if (module->native && lochi_kernel_enter(module->device, LOCHI_KERNEL_RELAXED, &frame) == LOCH_OK) {
        lochi_kernel_cuda.cuModuleUnload(module->native);
        lochi_kernel_leave(&frame);
    }
    while (module->kernels) {
        loch_kernel *next = module->kernels->next;
        free(module->kernels);
        module->kernels = next;
    }
    loch_device_release(module->device);
    pthread_mutex_destroy(&module->lock);
    free(module);
    if (saved.status != LOCH_OK) loch_error_set(saved.status, saved.driver, saved.driver_code, "%s", saved.sentence);
}

/* --- finding --- */

static size_t kernel_attribute(const loch_kernel *kernel, int attribute, cu_result *failure)
{
    int value = 0;
    const cu_result result = lochi_kernel_cuda.cuFuncGetAttribute(&value, attribute, kernel->native);
    if (result != LOCHI_CUDA_SUCCESS) *failure = result;
    return value > 0 ? (size_t)value : 0;
}

/* Reads the sizes of the parameters: the driver refuses the first index beyond the last parameter. */
static void kernel_read_parameters(loch_kernel *kernel)
{
    size_t count = 0, offset, bytes;
    kernel->arguments = -1;
    if (!lochi_kernel_cuda.cuFuncGetParamInfo) return;
    while (count < LOCH_ARGUMENTS_MAX &&
           lochi_kernel_cuda.cuFuncGetParamInfo(kernel->native, count, &offset, &bytes) == LOCHI_CUDA_SUCCESS)
        kernel->parameter_bytes[count++] = (uint16_t)bytes;
    kernel->arguments = (int)count;
}

/* Reads what the driver knows about a function. The context is current. */
static loch_status kernel_read(loch_kernel *kernel)
{
    cu_result result = lochi_kernel_cuda.cuModuleGetFunction(&kernel->native, kernel->module->native, kernel->name);
    if (result == LOCHI_CUDA_ERROR_NOT_FOUND)
        return loch_error_set(LOCH_E_NOT_FOUND, "cuda", result,
                              "%s has no function \"%.120s\": is it extern \"C\" __global__?", kernel->module->name,
                              kernel->name);
    if (result != LOCHI_CUDA_SUCCESS) return lochi_kernel_fail(result, "cuModuleGetFunction");
    kernel->threads_max = (uint32_t)kernel_attribute(kernel, LOCHI_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &result);
    kernel->registers = (uint32_t)kernel_attribute(kernel, LOCHI_CU_FUNC_ATTRIBUTE_NUM_REGS, &result);
    kernel->static_bytes = kernel_attribute(kernel, LOCHI_CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &result);
    kernel->local_bytes = kernel_attribute(kernel, LOCHI_CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &result);
    atomic_init(&kernel->shared_bytes,
                kernel_attribute(kernel, LOCHI_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &result));
    if (result != LOCHI_CUDA_SUCCESS) return lochi_kernel_fail(result, "cuFuncGetAttribute");
    kernel_read_parameters(kernel);
    return LOCH_OK;
}

/* Finds a function that was not found before. Lock held, and the context is current. */
static loch_status module_add(loch_module *module, const char *name, loch_kernel **out)
{
    const size_t length = strlen(name) + 1;
    loch_kernel *kernel = calloc(1, sizeof *kernel + length);
    if (!kernel) return LOCH_FAIL(HOST_MEMORY, "no host memory for a kernel");
    kernel->module = module;
    memcpy(kernel->name, name, length);
    const loch_status status = kernel_read(kernel);
    if (status != LOCH_OK) {
        free(kernel);
        return status;
    }
    kernel->next = module->kernels;
    *out = module->kernels = kernel;
    return LOCH_OK;
}

loch_status loch_module_find(loch_module *module, const char *name, loch_kernel **out)
{
    if (out) *out = NULL;
    if (!module || !name || !*name || !out)
        return LOCH_FAIL(INVALID, "finding a kernel needs a module, a name and an out pointer");
    LOCHI_NOT_CANCELLED;
    lochi_kernel_frame frame; /* before the lock: after a fork, no thread may be there to drop it */
    LOCH_RETURN(lochi_kernel_enter(module->device, LOCHI_KERNEL_RELAXED, &frame));
    pthread_mutex_lock(&module->lock);
    loch_status status = LOCH_OK;
    loch_kernel *kernel = module->kernels;
    while (kernel && strcmp(kernel->name, name) != 0)
        kernel = kernel->next;
    if (!kernel) status = module_add(module, name, &kernel);
    pthread_mutex_unlock(&module->lock);
    lochi_kernel_leave(&frame);
    *out = kernel;
    return status;
}

loch_status loch_kernel_get_info(const loch_kernel *kernel, loch_kernel_info *out)
{
    if (!kernel || !out || out->size < sizeof out->size)
        return LOCH_FAIL(INVALID, "information on a kernel needs a kernel and a struct with size");
    const size_t size = out->size < sizeof *out ? out->size : sizeof *out;
    loch_kernel_info info = {.size = sizeof info};
    memcpy(&info, out, size);
    const uint32_t threads = size == sizeof info ? info.block_threads : 0;
    const size_t room = kernel->module->shared_max_bytes;
    info = (loch_kernel_info){.size = out->size,
                              .name = kernel->name,
                              .arguments = kernel->arguments,
                              .threads_max = kernel->threads_max,
                              .registers = kernel->registers,
                              .shared_bytes = kernel->static_bytes,
                              .shared_max_bytes = room > kernel->static_bytes ? room - kernel->static_bytes : 0,
                              .local_bytes = kernel->local_bytes,
                              .block_threads = threads};
    if (threads) {
        LOCHI_NOT_CANCELLED;
        lochi_kernel_frame frame;
        int blocks = 0;
        LOCH_RETURN(lochi_kernel_enter(kernel->module->device, LOCHI_KERNEL_RELAXED, &frame));
        const cu_result result =
            lochi_kernel_cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel->native, (int)threads, 0);
        lochi_kernel_leave(&frame);
        if (result != LOCHI_CUDA_SUCCESS)
            return lochi_kernel_fail(result, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
        info.blocks = (uint32_t)blocks;
    }
    memcpy(out, &info, size);
    return LOCH_OK;
}
