/* SPDX-License-Identifier: MIT */
#include "blas.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* MemorySanitizer does not see what a library writes that it has not compiled. */
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#define DEFAULT_BLAS NULL
#endif
#endif
#ifndef DEFAULT_BLAS
#define DEFAULT_BLAS "libopenblas.so.0"
#endif

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 }; /* numbers of cblas.h */

typedef void blas_set_threads(int count);
typedef char *blas_get_text(void);

static void use(void *library, const char *file, blas_library *out)
{
    /* ISO C has no conversion from an object to a function; POSIX says that it works. */
    blas_set_threads *set_threads;
    blas_get_text *get_core;
    *(void **)&out->sgemm = dlsym(library, "cblas_sgemm");
    *(void **)&set_threads = dlsym(library, "openblas_set_num_threads");
    *(void **)&get_core = dlsym(library, "openblas_get_corename");
    if (set_threads) set_threads(1);
    snprintf(out->name, sizeof out->name, "%.32s%s%.24s", get_core ? "OpenBLAS" : file, get_core ? " for " : "",
             get_core ? get_core() : "");
}

loch_status blas_open(const char *file, const cpu_kernels *kernels, blas_library *out)
{
    *out = (blas_library){.kernels = kernels, .name = "plain products (no OpenBLAS)"};
    if (file && !*file) return LOCH_OK;
    const char *wanted = file ? file : DEFAULT_BLAS;
    void *library = wanted ? dlopen(wanted, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library) use(library, wanted, out);
    if (out->sgemm || !file) return LOCH_OK;
    return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "%.100s: %.100s", file,
                          library ? "has no cblas_sgemm" : dlerror());
}

static void multiply(const blas_library *blas, const float *x, const float *w, size_t rows, size_t outputs,
                     size_t inputs, float beta, float *y, size_t step)
{
    if (blas->sgemm)
        blas->sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, (int)rows, (int)outputs, (int)inputs, 1, x, (int)inputs, w,
                    (int)inputs, beta, y, (int)step);
    else
        blas->kernels->multiply(x, w, rows, outputs, inputs, beta, y, step);
}

void blas_multiply(const blas_library *blas, const float *x, const float *w, size_t rows, size_t outputs, size_t inputs,
                   float *y, size_t step)
{
    multiply(blas, x, w, rows, outputs, inputs, 0, y, step);
}

void blas_multiply_add(const blas_library *blas, const float *x, const float *w, size_t rows, size_t outputs,
                       size_t inputs, float *y, size_t step)
{
    multiply(blas, x, w, rows, outputs, inputs, 1, y, step);
}
