/* SPDX-License-Identifier: MIT */
/* The kernels over vectors of LANES floats. A file that includes this one chooses LANES, the processor and KERNELS, the
 * name of the table. Widths of rows are multiples of 16, so only the number of keys leaves a rest. */
#include "cpu_kernels.h"
#include <math.h>
#include <string.h>

typedef float vec __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t bits __attribute__((vector_size(LANES * sizeof(float))));

/* --- vectors --- */

static inline vec load(const float *from)
{
    vec x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline void store(float *to, vec x)
{
    memcpy(to, &x, sizeof x);
}

static inline vec all(float x)
{
    return x - (vec){0};
}

static inline vec larger(vec a, vec b)
{
    const bits mask = (bits)(a > b);
    return (vec)((mask & (bits)a) | (~mask & (bits)b));
}

static inline vec absolute(vec x)
{
    return (vec)((bits)x & 0x7fffffffU);
}

static inline float sum_of(vec x)
{
    float sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += x[i];
    return sum;
}

static inline float largest_of(vec x)
{
    float largest = x[0];
    for (int i = 1; i < LANES; i++)
        largest = x[i] > largest ? x[i] : largest;
    return largest;
}

/* exp(x) for x <= 0 to 2e-7 of its value; 0 or almost 0 below -87. x = n ln 2 + r, where adding 1.5 * 2^23 rounds n to
 * a whole number that stands in the low bits. */
static inline vec exponential(vec x)
{
    x = larger(x, all(-87.0F));
    const vec shifted = x * 1.44269504F + 12582912.0F;
    const vec n = shifted - 12582912.0F;
    const vec r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
    vec p = r * 1.9875691e-4F + 1.3981999e-3F;
    p = p * r + 8.3334519e-3F;
    p = p * r + 4.1665796e-2F;
    p = p * r + 0.16666665F;
    p = p * r + 0.5F;
    p = p * r * r + r + 1.0F;
    return (vec)((bits)p + ((bits)shifted << 23));
}

/* x Phi(x), with erfc by formula 7.1.26 of Abramowitz and Stegun: off by 1.5e-7 at most. */
static inline vec gelu_of(vec x)
{
    const vec a = absolute(x), t = 1.0F / (a * 0.231641900F + 1.0F); /* 0.3275911 / sqrt(2) */
    vec p = t * 1.061405429F - 1.453152027F;
    p = p * t + 1.421413741F;
    p = p * t - 0.284496736F;
    p = p * t + 0.254829592F;
    const vec tail = p * t * exponential(a * a * -0.5F); /* erfc(a / sqrt(2)) */
    return (x + a - a * tail) * 0.5F;
}

/* --- rows --- */

static inline void norm_row(float *x, const float *weight, const float *bias)
{
    vec sum = all(0), squares = all(0);
    for (size_t i = 0; i < WIDTH; i += LANES)
        sum += load(x + i);
    const vec mean = all(sum_of(sum) / WIDTH);
    for (size_t i = 0; i < WIDTH; i += LANES) {
        const vec d = load(x + i) - mean;
        squares += d * d;
    }
    const vec scale = all(1.0F / sqrtf(sum_of(squares) / WIDTH + NORM_EPSILON));
    for (size_t i = 0; i < WIDTH; i += LANES)
        store(x + i, (load(x + i) - mean) * scale * load(weight + i) + load(bias + i));
}

static void norm(const float *weight, const float *bias, size_t rows, float *x)
{
    for (size_t row = 0; row < rows; row++)
        norm_row(x + row * WIDTH, weight, bias);
}

static void embed(const embedder_model *model, const int32_t *tokens, size_t length, float *x)
{
    const float *const *data = model->data;
    for (size_t row = 0; row < length; row++, x += WIDTH) {
        const float *word = data[WORDS] + (size_t)tokens[row] * WIDTH, *place = data[PLACES] + row * WIDTH;
        for (size_t i = 0; i < WIDTH; i += LANES)
            store(x + i, load(word + i) + load(data[KINDS] + i) + load(place + i));
        norm_row(x, data[EMBEDDING_NORM], data[EMBEDDING_NORM_BIAS]);
    }
}

static void add_bias(const float *x, const float *bias, size_t rows, float *y)
{
    for (size_t row = 0; row < rows; row++, x += WIDTH, y += WIDTH)
        for (size_t i = 0; i < WIDTH; i += LANES)
            store(y + i, load(x + i) + load(bias + i));
}

static void gelu(const float *bias, size_t rows, float *x)
{
    for (size_t row = 0; row < rows; row++, x += MLP)
        for (size_t i = 0; i < MLP; i += LANES)
            store(x + i, gelu_of(load(x + i) + load(bias + i)));
}

static void pool(const float *x, size_t rows, float *vector)
{
    float length = 0;
    for (size_t i = 0; i < WIDTH; i += LANES) {
        vec sum = all(0);
        for (size_t row = 0; row < rows; row++)
            sum += load(x + row * WIDTH + i);
        sum /= (float)rows;
        store(vector + i, sum);
        length += sum_of(sum * sum);
    }
    const float scale = 1.0F / fmaxf(sqrtf(length), 1e-12F);
    for (size_t i = 0; i < WIDTH; i += LANES)
        store(vector + i, load(vector + i) * scale);
}

/* --- attention --- */

/* The keys of a head with their bias: HEAD rows of `padded` floats, zero behind the last key. */
static void turn_keys(const cpu_attention *a, size_t head, size_t padded, float *keys)
{
    for (size_t i = 0; i < HEAD; i++) {
        const float *from = a->qkv + WIDTH + head * HEAD + i, bias = a->key_bias[head * HEAD + i];
        for (size_t j = 0; j < a->length; j++)
            keys[i * padded + j] = from[j * QKV] + bias;
        for (size_t j = a->length; j < padded; j++)
            keys[i * padded + j] = 0;
    }
}

/* The scores of four rows with all keys. */
static inline void score(const float *const rows[4], const float *bias, const float *keys, size_t padded, float *scores)
{
    const float scale = 0.176776695F; /* 1 / sqrt(HEAD) */
    for (size_t j = 0; j < padded; j += LANES) {
        vec s0 = all(0), s1 = all(0), s2 = all(0), s3 = all(0);
        for (size_t i = 0; i < HEAD; i++) {
            const vec k = load(keys + i * padded + j);
            s0 += (rows[0][i] + bias[i]) * k;
            s1 += (rows[1][i] + bias[i]) * k;
            s2 += (rows[2][i] + bias[i]) * k;
            s3 += (rows[3][i] + bias[i]) * k;
        }
        store(scores + j, s0 * scale);
        store(scores + padded + j, s1 * scale);
        store(scores + 2 * padded + j, s2 * scale);
        store(scores + 3 * padded + j, s3 * scale);
    }
}

/* scores = exp(scores - the largest); returns 1 / their sum. Those behind the last key become 0. */
static inline float soften(float *scores, size_t length, size_t padded)
{
    for (size_t j = length; j < padded; j++)
        scores[j] = -INFINITY;
    vec top = load(scores), sum = all(0);
    for (size_t j = LANES; j < padded; j += LANES)
        top = larger(top, load(scores + j));
    top = all(largest_of(top));
    for (size_t j = 0; j < padded; j += LANES) {
        const vec e = exponential(load(scores + j) - top);
        store(scores + j, e);
        sum += e;
    }
    return 1.0F / sum_of(sum);
}

/* Mixes the values of a head for four rows. */
static inline void mix(const cpu_attention *a, size_t head, const float *scores, size_t padded, const float scales[4],
                       float *const out[4])
{
    const float *values = a->qkv + (size_t)2 * WIDTH + head * HEAD;
    for (size_t i = 0; i < HEAD; i += LANES) {
        vec m0 = all(0), m1 = all(0), m2 = all(0), m3 = all(0);
        for (size_t j = 0; j < a->length; j++) {
            const vec v = load(values + j * QKV + i);
            m0 += scores[j] * v;
            m1 += scores[padded + j] * v;
            m2 += scores[2 * padded + j] * v;
            m3 += scores[3 * padded + j] * v;
        }
        const vec bias = load(a->value_bias + head * HEAD + i); /* weights sum up to 1 */
        store(out[0] + i, m0 * scales[0] + bias);
        store(out[1] + i, m1 * scales[1] + bias);
        store(out[2] + i, m2 * scales[2] + bias);
        store(out[3] + i, m3 * scales[3] + bias);
    }
}

/* Rows go four at a time; the last four repeat the last row where there are fewer. */
static void attend(const cpu_attention *a)
{
    const size_t padded = (a->length + LANES - 1) / LANES * LANES;
    float *keys = a->scratch, *scores = a->scratch + padded * HEAD;
    for (size_t head = 0; head < HEADS; head++) {
        turn_keys(a, head, padded, keys);
        for (size_t row = 0; row < a->length; row += 4) {
            const float *rows[4];
            float *out[4], scales[4];
            for (size_t i = 0; i < 4; i++) {
                const size_t at = row + i < a->length ? row + i : a->length - 1;
                rows[i] = a->qkv + at * QKV + head * HEAD;
                out[i] = a->mixed + at * WIDTH + head * HEAD;
            }
            score(rows, a->query_bias + head * HEAD, keys, padded, scores);
            for (size_t i = 0; i < 4; i++)
                scales[i] = soften(scores + i * padded, a->length, padded);
            mix(a, head, scores, padded, scales, out);
        }
    }
}

/* --- matrix product --- */

static inline float dot(const float *a, const float *b, size_t count)
{
    vec sum = all(0);
    for (size_t i = 0; i < count; i += LANES)
        sum += load(a + i) * load(b + i);
    return sum_of(sum);
}

static void multiply(const float *x, const float *w, size_t rows, size_t outputs, size_t inputs, float beta, float *y,
                     size_t step)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < outputs; j++) {
            const float product = dot(x + i * inputs, w + j * inputs, inputs);
            y[i * step + j] = beta != 0 ? beta * y[i * step + j] + product : product;
        }
}

#define CPU_KERNELS_TABLE(text)                                                                                        \
    {                                                                                                                  \
        .name = (text), .embed = embed, .add_bias = add_bias, .norm = norm, .gelu = gelu, .attend = attend,            \
        .pool = pool, .multiply = multiply                                                                             \
    }
