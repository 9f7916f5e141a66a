/* SPDX-License-Identifier: MIT */
/** @file print.h
 *  Tensors as text, in the way of NumPy's array2string: nested brackets, aligned columns, "..." for what is left out. Of a tensor on a device only
 *  the parts that are shown are fetched.
 */
#ifndef LOCH_PRINT_H
#define LOCH_PRINT_H

#include <loch/tensor.h>
#include <stdio.h>

LOCH_BEGIN_DECLS

/** How floats are written. */
typedef enum loch_notation {
    LOCH_NOTATION_AUTO,      /**< with an exponent when the numbers are very large, small or far apart */
    LOCH_NOTATION_FIXED,     /**< never with one */
    LOCH_NOTATION_SCIENTIFIC /**< always with one */
} loch_notation;

/** How to print; zero means default, NULL all defaults. */
typedef struct loch_print_options {
    size_t size;            /**< sizeof(loch_print_options) */
    int precision;          /**< digits behind the point at most; 0 for 8, -1 for none */
    size_t threshold;       /**< tensors with more elements than this are shortened; 0 for 1000 */
    size_t edge;            /**< how many are shown at each end of a shortened axis; 0 for 3 */
    size_t width;           /**< of a line; 0 for 75 */
    loch_notation notation; /**< of floats */
    const char *separator;  /**< between elements; NULL for a blank as str() has it */
    loch_stream *stream;    /**< that the elements are read behind; NULL: the default stream */
} loch_print_options;

/** Prints a tensor's elements (loch_stats_print tells what becomes of a text that does not fit). */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_print(loch_tensor *tensor, const loch_print_options *options, char *text,
                                                     size_t bytes, size_t *length);

/** Prints a tensor's elements and a line end to a file. E_IO when the file does not take them. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_print_to(loch_tensor *tensor, const loch_print_options *options,
                                                        FILE *file);

/** One line about a tensor, without its elements: `weights: f32[2, 3] strides [3, 1], 24 bytes on cuda:0`. Strides only
 *  where they are not row after row, the name only where it has one. As loch_tensor_print. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_describe(loch_tensor *tensor, char *text, size_t bytes, size_t *length);

LOCH_END_DECLS

#endif
