/* SPDX-License-Identifier: MIT */
/* Parameters: tensors that are declared first and loaded later.
 *
 * A parameter has a place on each of its seats: the whole, or a part along the axis that it is cut along. A sorted list
 * of ranges along one axis records what was loaded; this is the axis that parts are loaded along. The axis may change
 * while nothing or everything is loaded. A load copies boxes that are whole along all axes except two: the axis of the
 * loaded part and the axis that places are cut along. */
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "engine/context/memory.h"
#include "engine/context/parameter.h"
#include "engine/context/seat.h"
#include "engine/context/thread.h"
#include "tensor/tensor.h"
#include <stdatomic.h>
#include <string.h>

/* Indices [start, end) of an axis. */
typedef struct parameter_range {
    int64_t start, end;
} parameter_range;

typedef struct parameter_place {
    unsigned seat;
    parameter_range part; /* indices along the cut axis; all of them if the parameter is not cut */
    loch_tensor *tensor;  /* NULL until the first load allocates it */
} parameter_place;

struct loch_parameter {
    atomic_size_t references;
    loch_engine *engine; /* the engine of the seats; only compared, never used */
    char *name;
    lochi_layout layout; /* of the whole parameter */
    loch_tag tag;
    bool is_cut;
    size_t cut_axis; /* valid if the parameter is cut */
    /* Stored with release after the tensors are written. A thread that loads true with acquire sees the tensors. */
    atomic_bool is_loaded;
    size_t loaded_axis;      /* the axis of `ranges` */
    parameter_range *ranges; /* sorted and disjoint; has room for one more while a part is loaded */
    size_t ranges_count, ranges_room;
    size_t places_count;
    parameter_place places[];
};

/* --- create, retain, release --- */

static parameter_range parameter_part(int64_t size, size_t places, size_t index)
{
    const int64_t count = (int64_t)places, at = (int64_t)index, each = size / count, longer = size % count;
    const int64_t start = at * each + (at < longer ? at : longer);
    return (parameter_range){start, start + each + (at < longer)};
}

static void parameter_set_places(const loch_context *context, loch_spread spread, loch_parameter *parameter)
{
    const lochi_layout *layout = &parameter->layout;
    for (size_t i = 0; i < parameter->places_count; i++) {
        parameter_place *place = &parameter->places[i];
        place->seat = spread == LOCH_SPREAD_ONE ? context->current : context->order[i];
        if (parameter->is_cut)
            place->part = parameter_part(layout->shape[parameter->cut_axis], parameter->places_count, i);
    }
}

static loch_status parameter_fill(loch_context *context, const char *name, loch_spread spread, int axis,
                                  loch_parameter *parameter)
{
    parameter->name = lochi_strdup(name ? name : "");
    if (!parameter->name) return LOCH_FAIL(HOST_MEMORY, "no host memory for a parameter");
    parameter->is_cut = spread == LOCH_SPREAD_PARTS;
    if (parameter->is_cut) LOCH_TRY_RETURN(lochi_axis_read(parameter->layout.dimensions, axis, &parameter->cut_axis));
    parameter->engine = context->engine;
    parameter_set_places(context, spread, parameter);
    return LOCH_OK;
}

loch_status loch_context_declare(loch_context *context, const char *name, loch_dtype dtype, size_t dimensions,
                                 const int64_t *shape, loch_spread spread, int axis, loch_tag tag, loch_parameter **out)
{
    if (out) *out = NULL;
    LOCH_TRY_RETURN(lochi_context_check(context));
    if (!out || (unsigned)spread > LOCH_SPREAD_PARTS)
        return LOCH_FAIL(INVALID, "a parameter needs an out pointer and a valid loch_spread value");
    lochi_layout layout;
    LOCH_TRY_RETURN(lochi_layout_make(dtype, dimensions, shape, NULL, &layout));
    const size_t places = spread == LOCH_SPREAD_ONE ? 1 : context->order_count;
    /* cannot overflow: there are few places */
    loch_parameter *parameter = lochi_zalloc(sizeof *parameter + places * sizeof *parameter->places);
    if (!parameter) return LOCH_FAIL(HOST_MEMORY, "no host memory for a parameter");
    atomic_init(&parameter->references, 1);
    parameter->layout = layout;
    parameter->tag = tag;
    parameter->places_count = places;
    const loch_status status = parameter_fill(context, name, spread, axis, parameter);
    if (status != LOCH_OK) {
        loch_parameter_release(parameter);
        return status;
    }
    *out = parameter;
    return LOCH_OK;
}

loch_parameter *loch_parameter_retain(loch_parameter *parameter)
{
    if (parameter) atomic_fetch_add_explicit(&parameter->references, 1, memory_order_relaxed);
    return parameter;
}

void loch_parameter_release(loch_parameter *parameter)
{
    /* acquire and release: the thread that frees it sees the writes of all others */
    if (!parameter || atomic_fetch_sub_explicit(&parameter->references, 1, memory_order_acq_rel) != 1) return;
    for (size_t i = 0; i < parameter->places_count; i++)
        loch_tensor_release(parameter->places[i].tensor);
    lochi_free(parameter->ranges);
    lochi_free(parameter->name);
    lochi_free(parameter);
}

/* --- what was loaded --- */

/* Makes room for one more range. That is enough to add a range, and to cut one in two. */
static loch_status ranges_make_room(loch_parameter *parameter)
{
    if (parameter->ranges_count < parameter->ranges_room) return LOCH_OK;
    const size_t room = 2 * parameter->ranges_room + 4;
    parameter_range *ranges = lochi_realloc(parameter->ranges, room * sizeof *ranges);
    if (!ranges) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a part of a parameter");
    parameter->ranges = ranges;
    parameter->ranges_room = room;
    return LOCH_OK;
}

static void ranges_insert(loch_parameter *parameter, size_t at, parameter_range range)
{
    if (range.start >= range.end) return;
    memmove(&parameter->ranges[at + 1], &parameter->ranges[at],
            (parameter->ranges_count - at) * sizeof *parameter->ranges);
    parameter->ranges[at] = range;
    parameter->ranges_count++;
}

static void ranges_remove(loch_parameter *parameter, size_t at)
{
    parameter->ranges_count--;
    memmove(&parameter->ranges[at], &parameter->ranges[at + 1],
            (parameter->ranges_count - at) * sizeof *parameter->ranges);
}

/* Adds a range and joins it with all ranges that it overlaps or touches. */
static void ranges_add(loch_parameter *parameter, parameter_range range)
{
    size_t at = 0;
    while (at < parameter->ranges_count && parameter->ranges[at].end < range.start)
        at++;
    while (at < parameter->ranges_count && parameter->ranges[at].start <= range.end) {
        if (parameter->ranges[at].start < range.start) range.start = parameter->ranges[at].start;
        if (parameter->ranges[at].end > range.end) range.end = parameter->ranges[at].end;
        ranges_remove(parameter, at);
    }
    ranges_insert(parameter, at, range);
}

/* Removes the indices of `range`. At most one range is cut in two. */
static void ranges_subtract(loch_parameter *parameter, parameter_range range)
{
    for (size_t at = 0; at < parameter->ranges_count;) {
        const parameter_range old = parameter->ranges[at];
        if (old.end <= range.start || old.start >= range.end) {
            at++;
            continue;
        }
        ranges_remove(parameter, at);
        ranges_insert(parameter, at, (parameter_range){range.end, old.end});
        ranges_insert(parameter, at, (parameter_range){old.start, range.start});
    }
}

static bool ranges_are_whole(const loch_parameter *parameter, int64_t size)
{
    if (!size) return true;
    return parameter->ranges_count == 1 && parameter->ranges[0].start == 0 && parameter->ranges[0].end == size;
}

/* --- loading --- */

/* A load in progress. */
typedef struct parameter_load {
    loch_context *context;
    loch_parameter *parameter;
    loch_tensor *from;
    size_t axis;           /* the axis of the loaded part; any value for a scalar */
    parameter_range range; /* the loaded part along `axis` */
    int64_t size;          /* of the parameter along `axis` */
} parameter_load;

/* Sets the axis of a load. A scalar counts as one element along an axis of size 1. */
static void load_set_axis(parameter_load *load, size_t axis)
{
    load->axis = axis;
    load->size = load->parameter->layout.dimensions ? load->parameter->layout.shape[axis] : 1;
}

static loch_status load_check_shape(const parameter_load *load)
{
    const lochi_layout *whole = &load->parameter->layout, *from = &load->from->layout;
    bool is_same = whole->dimensions == from->dimensions;
    for (size_t i = 0; is_same && i < whole->dimensions; i++)
        is_same =
            i == load->axis ? from->shape[i] == load->range.end - load->range.start : from->shape[i] == whole->shape[i];
    if (is_same) return LOCH_OK;
    return LOCH_FAIL(INVALID, "the tensor to load does not have the shape of the parameter \"%.64s\" or of its part",
                     load->parameter->name);
}

/* Checks that the context has all seats of the parameter. */
static loch_status load_check_seats(const parameter_load *load)
{
    if (load->parameter->engine != load->context->engine)
        return LOCH_FAIL(INVALID, "the parameter \"%.64s\" was declared with another engine", load->parameter->name);
    for (size_t i = 0; i < load->parameter->places_count; i++)
        LOCH_TRY_RETURN(lochi_context_check_seat(load->context, LOCH_SEAT(load->parameter->places[i].seat)));
    return LOCH_OK;
}

/* Checks that a part may be loaded along `axis`. Another axis than that of the ranges is allowed only while no
 * information is lost. */
static loch_status load_check_axis(const parameter_load *load)
{
    loch_parameter *parameter = load->parameter;
    const bool is_whole = load->range.start == 0 && load->range.end == load->size;
    const bool is_loaded = atomic_load_explicit(&parameter->is_loaded, memory_order_relaxed);
    if (parameter->loaded_axis == load->axis && !is_loaded) return LOCH_OK;
    if (!is_loaded && parameter->ranges_count && !is_whole)
        return LOCH_FAIL(
            INVALID,
            "parts of the parameter \"%.64s\" were loaded along axis %zu; a part along axis %zu cannot be added",
            parameter->name, parameter->loaded_axis, load->axis);
    parameter->loaded_axis = load->axis;
    parameter->ranges_count = 0;
    if (is_loaded) ranges_insert(parameter, 0, (parameter_range){0, load->size});
    return LOCH_OK;
}

/* Returns the name for the tensors of a parameter. Keeps the end of a long name, which tells more than its
 * beginning. */
static const char *parameter_tensor_name(const loch_parameter *parameter)
{
    const size_t length = strlen(parameter->name);
    return length < LOCH_TENSOR_NAME_MAX ? parameter->name : parameter->name + length - (LOCH_TENSOR_NAME_MAX - 1);
}

/* Allocates the tensor of a place from the seat's own memory. Parameters outlive the pools of the stack. */
static loch_status load_alloc(const parameter_load *load, parameter_place *place)
{
    const loch_parameter *parameter = load->parameter;
    int64_t shape[LOCH_DIMENSIONS_MAX];
    memcpy(shape, parameter->layout.shape, sizeof shape);
    if (parameter->is_cut) shape[parameter->cut_axis] = place->part.end - place->part.start;
    lochi_context_wish wish = {.allocator = lochi_context_place(load->context, place->seat)->allocator,
                               .seat = place->seat,
                               .flags = load->context->flags & LOCH_ALLOC_MOVABLE,
                               .tag = parameter->tag,
                               .name = parameter_tensor_name(parameter)};
    LOCH_TRY_RETURN(lochi_context_stream(load->context, place->seat, &wish.stream));
    LOCH_TRY_RETURN(lochi_context_alloc(load->context, &wish, parameter->layout.dtype, parameter->layout.dimensions,
                                        shape, &place->tensor));
    lochi_context_count(load->context, place->tensor);
    return LOCH_OK;
}

static void load_give_memory_back(const parameter_load *load)
{
    for (size_t i = 0; i < load->parameter->places_count; i++)
        loch_tensor_clear(&load->parameter->places[i].tensor);
}

/* Takes a tensor that shows indices from `start` on of `axis`. Replaces `*tensor` by a view of `range`. */
static loch_status load_narrow(loch_tensor **tensor, size_t axis, int64_t start, parameter_range range)
{
    loch_tensor *narrow;
    LOCH_TRY_RETURN(loch_tensor_slice(*tensor, (int)axis, range.start - start, range.end - start, 1, &narrow));
    loch_tensor_release(*tensor);
    *tensor = narrow;
    return LOCH_OK;
}

static parameter_range range_common(parameter_range a, parameter_range b)
{
    return (parameter_range){a.start > b.start ? a.start : b.start, a.end < b.end ? a.end : b.end};
}

/* Narrows both sides to the indices that the loaded part and the place share. Sets `is_any` to false if they share
 * none. */
static loch_status load_meet(const parameter_load *load, const parameter_place *place, loch_tensor **to,
                             loch_tensor **from, bool *is_any)
{
    const loch_parameter *parameter = load->parameter;
    const bool is_same_axis = parameter->is_cut && parameter->cut_axis == load->axis;
    parameter_range common = is_same_axis ? range_common(load->range, place->part) : load->range;
    *is_any = common.start < common.end && (!parameter->is_cut || place->part.start < place->part.end);
    if (!*is_any || !parameter->layout.dimensions) return LOCH_OK;
    LOCH_TRY_RETURN(load_narrow(to, load->axis, is_same_axis ? place->part.start : 0, common));
    LOCH_TRY_RETURN(load_narrow(from, load->axis, load->range.start, common));
    if (!parameter->is_cut || is_same_axis) return LOCH_OK;
    /* the tensor of the place is already the part of the place */
    return load_narrow(from, parameter->cut_axis, 0, place->part);
}

static loch_status load_copy(const parameter_load *load, const parameter_place *place)
{
    loch_tensor *to = loch_tensor_retain(place->tensor), *from = loch_tensor_retain(load->from);
    loch_tensor_copy_options copy = {.size = sizeof copy};
    bool is_any;
    loch_status status;
    LOCH_TRY(load_meet(load, place, &to, &from, &is_any), end);
    LOCH_TRY(lochi_context_stream(load->context, place->seat, &copy.stream), end);
    if (is_any) LOCH_TRY(loch_tensor_copy(to, from, &copy), end);
end:
    loch_tensor_release(to);
    loch_tensor_release(from);
    return status;
}

/* Waits for all seats, also after a failure: the caller may reuse its host memory when the call returns. */
static loch_status load_wait(const parameter_load *load, loch_status status)
{
    for (size_t i = 0; i < load->parameter->places_count; i++) {
        const loch_error saved = lochi_error_save();
        loch_stream *stream;
        loch_status waited = lochi_context_stream(load->context, load->parameter->places[i].seat, &stream);
        if (waited == LOCH_OK) waited = loch_stream_sync(stream);
        if (status != LOCH_OK)
            lochi_error_restore(&saved);
        else
            status = waited;
    }
    return status;
}

/* Allocates memory and copies, on all seats at the same time. */
static loch_status load_run(const parameter_load *load)
{
    const loch_parameter *parameter = load->parameter;
    loch_status status = LOCH_OK;
    for (size_t i = 0; status == LOCH_OK && i < parameter->places_count; i++)
        if (!parameter->places[i].tensor) status = load_alloc(load, &load->parameter->places[i]);
    for (size_t i = 0; status == LOCH_OK && i < parameter->places_count; i++)
        status = load_copy(load, &parameter->places[i]);
    return load_wait(load, status);
}

/* Loads a part. The shape has been checked, and the range lies in the parameter. */
static loch_status parameter_load_checked(const parameter_load *load)
{
    loch_parameter *parameter = load->parameter;
    const bool is_first = !parameter->places[0].tensor;
    LOCH_TRY_RETURN(load_check_seats(load));
    LOCH_TRY_RETURN(ranges_make_room(parameter));
    LOCH_TRY_RETURN(load_check_axis(load));
    const loch_status status = load_run(load);
    if (status == LOCH_OK) {
        ranges_add(parameter, load->range);
    } else {
        ranges_subtract(parameter, load->range); /* parts of the range may have been written */
        const loch_error saved = lochi_error_save();
        if (is_first) load_give_memory_back(load);
        lochi_error_restore(&saved);
    }
    const bool is_loaded = status == LOCH_OK ? ranges_are_whole(parameter, load->size) : false;
    atomic_store_explicit(&parameter->is_loaded, is_loaded, memory_order_release);
    return status;
}

static loch_status load_begin(loch_context *context, loch_parameter *parameter, loch_tensor *from)
{
    LOCH_TRY_RETURN(lochi_context_check(context));
    if (!parameter || !from) return LOCH_FAIL(INVALID, "loading a parameter needs the parameter and a tensor");
    if (!loch_tensor_is_on_host(from))
        return LOCH_FAIL(INVALID, "the parameter \"%.64s\" can be loaded only from memory that the host can access",
                         parameter->name);
    return LOCH_OK;
}

loch_status loch_context_load(loch_context *context, loch_parameter *parameter, loch_tensor *from)
{
    LOCH_TRY_RETURN(load_begin(context, parameter, from));
    parameter_load load = {.context = context, .parameter = parameter, .from = from};
    load_set_axis(&load, parameter->loaded_axis);
    load.range = (parameter_range){0, load.size};
    LOCH_TRY_RETURN(load_check_shape(&load));
    return parameter_load_checked(&load);
}

loch_status loch_context_load_part(loch_context *context, loch_parameter *parameter, int axis, int64_t start,
                                   loch_tensor *from)
{
    LOCH_TRY_RETURN(load_begin(context, parameter, from));
    parameter_load load = {.context = context, .parameter = parameter, .from = from};
    size_t read;
    LOCH_TRY_RETURN(lochi_axis_read(parameter->layout.dimensions, axis, &read));
    load_set_axis(&load, read);
    const int64_t count = loch_tensor_get_size(from, (int)read); /* -1 if the tensor has no such axis */
    if (start < 0 || start > load.size || count > load.size - start)
        return LOCH_FAIL(
            OUT_OF_RANGE,
            "a part that starts at index %lld does not fit axis %zu of the parameter \"%.64s\", which has size %lld",
            (long long)start, read, parameter->name, (long long)load.size);
    load.range = (parameter_range){start, start + (count < 0 ? 0 : count)};
    LOCH_TRY_RETURN(load_check_shape(&load));
    return parameter_load_checked(&load);
}

/* --- questions --- */

const char *loch_parameter_get_name(const loch_parameter *parameter)
{
    return parameter ? parameter->name : "";
}

bool lochi_parameter_is_loaded(const loch_parameter *parameter)
{
    return atomic_load_explicit(&parameter->is_loaded, memory_order_acquire);
}

loch_status loch_parameter_acquire_tensor(const loch_parameter *parameter, loch_seat seat, loch_tensor **out)
{
    if (out) *out = NULL;
    if (!parameter || !out)
        return LOCH_FAIL(INVALID, "the tensor of a parameter on a seat needs the parameter and an out pointer");
    const parameter_place *place = NULL;
    for (size_t i = 0; !place && i < parameter->places_count; i++)
        if (parameter->places[i].seat == seat.number) place = &parameter->places[i];
    const bool is_empty = place && parameter->is_cut && place->part.start == place->part.end &&
                          parameter->layout.shape[parameter->cut_axis];
    if (!place || is_empty)
        return LOCH_FAIL(NOT_FOUND, "the parameter \"%.64s\" has no part on seat %u", parameter->name, seat.number);
    if (!lochi_parameter_is_loaded(parameter))
        return LOCH_FAIL(BUSY, "the parameter \"%.64s\" is not completely loaded", parameter->name);
    *out = loch_tensor_retain(place->tensor);
    return LOCH_OK;
}
