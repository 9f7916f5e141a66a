/* SPDX-License-Identifier: MIT */
/** @file cut.h
 *  Tensors cut over the ranks of a communicator: each rank loads its own part of a file and no more, and the parts are
 *  gathered to the whole. Part of libloch_comm.
 *
 *      loch_cut_part mine = {.size = sizeof mine};                                 every rank, with rank as its number
 *      LOCH_CHECK(loch_cut_get_part(comm, info.shape[0], rank, &mine));
 *      const loch_safetensors_load_options options = {.size = sizeof options, .axis = 0, .start = mine.start,
 *                                                     .count = mine.count};
 *      LOCH_CHECK(loch_safetensors_load(file, "weight", &options, &part));
 *      ...
 *      LOCH_CHECK(loch_cut_gather(comm, whole, part, 0, NULL));
 *
 *  A cut is the one of LOCH_SPREAD_PARTS (context.h): along one axis, one part for each rank in the order of the ranks,
 *  as equal as possible, larger parts first. Sizes that the number of ranks does not divide are fine. If there are
 *  more ranks than elements along the axis, the last ranks have parts without elements. */
#ifndef LOCH_CUT_H
#define LOCH_CUT_H

#include <loch/comm.h>
#include <loch/tensor.h>

LOCH_BEGIN_DECLS

/** The part of a rank along the axis of a cut. */
typedef struct loch_cut_part {
    size_t size;   /**< set by the caller to sizeof(loch_cut_part) */
    int64_t start; /**< first index */
    int64_t count; /**< number of indices; may be 0 */
} loch_cut_part;

/** Computes the part of a rank of `elements` indices. Set `out->size` before the call. E_INVALID: there is no such
 *  rank, or `elements` is negative. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_cut_get_part(const loch_comm *comm, int64_t elements, int rank,
                                                     loch_cut_part *out);

/** Creates a view of this rank's part of a tensor along `axis`, without a copy. If the tensor lies in a mapped file,
 *  loch_context_load and loch_tensor_copy read this rank's part through the view, and nothing else of the file.
 *  E_INVALID: there is no such axis. Any thread.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_cut_slice(const loch_comm *comm, loch_tensor *tensor, int axis,
                                                  loch_tensor **out);

/** Options of loch_cut_load. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_cut_load_options {
    size_t size;            /**< sizeof(loch_cut_load_options) */
    loch_dtype dtype;       /**< type of the new tensor; LOCH_DTYPE_NONE for that of `from` */
    loch_overflow overflow; /**< what conversion to f8 does with numbers out of range */
    /** Memory of the new tensor; its stream orders the copy; NULL for host memory. */
    const loch_tensor_options *memory;
} loch_cut_load_options;

/** Copies this rank's part of a tensor, such as one in a mapped file (loch_npy_load, loch_safetensors_acquire_tensor),
 *  into new memory of any device, contiguous and converted to a type. Works as loch_tensor_create and loch_tensor_copy
 *  do. No rank waits for another. For large parts of a .safetensors file, loch_safetensors_load reads with several
 *  threads. E_INVALID: there is no such axis. Any thread.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_cut_load(const loch_comm *comm, loch_tensor *from, int axis,
                                                 const loch_cut_load_options *options, loch_tensor **out);

/** Gathers the parts of all ranks in `to` on every rank. All ranks call this. `part` is contiguous and has the type of
 *  `to` and its shape, except along `axis`, where it has this rank's part. Equal parts along the first axis are
 *  gathered in place by one all-gather. Other parts are broadcast in turn; where a part is not contiguous in `to`, it
 *  goes through memory for one part, which this call allocates. `part` may be this rank's part of `to`; any other
 *  overlap gives E_INVALID. Other statuses are those of loch_comm_all_gather, loch_comm_broadcast and
 *  loch_tensor_create. On failure the contents of `to` are undefined. */
LOCH_API LOCH_MUST_USE loch_status loch_cut_gather(loch_comm *comm, loch_tensor *to, loch_tensor *part, int axis,
                                                   loch_stream *stream);

LOCH_END_DECLS

#endif
