/* SPDX-License-Identifier: MIT */
/* What the tests of the OpenCL driver share: the functions of OpenCL that a program with kernels calls, a kernel, gates
 * that hold a queue up, and the end of a program where there is no OpenCL. */
#ifndef LOCH_TEST_OPENCL_FIXTURE_H
#define LOCH_TEST_OPENCL_FIXTURE_H

#include "api.h"
#include "test.h"
#include <dlfcn.h>
#include <loch/opencl.h>

typedef struct _cl_program *cl_program_of;
typedef struct _cl_kernel *cl_kernel_of;

/* Functions that the driver does not need. */
typedef struct opencl_program_api {
    cl_program_of (*clCreateProgramWithSource)(cl_context_of context, cl_number count, const char **texts,
                                               const size_t *lengths, cl_result *result);
    cl_result (*clBuildProgram)(cl_program_of program, cl_number count, const cl_device *devices, const char *options,
                                void (*notify)(cl_program_of, void *), void *user);
    cl_result (*clReleaseProgram)(cl_program_of program);
    cl_kernel_of (*clCreateKernel)(cl_program_of program, const char *name, cl_result *result);
    cl_result (*clReleaseKernel)(cl_kernel_of kernel);
    cl_result (*clSetKernelArg)(cl_kernel_of kernel, cl_number index, size_t bytes, const void *value);
    cl_result (*clSetKernelArgSVMPointer)(cl_kernel_of kernel, cl_number index, const void *value);
    cl_result (*clEnqueueNDRangeKernel)(cl_queue queue, cl_kernel_of kernel, cl_number dimensions, const size_t *offset,
                                        const size_t *global, const size_t *local, cl_number count,
                                        const cl_mark *waits, cl_mark *event);
    cl_result (*clCreateSubDevices)(cl_device device, const intptr_t *properties, cl_number count, cl_device *out,
                                    cl_number *found);
} opencl_program_api;

static opencl_program_api program_api;

#define CHECK_CL(call) assert_int_equal((call), LOCHI_CL_SUCCESS)

/* Reads the functions into program_api. */
static inline void opencl_read_api(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
#define OPENCL_READ(name)                                                                                              \
    do {                                                                                                               \
        void *address = dlsym(library, #name);                                                                         \
        assert_non_null(address);                                                                                      \
        memcpy(&program_api.name, &address, sizeof address);                                                           \
    } while (0)
    OPENCL_READ(clCreateProgramWithSource);
    OPENCL_READ(clBuildProgram);
    OPENCL_READ(clReleaseProgram);
    OPENCL_READ(clCreateKernel);
    OPENCL_READ(clReleaseKernel);
    OPENCL_READ(clSetKernelArg);
    OPENCL_READ(clSetKernelArgSVMPointer);
    OPENCL_READ(clEnqueueNDRangeKernel);
    OPENCL_READ(clCreateSubDevices);
#undef OPENCL_READ
}

/* Ends the program with TEST_SKIPPED if there is no OpenCL device; with a failure if LOCH_REQUIRE_OPENCL=1. */
static inline void opencl_need(void)
{
    loch_device *device = NULL;
    const char *required = getenv("LOCH_REQUIRE_OPENCL");
    CHECK_OK(loch_opencl_register());
    if (loch_device_open("opencl:0", &device) != LOCH_OK) {
        printf("skipped: %s\n", loch_error_get()->sentence);
        exit(required && strcmp(required, "1") == 0 ? 1 : TEST_SKIPPED);
    }
    loch_device_release(device);
    opencl_read_api();
}

static inline loch_device *opencl_open(const char *name)
{
    loch_device *device = NULL;
    CHECK_OK(loch_device_open(name, &device));
    return device;
}

static inline loch_opencl_handles opencl_handles(const loch_device *device)
{
    loch_opencl_handles handles = {.size = sizeof handles};
    CHECK_OK(loch_opencl_get_handles(device, &handles));
    return handles;
}

/* --- a kernel that writes `value` + i to each number i of a block --- */

typedef struct opencl_kernel {
    cl_program_of program;
    cl_kernel_of kernel;
} opencl_kernel;

static inline opencl_kernel opencl_build(const loch_opencl_handles *handles)
{
    const char *text = "__kernel void count_up(__global uint *to, uint value)\n"
                       "{ to[get_global_id(0)] = value + (uint)get_global_id(0); }\n";
    cl_result result = LOCHI_CL_INVALID_VALUE;
    opencl_kernel built = {NULL, NULL};
    built.program = program_api.clCreateProgramWithSource(handles->context, 1, &text, NULL, &result);
    CHECK_CL(result);
    cl_device id = handles->device_id;
    CHECK_CL(program_api.clBuildProgram(built.program, 1, &id, "", NULL, NULL));
    built.kernel = program_api.clCreateKernel(built.program, "count_up", &result);
    CHECK_CL(result);
    /* cppcheck-suppress returnDanglingLifetime ; OpenCL does not keep the address of the code */
    return built;
}

static inline void opencl_unbuild(opencl_kernel *built)
{
    CHECK_CL(program_api.clReleaseKernel(built->kernel));
    CHECK_CL(program_api.clReleaseProgram(built->program));
}

static inline void opencl_launch(const opencl_kernel *built, cl_queue queue, void *to, size_t count, uint32_t value)
{
    CHECK_CL(program_api.clSetKernelArgSVMPointer(built->kernel, 0, to));
    CHECK_CL(program_api.clSetKernelArg(built->kernel, 1, sizeof value, &value));
    CHECK_CL(program_api.clEnqueueNDRangeKernel(queue, built->kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
    CHECK_CL(lochi_opencl.clFlush(queue));
}

static inline void opencl_expect(const void *from, size_t count, uint32_t value)
{
    uint32_t *host = calloc(count, sizeof *host);
    assert_non_null(host);
    CHECK_OK(loch_copy(host, from, count * sizeof *host));
    for (size_t i = 0; i < count; i++)
        if (host[i] != value + i) fail_msg("number %zu of %zu is %u, not %zu", i, count, host[i], value + i);
    free(host);
}

/* --- a gate: work queued behind it waits until it is opened --- */

static inline cl_mark opencl_close_gate(const loch_opencl_handles *handles, cl_queue queue)
{
    cl_result result = LOCHI_CL_INVALID_VALUE;
    cl_mark gate = lochi_opencl.clCreateUserEvent(handles->context, &result);
    CHECK_CL(result);
    CHECK_CL(lochi_opencl.clEnqueueBarrierWithWaitList(queue, 1, &gate, NULL));
    CHECK_CL(lochi_opencl.clFlush(queue));
    return gate;
}

static inline void opencl_open_gate(cl_mark gate)
{
    CHECK_CL(lochi_opencl.clSetUserEventStatus(gate, LOCHI_CL_COMPLETE));
    CHECK_CL(lochi_opencl.clReleaseEvent(gate));
}

#endif
