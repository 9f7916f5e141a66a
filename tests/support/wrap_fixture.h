/* SPDX-License-Identifier: MIT */
/* Shared by the tests of the direct allocator and of the wrappers: short calls, kernels where the device is simulated,
 * and a user's allocator that knows little of itself. */
#ifndef LOCH_TEST_WRAP_FIXTURE_H
#define LOCH_TEST_WRAP_FIXTURE_H

#include "bed.h"
#include "sweep.h"
#include <pthread.h>
#include <stdatomic.h>

#define WRAP_UNUSED __attribute__((unused)) static

WRAP_UNUSED const test_bed *wrap_bed(void **state)
{
    return *state;
}

/* --- short calls --- */

WRAP_UNUSED loch_allocator *wrap_direct(const test_bed *bed)
{
    loch_allocator *direct;
    CHECK_OK(loch_direct_create(bed->device, NULL, NULL, &direct));
    return direct;
}

WRAP_UNUSED loch_allocator *wrap_direct_with(const test_bed *bed, loch_direct_options options)
{
    loch_allocator *direct;
    options.size = sizeof options;
    CHECK_OK(loch_direct_create(bed->device, "tested", &options, &direct));
    return direct;
}

WRAP_UNUSED void *wrap_alloc_on(loch_allocator *allocator, size_t bytes, loch_stream *stream)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream};
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_allocator_alloc(allocator, &request, &block));
    assert_non_null(block);
    return block;
}

WRAP_UNUSED void *wrap_alloc(loch_allocator *allocator, size_t bytes)
{
    return wrap_alloc_on(allocator, bytes, NULL);
}

WRAP_UNUSED loch_stats wrap_stats(loch_allocator *allocator)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(allocator, &stats));
    return stats;
}

WRAP_UNUSED loch_stream *wrap_stream(const test_bed *bed)
{
    loch_stream *stream;
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    return stream;
}

/* A kernel that writes the range and takes its time; nothing on devices that are not simulated. */
WRAP_UNUSED void wrap_kernel(const test_bed *bed, loch_stream *stream, const void *address, size_t bytes)
{
    if (!bed->is_sim) return;
    const loch_sim_range range = {address, bytes};
    const loch_sim_kernel kernel = {
        .size = sizeof kernel, .name = "writer", .writes = &range, .writes_count = 1, .duration_ns = 50000000};
    CHECK_OK(loch_sim_launch(stream ? stream : loch_stream_get_default(bed->device), &kernel));
}

/* Writes one byte, in the order of the stream. */
WRAP_UNUSED void wrap_poke(loch_stream *stream, void *address, unsigned char value)
{
    CHECK_OK(loch_fill_on(address, 1, &value, 1, stream));
}

/* --- a user's allocator: raw memory, figures without a lock, and no sizes --- */

typedef struct wrap_plain {
    loch_device *device;
    uint64_t allocs, frees, bytes; /* not atomic on purpose */
    void *kept;                    /* with `keeps`, what was freed last is not given back */
    bool keeps;
    bool is_destroyed;
} wrap_plain;

WRAP_UNUSED loch_status wrap_plain_alloc(void *self, const loch_request *request, void **out)
{
    wrap_plain *plain = self;
    const loch_status status =
        loch_raw_alloc(plain->device, LOCH_MEMORY_DEVICE, request->bytes, request->alignment, out);
    if (status != LOCH_OK) return status;
    plain->allocs++;
    plain->bytes += request->bytes;
    return LOCH_OK;
}

WRAP_UNUSED loch_status wrap_plain_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    wrap_plain *plain = self;
    (void)stream;
    loch_status status = loch_device_sync(plain->device);
    if (status == LOCH_OK && !plain->keeps) status = loch_raw_free(address);
    if (status != LOCH_OK) return status;
    plain->kept = plain->keeps ? address : NULL;
    plain->frees++;
    plain->bytes -= bytes;
    return LOCH_OK;
}

WRAP_UNUSED void wrap_plain_destroy(void *self)
{
    ((wrap_plain *)self)->is_destroyed = true;
}

WRAP_UNUSED loch_status wrap_plain_find(void *self, const void *address, loch_block *out)
{
    (void)self, (void)address, (void)out;
    return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "sizes are not known here");
}

WRAP_UNUSED loch_status wrap_plain_walk(void *self, loch_block_visitor *visitor, void *user)
{
    (void)self, (void)visitor, (void)user;
    return LOCH_OK;
}

WRAP_UNUSED loch_status wrap_plain_get_stats(void *self, loch_tag tag, loch_stats *out)
{
    const wrap_plain *plain = self;
    if (tag) return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "tags are not known here");
    out->allocs = plain->allocs;
    out->frees = plain->frees;
    out->blocks = plain->allocs - plain->frees;
    return LOCH_OK;
}

WRAP_UNUSED loch_status wrap_plain_trim(void *self, size_t keep_bytes, size_t *released)
{
    (void)self;
    *released = keep_bytes + 1;
    return LOCH_OK;
}

WRAP_UNUSED loch_allocator *wrap_plain_create(const test_bed *bed, wrap_plain *plain, uint32_t traits)
{
    const loch_allocator_ops ops = {.size = sizeof ops,
                                    .kind = "plain",
                                    .traits = traits,
                                    .alloc = wrap_plain_alloc,
                                    .free = wrap_plain_free,
                                    .destroy = wrap_plain_destroy,
                                    .find = wrap_plain_find,
                                    .walk = wrap_plain_walk,
                                    .get_stats = wrap_plain_get_stats,
                                    .trim = wrap_plain_trim};
    loch_allocator *allocator;
    *plain = (wrap_plain){.device = bed->device};
    CHECK_OK(loch_allocator_create(bed->device, "plain", &ops, plain, &allocator));
    return allocator;
}

/* --- a wrapper while host memory fails --- */

/* A wrapper, and what is called on it before its blocks are freed (or NULL). */
typedef struct wrap_subject {
    loch_status (*create)(loch_allocator *wrapped, loch_allocator **out);
    loch_status (*use)(loch_allocator *wrapper);
    const test_bed *bed;
} wrap_subject;

WRAP_UNUSED loch_status wrap_scenario(const void *user)
{
    const wrap_subject *subject = user;
    loch_allocator *direct = NULL, *wrapper = NULL;
    loch_stream *stream = NULL;
    void *a = NULL, *b = NULL;
    loch_status status = loch_direct_create(subject->bed->device, NULL, NULL, &direct);
    if (status == LOCH_OK) status = subject->create(direct, &wrapper);
    if (status == LOCH_OK) status = loch_stream_create(subject->bed->device, NULL, &stream);
    const loch_request request = {.size = sizeof request, .bytes = 500, .stream = stream};
    if (status == LOCH_OK) status = loch_allocator_alloc(wrapper, &request, &a);
    if (status == LOCH_OK) status = loch_alloc(wrapper, 100, &b);
    if (status == LOCH_OK) status = loch_allocator_record_use(wrapper, a, NULL);
    if (status == LOCH_OK && subject->use) status = subject->use(wrapper);
    if (wrapper) {
        TEST_BACK(loch_free(wrapper, a));
        TEST_BACK(loch_free(wrapper, b));
    }
    loch_stream_close(stream);
    loch_allocator_release(wrapper);
    loch_allocator_release(direct);
    return status;
}

/* Makes and uses a wrapper around a direct allocator while each allocation of bookkeeping fails in turn. */
WRAP_UNUSED void wrap_sweep(void **state, wrap_subject subject)
{
    subject.bed = *state;
    test_host_sweep(wrap_scenario, &subject);
}

/* Runs the group over all devices, with the failing heap in place. */
#define WRAP_RUN(tests) (test_heap_install() == LOCH_OK ? TEST_BED_RUN(tests) : 1)

#endif
