/* SPDX-License-Identifier: MIT */
/** @file print.h
 *  Tensors as text, in the style of NumPy's array2string: nested brackets, aligned columns, "..." for omitted parts.
 *  For a tensor on a device only the parts that are shown are copied to the host.
 */
#ifndef LOCH_PRINT_H
#define LOCH_PRINT_H

#include <loch/tensor.h>
#include <stdio.h>

LOCH_BEGIN_DECLS

/** How floats are written. */
typedef enum loch_notation {
    LOCH_NOTATION_AUTO,      /**< with an exponent if numbers are very large, very small or far apart */
    LOCH_NOTATION_FIXED,     /**< never with an exponent */
    LOCH_NOTATION_SCIENTIFIC /**< always with an exponent */
} loch_notation;

/** Options of loch_tensor_print. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_print_options {
    size_t size;            /**< sizeof(loch_print_options) */
    int precision;          /**< most digits after the point; 0 for 8, -1 for none */
    size_t threshold;       /**< a tensor with more elements than this is shortened; 0 for 1000 */
    size_t edge;            /**< number of elements shown at each end of a shortened axis; 0 for 3 */
    size_t width;           /**< length of a line in characters; 0 for 75 */
    loch_notation notation; /**< how floats are written */
    const char *separator;  /**< text between elements; NULL for a blank, as in str() */
    loch_stream *stream;    /**< stream that the read is ordered after; NULL for the default stream */
} loch_print_options;

/** Prints the elements of a tensor. `text`, `bytes` and `length` work as in loch_stats_print. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_print(loch_tensor *tensor, const loch_print_options *options, char *text,
                                                     size_t bytes, size_t *length);

/** Prints the elements of a tensor and a line end to a file. E_IO: the file cannot be written. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_print_to(loch_tensor *tensor, const loch_print_options *options,
                                                        FILE *file);

/** Prints one line about a tensor without its elements: `weights: f32[2, 3] strides [3, 1], 24 bytes on cuda:0`. The
 *  strides are left out for a contiguous tensor, the name for a tensor without one. `text`, `bytes` and `length` work
 *  as in loch_stats_print. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_describe(loch_tensor *tensor, char *text, size_t bytes, size_t *length);

LOCH_END_DECLS

#endif
