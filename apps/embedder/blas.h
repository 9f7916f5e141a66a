/* SPDX-License-Identifier: MIT */
/* Matrix products on the CPU by a BLAS that is found at run time; a plain one where there is none. */
#ifndef EMBEDDER_BLAS_H
#define EMBEDDER_BLAS_H

#include "cpu_kernels.h"

typedef void blas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a,
                        int lda, const float *b, int ldb, float beta, float *c, int ldc);

typedef struct blas_library {
    blas_sgemm *sgemm; /* NULL: the plain product */
    const cpu_kernels *kernels;
    char name[64];
} blas_library;

/* Loads a BLAS once for the process, with one thread for each call: the encoder has threads of its own.
 * @param file  NULL: OpenBLAS where it is; "": none; another file must be there */
loch_status blas_open(const char *file, const cpu_kernels *kernels, blas_library *out);

/* y = x w^T, or y += x w^T. `x` is rows by inputs, `w` outputs by inputs, the rows of `y` are `step` floats apart. Any
 * thread. */
void blas_multiply(const blas_library *blas, const float *x, const float *w, size_t rows, size_t outputs, size_t inputs,
                   float *y, size_t step);
void blas_multiply_add(const blas_library *blas, const float *x, const float *w, size_t rows, size_t outputs,
                       size_t inputs, float *y, size_t step);

#endif
