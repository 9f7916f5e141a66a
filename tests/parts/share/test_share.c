/* SPDX-License-Identifier: MIT */
/* Buffers between two processes: what both see, how long memory stays, and what is mapped once. */
#include "second_process.h"

static loch_device *cpu;

/* A buffer of a pool, and its parcel. */
typedef struct offer {
    loch_allocator *pool;
    loch_buffer *buffer;
    loch_parcel *parcel;
} offer;

static offer offer_make(size_t bytes, size_t handle_bytes)
{
    offer o = {.pool = partner_pool(cpu, handle_bytes)};
    CHECK_OK(loch_buffer_create(o.pool, bytes, NULL, &o.buffer));
    CHECK_OK(loch_parcel_create(o.buffer, NULL, &o.parcel));
    return o;
}

static void offer_end(offer *o)
{
    loch_parcel_destroy(o->parcel);
    loch_buffer_release(o->buffer);
    partner_await_empty(o->pool);
    loch_allocator_release(o->pool);
}

/* --- contents --- */

static void two_processes_have_one_memory(void **state)
{
    (void)state;
    offer o = offer_make(5 * TEST_MIB + 123, 0);
    void *address = loch_buffer_get_address(o.buffer);
    const size_t bytes = loch_buffer_get_bytes(o.buffer);
    partner p = partner_start("cpu");
    test_pattern_write(address, bytes, 1);
    CHECK_OK(loch_parcel_send(o.parcel, p.parcels));
    partner_do_it(&p, PARTNER_RECEIVE, 0, 0);
    assert_int_equal(partner_do_it(&p, PARTNER_COMPARE, 0, 1), bytes);
    partner_do_it(&p, PARTNER_WRITE, 0, 2);
    assert_int_equal(test_pattern_differs(address, bytes, 2), bytes);
    test_pattern_write(address, bytes, 3);
    assert_int_equal(partner_do_it(&p, PARTNER_COMPARE, 0, 3), bytes);
    assert_int_equal(partner_do_it(&p, PARTNER_ACCESS, 0, 0), LOCH_READ_WRITE);
    partner_stop(&p);
    offer_end(&o);
}

static void a_token_goes_through_any_channel(void **state)
{
    (void)state;
    offer o = offer_make(4000, 0);
    size_t bytes = 0;
    assert_non_null(loch_parcel_get_token(o.parcel, &bytes));
    assert_true(bytes > 0 && bytes < 256);
    partner p = partner_start("cpu");
    partner_import(&p, 3, o.parcel);
    partner_do_it(&p, PARTNER_WRITE, 3, 9);
    assert_int_equal(test_pattern_differs(loch_buffer_get_address(o.buffer), 4000, 9), 4000);
    partner_await_imports(o.parcel, 1);
    partner_do_it(&p, PARTNER_RELEASE, 3, 0);
    partner_await_imports(o.parcel, 0);
    partner_stop(&p);
    offer_end(&o);
}

static void a_slice_is_offered_alone(void **state)
{
    (void)state;
    offer o = offer_make(100000, 0);
    loch_buffer *slice;
    loch_parcel *parcel;
    CHECK_OK(loch_buffer_slice(o.buffer, 5000, 300, &slice));
    const loch_parcel_options options = {.size = sizeof options, .access = LOCH_READ_ONLY};
    CHECK_OK(loch_parcel_create(slice, &options, &parcel));
    loch_buffer_release(slice);
    test_pattern_write((char *)loch_buffer_get_address(o.buffer) + 5000, 300, 5);
    partner p = partner_start("cpu");
    CHECK_OK(loch_parcel_send(parcel, p.parcels));
    partner_do_it(&p, PARTNER_RECEIVE, 0, 0);
    assert_int_equal(partner_do_it(&p, PARTNER_COMPARE, 0, 5), 300);
    assert_int_equal(partner_do_it(&p, PARTNER_ACCESS, 0, 0), LOCH_READ_ONLY);
    partner_stop(&p);
    loch_parcel_destroy(parcel);
    offer_end(&o);
}

/* More handles than one message carries. */
static void a_buffer_of_many_handles_is_one_piece_there(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(cpu, 2 * TEST_MIB);
    loch_buffer *pieces[80], *buffer;
    loch_parcel *parcel;
    for (size_t i = 0; i < 80; i++)
        CHECK_OK(loch_buffer_create(pool, 2 * TEST_MIB, NULL, &pieces[i]));
    for (size_t i = 0; i < 80; i++)
        loch_buffer_release(pieces[i]);
    const size_t bytes = 150 * TEST_MIB; /* out of the handles of the pieces */
    CHECK_OK(loch_buffer_create(pool, bytes, NULL, &buffer));
    CHECK_OK(loch_parcel_create(buffer, NULL, &parcel));
    test_pattern_write(loch_buffer_get_address(buffer), bytes, 7);
    partner p = partner_start("cpu");
    const size_t files = partner_do_it(&p, PARTNER_FILES, 0, 0);
    partner_import(&p, 0, parcel);
    assert_true(partner_do_it(&p, PARTNER_IMPORTED, 0, 0) > 64);
    assert_int_equal(partner_do_it(&p, PARTNER_COMPARE, 0, 7), bytes);
    partner_do_it(&p, PARTNER_RELEASE, 0, 0);
    assert_true(partner_do_it(&p, PARTNER_FILES, 0, 0) <= files + 1); /* the connection */
    partner_stop(&p);
    loch_parcel_destroy(parcel);
    loch_buffer_release(buffer);
    partner_await_empty(pool);
    loch_allocator_release(pool);
}

/* --- what is mapped once --- */

static void memory_is_imported_once(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(cpu, 0);
    loch_buffer *one, *two;
    loch_parcel *parcel_one, *parcel_two;
    CHECK_OK(loch_buffer_create(pool, 10000, NULL, &one));
    CHECK_OK(loch_buffer_create(pool, 10000, NULL, &two)); /* beside the first, in one handle */
    CHECK_OK(loch_parcel_create(one, NULL, &parcel_one));
    CHECK_OK(loch_parcel_create(two, NULL, &parcel_two));
    const size_t distance = (size_t)loch_buffer_get_address(two) - (size_t)loch_buffer_get_address(one);
    partner p = partner_start("cpu");
    partner_import(&p, 0, parcel_one);
    partner_import(&p, 1, parcel_one);
    partner_import(&p, 2, parcel_two);
    assert_int_equal(partner_do_it(&p, PARTNER_IMPORTED, 0, 0), 1);
    const size_t first = partner_do_it(&p, PARTNER_ADDRESS, 0, 0);
    assert_int_equal(partner_do_it(&p, PARTNER_ADDRESS, 1, 0), first);
    assert_int_equal(partner_do_it(&p, PARTNER_ADDRESS, 2, 0), first + distance);
    partner_await_imports(parcel_one, 2);
    partner_do_it(&p, PARTNER_RELEASE, 0, 0);
    partner_await_imports(parcel_one, 1);
    partner_do_it(&p, PARTNER_WRITE, 1, 4); /* still there */
    partner_do_it(&p, PARTNER_RELEASE, 1, 0);
    partner_do_it(&p, PARTNER_RELEASE, 2, 0);
    partner_import(&p, 0, parcel_one);
    assert_int_equal(partner_do_it(&p, PARTNER_IMPORTED, 0, 0), 2); /* was unmapped meanwhile */
    assert_int_equal(partner_do_it(&p, PARTNER_COMPARE, 0, 4), 10000);
    partner_stop(&p);
    loch_parcel_destroy(parcel_one);
    loch_parcel_destroy(parcel_two);
    loch_buffer_release(one);
    loch_buffer_release(two);
    partner_await_empty(pool);
    loch_allocator_release(pool);
}

static void the_owner_imports_the_buffer_itself(void **state)
{
    (void)state;
    offer o = offer_make(5000, 0);
    loch_buffer *again = TEST_UNTOUCHED, *read_only;
    loch_parcel *parcel;
    size_t bytes;
    const void *token = loch_parcel_get_token(o.parcel, &bytes);
    CHECK_OK(loch_parcel_import(cpu, token, bytes, NULL, &again));
    assert_ptr_equal(again, o.buffer);
    loch_buffer_release(again);

    const loch_parcel_options options = {.size = sizeof options, .access = LOCH_READ_ONLY};
    CHECK_OK(loch_parcel_create(o.buffer, &options, &parcel));
    token = loch_parcel_get_token(parcel, &bytes);
    CHECK_OK(loch_parcel_import(cpu, token, bytes, NULL, &read_only));
    assert_ptr_equal(loch_buffer_get_address(read_only), loch_buffer_get_address(o.buffer));
    assert_int_equal(loch_buffer_get_access(read_only), LOCH_READ_ONLY);
    loch_parcel_destroy(parcel);
    loch_buffer_release(read_only);

    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    CHECK_OK(loch_parcel_send(o.parcel, ends[0]));
    CHECK_OK(loch_parcel_receive(cpu, ends[1], NULL, &again));
    assert_ptr_equal(again, o.buffer);
    loch_buffer_release(again);
    close(ends[0]), close(ends[1]);
    loch_parcel_info info = {.size = sizeof info};
    CHECK_OK(loch_parcel_get_info(o.parcel, &info));
    assert_int_equal(info.imports, 0);
    assert_int_equal(info.state, LOCH_PARCEL_OPEN);
    assert_int_equal(info.bytes, 5000);
    offer_end(&o);
}

/* --- how long memory stays --- */

static void memory_stays_until_the_last_importer_lets_go(void **state)
{
    (void)state;
    offer o = offer_make(3 * TEST_MIB, 0);
    partner p = partner_start("cpu"), q = partner_start("cpu");
    partner_import(&p, 0, o.parcel);
    partner_import(&q, 0, o.parcel);
    partner_do_it(&p, PARTNER_WRITE, 0, 11);
    loch_parcel_destroy(o.parcel);
    loch_buffer_release(o.buffer);
    assert_int_not_equal(partner_used_bytes(o.pool), 0);
    partner_stop(&p);
    void *other; /* what is free now is not the importer's */
    CHECK_OK(loch_alloc(o.pool, 3 * TEST_MIB, &other));
    memset(other, 0, 3 * TEST_MIB);
    assert_int_equal(partner_do_it(&q, PARTNER_COMPARE, 0, 11), 3 * TEST_MIB);
    CHECK_OK(loch_free(o.pool, other));
    partner_do_it(&q, PARTNER_RELEASE, 0, 0);
    partner_await_empty(o.pool);
    partner_stop(&q);
    loch_allocator_release(o.pool);
}

static void a_killed_importer_lets_go(void **state)
{
    (void)state;
    offer o = offer_make(TEST_MIB, 0);
    partner p = partner_start("cpu");
    for (size_t i = 0; i < 8; i++)
        partner_import(&p, i, o.parcel);
    partner_await_imports(o.parcel, 8);
    partner_kill(&p);
    partner_await_imports(o.parcel, 0);
    offer_end(&o);
}

/* A child of the importer has copies of its descriptors, and may outlive it. */
static void a_child_of_an_importer_holds_nothing(void **state)
{
    (void)state;
    offer o = offer_make(TEST_MIB, 0);
    partner p = partner_start("cpu");
    partner_import(&p, 0, o.parcel);
    partner_await_imports(o.parcel, 1);
    const pid_t child = (pid_t)partner_do_it(&p, PARTNER_FORK, 0, 0);
    partner_kill(&p);
    partner_await_imports(o.parcel, 0);
    assert_int_equal(kill(child, SIGKILL), 0); /* lives */
    offer_end(&o);
}

static void memory_of_a_killed_owner_stays_in_the_importer(void **state)
{
    (void)state;
    partner p = partner_start("cpu");
    loch_buffer *buffer, *second = TEST_UNTOUCHED;
    partner_do_it(&p, PARTNER_OFFER, 0, 4 * TEST_MIB);
    CHECK_OK(loch_parcel_receive(cpu, p.parcels, NULL, &buffer));
    partner_do_it(&p, PARTNER_WRITE, 0, 21);
    partner_do_it(&p, PARTNER_OFFER, 1, 1000);
    const int parcels = dup(p.parcels); /* what the owner has sent is still in the socket */
    partner_kill(&p);
    p.parcels = parcels;
    assert_int_equal(test_pattern_differs(loch_buffer_get_address(buffer), 4 * TEST_MIB, 21), 4 * TEST_MIB);
    test_pattern_write(loch_buffer_get_address(buffer), 4 * TEST_MIB, 22);
    assert_int_equal(test_pattern_differs(loch_buffer_get_address(buffer), 4 * TEST_MIB, 22), 4 * TEST_MIB);
    CHECK_FAILS(loch_parcel_receive(cpu, p.parcels, NULL, &second), NOT_FOUND);
    assert_null(second);
    loch_buffer_release(buffer);
    close(p.parcels);
}

static void an_importer_shares_on(void **state)
{
    (void)state;
    partner p = partner_start("cpu"), q = partner_start("cpu");
    loch_buffer *buffer;
    loch_parcel *parcel;
    partner_do_it(&p, PARTNER_OFFER, 0, 2 * TEST_MIB);
    CHECK_OK(loch_parcel_receive(cpu, p.parcels, NULL, &buffer));
    CHECK_OK(loch_parcel_create(buffer, NULL, &parcel));
    loch_buffer_release(buffer);
    partner_import(&q, 0, parcel);
    loch_parcel_destroy(parcel);
    partner_do_it(&q, PARTNER_WRITE, 0, 31);
    assert_int_equal(partner_do_it(&p, PARTNER_COMPARE, 0, 31), 2 * TEST_MIB);
    assert_int_equal(partner_do_it(&p, PARTNER_COUNT, 0, 0), 1); /* through this process */
    partner_stop(&q);
    const time_t end = time(NULL) + PARTNER_SECONDS;
    while (partner_do_it(&p, PARTNER_COUNT, 0, 0) && time(NULL) < end)
        partner_pause();
    assert_int_equal(partner_do_it(&p, PARTNER_COUNT, 0, 0), 0);
    partner_stop(&p);
}

/* --- memory that moves and sleeps --- */

static void a_movable_buffer_is_pinned(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(cpu, 2 * TEST_MIB);
    loch_buffer *first, *buffer;
    loch_parcel *parcel;
    const loch_request request = {.size = sizeof request, .flags = LOCH_ALLOC_MOVABLE};
    CHECK_OK(loch_buffer_create(pool, 2 * TEST_MIB, &request, &first));
    CHECK_OK(loch_buffer_create(pool, 2 * TEST_MIB, &request, &buffer));
    CHECK_OK(loch_parcel_create(buffer, NULL, &parcel));
    void *address, *again;
    CHECK_OK(loch_buffer_pin(buffer, NULL, &address));
    CHECK_OK(loch_buffer_unpin(buffer, NULL));
    loch_buffer_release(first);
    CHECK_OK(loch_pool_compact(pool, NULL, NULL));
    CHECK_OK(loch_buffer_pin(buffer, NULL, &again));
    assert_ptr_equal(again, address);
    CHECK_OK(loch_buffer_unpin(buffer, NULL));
    loch_parcel_destroy(parcel);
    CHECK_FAILS(loch_buffer_unpin(buffer, NULL), INVALID); /* the parcel's pin went with it */
    loch_buffer_release(buffer);
    loch_allocator_release(pool);
}

static void a_parcel_of_memory_that_slept_is_stale(void **state)
{
    (void)state;
    offer o = offer_make(2 * TEST_MIB, 0);
    partner p = partner_start("cpu");
    partner_import(&p, 0, o.parcel);
    partner_do_it(&p, PARTNER_WRITE, 0, 41);
    const loch_sleep_options options = {.size = sizeof options, .contents = LOCH_SLEEP_HOST};
    CHECK_OK(loch_pool_sleep(o.pool, &options, NULL));
    loch_parcel_info info = {.size = sizeof info};
    CHECK_OK(loch_parcel_get_info(o.parcel, &info));
    assert_int_equal(info.state, LOCH_PARCEL_STALE);
    CHECK_OK(loch_pool_wake(o.pool, NULL));
    assert_int_equal(test_pattern_differs(loch_buffer_get_address(o.buffer), 2 * TEST_MIB, 41), 2 * TEST_MIB);
    assert_int_equal(partner_do_it(&p, PARTNER_COMPARE, 0, 41), 2 * TEST_MIB); /* has the old memory */
    const partner_answer answer = partner_try_import(&p, 1, o.parcel);
    assert_int_equal(answer.status, LOCH_E_BUSY);
    assert_non_null(strstr(answer.sentence, "sleep"));
    loch_parcel *fresh;
    CHECK_OK(loch_parcel_create(o.buffer, NULL, &fresh));
    partner_import(&p, 1, fresh);
    assert_int_equal(partner_do_it(&p, PARTNER_COMPARE, 1, 41), 2 * TEST_MIB);
    loch_parcel_destroy(fresh);
    partner_stop(&p);
    offer_end(&o);
}

static int open_cpu(void **state)
{
    (void)state;
    return loch_device_open("cpu", &cpu) == LOCH_OK ? 0 : -1;
}

static int close_cpu(void **state)
{
    (void)state;
    loch_device_release(cpu);
    return 0;
}

int main(int count, char **arguments)
{
    partner_main(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes_have_one_memory),
        cmocka_unit_test(a_token_goes_through_any_channel),
        cmocka_unit_test(a_slice_is_offered_alone),
        cmocka_unit_test(a_buffer_of_many_handles_is_one_piece_there),
        cmocka_unit_test(memory_is_imported_once),
        cmocka_unit_test(the_owner_imports_the_buffer_itself),
        cmocka_unit_test(memory_stays_until_the_last_importer_lets_go),
        cmocka_unit_test(a_killed_importer_lets_go),
        cmocka_unit_test(a_child_of_an_importer_holds_nothing),
        cmocka_unit_test(memory_of_a_killed_owner_stays_in_the_importer),
        cmocka_unit_test(an_importer_shares_on),
        cmocka_unit_test(a_movable_buffer_is_pinned),
        cmocka_unit_test(a_parcel_of_memory_that_slept_is_stale),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
