/* SPDX-License-Identifier: MIT */
/* Buffers: ownership, parts, memory from outside, sizes. What the original of seeds 000 to 002 got wrong is named. */
#include "tensor_fixture.h"
#include <pthread.h>

/* --- owning and sharing --- */

static void the_last_reference_frees_the_block(void **state)
{
    (void)state;
    loch_device *cpu = sim_open("cpu");
    loch_allocator *allocator = tensor_allocator(cpu);
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(allocator, 1000, NULL, &buffer));
    assert_int_equal(tensor_live_blocks(allocator), 1);
    assert_int_equal(loch_buffer_get_bytes(buffer), 1000);
    assert_ptr_equal(loch_buffer_get_device(buffer), cpu);
    assert_ptr_equal(loch_buffer_get_allocator(buffer), allocator);
    assert_true(loch_buffer_is_on_host(buffer));
    assert_int_equal(loch_buffer_get_access(buffer), LOCH_READ_WRITE);
    memset(loch_buffer_get_address(buffer), 1, 1000);

    assert_ptr_equal(loch_buffer_retain(buffer), buffer);
    assert_int_equal(loch_buffer_get_references(buffer), 2);
    loch_buffer_release(buffer);
    assert_int_equal(tensor_live_blocks(allocator), 1);
    loch_buffer *moved = loch_buffer_take(&buffer);
    assert_null(buffer);
    loch_buffer_clear(&buffer); /* empty: nothing */
    loch_buffer_clear(&moved);
    assert_null(moved);
    assert_int_equal(tensor_live_blocks(allocator), 0);
    loch_buffer_release(NULL);
    assert_null(loch_buffer_retain(NULL));
    assert_null(loch_buffer_take(NULL));
    loch_buffer_clear(NULL);
    loch_allocator_release(allocator);
    loch_device_release(cpu);
}

/* Seed 001's handles outlive their allocator's factory; seed 003's call a dead allocator. */
static void a_buffer_outlives_its_allocator_and_device(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_allocator *allocator = tensor_allocator(device);
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(allocator, TEST_MIB, NULL, &buffer));
    CHECK_OK(loch_device_set_allocator(device, NULL));
    loch_allocator_release(allocator);
    loch_device_release(device);
    const unsigned char seven = 7;
    CHECK_OK(loch_buffer_fill(buffer, &seven, 1, NULL));
    loch_buffer_release(buffer);
}

static void a_buffer_is_made_on_a_device(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_buffer *on_host, *on_device;
    CHECK_OK(loch_buffer_create_for_device(NULL, 100, NULL, &on_host));
    CHECK_OK(loch_buffer_create_for_device(device, 100, NULL, &on_device));
    assert_string_equal(loch_device_get_name(loch_buffer_get_device(on_host)), "cpu");
    assert_ptr_equal(loch_buffer_get_device(on_device), device);
    assert_false(loch_buffer_is_on_host(on_device));
    assert_int_equal(loch_buffer_get_kind(on_device), LOCH_MEMORY_DEVICE);
    assert_true(loch_buffer_get_id(on_host) != loch_buffer_get_id(on_device));
    loch_buffer_release(on_host);
    loch_buffer_release(on_device);
    loch_device_release(device);
}

/* Seed 002's Buffer zeroes device memory with a host memset. */
static void a_zeroed_buffer_on_a_device_is_zero(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_allocator *allocator = tensor_allocator(device);
    const unsigned char ones = 0xff;
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(allocator, 4096, NULL, &buffer));
    CHECK_OK(loch_buffer_fill(buffer, &ones, 1, NULL));
    loch_buffer_clear(&buffer);
    const loch_request zeroed = {.size = sizeof zeroed, .flags = LOCH_ALLOC_ZEROED};
    CHECK_OK(loch_buffer_create(allocator, 4096, &zeroed, &buffer));
    unsigned char host[4096];
    memset(host, 1, sizeof host);
    CHECK_OK(loch_copy(host, loch_buffer_get_address(buffer), sizeof host));
    for (size_t i = 0; i < sizeof host; i++)
        assert_int_equal(host[i], 0);
    loch_buffer_release(buffer);
    loch_allocator_release(allocator);
    loch_device_release(device);
}

static void an_empty_buffer_has_no_memory(void **state)
{
    (void)state;
    loch_buffer *empty, *other, *part;
    CHECK_OK(loch_buffer_create_for_device(NULL, 0, NULL, &empty));
    CHECK_OK(loch_buffer_wrap(NULL, 0, NULL, &other));
    assert_int_equal(loch_buffer_get_bytes(empty), 0);
    assert_null(loch_buffer_get_address(empty));
    CHECK_OK(loch_buffer_copy(empty, other, NULL));
    const unsigned char zero = 0;
    CHECK_OK(loch_buffer_fill(empty, &zero, 1, NULL));
    CHECK_OK(loch_buffer_slice(empty, 0, 0, &part));
    loch_buffer_release(other);
    CHECK_FAILS(loch_buffer_slice(empty, 0, 1, &other), OUT_OF_RANGE);
    assert_null(other);
    CHECK_OK(loch_buffer_resize(empty, 64, LOCH_CONTENTS_KEEP, NULL));
    assert_non_null(loch_buffer_get_address(empty));
    CHECK_OK(loch_buffer_resize(empty, 0, LOCH_CONTENTS_KEEP, NULL));
    assert_null(loch_buffer_get_address(empty));
    loch_buffer_release(part);
    loch_buffer_release(empty);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    loch_buffer *buffer = TEST_UNTOUCHED;
    loch_request no_size = {0};
    loch_device *cpu = sim_open("cpu");
    loch_allocator *allocator = tensor_allocator(cpu);
    CHECK_FAILS(loch_buffer_create(NULL, 1, NULL, &buffer), INVALID);
    assert_null(buffer);
    CHECK_FAILS(loch_buffer_create(allocator, 1, NULL, NULL), INVALID);
    CHECK_FAILS(loch_buffer_create(allocator, 1, &no_size, &buffer), INVALID);
    CHECK_FAILS(loch_buffer_create(allocator, SIZE_MAX, NULL, &buffer), OVERFLOW);
    assert_null(buffer);
    CHECK_FAILS(loch_buffer_wrap(NULL, 1, NULL, &buffer), INVALID);
    CHECK_FAILS(loch_buffer_wrap(&no_size, SIZE_MAX, NULL, &buffer), OVERFLOW);
    CHECK_FAILS(loch_buffer_copy(NULL, NULL, NULL), INVALID);
    CHECK_FAILS(loch_buffer_fill(NULL, &no_size, 1, NULL), INVALID);
    CHECK_FAILS(loch_buffer_resize(NULL, 1, LOCH_CONTENTS_KEEP, NULL), INVALID);
    CHECK_FAILS(loch_buffer_record_use(NULL, NULL), INVALID);
    CHECK_FAILS(loch_buffer_detach(NULL, NULL), INVALID);
    CHECK_FAILS(loch_buffer_slice(NULL, 0, 0, &buffer), INVALID);
    CHECK_OK(loch_buffer_create(allocator, 10, NULL, &buffer));
    CHECK_FAILS(loch_buffer_resize(buffer, 1, (loch_contents)7, NULL), INVALID);
    CHECK_FAILS(loch_buffer_fill(buffer, &no_size, 3, NULL), INVALID);
    CHECK_FAILS(loch_buffer_fill(buffer, &no_size, 4, NULL), INVALID); /* 10 is no multiple of 4 */
    loch_buffer_release(buffer);
    assert_null(loch_buffer_get_address(NULL));
    assert_int_equal(loch_buffer_get_bytes(NULL), 0);
    assert_null(loch_buffer_get_device(NULL));
    assert_null(loch_buffer_get_allocator(NULL));
    assert_int_equal(loch_buffer_get_references(NULL), 0);
    assert_int_equal(loch_buffer_get_id(NULL), 0);
    assert_int_equal(loch_buffer_get_access(NULL), LOCH_READ_ONLY);
    assert_false(loch_buffer_is_on_host(NULL));
    loch_allocator_release(allocator);
    loch_device_release(cpu);
}

/* --- memory from outside --- */

static void memory_from_outside_is_deleted_once(void **state)
{
    (void)state;
    char memory[64];
    tensor_deletions deletions = {0};
    const loch_external external = {.size = sizeof external, .deleter = tensor_delete, .user = &deletions};
    loch_buffer *buffer, *part;
    CHECK_OK(loch_buffer_wrap(memory, sizeof memory, &external, &buffer));
    assert_ptr_equal(loch_buffer_get_address(buffer), memory);
    assert_null(loch_buffer_get_device(buffer));
    assert_null(loch_buffer_get_allocator(buffer));
    assert_int_equal(loch_buffer_get_kind(buffer), LOCH_MEMORY_HOST);
    CHECK_OK(loch_buffer_slice(buffer, 16, 8, &part));
    loch_buffer_release(buffer);
    assert_int_equal(deletions.count, 0); /* the part keeps it */
    loch_buffer_release(part);
    assert_int_equal(deletions.count, 1);
    assert_ptr_equal(deletions.address, memory);
    assert_int_equal(deletions.bytes, sizeof memory);
}

/* Seed 001: "memory used from outside may have been freed already". */
static void memory_from_outside_keeps_its_owner(void **state)
{
    (void)state;
    loch_device *cpu = sim_open("cpu");
    loch_allocator *allocator = tensor_allocator(cpu);
    loch_buffer *owner, *part, *chain;
    CHECK_OK(loch_buffer_create(allocator, 4096, NULL, &owner));
    char *address = loch_buffer_get_address(owner);
    loch_external external = {.size = sizeof external, .owner = owner};
    CHECK_OK(loch_buffer_wrap(address + 100, 200, &external, &part));
    loch_buffer_release(owner);
    assert_int_equal(tensor_live_blocks(allocator), 1);
    for (size_t i = 0; i < 100000; i++) { /* a long chain ends without a deep stack */
        external.owner = part;
        CHECK_OK(loch_buffer_wrap(address + 100, 200, &external, &chain));
        loch_buffer_release(part);
        part = chain;
    }
    memset(loch_buffer_get_address(part), 0, 200);
    loch_buffer_release(part);
    assert_int_equal(tensor_live_blocks(allocator), 0);
    loch_allocator_release(allocator);
    loch_device_release(cpu);
}

static void memory_from_outside_has_to_be_where_it_is_said(void **state)
{
    (void)state;
    char memory[64];
    loch_device *cpu = sim_open("cpu"), *device = sim_open("sim:64MiB,backed");
    tensor_deletions deletions = {0};
    loch_external external = {.size = sizeof external, .device = device, .deleter = tensor_delete, .user = &deletions};
    loch_buffer *buffer = TEST_UNTOUCHED;
    CHECK_FAILS(loch_buffer_wrap(memory, sizeof memory, &external, &buffer), INVALID);
    assert_null(buffer);
    char *raw = sim_raw(device, 4096);
    external.device = cpu;
    CHECK_FAILS(loch_buffer_wrap(raw, 4096, &external, &buffer), INVALID);
    external.device = NULL;
    CHECK_FAILS(loch_buffer_wrap(raw, 8 * TEST_MIB, &external, &buffer), OUT_OF_RANGE);
    assert_int_equal(deletions.count, 0);
    external.access = (loch_access)9;
    CHECK_FAILS(loch_buffer_wrap(memory, sizeof memory, &external, &buffer), INVALID);
    external.access = LOCH_READ_WRITE;
    CHECK_OK(loch_buffer_wrap(raw, 4096, &external, &buffer));
    assert_ptr_equal(loch_buffer_get_device(buffer), device);
    assert_false(loch_buffer_is_on_host(buffer));
    loch_buffer_release(buffer);
    char *pinned = sim_pinned(device, 4096);
    external.device = cpu; /* the host reaches it */
    CHECK_OK(loch_buffer_wrap(pinned, 4096, &external, &buffer));
    assert_true(loch_buffer_is_on_host(buffer));
    assert_int_equal(loch_buffer_get_kind(buffer), LOCH_MEMORY_PINNED);
    loch_buffer_release(buffer);
    assert_int_equal(deletions.count, 2);
    CHECK_OK(loch_raw_free(raw));
    CHECK_OK(loch_raw_free(pinned));
    loch_device_release(device);
    loch_device_release(cpu);
}

static void a_read_only_buffer_is_not_written(void **state)
{
    (void)state;
    char memory[64] = "constant";
    const loch_external external = {.size = sizeof external, .access = LOCH_READ_ONLY};
    loch_buffer *buffer, *part, *other;
    CHECK_OK(loch_buffer_wrap(memory, sizeof memory, &external, &buffer));
    CHECK_OK(loch_buffer_slice(buffer, 0, 64, &part));
    CHECK_OK(loch_buffer_create_for_device(NULL, 64, NULL, &other));
    CHECK_OK(loch_buffer_copy(other, part, NULL));
    CHECK_FAILS(loch_buffer_copy(part, other, NULL), INVALID);
    CHECK_FAILS(loch_buffer_fill(buffer, "x", 1, NULL), INVALID);
    assert_string_equal(memory, "constant");
    loch_buffer_release(buffer);
    loch_buffer_release(part);
    loch_buffer_release(other);
}

/* --- blocks in and out --- */

static void a_block_is_adopted_and_detached(void **state)
{
    (void)state;
    loch_device *cpu = sim_open("cpu");
    loch_allocator *allocator = tensor_allocator(cpu);
    void *block, *again;
    loch_buffer *buffer, *part;
    CHECK_OK(loch_alloc(allocator, 500, &block));
    CHECK_FAILS(loch_buffer_adopt(allocator, (char *)block + 64, &buffer), INTERIOR);
    CHECK_FAILS(loch_buffer_adopt(allocator, &buffer, &buffer), FOREIGN);
    CHECK_OK(loch_buffer_adopt(allocator, block, &buffer));
    assert_int_equal(loch_buffer_get_bytes(buffer), 500);
    CHECK_OK(loch_buffer_slice(buffer, 0, 1, &part));
    CHECK_FAILS(loch_buffer_detach(buffer, &again), BUSY);
    CHECK_FAILS(loch_buffer_detach(part, &again), UNSUPPORTED);
    loch_buffer_release(part);
    CHECK_OK(loch_buffer_detach(buffer, &again));
    assert_ptr_equal(again, block);
    assert_int_equal(loch_buffer_get_bytes(buffer), 0);
    loch_buffer_release(buffer);
    assert_int_equal(tensor_live_blocks(allocator), 1);
    CHECK_OK(loch_free(allocator, block));
    CHECK_OK(loch_buffer_wrap(&block, sizeof block, NULL, &buffer));
    CHECK_FAILS(loch_buffer_detach(buffer, &again), UNSUPPORTED);
    CHECK_FAILS(loch_buffer_resize(buffer, 1, LOCH_CONTENTS_KEEP, NULL), UNSUPPORTED);
    loch_buffer_release(buffer);
    loch_allocator_release(allocator);
    loch_device_release(cpu);
}

/* --- sizes --- */

/* Seed 001's second allocate() forgets the first block; seed 002's resize copies into NULL when it fails. */
static void a_resize_keeps_contents_and_a_failed_one_all(void **state)
{
    (void)state;
    loch_device *cpu = sim_open("cpu");
    loch_allocator *pool = tensor_allocator(cpu), *allocator;
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = TEST_MIB};
    CHECK_OK(loch_limit_create(pool, "limit", &limit, &allocator));
    const loch_request request = {.size = sizeof request, .alignment = 4096};
    loch_buffer *buffer, *part;
    CHECK_OK(loch_buffer_create(allocator, 3000, &request, &buffer));
    test_pattern_write(loch_buffer_get_address(buffer), 3000, 5);
    CHECK_OK(loch_buffer_slice(buffer, 2000, 1000, &part));
    CHECK_OK(loch_buffer_resize(buffer, 300000, LOCH_CONTENTS_KEEP, NULL));
    assert_int_equal(loch_buffer_get_bytes(buffer), 300000);
    char *address = loch_buffer_get_address(buffer);
    assert_int_equal((uintptr_t)address % 4096, 0);
    assert_int_equal(test_pattern_differs(address, 3000, 5), 3000);
    assert_ptr_equal(loch_buffer_get_address(part), address + 2000); /* it follows */
    CHECK_FAILS_SET(loch_buffer_resize(buffer, 2 * TEST_MIB, LOCH_CONTENTS_KEEP, NULL), TEST_SET(LIMIT));
    assert_ptr_equal(loch_buffer_get_address(buffer), address);
    assert_int_equal(test_pattern_differs(address, 3000, 5), 3000);
    CHECK_OK(loch_buffer_resize(buffer, 2500, LOCH_CONTENTS_KEEP, NULL));
    assert_int_equal(test_pattern_differs(loch_buffer_get_address(buffer), 2500, 5), 2500);
    assert_null(loch_buffer_get_address(part)); /* cut off */
    loch_buffer *other;
    CHECK_OK(loch_buffer_create(allocator, 1000, NULL, &other));
    CHECK_FAILS(loch_buffer_copy(other, part, NULL), OUT_OF_RANGE);
    CHECK_FAILS(loch_buffer_resize(part, 10, LOCH_CONTENTS_KEEP, NULL), UNSUPPORTED);
    CHECK_OK(loch_buffer_resize(buffer, 500000, LOCH_CONTENTS_DROP, NULL));
    assert_int_equal((uintptr_t)loch_buffer_get_address(buffer) % 4096, 0);
    assert_int_equal(tensor_live_blocks(pool), 2);
    loch_buffer_release(part);
    loch_buffer_release(other);
    loch_buffer_release(buffer);
    loch_allocator_release(allocator);
    loch_allocator_release(pool);
    loch_device_release(cpu);
}

/* --- copies --- */

/* Seed 001's copy_from truncates silently. */
static void a_copy_of_another_size_is_refused(void **state)
{
    (void)state;
    loch_buffer *small, *large;
    CHECK_OK(loch_buffer_create_for_device(NULL, 100, NULL, &small));
    CHECK_OK(loch_buffer_create_for_device(NULL, 200, NULL, &large));
    test_pattern_write(loch_buffer_get_address(small), 100, 1);
    test_pattern_write(loch_buffer_get_address(large), 200, 2);
    CHECK_FAILS(loch_buffer_copy(large, small, NULL), INVALID);
    CHECK_FAILS(loch_buffer_copy(small, large, NULL), INVALID);
    assert_int_equal(test_pattern_differs(loch_buffer_get_address(small), 100, 1), 100);
    loch_buffer_copy_options clip = {.size = sizeof clip, .fit = LOCH_FIT_CLIP};
    CHECK_OK(loch_buffer_copy(small, large, &clip));
    assert_int_equal(test_pattern_differs(loch_buffer_get_address(small), 100, 2), 100);
    clip.fit = (loch_fit)5;
    CHECK_FAILS(loch_buffer_copy(small, large, &clip), INVALID);
    loch_buffer_release(small);
    loch_buffer_release(large);
}

/* Every direction, with sub-buffers, over two simulated devices and the host. */
static void buffers_are_copied_in_every_direction(void **state)
{
    (void)state;
    loch_device *devices[] = {NULL, sim_open("sim:64MiB,backed"), sim_open("sim:64MiB,backed,id=1")};
    for (size_t to = 0; to < 3; to++) {
        for (size_t from = 0; from < 3; from++) {
            loch_buffer *source, *target, *part, *host;
            CHECK_OK(loch_buffer_create_for_device(devices[from], 5000, NULL, &source));
            CHECK_OK(loch_buffer_create_for_device(devices[to], 5000, NULL, &target));
            CHECK_OK(loch_buffer_create_for_device(NULL, 5000, NULL, &host));
            test_pattern_write(loch_buffer_get_address(host), 5000, to * 3 + from);
            CHECK_OK(loch_buffer_copy(source, host, NULL));
            memset(loch_buffer_get_address(host), 0, 5000);
            CHECK_OK(loch_buffer_copy(target, source, NULL));
            CHECK_OK(loch_buffer_slice(target, 0, 5000, &part));
            CHECK_OK(loch_buffer_copy(host, part, NULL));
            assert_int_equal(test_pattern_differs(loch_buffer_get_address(host), 5000, to * 3 + from), 5000);
            loch_buffer_release(source);
            loch_buffer_release(target);
            loch_buffer_release(part);
            loch_buffer_release(host);
        }
    }
    loch_device_release(devices[1]);
    loch_device_release(devices[2]);
}

/* --- threads --- */

static void *share_in_thread(void *user)
{
    loch_buffer *buffer = user;
    bool is_well = true;
    for (size_t i = 0; i < 2000; i++) {
        loch_buffer *part = NULL;
        is_well = is_well && loch_buffer_slice(buffer, i % 64, 64, &part) == LOCH_OK;
        loch_buffer_release(part);
    }
    loch_buffer_release(buffer);
    return is_well ? user : NULL;
}

static void threads_retain_and_release_a_buffer(void **state)
{
    (void)state;
    tensor_deletions deletions = {0};
    static char memory[128];
    const loch_external external = {.size = sizeof external, .deleter = tensor_delete, .user = &deletions};
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_wrap(memory, sizeof memory, &external, &buffer));
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, share_in_thread, loch_buffer_retain(buffer)), 0);
    loch_buffer_release(buffer);
    for (size_t i = 0; i < 4; i++) {
        void *is_well;
        assert_int_equal(pthread_join(threads[i], &is_well), 0);
        assert_non_null(is_well);
    }
    assert_int_equal(deletions.count, 1);
}

/* Memory of zero bytes has an address too, and its owner gets it back. */
static void memory_from_outside_may_have_no_bytes(void **state)
{
    (void)state;
    char memory[8];
    tensor_deletions deletions = {0};
    const loch_external external = {.size = sizeof external, .deleter = tensor_delete, .user = &deletions};
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_wrap(memory, 0, &external, &buffer));
    assert_null(loch_buffer_get_address(buffer));
    loch_buffer_release(buffer);
    assert_int_equal(deletions.count, 1);
    assert_ptr_equal(deletions.address, memory);
}

/* Zeroes of memory that the host reaches are there when the call returns, unless a stream was named. */
static void a_zeroed_buffer_for_the_host_is_zero(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed,clock=stepped");
    loch_allocator *pinned;
    CHECK_OK(loch_device_acquire_allocator(
        device, (loch_attributes){.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE}, LOCH_FALLBACK_NONE,
        &pinned));
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(pinned, 4096, NULL, &buffer));
    memset(loch_buffer_get_address(buffer), 7, 4096);
    loch_buffer_release(buffer);
    CHECK_OK(sim_busy(loch_stream_get_default(device), 100000));
    const loch_request request = {.size = sizeof request, .flags = LOCH_ALLOC_ZEROED};
    CHECK_OK(loch_buffer_create(pinned, 4096, &request, &buffer));
    assert_int_equal(*(const char *)loch_buffer_get_address(buffer), 0);
    loch_buffer_release(buffer);
    loch_allocator_release(pinned);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(the_last_reference_frees_the_block),
        TENSOR_TEST(a_buffer_outlives_its_allocator_and_device),
        TENSOR_TEST(a_buffer_is_made_on_a_device),
        TENSOR_TEST(a_zeroed_buffer_on_a_device_is_zero),
        TENSOR_TEST(an_empty_buffer_has_no_memory),
        TENSOR_TEST(bad_arguments_are_refused),
        TENSOR_TEST(memory_from_outside_is_deleted_once),
        TENSOR_TEST(memory_from_outside_may_have_no_bytes),
        TENSOR_TEST(a_zeroed_buffer_for_the_host_is_zero),
        TENSOR_TEST(memory_from_outside_keeps_its_owner),
        TENSOR_TEST(memory_from_outside_has_to_be_where_it_is_said),
        TENSOR_TEST(a_read_only_buffer_is_not_written),
        TENSOR_TEST(a_block_is_adopted_and_detached),
        TENSOR_TEST(a_resize_keeps_contents_and_a_failed_one_all),
        TENSOR_TEST(a_copy_of_another_size_is_refused),
        TENSOR_TEST(buffers_are_copied_in_every_direction),
        TENSOR_TEST(threads_retain_and_release_a_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
