/* SPDX-License-Identifier: MIT */
/* What the host and the kernels of kernels.cu share: structs that are passed by value, and how a token is sampled. Both
 * sides read this file, so on the device it includes nothing. Addresses are numbers, because the host does not follow
 * them. */
#ifndef DECODER_DEVICE_H
#define DECODER_DEVICE_H

/* The shape of a model, as in decoder_shape. */
typedef struct device_shape {
    int width, heads, kv_heads, head, mlp, layers, vocabulary;
} device_shape;

/* The requests of a batch, one to a slot, in memory of the device. One captured graph serves every step, because it
 * finds everything that changes from step to step here. */
typedef struct device_slots {
    unsigned long long positions; /* int[slots]: the position that the next step computes; -1: nothing is in the slot */
    unsigned long long prompts;   /* int[slots]: number of tokens of the prompt */
    unsigned long long texts;     /* int[slots][context]: the tokens; the device appends the ones that it chooses */
    unsigned long long caches;    /* address[slots]: the growable cache of each slot; 0 for paged caches */
    unsigned long long pages;     /* int[slots][pages]: numbers of the pages of each slot; 0 for grown caches */
    unsigned long long region;    /* address of the pages */
    unsigned long long numbers;   /* int[slots]: numbers of the requests, for sampling */
    unsigned long long best;      /* unsigned long long[slots]: the largest logit so far, and its token */
    unsigned long long rotary;    /* float[context][head / 2][2]: cosines and sines */
    unsigned long long seed;      /* for sampling */
    float temperature;            /* 0: the first of the largest logits */
    int slots, context, page, pages_each; /* page: positions of a page */
} device_slots;

#ifdef __CUDACC__
#define SHARED __device__ __forceinline__
#else
#include <math.h>
#define SHARED static inline
#endif

/* Number `n` of the generator splitmix64. */
SHARED unsigned long long random_at(unsigned long long seed, unsigned long long n)
{
    unsigned long long z = seed + (n + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* What is compared to choose the token behind a position: the logit, or with a temperature the logit over it plus a
 * random number of the Gumbel distribution, which makes the largest a sample of the softmax. */
SHARED float score_of(float logit, float temperature, unsigned long long seed, int request, int position, int token)
{
    if (temperature <= 0) return logit;
    const unsigned long long key =
        random_at(random_at(seed, (unsigned long long)request), (unsigned long long)position);
    const float u = ((float)(random_at(key, (unsigned long long)token) >> 41) + 0.5f) / (float)(1 << 23);
    return logit / temperature - logf(-logf(u));
}

/* What a matrix product does with its rows. */
enum { PRODUCT_QKV, PRODUCT_ADD, PRODUCT_SWIGLU, PRODUCT_LOGITS };

typedef struct device_product {
    int kind, columns, tasks, layer; /* a task is two rows */
    int split;                       /* warps that share a task */
} device_product;

/* Weights of later kernels that a kernel brings into the second-level cache, so that memory is busy while kernels begin
 * and end. */
typedef struct device_ahead {
    unsigned long long from[3];
    unsigned bytes[3]; /* multiples of 16 */
} device_ahead;

#endif
