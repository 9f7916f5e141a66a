/* SPDX-License-Identifier: MIT */
/* The table of the driver, and the public functions. */
#include "adopted.h"
#include "calls.h"
#include "copy.h"
#include "device.h"
#include "event.h"
#include "memory.h"
#include "stream.h"
#include <loch/opencl.h>
#include <stdio.h>
#include <string.h>

static const loch_driver opencl_driver = {
    .size = sizeof opencl_driver,
    .name = "opencl",
    .summary = "OpenCL devices with shared virtual memory",
    .enumerate = lochi_opencl_enumerate,
    .open = lochi_opencl_open,
    .close = lochi_opencl_close,
    .get_properties = lochi_opencl_get_properties,
    .memory_info = lochi_opencl_memory_info,
    .raw_alloc = lochi_opencl_raw_alloc,
    .raw_free = lochi_opencl_raw_free,
    .pinned_alloc = lochi_opencl_pinned_alloc,
    .pinned_free = lochi_opencl_pinned_free,
    .copy = lochi_opencl_copy,
    .copy_pitched = lochi_opencl_copy_pitched,
    .fill = lochi_opencl_fill,
    .stream_create = lochi_opencl_stream_create,
    .stream_destroy = lochi_opencl_stream_destroy,
    .stream_thread_default = lochi_opencl_stream_thread_default,
    .stream_wrap = lochi_opencl_stream_wrap,
    .stream_unwrap = lochi_opencl_stream_unwrap,
    .stream_native = lochi_opencl_stream_native,
    .stream_query = lochi_opencl_stream_query,
    .stream_sync = lochi_opencl_stream_sync,
    .stream_wait = lochi_opencl_stream_wait,
    .stream_call = lochi_opencl_stream_call,
    .event_create = lochi_opencl_event_create,
    .event_destroy = lochi_opencl_event_destroy,
    .event_record = lochi_opencl_event_record,
    .event_query = lochi_opencl_event_query,
    .event_sync = lochi_opencl_event_sync,
    .event_elapsed = lochi_opencl_event_elapsed,
    .device_sync = lochi_opencl_device_sync,
};

static bool opencl_is_registered(void)
{
    const loch_driver *found = loch_driver_find(opencl_driver.name);
    return found && found->open == opencl_driver.open;
}

loch_status loch_opencl_register(void)
{
    if (opencl_is_registered()) return LOCH_OK;
    const loch_status status = loch_driver_register(&opencl_driver);
    if (status != LOCH_E_EXISTS || !opencl_is_registered()) return status;
    loch_error_clear(); /* another thread was first */
    return LOCH_OK;
}

loch_status loch_opencl_open(void *context, void *device_id, loch_device **out)
{
    if (out) *out = NULL;
    if (!context || !device_id || !out)
        return loch_error_set(LOCH_E_INVALID, "opencl", 0,
                              "loch_opencl_open needs a context, a device and an out pointer");
    LOCH_RETURN(loch_opencl_register());
    LOCH_RETURN(lochi_opencl_load());
    lochi_opencl_adopted *adopted;
    LOCH_RETURN(lochi_opencl_adopt(context, device_id, &adopted));
    char name[64];
    snprintf(name, sizeof name, "opencl:context%u", adopted->number);
    const loch_status status = loch_device_open(name, out);
    lochi_opencl_adopted_release(adopted);
    return status;
}

loch_status loch_opencl_get_handles(const loch_device *device, loch_opencl_handles *out)
{
    if (!out || out->size < sizeof out->size)
        return loch_error_set(LOCH_E_INVALID, "opencl", 0, "handles need a struct whose size is set");
    void *self = NULL;
    const loch_driver *driver = loch_device_get_driver(device, &self);
    if (!driver || driver->open != opencl_driver.open) {
        const bool is_forked = driver && !strncmp(loch_device_get_name(device), "opencl:", 7);
        return loch_error_set(is_forked ? LOCH_E_FORKED : LOCH_E_INVALID, "opencl", 0,
                              is_forked ? "the device was opened before a fork" : "the device is not an OpenCL device");
    }
    lochi_opencl_device *opened = self;
    const loch_opencl_handles handles = {.size = out->size,
                                         .platform = opened->platform,
                                         .device_id = opened->id,
                                         .context = opened->context,
                                         .queue = lochi_opencl_stream_native(opened, NULL)};
    memcpy(out, &handles, out->size < sizeof handles ? out->size : sizeof handles);
    return LOCH_OK;
}
