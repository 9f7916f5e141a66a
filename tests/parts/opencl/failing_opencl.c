/* SPDX-License-Identifier: MIT */
/* The functions of failing_opencl.h. */
#include "failing_opencl.h"

#include <stdatomic.h>
#include <stddef.h>

static lochi_opencl_api real;
static atomic_int failing_mode, failing_result, failing_work;
static _Atomic uint64_t failing_after, failing_calls;

/* Counts a call, and returns the error that it has to fail with; 0 for none. */
static cl_result strikes(void)
{
    const uint64_t number = atomic_fetch_add(&failing_calls, 1), after = atomic_load(&failing_after);
    const int mode = atomic_load(&failing_mode);
    const int is_struck =
        (mode == TEST_FAILING_ONCE && number == after) || (mode == TEST_FAILING_FOREVER && number >= after);
    return is_struck ? atomic_load(&failing_result) : 0;
}

/* One function whose result is a code: fails instead of the real call. */
#define FAILING(name, parameters, arguments)                                                                           \
    static cl_result failing_##name parameters                                                                         \
    {                                                                                                                  \
        const cl_result struck = strikes();                                                                            \
        return struck ? struck : real.name arguments;                                                                  \
    }

FAILING(clGetPlatformIDs, (cl_number count, cl_platform *platforms, cl_number *found), (count, platforms, found))
FAILING(clGetDeviceIDs, (cl_platform platform, cl_bits type, cl_number count, cl_device *devices, cl_number *found),
        (platform, type, count, devices, found))
FAILING(clGetDeviceInfo, (cl_device device, cl_number what, size_t bytes, void *value, size_t *length),
        (device, what, bytes, value, length))
FAILING(clGetCommandQueueInfo, (cl_queue queue, cl_number what, size_t bytes, void *value, size_t *length),
        (queue, what, bytes, value, length))
FAILING(clEnqueueSVMMemcpy,
        (cl_queue queue, cl_number is_blocking, void *to, const void *from, size_t bytes, cl_number count,
         const cl_mark *waits, cl_mark *event),
        (queue, is_blocking, to, from, bytes, count, waits, event))
FAILING(clEnqueueSVMMemFill,
        (cl_queue queue, void *to, const void *pattern, size_t pattern_bytes, size_t bytes, cl_number count,
         const cl_mark *waits, cl_mark *event),
        (queue, to, pattern, pattern_bytes, bytes, count, waits, event))
FAILING(clEnqueueMarkerWithWaitList, (cl_queue queue, cl_number count, const cl_mark *waits, cl_mark *event),
        (queue, count, waits, event))
FAILING(clEnqueueBarrierWithWaitList, (cl_queue queue, cl_number count, const cl_mark *waits, cl_mark *event),
        (queue, count, waits, event))
FAILING(clFlush, (cl_queue queue), (queue))
FAILING(clGetEventProfilingInfo, (cl_mark event, cl_number what, size_t bytes, void *value, size_t *length),
        (event, what, bytes, value, length))
FAILING(clSetEventCallback, (cl_mark event, cl_result status, cl_mark_notify *notify, void *user),
        (event, status, notify, user))

/* --- functions that make something, or that wait first --- */

static cl_context_of failing_clCreateContext(const intptr_t *properties, cl_number count, const cl_device *devices,
                                             cl_context_notify *notify, void *user, cl_result *result)
{
    *result = strikes();
    return *result ? NULL : real.clCreateContext(properties, count, devices, notify, user, result);
}

static cl_queue failing_clCreateCommandQueueWithProperties(cl_context_of context, cl_device device,
                                                           const cl_bits *properties, cl_result *result)
{
    *result = strikes();
    return *result ? NULL : real.clCreateCommandQueueWithProperties(context, device, properties, result);
}

static cl_mark failing_clCreateUserEvent(cl_context_of context, cl_result *result)
{
    *result = strikes();
    return *result ? NULL : real.clCreateUserEvent(context, result);
}

static void *failing_clSVMAlloc(cl_context_of context, cl_bits flags, size_t bytes, cl_number alignment)
{
    return strikes() ? NULL : real.clSVMAlloc(context, flags, bytes, alignment);
}

static cl_result failing_clFinish(cl_queue queue)
{
    const cl_result result = real.clFinish(queue), struck = strikes();
    return struck ? struck : result;
}

static cl_result failing_clWaitForEvents(cl_number count, const cl_mark *events)
{
    const cl_result result = real.clWaitForEvents(count, events), struck = strikes();
    if (struck) return struck;
    return atomic_load(&failing_work) ? LOCHI_CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : result;
}

static cl_result failing_clGetEventInfo(cl_mark event, cl_number what, size_t bytes, void *value, size_t *length)
{
    const cl_result struck = strikes(), work = atomic_load(&failing_work);
    if (struck) return struck;
    const cl_result result = real.clGetEventInfo(event, what, bytes, value, length);
    if (work && what == LOCHI_CL_EVENT_COMMAND_EXECUTION_STATUS && *(cl_result *)value == LOCHI_CL_COMPLETE)
        *(cl_result *)value = work;
    return result;
}

/* --- the table --- */

void failing_opencl_install(void)
{
    real = lochi_opencl;
#define REPLACE(name) lochi_opencl.name = failing_##name
    REPLACE(clGetPlatformIDs);
    REPLACE(clGetDeviceIDs);
    REPLACE(clGetDeviceInfo);
    REPLACE(clGetCommandQueueInfo);
    REPLACE(clEnqueueSVMMemcpy);
    REPLACE(clEnqueueSVMMemFill);
    REPLACE(clEnqueueMarkerWithWaitList);
    REPLACE(clEnqueueBarrierWithWaitList);
    REPLACE(clFlush);
    REPLACE(clGetEventProfilingInfo);
    REPLACE(clSetEventCallback);
    REPLACE(clCreateContext);
    REPLACE(clCreateCommandQueueWithProperties);
    REPLACE(clCreateUserEvent);
    REPLACE(clSVMAlloc);
    REPLACE(clFinish);
    REPLACE(clWaitForEvents);
    REPLACE(clGetEventInfo);
#undef REPLACE
    failing_opencl_set(TEST_FAILING_NEVER, 0, 0);
}

void failing_opencl_remove(void)
{
    lochi_opencl = real;
}

void failing_opencl_set(test_failing mode, uint64_t after, cl_result result)
{
    atomic_store(&failing_mode, TEST_FAILING_NEVER);
    atomic_store(&failing_result, result);
    atomic_store(&failing_after, after);
    atomic_store(&failing_calls, 0);
    atomic_store(&failing_mode, mode);
}

uint64_t failing_opencl_count(void)
{
    return atomic_load(&failing_calls);
}

void failing_opencl_set_work(cl_result result)
{
    atomic_store(&failing_work, result);
}
