/* SPDX-License-Identifier: MIT */
/* Launches. The arguments are checked and placed one by one; tensors are pinned, which costs a check of their range for
 * those that cannot move. After the launch each is unpinned, which records the use on the stream. */
#include "module.h"
#include "stream.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include "kit/sized.h"
#include <string.h>

#define GRID_MAX 65535u /* in the second and third direction */
#define CAST_BYTES 8

/* The parameters of one launch, as the driver takes them. */
typedef struct launch_parameters {
    void *places[LOCH_ARGUMENTS_MAX];
    union {
        void *address;
        unsigned char scalar[CAST_BYTES];
    } values[LOCH_ARGUMENTS_MAX];
} launch_parameters;

/* --- arguments --- */

static loch_status launch_refuse(const loch_kernel *kernel, size_t index, const char *what)
{
    return LOCH_FAIL(INVALID, "argument %zu of kernel %.80s %s", index, kernel->name, what);
}

static loch_status launch_place_tensor(const loch_kernel *kernel, size_t index, const loch_argument *argument,
                                       loch_stream *stream, void **out)
{
    loch_tensor *tensor = argument->value.tensor;
    if (!tensor) return launch_refuse(kernel, index, "is a tensor, and it is NULL");
    const loch_device *device = loch_tensor_get_device(tensor);
    if (device != kernel->module->device)
        return LOCH_FAIL(INVALID, "argument %zu of kernel %.80s is on %.40s, the kernel on %.40s", index, kernel->name,
                         device ? loch_device_get_name(device) : "the host",
                         loch_device_get_name(kernel->module->device));
    if (argument->kind == LOCH_ARGUMENT_WRITE && loch_tensor_get_access(tensor) == LOCH_READ_ONLY)
        return launch_refuse(kernel, index, "is written, and its tensor is read-only");
    loch_buffer *buffer = loch_tensor_get_buffer(tensor);
    void *unused;
    LOCH_RETURN(loch_buffer_pin(buffer, stream, &unused));
    const loch_status status = loch_tensor_get_address(tensor, out);
    if (status != LOCH_OK) {
        const loch_error error = *loch_error_get();
        const loch_status ended = loch_buffer_unpin(buffer, stream);
        (void)ended; /* the first failure is reported */
        return loch_error_set(status, error.driver, error.driver_code, "argument %zu of kernel %.60s: %.150s", index,
                              kernel->name, error.sentence);
    }
    return LOCH_OK;
}

/* Converts a scalar. The common types are written here; the others go through loch_scalar_store. */
static loch_status launch_place_scalar(const loch_argument *argument, void *to)
{
    const loch_scalar *scalar = &argument->value.scalar;
    if (scalar->dtype == LOCH_F64 && argument->dtype == LOCH_F32) {
        const float value = (float)scalar->value.f;
        memcpy(to, &value, sizeof value);
        return LOCH_OK;
    }
    if ((scalar->dtype == LOCH_I64 || scalar->dtype == LOCH_U64) &&
        (argument->dtype == LOCH_I32 || argument->dtype == LOCH_U32 || argument->dtype == LOCH_I64 ||
         argument->dtype == LOCH_U64)) {
        memcpy(to, &scalar->value.u, sizeof scalar->value.u); /* the low bits come first */
        return LOCH_OK;
    }
    return loch_scalar_store(*scalar, argument->dtype, to);
}

static loch_status launch_place(const loch_kernel *kernel, size_t index, const loch_argument *argument,
                                loch_stream *stream, launch_parameters *parameters)
{
    size_t bytes = sizeof(void *);
    parameters->places[index] = &parameters->values[index];
    switch (argument->kind) {
    case LOCH_ARGUMENT_READ:
    case LOCH_ARGUMENT_WRITE: break;
    case LOCH_ARGUMENT_SCALAR:
        bytes = loch_dtype_bytes(argument->dtype);
        LOCH_RETURN(launch_place_scalar(argument, &parameters->values[index]));
        break;
    case LOCH_ARGUMENT_ADDRESS: memcpy(&parameters->values[index], &argument->value.address, sizeof(void *)); break;
    case LOCH_ARGUMENT_BYTES:
        bytes = argument->bytes;
        if (!bytes || !argument->value.bytes) return launch_refuse(kernel, index, "is a struct without bytes");
        memcpy(&parameters->places[index], &argument->value.bytes, sizeof(void *)); /* the driver only reads it */
        break;
    default: return launch_refuse(kernel, index, "is of an unknown kind");
    }
    if (kernel->arguments >= 0 && bytes != kernel->parameter_bytes[index])
        return LOCH_FAIL(INVALID, "argument %zu of kernel %.80s has %zu bytes, its parameter %u", index, kernel->name,
                         bytes, (unsigned)kernel->parameter_bytes[index]);
    if (argument->kind == LOCH_ARGUMENT_READ || argument->kind == LOCH_ARGUMENT_WRITE) /* last: it pins */
        return launch_place_tensor(kernel, index, argument, stream, &parameters->values[index].address);
    return LOCH_OK;
}

/* Unpins the tensors of the first `count` arguments. Returns `status`, or the first failure if that is LOCH_OK. */
static loch_status launch_let_go(const loch_argument *arguments, size_t count, loch_stream *stream, loch_status status)
{
    loch_error error;
    error.status = status;
    if (status != LOCH_OK) error = *loch_error_get();
    for (size_t i = 0; i < count; i++) {
        const loch_argument *argument = &arguments[i];
        if (argument->kind != LOCH_ARGUMENT_READ && argument->kind != LOCH_ARGUMENT_WRITE) continue;
        loch_buffer *buffer = loch_tensor_get_buffer(argument->value.tensor);
        if (argument->kind == LOCH_ARGUMENT_WRITE) loch_buffer_touch(buffer);
        const loch_status ended = loch_buffer_unpin(buffer, stream);
        if (ended != LOCH_OK && error.status == LOCH_OK) error = *loch_error_get();
    }
    if (error.status == LOCH_OK) return LOCH_OK;
    return loch_error_set(error.status, error.driver, error.driver_code, "%s", error.sentence);
}

/* --- options --- */

static loch_status launch_read_options(const loch_kernel *kernel, const loch_launch_options *options,
                                       loch_launch_options *out)
{
    *out = (loch_launch_options){.size = sizeof *out};
    LOCH_RETURN(lochi_sized_read("the options of a launch", options, out, sizeof *out));
    for (size_t i = 0; i < 3; i++) {
        out->grid[i] += !out->grid[i];
        out->block[i] += !out->block[i];
    }
    if (out->flags & ~(uint32_t)(LOCH_LAUNCH_COOPERATIVE | LOCH_LAUNCH_EARLY))
        return LOCH_FAIL(INVALID, "a launch of %.80s has unknown flags", kernel->name);
    const uint64_t threads = (uint64_t)out->block[0] * out->block[1] * out->block[2];
    if (out->block[0] > 1024 || out->block[1] > 1024 || out->block[2] > 64 || threads > kernel->threads_max)
        return LOCH_FAIL(LIMIT, "blocks of %ux%ux%u threads: %.80s can have %u threads", out->block[0], out->block[1],
                         out->block[2], kernel->name, kernel->threads_max);
    if (out->grid[0] > INT32_MAX || out->grid[1] > GRID_MAX || out->grid[2] > GRID_MAX)
        return LOCH_FAIL(LIMIT, "a grid of %ux%ux%u blocks for %.80s: a device has %d, %u and %u", out->grid[0],
                         out->grid[1], out->grid[2], kernel->name, INT32_MAX, GRID_MAX, GRID_MAX);
    const size_t room = kernel->module->shared_max_bytes;
    if (out->shared_bytes > room || kernel->static_bytes > room - out->shared_bytes)
        return LOCH_FAIL(LIMIT, "%zu bytes of shared memory and %zu of its own for %.80s: a block has %zu KiB",
                         out->shared_bytes, kernel->static_bytes, kernel->name, room >> 10);
    return LOCH_OK;
}

/* Prepares a function for more dynamic shared memory than it may have now. The context is current. */
static loch_status launch_allow_shared(loch_kernel *kernel, size_t bytes)
{
    if (bytes <= atomic_load_explicit(&kernel->shared_bytes, memory_order_relaxed)) return LOCH_OK;
    pthread_mutex_lock(&kernel->module->lock);
    cu_result result = LOCHI_CUDA_SUCCESS;
    if (bytes > atomic_load_explicit(&kernel->shared_bytes, memory_order_relaxed)) {
        result = lochi_kernel_cuda.cuFuncSetAttribute(
            kernel->native, LOCHI_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
        if (result == LOCHI_CUDA_SUCCESS) atomic_store_explicit(&kernel->shared_bytes, bytes, memory_order_relaxed);
    }
    pthread_mutex_unlock(&kernel->module->lock);
    return result == LOCHI_CUDA_SUCCESS ? LOCH_OK : lochi_kernel_fail(result, "cuFuncSetAttribute");
}

/* --- the launch --- */

static cu_result launch_with_flags(const loch_kernel *kernel, const loch_launch_options *how, cu_queue queue,
                                   void **places)
{
    cu_launch_attribute attributes[2] = {{0}};
    cu_launch_config config = {.shared_bytes = (unsigned)how->shared_bytes, .stream = queue, .attributes = attributes};
    memcpy(config.grid, how->grid, sizeof config.grid);
    memcpy(config.block, how->block, sizeof config.block);
    if (how->flags & LOCH_LAUNCH_COOPERATIVE) {
        attributes[config.attributes_count].id = LOCHI_CU_LAUNCH_COOPERATIVE;
        attributes[config.attributes_count++].value.number = 1;
    }
    if (how->flags & LOCH_LAUNCH_EARLY && kernel->module->compute_major >= 9) {
        attributes[config.attributes_count].id = LOCHI_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[config.attributes_count++].value.number = 1;
    }
    return lochi_kernel_cuda.cuLaunchKernelEx(&config, kernel->native, places, NULL);
}

/* Queues the kernel. */
static loch_status launch_queue(loch_kernel *kernel, const loch_launch_options *how, loch_stream *stream, void **places)
{
    lochi_kernel_frame frame;
    LOCH_RETURN(lochi_kernel_enter(kernel->module->device, LOCHI_KERNEL_CAPTURED, &frame));
    loch_status status = launch_allow_shared(kernel, how->shared_bytes);
    if (status == LOCH_OK) {
        cu_queue queue = loch_stream_get_native(stream);
        const cu_result result =
            how->flags ? launch_with_flags(kernel, how, queue, places)
                       : lochi_kernel_cuda.cuLaunchKernel(kernel->native, how->grid[0], how->grid[1], how->grid[2],
                                                          how->block[0], how->block[1], how->block[2],
                                                          (unsigned)how->shared_bytes, queue, places, NULL);
        if (result != LOCHI_CUDA_SUCCESS) status = lochi_kernel_fail(result, "cuLaunchKernel");
    }
    if (frame.before != kernel->module->context) lochi_kernel_leave(&frame); /* otherwise nothing has changed */
    return status;
}

static loch_status launch_check(const loch_kernel *kernel, const loch_argument *arguments, size_t count,
                                loch_stream *stream)
{
    if (count && !arguments) return LOCH_FAIL(INVALID, "the arguments of a launch are NULL");
    if (count > LOCH_ARGUMENTS_MAX || (kernel->arguments >= 0 && count != (size_t)kernel->arguments))
        return LOCH_FAIL(INVALID, "kernel %.80s takes %d arguments, and %zu are given", kernel->name,
                         kernel->arguments >= 0 ? kernel->arguments : LOCH_ARGUMENTS_MAX, count);
    if (loch_stream_get_device(stream) != kernel->module->device)
        return LOCH_FAIL(INVALID, "kernel %.80s is on %.40s, its stream on %.40s", kernel->name,
                         loch_device_get_name(kernel->module->device),
                         loch_device_get_name(loch_stream_get_device(stream)));
    return lochi_kernel_check_stream(stream);
}

loch_status loch_kernel_launch(loch_kernel *kernel, const loch_argument *arguments, size_t count, loch_stream *stream,
                               const loch_launch_options *options)
{
    loch_launch_options how;
    launch_parameters parameters;
    if (!kernel) return LOCH_FAIL(INVALID, "the kernel to launch is NULL");
    loch_stream *used = stream ? stream : loch_stream_get_default(kernel->module->device);
    LOCH_RETURN(launch_check(kernel, arguments, count, used));
    LOCH_RETURN(launch_read_options(kernel, options, &how));
    if (how.flags && !lochi_kernel_cuda.cuLaunchKernelEx)
        return loch_error_set(LOCH_E_UNSUPPORTED, "cuda", 0, "flags of a launch need a driver for CUDA 11.8 or later");
    LOCHI_NOT_CANCELLED;
    loch_status status = LOCH_OK;
    size_t placed = 0;
    while (placed < count && status == LOCH_OK) {
        status = launch_place(kernel, placed, &arguments[placed], used, &parameters);
        placed += status == LOCH_OK;
    }
    if (status == LOCH_OK) status = launch_queue(kernel, &how, used, parameters.places);
    status = launch_let_go(arguments, placed, used, status);
    return status == LOCH_OK && !stream ? loch_stream_sync(used) : status;
}
