/* SPDX-License-Identifier: MIT */
/* The arithmetic of a decoder on plain arrays of floats, rows one after the other. It does not use Loch. */
#ifndef DECODER_KERNELS_H
#define DECODER_KERNELS_H

#include <stddef.h>

/* y[i] = w x[i] for `count` rows. `x` has rows of `inputs`, `y` of `outputs`, `w` is outputs by inputs. */
void kernel_matmul(float *y, const float *x, const float *w, size_t count, size_t outputs, size_t inputs);

/* y = x / sqrt(mean(x^2) + 1e-5) * weight, row by row. */
void kernel_rmsnorm(float *y, const float *x, const float *weight, size_t count, size_t width);

/* Rotates each head of a row by its position: the pair (i, i + head / 2) by the angle position * 10000^(-2 i /
 * head). */
void kernel_rotary(float *row, size_t heads, size_t head, size_t position);

/* x = exp(x - max(x)) / sum(exp(x - max(x))) */
void kernel_softmax(float *x, size_t count);

/* gate = silu(gate) * up, where silu(x) = x / (1 + exp(-x)) */
void kernel_silu(float *gate, const float *up, size_t count);

/* x += y */
void kernel_add(float *x, const float *y, size_t count);

float kernel_dot(const float *a, const float *b, size_t count);

/* y += scale * x */
void kernel_mix(float *y, float scale, const float *x, size_t count);

#endif
