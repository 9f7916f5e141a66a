/* SPDX-License-Identifier: MIT */
/* Finding, opening and closing of OpenCL devices, and their properties.
 *
 * "opencl:N" is device N, counted over all devices of all platforms in the order of OpenCL; the device gets a context
 * of its own. "opencl:contextN" is a device in a context of the caller (adopted.h). */
#include "device.h"
#include "adopted.h"
#include "calls.h"
#include "memory.h"
#include "stream.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_PLATFORMS_MAX 64
#define DEVICE_DEVICES_MAX 256

/* --- finding --- */

typedef struct device_place {
    cl_platform platform;
    cl_device id;
} device_place;

/* Lists all devices of all platforms. A platform without devices, or one that fails, has none. */
static loch_status device_list(device_place places[DEVICE_DEVICES_MAX], cl_number *count)
{
    cl_platform platforms[DEVICE_PLATFORMS_MAX];
    cl_number platform_count = 0;
    *count = 0;
    LOCH_RETURN(lochi_opencl_load());
    const cl_result result = lochi_opencl.clGetPlatformIDs(DEVICE_PLATFORMS_MAX, platforms, &platform_count);
    if (result != LOCHI_CL_SUCCESS || !platform_count)
        return loch_error_set(LOCH_E_NOT_FOUND, "opencl", result,
                              "OpenCL finds no platform: install a driver for the device (see clinfo -l)");
    for (cl_number i = 0; i < platform_count && i < DEVICE_PLATFORMS_MAX; i++) {
        cl_device devices[DEVICE_DEVICES_MAX];
        cl_number found = 0;
        const cl_number room = DEVICE_DEVICES_MAX - *count;
        if (!room || lochi_opencl.clGetDeviceIDs(platforms[i], LOCHI_CL_DEVICE_TYPE_ALL, room, devices, &found) !=
                         LOCHI_CL_SUCCESS)
            continue;
        for (cl_number k = 0; k < found && k < room; k++)
            places[(*count)++] = (device_place){platforms[i], devices[k]};
    }
    return LOCH_OK;
}

/* Reads the kinds of shared virtual memory. Devices older than OpenCL 2.0 do not know the question: 0. */
static cl_bits device_svm(cl_device id)
{
    cl_bits kinds = 0;
    const cl_result result =
        lochi_opencl.clGetDeviceInfo(id, LOCHI_CL_DEVICE_SVM_CAPABILITIES, sizeof kinds, &kinds, NULL);
    return result == LOCHI_CL_SUCCESS ? kinds : 0;
}

/* Lists devices that can be opened. A machine without OpenCL has none, which is not a failure. */
loch_status lochi_opencl_enumerate(loch_device_visitor *visitor, void *user)
{
    device_place places[DEVICE_DEVICES_MAX];
    cl_number count;
    const loch_error before = *loch_error_get();
    if (device_list(places, &count) != LOCH_OK) {
        loch_error_clear();
        if (before.status != LOCH_OK)
            (void)loch_error_set(before.status, before.driver, before.driver_code, "%s", before.sentence);
        return LOCH_OK;
    }
    for (cl_number i = 0; i < count; i++) {
        char arguments[16];
        if (!(device_svm(places[i].id) & LOCHI_CL_DEVICE_SVM_COARSE_GRAIN_BUFFER)) continue;
        snprintf(arguments, sizeof arguments, "%u", (unsigned)i);
        LOCH_RETURN(visitor(arguments, user));
    }
    return LOCH_OK;
}

/* Reads a number without sign and without leading zeros: one device has one name. */
static bool device_parse(const char *text, unsigned *out)
{
    const size_t length = strlen(text);
    if (!length || length > 6 || strspn(text, "0123456789") != length || (*text == '0' && length > 1)) return false;
    *out = (unsigned)strtoul(text, NULL, 10);
    return true;
}

static loch_status device_find(const char *arguments, device_place *out, int *index)
{
    device_place places[DEVICE_DEVICES_MAX];
    cl_number count;
    unsigned number = 0;
    if (*arguments && !device_parse(arguments, &number))
        return loch_error_set(LOCH_E_INVALID, "opencl", 0,
                              "\"opencl:%.40s\" is not an OpenCL device: they are named opencl:0, opencl:1, ...",
                              arguments);
    LOCH_RETURN(device_list(places, &count));
    if (!*arguments) /* Loch puts the first device that is listed there */
        return loch_error_set(LOCH_E_NOT_FOUND, "opencl", 0,
                              "none of the %u OpenCL devices has shared virtual memory (see clinfo)", (unsigned)count);
    if (number >= count)
        return loch_error_set(LOCH_E_NOT_FOUND, "opencl", 0,
                              "there is no opencl:%u: OpenCL has %u device%s (see clinfo -l)", number, (unsigned)count,
                              count == 1 ? ", opencl:0" : "s");
    *out = places[number];
    *index = (int)number;
    return LOCH_OK;
}

/* --- opening --- */

static loch_status device_make_context(lochi_opencl_device *device)
{
    const intptr_t properties[] = {LOCHI_CL_CONTEXT_PLATFORM, (intptr_t)device->platform, 0};
    cl_result result = LOCHI_CL_SUCCESS;
    device->context = lochi_opencl.clCreateContext(properties, 1, &device->id, NULL, NULL, &result);
    if (result == LOCHI_CL_SUCCESS) return LOCH_OK;
    device->context = NULL;
    return lochi_opencl_fail(result, "clCreateContext");
}

/* Returns the number of a device among all; 0 for a sub-device, which is not in the list. */
static int device_index(cl_device id)
{
    device_place places[DEVICE_DEVICES_MAX];
    cl_number count;
    if (device_list(places, &count) == LOCH_OK)
        for (cl_number i = 0; i < count; i++)
            if (places[i].id == id) return (int)i;
    return 0;
}

/* Takes over a context of the caller. The pair of handles is released with the device. */
static loch_status device_adopt(lochi_opencl_device *device, const char *number_text)
{
    unsigned number;
    LOCH_RETURN(lochi_opencl_load());
    if (device_parse(number_text, &number)) device->adopted = lochi_opencl_adopted_find(number);
    if (!device->adopted)
        return loch_error_set(LOCH_E_NOT_FOUND, "opencl", 0,
                              "there is no opencl:context%.40s: contexts are opened by loch_opencl_open", number_text);
    device->context = device->adopted->context;
    device->id = device->adopted->id;
    device->index = device_index(device->id);
    LOCHI_OPENCL_TRY(clGetDeviceInfo,
                     (device->id, LOCHI_CL_DEVICE_PLATFORM, sizeof device->platform, &device->platform, NULL));
    return LOCH_OK;
}

static loch_status device_attach(lochi_opencl_device *device, const char *arguments)
{
    static const char adopted[] = "context";
    if (!strncmp(arguments, adopted, sizeof adopted - 1)) return device_adopt(device, arguments + sizeof adopted - 1);
    device_place place = {0};
    LOCH_RETURN(device_find(arguments, &place, &device->index));
    device->platform = place.platform;
    device->id = place.id;
    return device_make_context(device);
}

static loch_status device_read(lochi_opencl_device *device)
{
    uint64_t total = 0, largest = 0;
    const cl_bits kinds = device_svm(device->id);
    if (!(kinds & LOCHI_CL_DEVICE_SVM_COARSE_GRAIN_BUFFER))
        return loch_error_set(LOCH_E_UNSUPPORTED, "opencl", 0,
                              "the device has no shared virtual memory (CL_DEVICE_SVM_CAPABILITIES), which Loch needs "
                              "for addresses");
    device->has_pinned = kinds & LOCHI_CL_DEVICE_SVM_FINE_GRAIN_BUFFER;
    LOCHI_OPENCL_TRY(clGetDeviceInfo, (device->id, LOCHI_CL_DEVICE_GLOBAL_MEM_SIZE, sizeof total, &total, NULL));
    LOCHI_OPENCL_TRY(clGetDeviceInfo, (device->id, LOCHI_CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof largest, &largest, NULL));
    device->total_bytes = (size_t)total;
    device->block_bytes_max = (size_t)largest;
    return LOCH_OK;
}

/* Also ends a device that was opened in part. */
void lochi_opencl_close(void *self)
{
    lochi_opencl_device *device = self;
    lochi_opencl_stream_close_default(device); /* waits for work of streams that have ended */
    lochi_opencl_calls_close(&device->calls);
    if (device->adopted)
        lochi_opencl_adopted_release(device->adopted);
    else if (device->context)
        lochi_opencl.clReleaseContext(device->context);
    pthread_mutex_destroy(&device->lock);
    free(device->pinned);
    free(device);
}

loch_status lochi_opencl_open(const char *arguments, void **self)
{
    lochi_opencl_device *device = calloc(1, sizeof *device);
    if (!device) return loch_error_set(LOCH_E_HOST_MEMORY, "opencl", 0, "no host memory for an OpenCL device");
    pthread_mutex_init(&device->lock, NULL);
    atomic_init(&device->used_bytes, 0);
    lochi_opencl_calls_open(&device->calls);
    loch_status status = device_attach(device, arguments);
    if (status == LOCH_OK) status = device_read(device);
    if (status == LOCH_OK) status = lochi_opencl_stream_open_default(device);
    if (status != LOCH_OK) {
        lochi_opencl_close(device); /* writes no error record */
        return status;
    }
    *self = device;
    return LOCH_OK;
}

/* --- properties --- */

static size_t device_size(const lochi_opencl_device *device, cl_number what)
{
    uint64_t value = 0;
    return lochi_opencl.clGetDeviceInfo(device->id, what, sizeof value, &value, NULL) == LOCHI_CL_SUCCESS
               ? (size_t)value
               : 0;
}

/* Reads a text of any length and keeps what fits. */
static loch_status device_text(const lochi_opencl_device *device, cl_number what, char *out, size_t bytes)
{
    char text[1024] = "";
    LOCHI_OPENCL_TRY(clGetDeviceInfo, (device->id, what, sizeof text - 1, text, NULL));
    snprintf(out, bytes, "%s", text);
    return LOCH_OK;
}

loch_status lochi_opencl_get_properties(void *self, loch_device_properties *out)
{
    const lochi_opencl_device *device = self;
    cl_number units = 0;
    LOCH_RETURN(device_text(device, LOCHI_CL_DEVICE_NAME, out->model, sizeof out->model));
    LOCH_RETURN(device_text(device, LOCHI_CL_DRIVER_VERSION, out->driver_version, sizeof out->driver_version));
    LOCHI_OPENCL_TRY(clGetDeviceInfo, (device->id, LOCHI_CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL));
    out->capabilities = LOCH_CAN_ASYNC | LOCH_CAN_TIMING | (device->has_pinned ? LOCH_CAN_PINNED : 0);
    out->index = device->index;
    out->numa_node = -1;
    out->total_bytes = device->total_bytes;
    out->alignment_bytes = LOCHI_OPENCL_ALIGNMENT_BYTES;
    out->multiprocessors = (int)units;
    out->l2_bytes = device_size(device, LOCHI_CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
    out->shared_bytes = device_size(device, LOCHI_CL_DEVICE_LOCAL_MEM_SIZE);
    return LOCH_OK;
}
