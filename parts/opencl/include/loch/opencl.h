/* SPDX-License-Identifier: MIT */
/** @file opencl.h
 *  OpenCL devices, by a driver outside the library: libloch_opencl.so.
 *
 *      LOCH_CHECK(loch_opencl_register());
 *      LOCH_CHECK(loch_device_open("opencl:0", &device));
 *
 *  "opencl:N" is device N of all platforms together, as `clinfo -l` lists them. OpenCL itself is found when the first
 *  device is opened: libOpenCL.so.1, the loader that the system installs with any OpenCL driver. No OpenCL header is
 *  needed; handles of OpenCL (cl_context and so on) are `void *` here.
 *
 *  Memory is shared virtual memory of OpenCL 2.0 or later: a block has one address, on which kernels work
 *  (clSetKernelArgSVMPointer). A stream is a command queue that works in order. For kernels of your own, take the
 *  queue of a stream from loch_stream_get_native, or that of the default stream from loch_opencl_get_handles, and give
 *  Loch a queue of your own by loch_stream_wrap. Call clFlush after the last kernel that other streams wait for.
 */
#ifndef LOCH_OPENCL_H
#define LOCH_OPENCL_H

#include <loch/device.h>

LOCH_BEGIN_DECLS

/** Registers the driver "opencl" until the process ends. A second call does nothing and succeeds. Does not load OpenCL:
 *  a machine without it fails when a device is opened. E_EXISTS: another driver has the name. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_opencl_register(void);

/** Opens a device in a context of the caller, so that memory of Loch is memory of that context. Registers the driver
 *  if that was not done. `device_id` is a device or sub-device of `context`. Both are retained until the device is
 *  closed. One pair gives one device. E_INVALID: a handle is NULL, or the device is not in the context. E_UNSUPPORTED:
 *  the device has no shared virtual memory. Any thread.
 *  @param context    a cl_context
 *  @param device_id  a cl_device_id
 *  @param out        the caller's reference; give it back with loch_device_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_opencl_open(void *context, void *device_id, loch_device **out);

/** OpenCL's own handles of a device. Borrowed from the device. */
typedef struct loch_opencl_handles {
    size_t size;     /**< set by the caller to sizeof(loch_opencl_handles) */
    void *platform;  /**< cl_platform_id */
    void *device_id; /**< cl_device_id */
    void *context;   /**< cl_context */
    void *queue;     /**< cl_command_queue of the default stream */
} loch_opencl_handles;

/** Copies OpenCL's own handles of a device to `out`. Set `out->size` before the call; members beyond that size are not
 *  written. E_INVALID: the device is NULL or of another driver, or the size is not set. E_FORKED: the device was opened
 *  before a fork. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_opencl_get_handles(const loch_device *device, loch_opencl_handles *out);

LOCH_END_DECLS

#endif
