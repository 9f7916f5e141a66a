/* SPDX-License-Identifier: MIT */
/* Tensors cut over ranks. A part is a view of the whole; a gather is one all-gather where the parts are equal and lie
 * behind each other, and otherwise a broadcast of each part, straight to its place if the place is contiguous. */
#include "common.h"
#include <loch/cut.h>

/* --- parts --- */

static loch_status cut_find_ranks(const loch_comm *comm, loch_comm_info *info)
{
    *info = (loch_comm_info){.size = sizeof *info};
    if (!comm) return LOCH_FAIL(INVALID, "a cut needs a communicator");
    return loch_comm_get_info(comm, info);
}

/* The first `elements % parts` parts have one index more. */
static loch_cut_part cut_part(int64_t elements, int rank, int ranks)
{
    const int64_t parts = ranks > 1 ? ranks : 1, each = elements / parts, more = elements % parts;
    return (loch_cut_part){.size = sizeof(loch_cut_part),
                           .start = rank * each + (rank < more ? rank : more),
                           .count = each + (rank < more)};
}

loch_status loch_cut_get_part(const loch_comm *comm, int64_t elements, int rank, loch_cut_part *out)
{
    loch_comm_info info;
    LOCH_RETURN(cut_find_ranks(comm, &info));
    if (elements < 0) return LOCH_FAIL(INVALID, "%lld elements cannot be cut", (long long)elements);
    if (rank < 0 || rank >= info.ranks) return LOCH_FAIL(INVALID, "there is no rank %d of %d", rank, info.ranks);
    const loch_cut_part part = cut_part(elements, rank, info.ranks);
    return comm_write_result(&part, sizeof part, out, "a part of a cut");
}

/* Resolves an axis that may count from the end. */
static loch_status cut_axis(const loch_tensor *tensor, int axis, int *out)
{
    const int dimensions = (int)loch_tensor_get_dimensions(tensor);
    *out = axis < 0 ? axis + dimensions : axis;
    if (tensor && *out >= 0 && *out < dimensions) return LOCH_OK;
    return tensor ? LOCH_FAIL(INVALID, "a tensor of %d dimensions cannot be cut along axis %d", dimensions, axis)
                  : LOCH_FAIL(INVALID, "a cut needs a tensor");
}

static loch_status cut_view(loch_tensor *tensor, int axis, int rank, int ranks, loch_tensor **out)
{
    const loch_cut_part part = cut_part(loch_tensor_get_size(tensor, axis), rank, ranks);
    return loch_tensor_slice(tensor, axis, part.start, part.start + part.count, 1, out);
}

loch_status loch_cut_slice(const loch_comm *comm, loch_tensor *tensor, int axis, loch_tensor **out)
{
    loch_comm_info info;
    int at;
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for a part is NULL");
    *out = NULL;
    LOCH_RETURN(cut_find_ranks(comm, &info));
    LOCH_RETURN(cut_axis(tensor, axis, &at));
    return cut_view(tensor, at, info.rank, info.ranks, out);
}

loch_status loch_cut_load(const loch_comm *comm, loch_tensor *from, int axis, const loch_cut_load_options *options,
                          loch_tensor **out)
{
    loch_cut_load_options read = {.size = sizeof read};
    loch_tensor *view = NULL;
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for a part is NULL");
    *out = NULL;
    LOCH_RETURN(lochi_sized_read("the options of a communicator", options, &read, sizeof read));
    LOCH_RETURN(loch_cut_slice(comm, from, axis, &view));
    const loch_dtype dtype = read.dtype == LOCH_DTYPE_NONE ? loch_tensor_get_dtype(from) : read.dtype;
    loch_status status =
        loch_tensor_create(dtype, loch_tensor_get_dimensions(view), loch_tensor_get_shape(view), read.memory, out);
    const loch_tensor_copy_options copy = {
        .size = sizeof copy, .stream = read.memory ? read.memory->stream : NULL, .overflow = read.overflow};
    if (status == LOCH_OK && loch_tensor_get_elements(view)) status = loch_tensor_copy(*out, view, &copy);
    loch_tensor_release(view);
    if (status != LOCH_OK) loch_tensor_clear(out);
    return status;
}

/* --- gather --- */

/* A gather. */
typedef struct cut_gather {
    loch_comm *comm;
    loch_tensor *to, *part;
    int axis, rank, ranks;
    loch_stream *stream;
    loch_tensor *stage; /* room for the largest part; made at its first use */
} cut_gather;

/* Checks the shape of this rank's part. */
static loch_status gather_check(const cut_gather *g)
{
    const size_t dimensions = loch_tensor_get_dimensions(g->to);
    const loch_cut_part own = cut_part(loch_tensor_get_size(g->to, g->axis), g->rank, g->ranks);
    if (!g->part) return LOCH_FAIL(INVALID, "a gather needs the part of this rank");
    if (loch_tensor_get_dtype(g->to) != loch_tensor_get_dtype(g->part))
        return LOCH_FAIL(INVALID, "a part of type %s cannot be gathered in a tensor of type %s",
                         loch_dtype_name(loch_tensor_get_dtype(g->part)),
                         loch_dtype_name(loch_tensor_get_dtype(g->to)));
    bool is_same = dimensions == loch_tensor_get_dimensions(g->part);
    for (size_t i = 0; is_same && i < dimensions; i++)
        is_same = (int)i == g->axis || loch_tensor_get_shape(g->to)[i] == loch_tensor_get_shape(g->part)[i];
    if (!is_same) return LOCH_FAIL(INVALID, "a part has another shape than the whole beside the axis of the cut");
    if (loch_tensor_get_size(g->part, g->axis) != own.count)
        return LOCH_FAIL(INVALID, "the part of rank %d of %d has %lld indices along axis %d, not %lld", g->rank,
                         g->ranks, (long long)own.count, g->axis, (long long)loch_tensor_get_size(g->part, g->axis));
    if (!loch_tensor_is_contiguous(g->part)) return LOCH_FAIL(INVALID, "a part that is gathered has to be contiguous");
    return LOCH_OK;
}

/* Offsets in the buffer of the first byte of a tensor and of the byte behind its last one. */
static void gather_find_range(const loch_tensor *tensor, int64_t *first, int64_t *end)
{
    const int64_t item = (int64_t)loch_dtype_bytes(loch_tensor_get_dtype(tensor));
    *first = *end = (int64_t)loch_tensor_get_offset(tensor);
    for (size_t i = 0; i < loch_tensor_get_dimensions(tensor); i++) {
        const int64_t reach = (loch_tensor_get_shape(tensor)[i] - 1) * loch_tensor_get_strides(tensor)[i] * item;
        *(reach < 0 ? first : end) += reach;
    }
    *end += item;
}

/* Refuses a part that lies in the whole, but not at its place: a part that arrives could overwrite it. */
static loch_status gather_check_overlap(const cut_gather *g)
{
    int64_t to[2], part[2];
    loch_tensor *place;
    const uint64_t id = loch_buffer_get_id(loch_tensor_get_buffer(g->to));
    if (!loch_tensor_get_elements(g->part) || loch_buffer_get_id(loch_tensor_get_buffer(g->part)) != id) return LOCH_OK;
    gather_find_range(g->to, &to[0], &to[1]);
    gather_find_range(g->part, &part[0], &part[1]);
    if (part[0] >= to[1] || to[0] >= part[1]) return LOCH_OK;
    LOCH_RETURN(cut_view(g->to, g->axis, g->rank, g->ranks, &place));
    const bool is_in_place =
        loch_tensor_get_offset(place) == loch_tensor_get_offset(g->part) && loch_tensor_is_contiguous(place);
    loch_tensor_release(place);
    return is_in_place ? LOCH_OK : LOCH_FAIL(INVALID, "a part overlaps the whole elsewhere than at its place");
}

/* Returns whether equal parts lie behind each other in the whole. */
static bool gather_is_plain(const cut_gather *g)
{
    bool is_first = true;
    for (int i = 0; i < g->axis; i++)
        is_first = is_first && loch_tensor_get_shape(g->to)[i] == 1;
    return is_first && loch_tensor_get_size(g->to, g->axis) % g->ranks == 0 && loch_tensor_is_contiguous(g->to);
}

/* Makes a tensor in the stage with the shape of a part. Rank 0 has the largest part. */
static loch_status gather_stage(cut_gather *g, const loch_tensor *shape_of, loch_tensor **out)
{
    const loch_tensor_options options = {
        .size = sizeof options, .device = loch_tensor_get_device(g->to), .stream = g->stream};
    *out = NULL;
    if (!g->stage) {
        loch_tensor *largest;
        LOCH_RETURN(cut_view(g->to, g->axis, 0, g->ranks, &largest));
        const loch_status status = loch_tensor_create(loch_tensor_get_dtype(g->to), loch_tensor_get_dimensions(largest),
                                                      loch_tensor_get_shape(largest), &options, &g->stage);
        loch_tensor_release(largest);
        if (status != LOCH_OK) return status;
    }
    return loch_tensor_create_in(loch_tensor_get_buffer(g->stage), 0, loch_tensor_get_dtype(g->to),
                                 loch_tensor_get_dimensions(shape_of), loch_tensor_get_shape(shape_of), NULL, out);
}

/* Copies a part to its place, unless it is there. */
static loch_status gather_place(const cut_gather *g, loch_tensor *place, loch_tensor *from)
{
    const loch_tensor_copy_options options = {.size = sizeof options, .stream = g->stream};
    void *there, *here;
    LOCH_RETURN(loch_tensor_get_address(place, &there));
    LOCH_RETURN(loch_tensor_get_address(from, &here));
    return there == here ? LOCH_OK : loch_tensor_copy(place, from, &options);
}

/* Broadcasts the part of a rank to its place on every rank. */
static loch_status gather_one(cut_gather *g, int root)
{
    loch_tensor *place, *carrier = NULL;
    LOCH_RETURN(cut_view(g->to, g->axis, root, g->ranks, &place));
    loch_status status = LOCH_OK;
    if (loch_tensor_get_elements(place)) {
        if (root == g->rank)
            carrier = loch_tensor_retain(g->part);
        else if (loch_tensor_is_contiguous(place))
            carrier = loch_tensor_retain(place);
        else
            status = gather_stage(g, place, &carrier);
        if (status == LOCH_OK) status = loch_comm_broadcast(g->comm, carrier, root, g->stream);
        if (status == LOCH_OK) status = gather_place(g, place, carrier);
    }
    loch_tensor_release(carrier);
    loch_tensor_release(place);
    return status;
}

loch_status loch_cut_gather(loch_comm *comm, loch_tensor *to, loch_tensor *part, int axis, loch_stream *stream)
{
    loch_comm_info info;
    cut_gather g = {.comm = comm, .to = to, .part = part, .stream = stream};
    LOCH_RETURN(cut_find_ranks(comm, &info));
    LOCH_RETURN(cut_axis(to, axis, &g.axis));
    g.rank = info.rank;
    g.ranks = info.ranks;
    LOCH_RETURN(gather_check(&g));
    if (!loch_tensor_get_elements(to)) return LOCH_OK;
    LOCH_RETURN(gather_check_overlap(&g));
    if (gather_is_plain(&g)) return loch_comm_all_gather(comm, to, part, stream);
    loch_status status = LOCH_OK;
    for (int root = 0; root < g.ranks && status == LOCH_OK; root++)
        status = gather_one(&g, root);
    loch_tensor_release(g.stage);
    return status;
}
