/* SPDX-License-Identifier: MIT */
/* A context is the state of one thread on an engine. Guards change the current seat, stream and debug level until the
 * end of a block. A pool on the stack of the seat holds the tensors of a request. Copies on the other seat are cached.
 * A parameter is cut in two and loaded in parts. */
#include <loch/engine.h>
#include <loch/loch.h>
#include <loch/tensor.h>
#include <stdio.h>

#define MIB ((size_t)1 << 20)
#define ROWS 6

/* Guards nest and end with their block, on every way out. Returns whether everything is restored afterwards. */
static int guards(loch_context *context)
{
    const loch_stream_options options = {.size = sizeof options, .priority = -1};
    loch_stream *own, *urgent, *inside, *behind;
    loch_status status;
    LOCH_CHECK(loch_context_require_stream(context, &own));
    LOCH_CHECK(loch_stream_create(loch_context_get_device(context), &options, &urgent));
    {
        LOCH_GUARD(status, stream, context, urgent); /* loch_context_begin_stream; ends with this block */
        LOCH_CHECK(status);
        LOCH_CHECK(loch_context_require_stream(context, &inside));
    }
    LOCH_CHECK(loch_context_require_stream(context, &behind));
    LOCH_CHECK(loch_context_set_stream(context, urgent)); /* set without a guard: stays until another level is set */
    LOCH_CHECK(loch_context_set_stream(context, NULL));
    loch_stream_close(urgent);

    loch_guard debug; /* a pair of calls, for compilers without cleanup */
    LOCH_CHECK(loch_context_begin_debug(context, 2, &debug));
    const int level = loch_context_get_debug(context);
    loch_guard_end(&debug);
    printf("debug level %d inside the guard, %d behind it\n", level, loch_context_get_debug(context));
    return inside == urgent && behind == own && level == 2 && loch_context_get_debug(context) == 0;
}

/* Runs a request in its own pool on the stack of the seat. Returns whether no block moved while moving was
 * forbidden. */
static int serve(loch_context *context)
{
    const loch_child_options options = {.size = sizeof options, .kind = LOCH_CHILD_QUOTA, .limit_bytes = 16 * MIB};
    loch_compact_report report = {.size = sizeof report};
    loch_tensor *kept[8];
    loch_status status, forbidden;
    LOCH_CHECK(loch_context_push_pool(context, "request", &options, NULL));
    printf("tensors come from \"%s\" now\n", loch_allocator_get_name(loch_context_get_allocator(context)));
    for (size_t i = 0; i < 8; i++)
        LOCH_CHECK(loch_context_create_tensor(context, LOCH_F32, LOCH_SHAPE(1, MIB / 4), "step", 0, &kept[i]));
    for (size_t i = 0; i < 8; i += 2)
        loch_tensor_clear(&kept[i]); /* free memory is now in pieces */
    {
        LOCH_GUARD(status, still, context); /* loch_context_begin_still: no block moves inside this block */
        LOCH_CHECK(status);
        forbidden = loch_pool_compact(loch_context_get_allocator(context), NULL, NULL);
    }
    loch_compact_options order = {.size = sizeof order};
    LOCH_CHECK(loch_context_require_stream(context, &order.stream)); /* the stream that the tensors are used on */
    LOCH_CHECK(loch_pool_compact(loch_context_get_allocator(context), &order, &report));
    printf("compacted: %zu tensors moved\n", report.moves);
    for (size_t i = 0; i < 8; i++)
        loch_tensor_release(kept[i]);
    LOCH_CHECK(loch_context_pop_pool(context));
    return forbidden == LOCH_E_MOVING_FORBIDDEN;
}

/* Seat 1 reads a tensor of seat 0: it is copied once, found in the cache, and copied again after a write. */
static int copies(loch_context *context)
{
    const float numbers[] = {1, 2, 3, 4};
    loch_tensor *here, *there, *again, *fresh;
    loch_stream *stream;
    loch_scalar item;
    LOCH_CHECK(loch_context_create_from(context, LOCH_F32, LOCH_SHAPE(4), numbers, "numbers", 0, &here));
    LOCH_CHECK(loch_context_set_seat(context, LOCH_SEAT(1)));
    LOCH_CHECK(loch_context_acquire_copy(context, here, &there));
    LOCH_CHECK(loch_context_acquire_copy(context, here, &again));
    const int found = loch_tensor_get_buffer(there) == loch_tensor_get_buffer(again);
    LOCH_CHECK(loch_tensor_fill(here, loch_scalar_of(7), NULL));
    LOCH_CHECK(loch_context_acquire_copy(context, here, &fresh));
    LOCH_CHECK(loch_context_require_stream(context, &stream)); /* the stream that the copy was queued on */
    LOCH_CHECK(loch_tensor_read_item(fresh, 1, (const int64_t[]){2}, stream, &item));
    printf("the copy was %s; after a write it is %g\n", found ? "found again" : "made twice", item.value.f);
    loch_tensor_release(here);
    loch_tensor_release(there);
    loch_tensor_release(again);
    loch_tensor_release(fresh);
    LOCH_CHECK(loch_context_set_seat(context, LOCH_SEAT(0)));
    return found && item.value.f == 7;
}

/* A parameter takes no memory until it is loaded. Half of its rows are on one seat and half on the other. */
static int parameters(loch_context *context)
{
    loch_parameter *weights;
    loch_tensor *lower;
    loch_scalar item;
    LOCH_CHECK(
        loch_context_declare(context, "weights", LOCH_F16, LOCH_SHAPE(ROWS, 4), LOCH_SPREAD_PARTS, 0, 0, &weights));
    loch_parameter *model = loch_parameter_retain(weights); /* a second reference */
    loch_parameter_release(weights);
    for (int64_t row = 0; row < ROWS; row += 2) { /* two rows at a time, as from a file */
        loch_tensor *part;
        LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(2, 4), NULL, &part));
        LOCH_CHECK(loch_tensor_fill(part, loch_scalar_of(row), NULL));
        LOCH_CHECK(loch_context_load_part(context, model, 0, row, part)); /* converted by the load */
        loch_tensor_release(part);
    }
    LOCH_CHECK(loch_parameter_acquire_tensor(model, LOCH_SEAT(1), &lower)); /* E_BUSY until all of it is loaded */
    LOCH_CHECK(loch_tensor_read_item(lower, 2, (const int64_t[]){-1, 0}, NULL, &item));
    printf("the last row of %s, on seat 1, is %g\n", loch_parameter_get_name(model), item.value.f);
    loch_tensor_release(lower);
    loch_parameter_release(model);
    return item.value.f == ROWS - 2;
}

int main(void)
{
    const loch_engine_device devices[] = {{.size = sizeof devices[0], .name = "cpu", .limit_bytes = 64 * MIB},
                                          {.size = sizeof devices[0], .name = "sim:64MiB"}};
    const loch_engine_options options = {.size = sizeof options, .devices = devices, .devices_count = 2};
    const loch_context_options movable = {.size = sizeof movable, .flags = LOCH_ALLOC_MOVABLE};
    loch_context_stats stats = {.size = sizeof stats};
    loch_engine *engine;
    loch_context *context;
    loch_guard seat;
    int right = 0;
    LOCH_CHECK(loch_engine_open(&options, &engine));
    LOCH_CHECK(loch_context_open(engine, &movable, &context));
    /* Seat 0 is current and locked: other threads that lock it wait. */
    LOCH_CHECK(loch_context_begin_seat(context, LOCH_SEAT(0), LOCH_SEAT_LOCKED, &seat));
    right += guards(context);
    right += serve(context);
    loch_guard_end(&seat);
    right += copies(context);
    right += parameters(context);
    LOCH_CHECK(loch_context_get_stats(context, &stats));
    printf("%zu tensors live; at most %zu KiB were in use\n", stats.tensors, stats.peak_bytes / 1024);
    LOCH_CHECK(loch_context_close(context));
    LOCH_CHECK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
    return right == 4 && stats.tensors == 0 && stats.copies == 0 && stats.peak_bytes == 8 * MIB ? 0 : 1;
}
