/* SPDX-License-Identifier: MIT */
/* Buffers shared between two processes on a real GPU: contents both ways, many handles, the order of the work of both
 * sides, and processes that are killed at any moment.
 *
 * Without a GPU the program says why and is skipped; LOCH_REQUIRE_GPU=1 makes that a failure. An argument names another
 * device than cuda:0 ("cpu" tries the program itself). */
#include "double.h"
#include "second_process.h"

#define KILL_ROUNDS 12

static const char *device_name = "cuda:0";
static loch_device *device;

static loch_buffer *make_buffer(loch_allocator *pool, size_t bytes)
{
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(pool, bytes, NULL, &buffer));
    return buffer;
}

static void end_pool(loch_allocator *pool)
{
    partner_await_empty(pool);
    loch_allocator_release(pool);
}

static void contents_go_both_ways(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 5000, 2 * TEST_MIB, 30 * TEST_MIB + 512};
    loch_allocator *pool = partner_pool(device, 0);
    partner p = partner_start(device_name);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        loch_buffer *buffer = make_buffer(pool, sizes[i]);
        loch_parcel *parcel;
        size_t differs;
        CHECK_OK(partner_put(buffer, i));
        CHECK_OK(loch_parcel_create(buffer, NULL, &parcel));
        CHECK_OK(loch_parcel_send(parcel, p.parcels));
        partner_do_it(&p, PARTNER_RECEIVE, i, 0);
        assert_int_equal(partner_do_it(&p, PARTNER_COMPARE, i, i), sizes[i]);
        partner_do_it(&p, PARTNER_WRITE, i, i + 50);
        CHECK_OK(partner_differs(buffer, i + 50, &differs));
        assert_int_equal(differs, sizes[i]);
        partner_import(&p, i + 8, parcel);
        partner_import(&p, i + 12, parcel); /* imports by token share one mapping; a received parcel has its own */
        const uint64_t imported = partner_do_it(&p, PARTNER_ADDRESS, i + 8, 0);
        assert_int_equal(partner_do_it(&p, PARTNER_ADDRESS, i + 12, 0), imported);
        assert_int_not_equal(partner_do_it(&p, PARTNER_ADDRESS, i, 0), imported);
        loch_parcel_destroy(parcel);
        loch_buffer_release(buffer);
    }
    partner_stop(&p);
    end_pool(pool);
}

static void a_buffer_of_many_handles_is_one_piece(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(device, 2 * TEST_MIB);
    loch_buffer *buffer = make_buffer(pool, 100 * TEST_MIB);
    loch_parcel *parcel;
    CHECK_OK(partner_put(buffer, 3));
    CHECK_OK(loch_parcel_create(buffer, NULL, &parcel));
    partner p = partner_start(device_name);
    partner_import(&p, 0, parcel);
    assert_true(partner_do_it(&p, PARTNER_IMPORTED, 0, 0) >= 50);
    assert_int_equal(partner_do_it(&p, PARTNER_COMPARE, 0, 3), 100 * TEST_MIB);
    partner_stop(&p);
    loch_parcel_destroy(parcel);
    loch_buffer_release(buffer);
    end_pool(pool);
}

/* The importer's first use comes after the work that the owner has queued. */
static void an_importer_waits_for_the_work_of_the_owner(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(device, 0);
    partner p = partner_start(device_name);
    partner_do_it(&p, PARTNER_PING, 0, 0);
    loch_stream *stream;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    for (size_t round = 0; round < 5; round++) {
        const size_t bytes = gpu_or_double(device, 256 * TEST_MIB, 4 * TEST_MIB);
        loch_buffer *buffer = make_buffer(pool, bytes);
        loch_parcel *parcel;
        for (size_t i = 0; i <= 300; i++) {
            const unsigned char byte = (unsigned char)(round + 1 + 300 - i);
            CHECK_OK(loch_buffer_fill(buffer, &byte, 1, stream));
        }
        const loch_parcel_options options = {.size = sizeof options, .stream = stream};
        CHECK_OK(loch_parcel_create(buffer, &options, &parcel)); /* does not wait */
        partner_import(&p, 0, parcel);
        assert_int_equal(partner_do_it(&p, PARTNER_BYTE, 0, round + 1), bytes);
        partner_do_it(&p, PARTNER_RELEASE, 0, 0);
        loch_parcel_destroy(parcel);
        loch_buffer_release(buffer);
    }
    loch_stream_release(stream);
    partner_stop(&p);
    end_pool(pool);
}

/* The owner gets the memory back after the work that the importer has queued. */
static void the_owner_waits_for_the_work_of_an_importer(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(device, 0);
    partner p = partner_start(device_name);
    for (size_t round = 0; round < 5; round++) {
        const size_t bytes = gpu_or_double(device, 256 * TEST_MIB, 4 * TEST_MIB);
        loch_buffer *buffer = make_buffer(pool, bytes);
        loch_parcel *parcel;
        CHECK_OK(loch_parcel_create(buffer, NULL, &parcel));
        partner_import(&p, 0, parcel);
        partner_do_it(&p, PARTNER_FILL, 0, round + 7);
        loch_parcel_info info = {.size = sizeof info};
        const time_t end = time(NULL) + PARTNER_SECONDS;
        do { /* buffers that wait for work are given back by later calls */
            partner_import(&p, 1, parcel);
            partner_do_it(&p, PARTNER_RELEASE, 1, 0);
            partner_pause();
            CHECK_OK(loch_parcel_get_info(parcel, &info));
        } while (info.imports && time(NULL) < end);
        assert_int_equal(info.imports, 0);
        const unsigned char want = (unsigned char)(round + 7);
        unsigned char *host = malloc(bytes);
        CHECK_OK(loch_copy(host, loch_buffer_get_address(buffer), bytes));
        for (size_t i = 0; i < bytes; i++)
            if (host[i] != want) fail_msg("byte %zu is %u, not %u", i, host[i], want);
        free(host);
        loch_parcel_destroy(parcel);
        loch_buffer_release(buffer);
    }
    partner_stop(&p);
    end_pool(pool);
}

static void memory_stays_until_the_importer_lets_go(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(device, 0);
    loch_buffer *buffer = make_buffer(pool, 8 * TEST_MIB);
    loch_parcel *parcel;
    CHECK_OK(loch_parcel_create(buffer, NULL, &parcel));
    partner p = partner_start(device_name);
    partner_import(&p, 0, parcel);
    partner_do_it(&p, PARTNER_WRITE, 0, 5);
    loch_parcel_destroy(parcel);
    loch_buffer_release(buffer);
    loch_buffer *other = make_buffer(pool, 8 * TEST_MIB);
    CHECK_OK(partner_put(other, 6));
    assert_int_equal(partner_do_it(&p, PARTNER_COMPARE, 0, 5), 8 * TEST_MIB);
    loch_buffer_release(other);
    partner_stop(&p);
    end_pool(pool);
}

static void memory_of_a_killed_owner_stays(void **state)
{
    (void)state;
    partner p = partner_start(device_name);
    loch_buffer *buffer;
    size_t differs;
    partner_do_it(&p, PARTNER_OFFER, 0, 20 * TEST_MIB);
    CHECK_OK(loch_parcel_receive(device, p.parcels, NULL, &buffer));
    partner_do_it(&p, PARTNER_WRITE, 0, 21);
    partner_kill(&p);
    CHECK_OK(partner_differs(buffer, 21, &differs));
    assert_int_equal(differs, 20 * TEST_MIB);
    CHECK_OK(partner_put(buffer, 22));
    CHECK_OK(partner_differs(buffer, 22, &differs));
    assert_int_equal(differs, 20 * TEST_MIB);
    loch_buffer_release(buffer);
}

/* The importer is killed while it imports, writes and releases. */
static void importers_are_killed_at_any_moment(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(device, 0);
    loch_buffer *buffer = make_buffer(pool, 40 * TEST_MIB);
    loch_parcel *parcel;
    size_t length, differs;
    CHECK_OK(loch_parcel_create(buffer, NULL, &parcel));
    const void *token = loch_parcel_get_token(parcel, &length);
    test_random random = {test_seed(31)};
    for (size_t round = 0; round < KILL_ROUNDS; round++) {
        partner p = partner_start(device_name);
        partner_do_it(&p, PARTNER_PING, 0, 0);
        for (size_t i = 0; i < 40; i++) { /* queued in the socket: nothing waits for the answers */
            partner_command command = {.verb = i % 4 == 3   ? PARTNER_RELEASE
                                               : i % 4 == 2 ? PARTNER_WRITE
                                                            : PARTNER_IMPORT,
                                       .slot = i % 4 == 1,
                                       .value = i,
                                       .token_bytes = length};
            memcpy(command.token, token, length);
            assert_int_equal(write(p.commands, &command, sizeof command), sizeof command);
        }
        const struct timespec pause = {.tv_nsec = (long)test_random_below(&random, 200000) * 1000};
        nanosleep(&pause, NULL);
        partner_kill(&p);
        partner_await_imports(parcel, 0);
        CHECK_OK(partner_put(buffer, round)); /* the memory is the owner's alone again */
        CHECK_OK(partner_differs(buffer, round, &differs));
        assert_int_equal(differs, 40 * TEST_MIB);
    }
    loch_parcel_destroy(parcel);
    loch_buffer_release(buffer);
    end_pool(pool);
}

int main(int count, char **arguments)
{
    partner_main(count, arguments);
    if (count > 1) device_name = arguments[1];
    if (loch_device_open(device_name, &device) != LOCH_OK) return test_skip_gpu();
    if (!loch_device_can(device, LOCH_CAN_SHARE_FD)) {
        fprintf(stderr, "%s cannot share memory by descriptor\n", device_name);
        loch_device_release(device);
        return TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_go_both_ways),
        cmocka_unit_test(a_buffer_of_many_handles_is_one_piece),
        cmocka_unit_test(an_importer_waits_for_the_work_of_the_owner),
        cmocka_unit_test(the_owner_waits_for_the_work_of_an_importer),
        cmocka_unit_test(memory_stays_until_the_importer_lets_go),
        cmocka_unit_test(memory_of_a_killed_owner_stays),
        cmocka_unit_test(importers_are_killed_at_any_moment),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    loch_device_release(device);
    return failed;
}
