/* SPDX-License-Identifier: MIT */
/* An OpenCL device, by a driver outside the library: a pool, a tensor, copies on a stream, and OpenCL's own handles for
 * kernels of your own. Says what is missing where there is no OpenCL.
 *
 *   37_opencl [DEVICE]     opencl:0, opencl:1, ... (default: opencl:0) */
#include <loch/loch.h>
#include <loch/opencl.h>
#include <loch/tensor.h>
#include <stdio.h>

#define COUNT 1000

/* Works in a context that the program made itself; here it is that of `device`. */
static int in_own_context(const loch_opencl_handles *handles)
{
    LOCH_AUTO(device) device = NULL;
    loch_opencl_handles own = {.size = sizeof own};
    LOCH_CHECK(loch_opencl_open(handles->context, handles->device_id, &device));
    LOCH_CHECK(loch_opencl_get_handles(device, &own));
    printf("%s is a device in the program's context\n", loch_device_get_name(device));
    return own.context == handles->context && own.queue != handles->queue ? 0 : 1;
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "opencl:0";
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(allocator) pool = NULL;
    LOCH_AUTO(tensor) tensor = NULL;
    LOCH_AUTO(stream) stream = NULL;
    loch_device_properties properties = {.size = sizeof properties};
    loch_opencl_handles handles = {.size = sizeof handles};
    float back[COUNT] = {0};
    void *address;

    LOCH_CHECK(loch_opencl_register());
    if (loch_device_open(name, &device) != LOCH_OK) {
        printf("%s cannot be opened: %s\n", name, loch_error_get()->sentence);
        return 0;
    }
    LOCH_CHECK(loch_device_get_properties(device, &properties));
    printf("%s is %s, %zu MiB\n", name, properties.model, properties.total_bytes >> 20);

    LOCH_CHECK(loch_pool_create(device, "pool", NULL, &pool));
    LOCH_CHECK(loch_stream_create(device, NULL, &stream));
    const loch_tensor_options options = {.size = sizeof options, .allocator = pool, .stream = stream};
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(COUNT), &options, &tensor));
    LOCH_CHECK(loch_tensor_fill(tensor, loch_scalar_of(0.5), stream));
    LOCH_CHECK(loch_tensor_get_address(tensor, &address));

    /* A kernel of the program's own would be queued here: clSetKernelArgSVMPointer with the tensor's address, then
     * clEnqueueNDRangeKernel and clFlush on this queue. */
    LOCH_CHECK(loch_opencl_get_handles(device, &handles));
    printf("the stream %s a queue of OpenCL\n", loch_stream_get_native(stream) ? "has" : "has not");

    LOCH_CHECK(loch_copy_on(back, address, sizeof back, stream));
    LOCH_CHECK(loch_stream_sync(stream));
    printf("the last number is %g\n", (double)back[COUNT - 1]);
    return in_own_context(&handles) || back[COUNT - 1] != 0.5f;
}
