/* SPDX-License-Identifier: MIT */
/** @file rows.h
 *  Rows of tensors by index: libloch_kernel.so. A row is what a tensor has for one index of its first axis. Embeddings
 *  are gathered, and caches are scattered, in one call:
 *
 *      LOCH_CHECK(loch_rows_gather(embedded, table, tokens, stream));
 *
 *  - All three tensors are on one device, or all on the host. Any device will do: CUDA devices have kernels for it, and
 *    simulated devices do it on the host in stream order. Devices of other drivers read the indices first, wait for
 *    that, and copy row by row.
 *  - Target and source have one type, one number of dimensions, and equal sizes along all axes but the first. Each row
 *    is contiguous; the rows of a tensor may be apart, as in a slice of columns. Rows and indices do not run backwards.
 *  - Indices have one dimension and type i32 or i64. They are read when the stream gets there, so that they may be the
 *    result of earlier work.
 *  - An index out of range never leads to memory out of range, and is no failure. Negative indices are out of range.
 *  - Target and source do not share memory, nor do target and indices. Different columns of one matrix share none.
 *  - The call queues the work on the stream, and records it as a use of all three. With a NULL stream it uses the
 *    default stream and waits. It may be captured on CUDA devices and simulated devices.
 */
#ifndef LOCH_ROWS_H
#define LOCH_ROWS_H

#include <loch/tensor.h>

LOCH_BEGIN_DECLS

/** Gathers rows: row i of `to` becomes row indices[i] of `from`, or zero bytes if that index is out of range. There are
 *  as many indices as rows in `to`. E_INVALID: a tensor is NULL, types, shapes or devices do not fit, rows are not
 *  contiguous, `to` is read-only, or memory is shared. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_rows_gather(loch_tensor *to, loch_tensor *from, loch_tensor *indices,
                                                    loch_stream *stream);

/** Scatters rows: row indices[i] of `to` becomes row i of `from`. Rows whose index is out of range are left out, and
 *  rows of `to` without an index stay as they are. There are as many indices as rows in `from`. If an index occurs
 *  twice, the row has bytes of both. E_INVALID: as for loch_rows_gather. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_rows_scatter(loch_tensor *to, loch_tensor *from, loch_tensor *indices,
                                                     loch_stream *stream);

LOCH_END_DECLS

#endif
