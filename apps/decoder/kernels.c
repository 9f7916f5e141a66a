/* SPDX-License-Identifier: MIT */
/* Plain loops: easy to read and to compare with NumPy, not fast. */
#include "kernels.h"
#include <math.h>

#define EPSILON 1e-5F
#define ROTARY_BASE 10000.0

float kernel_dot(const float *a, const float *b, size_t count)
{
    float sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

void kernel_mix(float *y, float scale, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] += scale * x[i];
}

void kernel_add(float *x, const float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] += y[i];
}

void kernel_matmul(float *y, const float *x, const float *w, size_t count, size_t outputs, size_t inputs)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < outputs; j++)
            y[i * outputs + j] = kernel_dot(x + i * inputs, w + j * inputs, inputs);
}

void kernel_rmsnorm(float *y, const float *x, const float *weight, size_t count, size_t width)
{
    for (size_t i = 0; i < count; i++, x += width, y += width) {
        const float scale = 1 / sqrtf(kernel_dot(x, x, width) / (float)width + EPSILON);
        for (size_t j = 0; j < width; j++)
            y[j] = x[j] * scale * weight[j];
    }
}

void kernel_rotary(float *row, size_t heads, size_t head, size_t position)
{
    const size_t half = head / 2;
    for (size_t i = 0; i < half; i++) {
        const double angle = (double)position * pow(ROTARY_BASE, -2.0 * (double)i / (double)head);
        const float c = (float)cos(angle), s = (float)sin(angle);
        for (size_t h = 0; h < heads; h++) {
            float *pair = row + h * head + i;
            const float a = pair[0], b = pair[half];
            pair[0] = a * c - b * s;
            pair[half] = a * s + b * c;
        }
    }
}

void kernel_softmax(float *x, size_t count)
{
    float largest = x[0], sum = 0;
    for (size_t i = 1; i < count; i++)
        largest = fmaxf(largest, x[i]);
    for (size_t i = 0; i < count; i++)
        sum += x[i] = expf(x[i] - largest);
    for (size_t i = 0; i < count; i++)
        x[i] /= sum;
}

void kernel_silu(float *gate, const float *up, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gate[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}
