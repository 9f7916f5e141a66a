/* SPDX-License-Identifier: MIT */
/* The sizes of a model. */
#ifndef DECODER_SHAPE_H
#define DECODER_SHAPE_H

#include <stddef.h>

typedef struct decoder_shape {
    const char *name;
    size_t vocabulary, width;
    size_t heads, kv_heads; /* each key/value head serves heads / kv_heads heads */
    size_t head;            /* width / heads */
    size_t mlp, layers;
    size_t context; /* the most positions */
} decoder_shape;

/* Elements of the keys of one position in one layer. Its values follow. */
static inline size_t shape_kv_width(const decoder_shape *shape)
{
    return shape->kv_heads * shape->head;
}

/* Elements of one position in a cache: for each layer its keys, then its values. */
static inline size_t shape_cache_step(const decoder_shape *shape)
{
    return shape->layers * 2 * shape_kv_width(shape);
}

#endif
