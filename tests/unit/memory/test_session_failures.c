/* SPDX-License-Identifier: MIT */
/* Sessions when something fails: blocks that cannot be freed, damaged blocks, misuse, and failing host memory. */
#include "session_fixture.h"

/* --- frees that fail --- */

static void what_cannot_be_freed_stays(void **state)
{
    (void)state;
    for (int handle = 0; handle < 2; handle++) {
        subject it = open_subject(devices[2], "direct");
        loch_session *session = begin(it.allocator);
        loch_allocator *own = loch_session_get_allocator(session), *from = handle ? own : it.allocator;
        CHECK_OK(loch_session_enter(session));
        void *a = get(from, 1000), *b = get(from, 2000), *c = get(from, 4000);
        CHECK_OK(loch_session_leave(session));
        CHECK_OK(sim_writes(loch_stream_get_default(it.device), b, 2000));
        const loch_sim_fault fault = {.size = sizeof fault, .mode = LOCH_SIM_FAULT_FOREVER};
        size_t bytes = 1;
        CHECK_OK(loch_sim_set_fault(it.device, &fault));
        CHECK_FAILS(loch_session_end(session, NULL, &bytes), DRIVER);
        assert_int_equal(bytes, 0);
        expect(session, 3, 7000);
        CHECK_FAILS(loch_free(own, a), DRIVER);
        CHECK_FAILS(loch_free(it.allocator, c), DRIVER);
        expect(session, 3, 7000);
        const loch_sim_fault no_copy = {.size = sizeof no_copy, .call = "copy", .mode = LOCH_SIM_FAULT_FOREVER};
        CHECK_OK(loch_sim_set_fault(it.device, &no_copy));
        CHECK_FAILS(loch_allocator_realloc(own, b, 3000, NULL, &(void *){NULL}), DRIVER);
        expect(session, 3, 7000);
        CHECK_OK(loch_sim_set_fault(it.device, NULL));
        (void)get(own, 8000); /* it is still there for all purposes */
        CHECK_OK(loch_free(it.allocator, b));
        expect(session, 3, 13000);
        assert_int_equal(end(session), 13000);
        close_subject(&it);
    }
}

/* A wrapper that does not take one block back. */
typedef struct stubborn {
    loch_allocator *wrapped;
    void *address;
} stubborn;

static loch_status stubborn_alloc(void *self, const loch_request *request, void **out)
{
    return loch_allocator_alloc(((stubborn *)self)->wrapped, request, out);
}

static loch_status stubborn_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    stubborn *it = self;
    (void)bytes;
    if (address == it->address) return loch_error_set(LOCH_E_DRIVER, NULL, 0, "not this one");
    return stream ? loch_allocator_free_on(it->wrapped, address, stream) : loch_free(it->wrapped, address);
}

static void stubborn_destroy(void *self)
{
    ((stubborn *)self)->wrapped = NULL;
}

static void blocks_beside_one_that_cannot_be_freed_are_freed(void **state)
{
    (void)state;
    static const loch_allocator_ops ops = {.size = sizeof ops,
                                           .kind = "stubborn",
                                           .alloc = stubborn_alloc,
                                           .free = stubborn_free,
                                           .destroy = stubborn_destroy};
    for (int handle = 0; handle < 2; handle++) {
        subject it = open_subject("cpu", "pool");
        stubborn refusing = {.wrapped = it.allocator};
        loch_allocator *wrapper;
        CHECK_OK(loch_wrapper_create(it.allocator, NULL, &ops, &refusing, &wrapper));
        loch_session *session = begin(wrapper);
        loch_allocator *own = loch_session_get_allocator(session), *from = handle ? own : wrapper;
        CHECK_OK(loch_session_enter(session));
        (void)get(from, 1);
        refusing.address = get(from, 10);
        (void)get(from, 100);
        CHECK_OK(loch_session_leave(session));
        size_t bytes;
        for (int i = 0; i < 2; i++) {
            CHECK_FAILS(loch_session_end(session, NULL, &bytes), DRIVER);
            assert_int_equal(bytes, i ? 0 : 101);
            expect(session, 1, 10);
            assert_int_equal(live(it.allocator), 1);
        }
        void *block = refusing.address;
        CHECK_FAILS(loch_free(own, block), DRIVER);
        expect(session, 1, 10);
        refusing.address = NULL;
        if (handle)
            assert_int_equal(end(session), 10);
        else {
            CHECK_OK(loch_free(wrapper, block));
            assert_int_equal(end(session), 0);
        }
        loch_allocator_release(wrapper);
        assert_null(refusing.wrapped); /* it has ended */
        close_subject(&it);
    }
}

static void a_damaged_block_is_told_at_the_end_of_its_session(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "redzone/pool");
    loch_session *session = begin(it.allocator);
    char *bad = get(loch_session_get_allocator(session), 100);
    (void)get(loch_session_get_allocator(session), 200);
    bad[100] = (char)(bad[100] + 1);
    size_t bytes;
    CHECK_FAILS(loch_session_end(session, NULL, &bytes), CORRUPT);
    assert_int_equal(bytes, 300);
    expect(session, 0, 0);
    assert_int_equal(end(session), 0);
    close_subject(&it);
}

/* --- misuse --- */

typedef struct pressing {
    loch_session *session;
    loch_status entered, left;
} pressing;

static size_t press(loch_allocator *allocator, size_t bytes, void *user)
{
    pressing *it = user;
    (void)allocator, (void)bytes;
    it->entered = loch_session_enter(it->session);
    it->left = loch_session_leave(it->session);
    return 0;
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "pool");
    loch_device *sim = sim_open(devices[2]);
    loch_session *session = TEST_UNTOUCHED;
    CHECK_FAILS(loch_session_begin(NULL, "a", &session), INVALID);
    assert_null(session);
    CHECK_FAILS(loch_session_begin(it.allocator, "a", NULL), INVALID);
    CHECK_FAILS(loch_session_begin(it.allocator,
                                   "a name of more than sixty-three characters, which is too long for any", &session),
                INVALID);
    assert_null(session);
    assert_null(loch_session_get_allocator(NULL));
    CHECK_FAILS(loch_session_enter(NULL), INVALID);
    CHECK_FAILS(loch_session_leave(NULL), INVALID);
    CHECK_FAILS(loch_session_promote(NULL, &it), INVALID);
    CHECK_FAILS(loch_session_end(NULL, NULL, NULL), INVALID);
    CHECK_OK(loch_session_begin(it.allocator, NULL, &session));
    assert_string_equal(loch_allocator_get_name(loch_session_get_allocator(session)),
                        loch_allocator_get_name(it.allocator));
    CHECK_FAILS(loch_session_leave(session), INVALID);
    CHECK_FAILS(loch_session_promote(session, NULL), INVALID);
    CHECK_FAILS(loch_session_promote(session, &it), FOREIGN);
    CHECK_FAILS(loch_session_get_stats(session, NULL), INVALID);
    CHECK_FAILS(loch_session_get_stats(session, &(loch_session_stats){.size = 0}), INVALID);
    CHECK_FAILS(loch_session_get_stats(NULL, &(loch_session_stats){.size = sizeof(loch_session_stats)}), INVALID);
    char *block = get(loch_session_get_allocator(session), 100);
    CHECK_FAILS(loch_free(loch_session_get_allocator(session), block + 1), INTERIOR);
    CHECK_FAILS(loch_allocator_free_sized(loch_session_get_allocator(session), block, 99), INVALID);
    CHECK_FAILS(loch_session_promote(session, block + 1), FOREIGN);
    CHECK_FAILS(loch_session_end(session, loch_stream_get_default(sim), NULL), INVALID);
    expect(session, 1, 100);
    pressing inside = {.session = session};
    CHECK_OK(loch_session_enter(session));
    CHECK_OK(loch_allocator_add_pressure(it.allocator, press, &inside));
    assert_int_not_equal(loch_alloc(it.allocator, TEST_USER_CAPACITY, &(void *){NULL}), LOCH_OK);
    CHECK_OK(loch_allocator_remove_pressure(it.allocator, press, &inside));
    assert_int_equal(inside.entered, LOCH_E_INVALID);
    assert_int_equal(inside.left, LOCH_E_INVALID);
    CHECK_OK(loch_session_leave(session));
    assert_int_equal(end(session), 100);
    loch_device_release(sim);
    close_subject(&it);
}

/* What a user's wrapper allocates inside is its own business, and a block of no session may go back through one. */
static void a_block_through_a_wrapper_is_counted_in_one_session(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "wrapper/pool");
    loch_allocator *pool = loch_allocator_get_wrapped(it.allocator);
    loch_session *below = begin(pool), *above = begin(it.allocator);
    CHECK_OK(loch_session_enter(below));
    void *block = get(it.allocator, 1000);
    expect(below, 1, 1000); /* once, and it goes back through the wrapper */
    CHECK_OK(loch_session_enter(above));
    (void)get(it.allocator, 100);
    expect(below, 1, 1000);
    expect(above, 1, 100);
    CHECK_OK(loch_session_leave(above));
    CHECK_OK(loch_session_leave(below));
    (void)block;
    void *outside = get(it.allocator, 10);
    CHECK_OK(loch_free(loch_session_get_allocator(above), outside));
    assert_int_equal(end(below), 1000);
    assert_int_equal(end(above), 100);
    close_subject(&it);
}

/* --- failing host memory --- */

static loch_status sweep_use(loch_session *session, loch_allocator *pool, loch_allocator *around)
{
    void *block;
    LOCH_TRY_RETURN(loch_alloc(loch_session_get_allocator(session), 100, &block));
    LOCH_TRY_RETURN(loch_alloc(loch_session_get_allocator(session), 100000, &block));
    LOCH_TRY_RETURN(loch_allocator_realloc(pool, block, 300000, NULL, &block));
    LOCH_TRY_RETURN(loch_session_enter(session));
    loch_status status = loch_alloc(pool, 3000, &block);
    if (status == LOCH_OK) status = loch_alloc(around, 20000, &block);
    if (status == LOCH_OK) status = loch_allocator_realloc(around, block, 500, NULL, &block);
    if (loch_session_leave(session) != LOCH_OK) status = LOCH_E_BUSY;
    return status;
}

static loch_status sweep_run(const void *user)
{
    (void)user;
    loch_device *device = NULL;
    loch_allocator *pool = NULL, *around = NULL;
    loch_session *session = NULL;
    loch_status status = loch_device_open("cpu", &device);
    if (status == LOCH_OK) status = loch_pool_create(device, NULL, NULL, &pool);
    if (status == LOCH_OK) status = loch_tracking_create(pool, NULL, NULL, &around);
    if (status == LOCH_OK) status = loch_session_begin(pool, "swept", &session);
    if (status == LOCH_OK) status = sweep_use(session, pool, around);
    const loch_error error = *loch_error_get();
    loch_status ended = LOCH_OK;
    if (session) ended = loch_session_end(session, NULL, NULL);
    loch_allocator_release(around);
    loch_allocator_release(pool);
    loch_device_release(device);
    if (ended != LOCH_OK) return LOCH_E_BUSY;
    return status == LOCH_OK ? LOCH_OK : loch_error_set(status, NULL, 0, "%s", error.sentence);
}

static void sessions_survive_failing_host_memory(void **state)
{
    (void)state;
    test_host_sweep(sweep_run, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(what_cannot_be_freed_stays),
        SIM_TEST(blocks_beside_one_that_cannot_be_freed_are_freed),
        SIM_TEST(a_damaged_block_is_told_at_the_end_of_its_session),
        SIM_TEST(wrong_calls_are_refused),
        SIM_TEST(a_block_through_a_wrapper_is_counted_in_one_session),
        SIM_TEST(sessions_survive_failing_host_memory),
    };
    if (test_heap_install() != LOCH_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
