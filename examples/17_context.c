/* SPDX-License-Identifier: MIT */
/* A context: what one thread works with on an engine. Guards change the current seat, stream and debug level to the end of a block, a pool
 * on the seat's stack holds a request's tensors, copies on the other seat are kept, and a parameter is cut in two and loaded in parts. */
#include <loch/loch.h>
#include <stdio.h>

#define MIB ((size_t)1 << 20)
#define ROWS 6

/* Guards nest, and end with their block in whatever way it is left. */
static loch_status guards(loch_context *context)
{
    loch_status status;
    loch_stream *own, *urgent, *now;
    const loch_stream_options options = {.size = sizeof options, .priority = -1};
    LOCH_RETURN(loch_context_require_stream(context, &own));
    LOCH_RETURN(loch_stream_create(loch_context_get_device(context), &options, &urgent));
    {
        LOCH_GUARD(status, stream, context, urgent); /* loch_context_begin_stream; ends with this block */
        if (status == LOCH_OK) status = loch_context_require_stream(context, &now);
        if (status == LOCH_OK && now != urgent) status = LOCH_E_CORRUPT;
    }
    if (status == LOCH_OK) status = loch_context_require_stream(context, &now);
    if (status == LOCH_OK && now != own) status = LOCH_E_CORRUPT;
    if (status == LOCH_OK) status = loch_context_set_stream(context, urgent); /* without a guard: until the next call */
    if (status == LOCH_OK) status = loch_context_set_stream(context, NULL);
    loch_stream_close(urgent);
    LOCH_RETURN(status);

    loch_guard debug; /* the same without the macro, for any compiler */
    LOCH_RETURN(loch_context_begin_debug(context, 2, &debug));
    printf("debug level %d inside the guard", loch_context_get_debug(context));
    loch_guard_end(&debug);
    printf(", %d behind it\n", loch_context_get_debug(context));
    return LOCH_OK;
}

/* A request has a pool of its own on top of the stack; what is left in it goes with its tensors. */
static loch_status serve(loch_context *context)
{
    loch_status status = LOCH_OK;
    const loch_child_options options = {.size = sizeof options, .kind = LOCH_CHILD_QUOTA, .limit_bytes = 16 * MIB};
    loch_allocator *child;
    LOCH_RETURN(loch_context_push_pool(context, "request", &options, &child));
    printf("tensors come from \"%s\" now\n", loch_allocator_get_name(loch_context_get_allocator(context)));
    loch_tensor *kept[8] = {NULL};
    for (size_t i = 0; i < 8 && status == LOCH_OK; i++)
        status = loch_context_create_tensor(context, LOCH_F32, LOCH_SHAPE(1, MIB / 4), "step", 0, &kept[i]);
    for (size_t i = 0; i < 8; i += 2)
        loch_tensor_clear(&kept[i]);
    if (status == LOCH_OK) {                /* what is free lies in pieces: nothing moves while the guard holds */
        LOCH_GUARD(status, still, context); /* loch_context_begin_still */
        if (status == LOCH_OK && loch_context_compact(context, NULL, NULL) != LOCH_E_MOVING_FORBIDDEN)
            status = LOCH_E_CORRUPT;
    }
    loch_compact_report report = {.size = sizeof report};
    if (status == LOCH_OK) status = loch_context_compact(context, NULL, &report);
    if (status == LOCH_OK) printf("compacted: %zu tensors moved\n", report.moves);
    for (size_t i = 0; i < 8; i++)
        loch_tensor_release(kept[i]);
    const loch_status popped = loch_context_pop_pool(context);
    return status == LOCH_OK ? popped : status;
}

/* A tensor of seat 0 that seat 1 reads: copied once, found again, and copied anew when it was written. */
static loch_status copies(loch_context *context, size_t *kept_bytes)
{
    const float numbers[] = {1, 2, 3, 4};
    LOCH_AUTO(tensor) here = NULL;
    LOCH_AUTO(tensor) there = NULL;
    LOCH_AUTO(tensor) again = NULL;
    LOCH_AUTO(tensor) fresh = NULL;
    LOCH_RETURN(loch_context_create_from(context, LOCH_F32, LOCH_SHAPE(4), numbers, "numbers", 0, &here));
    LOCH_RETURN(loch_context_set_seat(context, LOCH_SEAT(1)));
    LOCH_RETURN(loch_context_acquire_copy(context, here, &there));
    LOCH_RETURN(loch_context_acquire_copy(context, here, &again));
    const int found = loch_tensor_get_buffer(there) == loch_tensor_get_buffer(again);
    LOCH_RETURN(loch_tensor_fill(here, loch_scalar_of(7), NULL));
    LOCH_RETURN(loch_context_acquire_copy(context, here, &fresh));
    loch_scalar item;
    loch_stream *stream;
    LOCH_RETURN(loch_context_require_stream(context, &stream));
    LOCH_RETURN(loch_tensor_read_item(fresh, 1, (const int64_t[]){2}, stream, &item));
    printf("the copy was %s; after a write it is %g\n", found ? "found again" : "made twice", item.value.f);
    LOCH_RETURN(loch_context_set_seat(context, LOCH_SEAT(0)));
    *kept_bytes = loch_context_drop_copies(context);
    return found && item.value.f == 7 ? LOCH_OK : LOCH_E_CORRUPT;
}

/* A parameter takes no memory until it is loaded; its rows lie half on one seat and half on the other. */
static loch_status parameters(loch_context *context)
{
    loch_parameter *weights;
    LOCH_RETURN(
        loch_context_declare(context, "weights", LOCH_F16, LOCH_SHAPE(ROWS, 4), LOCH_SPREAD_PARTS, 0, 0, &weights));
    loch_parameter *model = loch_parameter_retain(weights); /* a second owner */
    loch_parameter_release(weights);
    loch_status status = LOCH_OK;
    for (int64_t row = 0; row < ROWS && status == LOCH_OK; row += 2) { /* as from a file, two rows at a time */
        LOCH_AUTO(tensor) part = NULL;
        status = loch_tensor_create(LOCH_F32, LOCH_SHAPE(2, 4), NULL, &part);
        if (status == LOCH_OK) status = loch_tensor_fill(part, loch_scalar_of(row), NULL);
        if (status == LOCH_OK) status = loch_context_load_part(context, model, 0, row, part);
    }
    LOCH_AUTO(tensor) lower = NULL;
    loch_scalar item = {.value.f = -1};
    if (status == LOCH_OK) status = loch_parameter_acquire_tensor(model, LOCH_SEAT(1), &lower);
    if (status == LOCH_OK) status = loch_tensor_read_item(lower, 2, (const int64_t[]){2, 0}, NULL, &item);
    if (status == LOCH_OK)
        printf("%s is %s; its last row, on seat 1, is %g\n", loch_parameter_get_name(model),
               loch_parameter_is_loaded(model) ? "loaded" : "not loaded", item.value.f);
    loch_parameter_release(model);
    return status == LOCH_OK && item.value.f != ROWS - 2 ? LOCH_E_CORRUPT : status;
}

int main(void)
{
    const loch_engine_device devices[] = {{.size = sizeof devices[0], .name = "cpu", .limit_bytes = 64 * MIB},
                                          {.size = sizeof devices[0], .name = "sim:64MiB,backed"}};
    const loch_engine_options options = {.size = sizeof options, .devices = devices, .devices_count = 2};
    const loch_context_options movable = {.size = sizeof movable, .flags = LOCH_ALLOC_MOVABLE};
    loch_context_stats stats = {.size = sizeof stats};
    loch_engine *engine;
    loch_context *context;
    size_t copy_bytes = 0;
    LOCH_CHECK(loch_engine_open(&options, &engine));
    LOCH_CHECK(loch_context_open(engine, &movable, &context));
    loch_guard seat; /* seat 0, and its lock: other threads that want it wait */
    LOCH_CHECK(loch_context_begin_seat(context, LOCH_SEAT(0), LOCH_SEAT_LOCKED, &seat));
    LOCH_CHECK(guards(context));
    LOCH_CHECK(serve(context));
    loch_guard_end(&seat);
    LOCH_CHECK(copies(context, &copy_bytes));
    LOCH_CHECK(parameters(context));
    LOCH_CHECK(loch_context_get_stats(context, &stats));
    printf("%zu tensors live, at most %zu KiB were in use; %zu bytes of copies were dropped\n", stats.tensors,
           stats.peak_bytes / 1024, copy_bytes);
    LOCH_CHECK(loch_context_close(context));
    LOCH_CHECK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
    return stats.tensors == 0 && stats.copies == 0 && stats.peak_bytes == 8 * MIB && copy_bytes > 0 ? 0 : 1;
}
