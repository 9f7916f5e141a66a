/* SPDX-License-Identifier: MIT */
/* The stream of a cuBLAS handle (cublas.c), for contexts. */
#ifndef LOCHI_CUBLAS_H
#define LOCHI_CUBLAS_H

#include <loch/library.h>

/* Sets the stream of later work with a cuBLAS handle; NULL for the default stream. E_INVALID: the stream belongs to
 * another device. */
loch_status lochi_cublas_set_stream(loch_cublas *cublas, loch_stream *stream);

#endif
