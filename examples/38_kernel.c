/* SPDX-License-Identifier: MIT */
/* A kernel of your own on a CUDA device, without the CUDA runtime: PTX is loaded, a function of it is found and
 * launched on a stream with tensors as arguments. Says what is missing where there is no CUDA.
 *
 *   38_kernel [DEVICE]     cuda:0, cuda:1, ... (default: cuda:0) */
#include <loch/kernel.h>
#include <loch/loch.h>
#include <loch/tensor.h>
#include <stdio.h>

#define COUNT 1000

/* extern "C" __global__ void axpy(float *y, const float *x, float a, unsigned n)
 * {
 *     const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
 *     if (i < n) y[i] += a * x[i];
 * }
 * `nvcc --ptx` makes such text of it; a program may also read a .ptx or .cubin file. */
static const char axpy_ptx[] = ".version 6.4\n"
                               ".target sm_75\n"
                               ".address_size 64\n"
                               ".visible .entry axpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n)\n"
                               "{\n"
                               "    .reg .pred %beyond;\n"
                               "    .reg .f32 %f<4>;\n"
                               "    .reg .b32 %r<6>;\n"
                               "    .reg .b64 %rd<6>;\n"
                               "    mov.u32 %r1, %ctaid.x;\n"
                               "    mov.u32 %r2, %ntid.x;\n"
                               "    mov.u32 %r3, %tid.x;\n"
                               "    mad.lo.s32 %r4, %r1, %r2, %r3;\n"
                               "    ld.param.u32 %r5, [n];\n"
                               "    setp.ge.u32 %beyond, %r4, %r5;\n"
                               "    @%beyond bra end;\n"
                               "    ld.param.u64 %rd1, [y];\n"
                               "    ld.param.u64 %rd2, [x];\n"
                               "    ld.param.f32 %f1, [a];\n"
                               "    mul.wide.u32 %rd3, %r4, 4;\n"
                               "    add.s64 %rd4, %rd1, %rd3;\n"
                               "    add.s64 %rd5, %rd2, %rd3;\n"
                               "    ld.global.f32 %f2, [%rd5];\n"
                               "    ld.global.f32 %f3, [%rd4];\n"
                               "    fma.rn.f32 %f3, %f1, %f2, %f3;\n"
                               "    st.global.f32 [%rd4], %f3;\n"
                               "end:\n"
                               "    ret;\n"
                               "}\n";

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "cuda:0";
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(stream) stream = NULL;
    LOCH_AUTO(tensor) x = NULL;
    LOCH_AUTO(tensor) y = NULL;
    loch_module *module;
    loch_kernel *axpy;
    loch_kernel_info info = {.size = sizeof info};
    float back[COUNT] = {0};

    if (loch_device_open(name, &device) != LOCH_OK) {
        printf("%s cannot be opened: %s\n", name, loch_error_get()->sentence);
        return 0;
    }
    if (loch_module_create(device, axpy_ptx, sizeof axpy_ptx, NULL, &module) != LOCH_OK) {
        printf("no kernels: %s\n", loch_error_get()->sentence);
        return loch_error_get()->status != LOCH_E_UNSUPPORTED;
    }
    LOCH_CHECK(loch_module_find(module, "axpy", &axpy));
    LOCH_CHECK(loch_kernel_get_info(axpy, &info));
    printf("%s takes %lld arguments and %u registers\n", info.name, (long long)info.arguments, info.registers);

    LOCH_CHECK(loch_stream_create(device, NULL, &stream));
    const loch_tensor_options on = {.size = sizeof on, .device = device, .stream = stream};
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(COUNT), &on, &x));
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(COUNT), &on, &y));
    LOCH_CHECK(loch_tensor_fill(x, loch_scalar_of(4.0), stream));
    LOCH_CHECK(loch_tensor_fill(y, loch_scalar_of(1.0), stream));

    const loch_argument values[] = {loch_argument_write(y), loch_argument_read(x),
                                    loch_argument_scalar(LOCH_F32, loch_scalar_of(0.5)),
                                    loch_argument_scalar(LOCH_U32, loch_scalar_of(COUNT))};
    const loch_launch_options how = {.size = sizeof how, .grid = {(COUNT + 255) / 256}, .block = {256}};
    LOCH_CHECK(loch_kernel_launch(axpy, values, 4, stream, &how));
    loch_tensor_clear(&x); /* its memory is reused behind the launch, no sooner */

    LOCH_CHECK(loch_tensor_read(y, back, sizeof back, stream));
    printf("the last number is %g\n", (double)back[COUNT - 1]);
    loch_module_destroy(module);
    return back[COUNT - 1] != 3;
}
