/* SPDX-License-Identifier: MIT */
/* fork() in a process whose threads allocate: memory of the CPU in the child, by every kind of allocator. */
#include "fork_fixture.h"

#include "memory/pool/inside.h"
#include "memory/allocator.h"

#define THREADS 4
#define SIZES 6

static const size_t sizes[SIZES] = {24, 700, 9 * TEST_KIB, 80 * TEST_KIB, 700 * TEST_KIB, 3 * TEST_MIB};

/* --- allocators of every kind, on one device --- */

enum { POOL, DIRECT, CHILD, LIMIT, TRACKING, LOGGING, GUARD, LOCKED, FAULT, SESSION, DEFAULT, KINDS };

typedef struct bed {
    loch_device *device;
    loch_allocator *all[KINDS], *under[KINDS]; /* under: what a wrapper wraps */
    loch_session *session;
    char path[64];
    void *kept[KINDS]; /* a block of the main thread's */
} bed;

static void bed_open(bed *b)
{
    CHECK_OK(loch_device_open("cpu", &b->device));
    CHECK_OK(loch_pool_create(b->device, "pool", NULL, &b->all[POOL]));
    CHECK_OK(loch_direct_create(b->device, "direct", NULL, &b->all[DIRECT]));
    const loch_child_options quota = {.size = sizeof quota, .kind = LOCH_CHILD_QUOTA};
    CHECK_OK(loch_pool_create_child(b->all[POOL], "child", &quota, &b->all[CHILD]));
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = TEST_GIB};
    CHECK_OK(loch_limit_create(b->all[POOL], "limit", &limit, &b->all[LIMIT]));
    const loch_tracking_options tracking = {.size = sizeof tracking, .records = 64};
    CHECK_OK(loch_tracking_create(b->all[DIRECT], "tracking", &tracking, &b->all[TRACKING]));
    snprintf(b->path, sizeof b->path, "/tmp/loch-fork-%d.csv", (int)getpid());
    const loch_logging_options logging = {.size = sizeof logging, .format = LOCH_LOGGING_CSV, .path = b->path};
    CHECK_OK(loch_logging_create(b->all[POOL], "logging", &logging, &b->all[LOGGING]));
    CHECK_OK(loch_redzone_create(b->all[POOL], "guard", NULL, &b->all[GUARD]));
    CHECK_OK(loch_direct_create(b->device, "inner", NULL, &b->under[LOCKED]));
    CHECK_OK(loch_locked_create(b->under[LOCKED], "locked", &b->all[LOCKED]));
    CHECK_OK(loch_fault_create(b->all[POOL], "fault", NULL, &b->all[FAULT]));
    CHECK_OK(loch_session_begin(b->all[POOL], "session", &b->session));
    b->all[SESSION] = loch_allocator_retain(loch_session_get_allocator(b->session));
    const loch_attributes any = {0, 0};
    CHECK_OK(loch_device_acquire_allocator(b->device, any, LOCH_FALLBACK_NONE, &b->all[DEFAULT]));
    for (int i = 0; i < KINDS; i++) {
        CHECK_OK(loch_alloc(b->all[i], 5000, &b->kept[i]));
        test_pattern_write(b->kept[i], 5000, (uint64_t)i);
    }
}

static void bed_close(bed *b)
{
    for (int i = 0; i < KINDS; i++)
        CHECK_OK(loch_free(b->all[i], b->kept[i]));
    CHECK_OK(loch_session_end(b->session, NULL, NULL));
    for (int i = KINDS - 1; i >= 0; i--) {
        loch_allocator_release(b->all[i]);
        loch_allocator_release(b->under[i]);
    }
    CHECK_OK(loch_registry_clear(NULL, NULL, NULL));
    loch_device_release(b->device);
    unlink(b->path);
}

/* --- threads that allocate --- */

typedef struct storm {
    bed *bed;
    atomic_bool is_over;
    atomic_int failures;
    pthread_t threads[THREADS];
    atomic_int started;
} storm;

/* Takes, fills and gives back one block; false when something went wrong. */
static bool storm_step(loch_allocator *allocator, size_t bytes, uint64_t seed)
{
    void *block = NULL;
    if (loch_alloc(allocator, bytes, &block) != LOCH_OK || !block) return false;
    test_pattern_write(block, bytes < 64 ? bytes : 64, seed);
    const bool is_good = test_pattern_differs(block, bytes < 64 ? bytes : 64, seed) == (bytes < 64 ? bytes : 64);
    return loch_free(allocator, block) == LOCH_OK && is_good;
}

/* One round of a thread. */
static void storm_round(storm *s, test_random *random, void *held[4])
{
    const int kind = (int)test_random_below(random, KINDS);
    const size_t bytes = sizes[test_random_below(random, SIZES)], at = test_random_below(random, 4);
    if (!storm_step(s->bed->all[kind], bytes, test_random_next(random))) atomic_fetch_add(&s->failures, 1);
    if (held[at] && loch_free(s->bed->all[POOL], held[at]) != LOCH_OK) atomic_fetch_add(&s->failures, 1);
    if (loch_alloc(s->bed->all[POOL], bytes, &held[at]) != LOCH_OK) atomic_fetch_add(&s->failures, 1);
    if (test_random_below(random, 16) == 0) {
        loch_stats stats = {.size = sizeof stats};
        if (loch_allocator_get_stats(s->bed->all[kind], &stats) != LOCH_OK) atomic_fetch_add(&s->failures, 1);
    }
    if (test_random_below(random, 64) == 0) { /* objects come and go meanwhile */
        loch_allocator *made = NULL;
        if (loch_pool_create(s->bed->device, "short", NULL, &made) != LOCH_OK || !storm_step(made, bytes, 1))
            atomic_fetch_add(&s->failures, 1);
        loch_allocator_release(made);
    }
}

static void *storm_thread(void *user)
{
    storm *s = user;
    const unsigned number = (unsigned)atomic_fetch_add(&s->started, 1);
    test_random random = {number};
    void *held[4] = {NULL};
    while (!atomic_load(&s->is_over))
        FORK_STEP(storm_round(s, &random, held));
    for (int i = 0; i < 4; i++)
        if (held[i] && loch_free(s->bed->all[POOL], held[i]) != LOCH_OK) atomic_fetch_add(&s->failures, 1);
    return NULL;
}

static void storm_begin(storm *s, bed *b)
{
    *s = (storm){.bed = b};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&s->threads[i], NULL, storm_thread, s), 0);
    fork_await(&s->started, THREADS);
}

static void storm_end(storm *s)
{
    atomic_store(&s->is_over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(s->threads[i], NULL);
    assert_int_equal(atomic_load(&s->failures), 0);
}

/* --- what a child does --- */

static void *child_thread(void *user)
{
    bed *b = user;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < KINDS; i++)
            for (int j = 0; j < SIZES; j++)
                NEED(storm_step(b->all[i], sizes[j], (uint64_t)j));
    return NULL;
}

static void child_use(void *user)
{
    bed *b = user;
    for (int i = 0; i < KINDS; i++) {
        NEED(test_pattern_differs(b->kept[i], 5000, (uint64_t)i) == 5000);
        memset(b->kept[i], 0x5a, 5000); /* not the parent's */
        for (int j = 0; j < SIZES; j++)
            NEED(storm_step(b->all[i], sizes[j], (uint64_t)(i + j)));
    }
    pthread_t threads[2];
    for (int i = 0; i < 2 * FORK_HAS_THREADS; i++)
        NEED(pthread_create(&threads[i], NULL, child_thread, b) == 0);
    for (int i = 0; i < 2 * FORK_HAS_THREADS; i++)
        NEED(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < KINDS; i++) {
        lochi_pool *pool = lochi_pool_of(b->all[i]);
        if (pool) {
            const char *wrong = lochi_pool_check(pool);
            if (wrong) fprintf(stderr, "%s\n", wrong);
            NEED(!wrong);
            NEED(atomic_load(&pool->gate) == 0);
        }
        loch_stats stats = {.size = sizeof stats};
        NEED_OK(loch_allocator_get_stats(b->all[i], &stats));
        NEED_OK(loch_allocator_trim(b->all[i], 0, NULL));
    }
}

static void child_release(bed *b)
{
    for (int i = 0; i < KINDS; i++)
        NEED_OK(loch_free(b->all[i], b->kept[i]));
    NEED_OK(loch_session_end(b->session, NULL, NULL));
    for (int i = KINDS - 1; i >= 0; i--) {
        loch_allocator_release(b->all[i]);
        loch_allocator_release(b->under[i]);
    }
    size_t leaks;
    NEED_OK(loch_registry_clear(NULL, NULL, &leaks));
    loch_device_release(b->device);
}

static void child_all(void *user)
{
    child_use(user);
    child_release(user);
}

static void child_of_child(void *user)
{
    child_use(user);
    bed *b = user;
    for (int i = 0; i < KINDS; i++)
        test_pattern_write(b->kept[i], 5000, (uint64_t)i);
    NEED(fork_run(child_all, user) == 0);
    for (int i = 0; i < KINDS; i++)
        NEED(test_pattern_differs(b->kept[i], 5000, (uint64_t)i) == 5000);
    child_release(user);
}

/* --- tests --- */

static void allocates_in_the_child_of_a_busy_process(void **state)
{
    (void)state;
    bed b = {0};
    storm s;
    bed_open(&b);
    storm_begin(&s, &b);
    int bad = 0;
    for (int i = fork_count(100); i > 0 && !bad; i--)
        bad = fork_run(i % 8 ? child_all : child_of_child, &b);
    storm_end(&s);
    assert_int_equal(bad, 0);
    for (int i = 0; i < KINDS; i++)
        assert_int_equal(test_pattern_differs(b.kept[i], 5000, (uint64_t)i), 5000);
    assert_null(lochi_pool_check(lochi_pool_of(b.all[POOL])));
    bed_close(&b);
}

/* Several threads fork at the same time. */
static void *fork_thread(void *user)
{
    storm *s = user;
    for (int i = 0; i < 10; i++)
        if (fork_run(child_use, s->bed) != 0) atomic_fetch_add(&s->failures, 1);
    return NULL;
}

static void forks_in_several_threads(void **state)
{
    (void)state;
    bed b = {0};
    storm s;
    bed_open(&b);
    storm_begin(&s, &b);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fork_thread, &s), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    storm_end(&s);
    bed_close(&b);
}

/* --- threads that wait for memory, or are in a pressure function --- */

typedef struct waiting {
    loch_allocator *pool, *limit;
    void *all;         /* the memory that is waited for */
    atomic_int inside; /* threads that have come so far */
    atomic_int may_go;
    loch_status status;
} waiting;

static size_t wait_in_pressure(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator, (void)bytes;
    waiting *w = user;
    atomic_fetch_add(&w->inside, 1);
    fork_await(&w->may_go, 1);
    return 0;
}

static void *wait_for_memory(void *user)
{
    waiting *w = user;
    void *block = NULL;
    const loch_request request = {
        .size = sizeof request, .bytes = 4 * TEST_MIB, .timeout_ns = (uint64_t)FORK_SECONDS * 4000000000u};
    w->status = loch_allocator_alloc(w->limit, &request, &block);
    if (w->status == LOCH_OK) w->status = loch_free(w->limit, block);
    return NULL;
}

static void child_of_waiting(void *user)
{
    waiting *w = user;
    NEED(atomic_load(&w->limit->waiters) == 0);
    NEED(atomic_load(&w->pool->waiters) == 0);
    NEED(atomic_load(&w->pool->pool->gate) == 0);
    NEED(storm_step(w->pool, 100, 1));
    NEED_OK(loch_free(w->limit, w->all));
    NEED(storm_step(w->limit, 4 * TEST_MIB, 1));
    const loch_request request = {.size = sizeof request, .bytes = 7 * TEST_MIB, .timeout_ns = 1000000};
    void *first, *second = NULL;
    NEED_OK(loch_alloc(w->limit, 7 * TEST_MIB, &first));
    NEED(loch_allocator_alloc(w->limit, &request, &second) == LOCH_E_LIMIT);
    NEED_OK(loch_free(w->limit, first));
    loch_allocator_release(w->limit);
    loch_allocator_release(w->pool);
}

static void child_of_pressure(void *user)
{
    waiting *w = user;
    NEED_OK(loch_allocator_remove_pressure(w->limit, wait_in_pressure, w)); /* waits for nobody */
    child_of_waiting(w);
}

static void forgets_threads_that_wait(void **state)
{
    const bool in_pressure = *state != NULL;
    loch_device *device;
    waiting w = {0};
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_pool_create(device, "pool", NULL, &w.pool));
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = 8 * TEST_MIB};
    CHECK_OK(loch_limit_create(w.pool, "limit", &limit, &w.limit));
    if (in_pressure) CHECK_OK(loch_allocator_add_pressure(w.limit, wait_in_pressure, &w));
    CHECK_OK(loch_alloc(w.limit, 6 * TEST_MIB, &w.all));
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_memory, &w), 0);
    if (in_pressure)
        fork_await(&w.inside, 2);
    else
        while (atomic_load(&w.pool->waiters) != 2)
            sched_yield();
    int bad = 0;
    for (int i = 0; i < 20 && !bad; i++)
        bad = fork_run(in_pressure ? child_of_pressure : child_of_waiting, &w);
    atomic_store(&w.may_go, 1);
    CHECK_OK(loch_free(w.limit, w.all));
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(bad, 0);
    CHECK_OK(w.status);
    assert_int_equal(atomic_load(&w.pool->pool->gate), 0);
    if (in_pressure) CHECK_OK(loch_allocator_remove_pressure(w.limit, wait_in_pressure, &w));
    loch_allocator_release(w.limit);
    loch_allocator_release(w.pool);
    loch_device_release(device);
}

/* --- forks from inside of callbacks --- */

typedef struct inside {
    bed *bed;
    int kind;
    bool is_child;  /* this process is one */
    int bad, forks; /* of the parent */
} inside;

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
    void *block;
    CHECK_OK(loch_allocator_add_pressure(limit, inside_pressure, in));
    const loch_request request = {.size = sizeof request, .bytes = 2 * TEST_GIB, .timeout_ns = 1};
    assert_int_equal(loch_allocator_alloc(limit, &request, &block), LOCH_E_LIMIT);
    assert_int_equal(loch_allocator_remove_pressure(limit, inside_pressure, in), LOCH_OK);
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
    assert_int_equal(loch_registry_remove("made", 5), LOCH_OK); /* waits until nobody is in the factory */
    inside_finish(in);
}

static void forks_inside_callbacks(void **state)
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

static void comes_back_from_under_a_lock(void **state)
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

static void ends_a_session_that_others_were_in(void **state)
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
    NEED_OK(loch_registry_acquire("slow", m->device, &made)); /* waits for nobody: it is made here */
    NEED(storm_step(made, 100, 1));
    loch_allocator_release(made);
    NEED_OK(loch_registry_remove("slow", 1));
    size_t leaks;
    NEED_OK(loch_registry_clear(NULL, NULL, &leaks));
    NEED(leaks == 0);
}

static void makes_what_others_were_making(void **state)
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

static void writes_a_log_once(void **state)
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

/* --- what other threads kept --- */

typedef struct keeping {
    loch_allocator *pool;
    atomic_int is_full, may_go;
} keeping;

static void *keep_blocks(void *user)
{
    keeping *k = user;
    void *blocks[32];
    bool is_good = true;
    for (int i = 0; i < 32; i++)
        is_good &= loch_alloc(k->pool, 40 * TEST_KIB, &blocks[i]) == LOCH_OK;
    for (int i = 0; i < 32; i++)
        is_good &= loch_free(k->pool, blocks[i]) == LOCH_OK;
    atomic_store(&k->is_full, 1);
    fork_await(&k->may_go, 1);
    return is_good ? NULL : user;
}

static void child_has_it_all(void *user)
{
    keeping *k = user;
    loch_pool_info info = {.size = sizeof info};
    NEED_OK(loch_pool_get_info(k->pool, &info));
    NEED(info.thread_bytes < TEST_MIB / 2); /* as when a thread has ended */
    loch_stats stats = {.size = sizeof stats};
    NEED_OK(loch_allocator_get_stats(k->pool, &stats));
    NEED(stats.blocks == 1 && stats.requested_bytes == 77);
    NEED_OK(loch_allocator_trim(k->pool, 0, NULL));
    NEED(!lochi_pool_check(lochi_pool_of(k->pool)));
    NEED(atomic_load(&k->pool->pool->gate) == 0);
}

static void takes_back_what_threads_kept(void **state)
{
    (void)state;
    loch_device *device;
    keeping k = {0};
    void *own;
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_pool_create(device, "pool", NULL, &k.pool));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, keep_blocks, &k), 0);
    fork_await(&k.is_full, 1);
    const loch_request request = {.size = sizeof request, .bytes = 77, .tag = 0, .alignment = 4096};
    CHECK_OK(loch_allocator_alloc(k.pool, &request, &own)); /* not by the thread's own cache */
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(k.pool, &info));
    assert_true(info.thread_bytes > TEST_MIB);
    const int bad = fork_run(child_has_it_all, &k);
    atomic_store(&k.may_go, 1);
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(bad, 0);
    CHECK_OK(loch_free(k.pool, own));
    loch_allocator_release(k.pool);
    loch_device_release(device);
}

int main(void)
{
    static int yes;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocates_in_the_child_of_a_busy_process),
        cmocka_unit_test(forks_in_several_threads),
        cmocka_unit_test(forgets_threads_that_wait),
        cmocka_unit_test_prestate(forgets_threads_that_wait, &yes),
        cmocka_unit_test(forks_inside_callbacks),
        cmocka_unit_test_prestate(forks_inside_callbacks, &yes),
        cmocka_unit_test(comes_back_from_under_a_lock),
        cmocka_unit_test(ends_a_session_that_others_were_in),
        cmocka_unit_test(makes_what_others_were_making),
        cmocka_unit_test(writes_a_log_once),
        cmocka_unit_test(takes_back_what_threads_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
