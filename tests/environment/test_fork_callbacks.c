/* SPDX-License-Identifier: MIT */
/* Forks from inside of the library's callbacks, and beside sessions, factories and logs of other threads. */
#include "fork_allocators.h"

/* --- forks from inside of callbacks --- */

/* The child goes on where it is, out of the callback and all calls around it. */
static void inside_fork(inside *in)
{
    if (in->forks) return;
    in->forks++;
    const pid_t child = fork_now();
    if (child == 0) {
        alarm(FORK_SECONDS);
        in->is_child = true;
    } else {
        in->bad = child < 0 ? -1 : fork_finish(child);
    }
}

static loch_status inside_visitor(const loch_block *block, void *user)
{
    (void)block;
    inside_fork(user);
    return LOCH_OK;
}

static size_t inside_pressure(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator, (void)bytes;
    inside_fork(user);
    return 0;
}

static void inside_log(loch_log_level level, const char *line, void *user)
{
    (void)level, (void)line;
    inside_fork(user);
}

static void inside_above(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator, (void)bytes;
    inside_fork(user);
}

static loch_status inside_factory(loch_device *device, loch_attributes attributes, void *user, loch_allocator **out)
{
    (void)attributes;
    inside_fork(user);
    return loch_pool_create(device, "made", NULL, out);
}

/* After the call that the fork was in: the child shows that all is well, and leaves. */
static void inside_finish(inside *in)
{
    if (in->is_child) {
        child_use(in->bed);
        child_release(in->bed);
        _exit(0);
    }
    assert_int_equal(in->forks, 1);
    assert_int_equal(in->bad, 0);
}

static void inside_walks(inside *in)
{
    for (int kind = 0; kind < KINDS; kind++) {
        *in = (inside){.bed = in->bed};
        assert_int_equal(loch_allocator_walk(in->bed->all[kind], inside_visitor, in), LOCH_OK);
        inside_finish(in);
    }
}

static void inside_pressures(inside *in)
{
    *in = (inside){.bed = in->bed};
    loch_allocator *limit = in->bed->all[LIMIT];
    void *block, *held;
    assert_int_equal(loch_alloc(limit, 100, &held), LOCH_OK);
    CHECK_OK(loch_allocator_add_pressure(limit, inside_pressure, in));
    const loch_request request = {.size = sizeof request, .bytes = TEST_GIB, .timeout_ns = 1};
    assert_int_equal(loch_allocator_alloc(limit, &request, &block), LOCH_E_LIMIT);
    assert_int_equal(loch_allocator_remove_pressure(limit, inside_pressure, in), LOCH_OK);
    assert_int_equal(loch_free(limit, held), LOCH_OK);
    inside_finish(in);
}

/* Driver calls are logged under the lock of the pool that makes them. */
static void inside_logs(inside *in)
{
    *in = (inside){.bed = in->bed};
    void *block;
    loch_log_set_hook(inside_log, in, LOCH_LOG_DEBUG);
    const loch_status status = loch_alloc(in->bed->all[POOL], 300 * TEST_MIB, &block);
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF);
    assert_int_equal(status, LOCH_OK);
    assert_int_equal(loch_free(in->bed->all[POOL], block), LOCH_OK);
    inside_finish(in);
}

/* Under the lock of a locking wrapper, which is taken a second time from inside. */
static void inside_locked(inside *in)
{
    *in = (inside){.bed = in->bed};
    loch_allocator *limit, *locked;
    void *block;
    const loch_limit_options options = {.size = sizeof options, .soft_bytes = 100, .above = inside_above, .user = in};
    assert_int_equal(loch_limit_create(in->bed->under[LOCKED], "soft", &options, &limit), LOCH_OK);
    assert_int_equal(loch_locked_create(limit, "outer", &locked), LOCH_OK);
    assert_int_equal(loch_alloc(locked, 1000, &block), LOCH_OK);
    assert_int_equal(loch_free(locked, block), LOCH_OK);
    assert_true(storm_step(locked, 5000, 1));
    loch_allocator_release(locked);
    loch_allocator_release(limit);
    inside_finish(in);
}

static void inside_factories(inside *in)
{
    *in = (inside){.bed = in->bed};
    loch_allocator *made;
    assert_int_equal(loch_registry_add_factory("made", 5, inside_factory, in), LOCH_OK);
    assert_int_equal(loch_registry_acquire("made", in->bed->device, &made), LOCH_OK);
    assert_true(storm_step(made, 100, 1));
    loch_allocator_release(made);
    assert_int_equal(loch_registry_remove("made", 5), LOCH_OK); /* waits until no thread is in the factory */
    inside_finish(in);
}

static void a_child_forked_inside_a_callback_works(void **state)
{
    bed b = {0};
    storm s;
    inside in = {.bed = &b};
    bed_open(&b);
    if (*state) storm_begin(&s, &b);
    inside_pressures(&in);
    inside_locked(&in);
    inside_factories(&in);
    if (!*state) { /* under a lock of the library: with other threads, what they hold then may be half changed */
        inside_walks(&in);
        inside_logs(&in);
    }
    if (*state) storm_end(&s);
    bed_close(&b);
}

/* With other threads such a fork has to come back, in the parent and in the child. */
static void *fork_walker(void *user)
{
    bed *b = user;
    inside in = {.bed = b};
    for (int kind = 0; kind < KINDS; kind++) {
        in = (inside){.bed = b};
        const loch_status status = loch_allocator_walk(b->all[kind], inside_visitor, &in);
        if (in.is_child) _exit(status == LOCH_OK ? 0 : FORK_BAD);
        if (in.bad) return user;
    }
    return NULL;
}

static void a_child_forked_under_a_lock_comes_back(void **state)
{
    (void)state;
    if (FORK_STANDS_STILL) skip(); /* a thread cannot stand still that waits for the lock */
    bed b = {0};
    storm s;
    bed_open(&b);
    storm_begin(&s, &b);
    assert_null(fork_walker(&b));
    storm_end(&s);
    bed_close(&b);
}

/* --- sessions, registry, logs --- */

typedef struct staying {
    loch_session *session;
    atomic_int is_in, may_go;
} staying;

static void *stay_in_session(void *user)
{
    staying *s = user;
    if (loch_session_enter(s->session) != LOCH_OK) return user;
    atomic_store(&s->is_in, 1);
    fork_await(&s->may_go, 1);
    return loch_session_leave(s->session) == LOCH_OK ? NULL : user;
}

static void child_ends_session(void *user)
{
    staying *s = user;
    size_t bytes;
    NEED_OK(loch_session_end(s->session, NULL, &bytes));
    NEED(bytes == 1000);
}

static void a_child_ends_a_session_that_others_were_in(void **state)
{
    (void)state;
    loch_device *device;
    loch_allocator *pool;
    staying s = {0};
    void *block;
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_pool_create(device, "pool", NULL, &pool));
    CHECK_OK(loch_session_begin(pool, "session", &s.session));
    CHECK_OK(loch_alloc(loch_session_get_allocator(s.session), 1000, &block));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stay_in_session, &s), 0);
    fork_await(&s.is_in, 1);
    const int bad = fork_run(child_ends_session, &s);
    CHECK_FAILS(loch_session_end(s.session, NULL, NULL), BUSY);
    atomic_store(&s.may_go, 1);
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(bad, 0);
    CHECK_OK(loch_session_end(s.session, NULL, NULL));
    loch_allocator_release(pool);
    loch_device_release(device);
}

typedef struct making {
    loch_device *device;
    atomic_int is_in, may_go;
} making;

static loch_status make_slowly(loch_device *device, loch_attributes attributes, void *user, loch_allocator **out)
{
    (void)attributes;
    making *m = user;
    if (atomic_exchange(&m->is_in, 1) == 0) fork_await(&m->may_go, 1);
    return loch_pool_create(device, "made", NULL, out);
}

static void *make_in_thread(void *user)
{
    making *m = user;
    loch_allocator *made = NULL;
    const loch_status status = loch_registry_acquire("slow", m->device, &made);
    loch_allocator_release(made);
    return status == LOCH_OK ? NULL : user;
}

static void child_asks_factory(void *user)
{
    making *m = user;
    loch_allocator *made;
    NEED_OK(loch_registry_acquire("slow", m->device, &made)); /* does not wait: the allocator is created here */
    NEED(storm_step(made, 100, 1));
    loch_allocator_release(made);
    NEED_OK(loch_registry_remove("slow", 1));
    size_t leaks;
    NEED_OK(loch_registry_clear(NULL, NULL, &leaks));
    NEED(leaks == 0);
}

static void a_child_makes_what_others_were_making(void **state)
{
    (void)state;
    making m = {0};
    CHECK_OK(loch_device_open("cpu", &m.device));
    CHECK_OK(loch_registry_add_factory("slow", 1, make_slowly, &m));
    pthread_t threads[2]; /* one makes it, one waits */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_in_thread, &m), 0);
    fork_await(&m.is_in, 1);
    const int bad = fork_run(child_asks_factory, &m);
    atomic_store(&m.may_go, 1);
    for (int i = 0; i < 2; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(bad, 0);
    CHECK_OK(loch_registry_remove("slow", 1));
    loch_device_release(m.device);
}

static size_t count_lines(const char *path)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t lines = 0;
    for (int c; (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

static void child_logs(void *user)
{
    loch_allocator *logging = user;
    NEED(storm_step(logging, 100, 1));
    NEED_FORKED(loch_logging_flush(logging));
    loch_allocator_release(logging);
    exit(0); /* writes what the system's streams keep */
}

static void a_log_is_written_once_over_a_fork(void **state)
{
    (void)state;
    loch_device *device;
    loch_allocator *pool, *logging;
    char path[64];
    snprintf(path, sizeof path, "/tmp/loch-fork-log-%d.csv", (int)getpid());
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_pool_create(device, "pool", NULL, &pool));
    const loch_logging_options options = {.size = sizeof options, .format = LOCH_LOGGING_CSV, .path = path};
    CHECK_OK(loch_logging_create(pool, "logging", &options, &logging));
    assert_true(storm_step(logging, 100, 1));
    assert_int_equal(fork_run(child_logs, logging), 0);
    assert_true(storm_step(logging, 100, 1));
    CHECK_OK(loch_logging_flush(logging));
    assert_int_equal(count_lines(path), 5); /* a head, two blocks */
    loch_allocator_release(logging);
    loch_allocator_release(pool);
    loch_device_release(device);
    unlink(path);
}

int main(void)
{
    static int yes;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_forked_inside_a_callback_works),
        cmocka_unit_test_prestate(a_child_forked_inside_a_callback_works, &yes),
        cmocka_unit_test(a_child_forked_under_a_lock_comes_back),
        cmocka_unit_test(a_child_ends_a_session_that_others_were_in),
        cmocka_unit_test(a_child_makes_what_others_were_making),
        cmocka_unit_test(a_log_is_written_once_over_a_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
