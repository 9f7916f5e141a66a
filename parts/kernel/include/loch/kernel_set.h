/* SPDX-License-Identifier: MIT */
/** @file kernel_set.h
 *  Loch's own kernels on CUDA devices: copies and conversions between layouts, fills, and rows by index. The CUDA
 *  driver of libloch finds this library at run time, and calls these functions for its slots copy_strided and
 *  fill_strided. Programs have no need of them: they call loch_tensor_copy, loch_tensor_fill and loch/rows.h.
 *
 *  Nothing here needs the state of libloch: a program with a static libloch can use the shared library.
 */
#ifndef LOCH_KERNEL_SET_H
#define LOCH_KERNEL_SET_H

#include <loch/driver.h>

LOCH_BEGIN_DECLS

/** The kernels of one context. A kernel is compiled by the driver when it is needed for the first time, which takes
 *  some milliseconds, and kept until the set ends. */
typedef struct loch_kernel_set loch_kernel_set;

/** Codes that are not the driver's: there is no kernel for the work, or no driver that compiles it; the host has no
 *  memory. */
enum { LOCH_KERNEL_SET_NONE = 0x10c0de01, LOCH_KERNEL_SET_NO_MEMORY = 0x10c0de02 };

/** Creates an empty set for the context that is current. `library` is the driver's library as dlopen returned it.
 *  Returns a code: 0 is success, LOCH_KERNEL_SET_NONE means that the library lacks a function. Ended by
 *  loch_kernel_set_destroy. Any thread. */
LOCH_API int loch_kernel_set_create(void *library, loch_kernel_set **out);

/** Queues the work on `stream`, the driver's own. The context of the set is current. Returns a code: the driver's
 *  CUresult or one of those above; 0 is success. After a failure nothing is queued, unless the work has several
 *  launches, which only more than 2^27 elements have. Legal while the stream is captured. Does not wait, except that
 *  the first use of a kernel waits for the driver's compiler. Any thread. */
LOCH_API int loch_kernel_set_run(loch_kernel_set *set, const loch_strided *work, void *stream);

/** Unloads the kernels and ends the set. The context of the set is current, or destroyed. All work has ended. NULL does
 *  nothing. */
LOCH_API void loch_kernel_set_destroy(loch_kernel_set *set);
LOCH_DEFINE_CLEAR(kernel_set, loch_kernel_set_destroy(object))

LOCH_END_DECLS

#endif
