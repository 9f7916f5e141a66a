/* SPDX-License-Identifier: MIT */
/* The types of the format (type.c). */
#ifndef SAFETENSORS_TYPE_H
#define SAFETENSORS_TYPE_H

#include <loch/dtype.h>

/* A type of the format. */
typedef struct safetensors_type {
    const char *name;
    loch_dtype dtype; /* LOCH_DTYPE_NONE if Loch lacks it */
    unsigned bits;    /* of one element */
} safetensors_type;

/* Returns the type with a name; NULL if it is not known. */
const safetensors_type *lochi_safetensors_type_find(const char *name);

/* Returns the type of the format for a type of Loch; NULL if there is none. Types with a higher address are written
 * first. */
const safetensors_type *lochi_safetensors_type_of(loch_dtype dtype);

/* Turns the bytes of elements around, on machines that store the highest byte first: files have the lowest first. */
void lochi_safetensors_swap(void *elements, size_t bytes, size_t element);

#endif
