/* SPDX-License-Identifier: MIT */
/* One pool under everything that moves its memory. Threads create, fill, read, share and release buffers and raw blocks
 * near its limit. Other threads compact, plan, freeze and forbid moving, create and end children and sessions, and put
 * a tag to sleep and wake it. Each buffer holds numbers that depend on its own number, so every reader detects a wrong
 * copy. The simulator's checker finds missing order, the walk over the pool between rounds finds broken invariants,
 * TSan finds data races. */
#include "memory/pool/report/check.h"
#include "test.h"
#include "worker.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define OWNERS 3 /* the last of which owns what sleeps */
#define WORKERS (OWNERS + 3)
#define ROUNDS 3
#define TURNS 20 /* steps of each disturbing thread in a round */
#define LIVE 12
#define SHARED 8
#define MOST_BYTES (400 * TEST_KIB)
#define LOOKED_AT 256        /* bytes at both ends of a block that are compared */
#define WATCHDOG_SECONDS 600 /* a hang ends the program, and so fails the test */

typedef struct scene {
    loch_device *device;
    loch_allocator *pool;
    loch_tag weights, sleepy;
    pthread_rwlock_t awake; /* held for writing while the tag sleeps: no thread touches its memory */
    _Atomic(loch_buffer *) shared[SHARED];
    atomic_bool is_over; /* for owners, which continue until this is set */
} scene;

/* What an owner has: a buffer, or a block without one. */
typedef struct thing {
    loch_buffer *buffer;
    void *block;
    size_t bytes;
    uint32_t word; /* the first of what it holds; each is one more than that before it */
    bool is_shared;
} thing;

typedef struct worker {
    scene *scene;
    loch_stream *stream;
    test_random random;
    void (*job)(struct worker *w);
    thing things[LIVE];
    uint32_t host[MOST_BYTES / 4 + 1]; /* what is written */
    uint64_t done;                     /* what that means is the job's */
    char failure[400];
} worker;

static bool is_short(loch_status status)
{
    return status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED || status == LOCH_E_DEVICE_MEMORY ||
           status == LOCH_E_MOVING_FORBIDDEN;
}

static bool chance(worker *w, size_t of)
{
    return test_random_below(&w->random, of) == 0;
}

/* --- contents --- */

static void expect_words(worker *w, const void *from, size_t bytes, uint32_t word)
{
    uint32_t seen[LOOKED_AT / 4];
    const loch_copy_options copy = {.size = sizeof copy, .stream = w->stream, .wait = LOCH_WAIT_END};
    TRY(loch_copy_with(seen, from, bytes, &copy));
    for (uint32_t i = 0; i < bytes / 4; i++)
        EXPECT(seen[i] == word + i);
}

static void look_at(worker *w, const char *address, size_t bytes, uint32_t word)
{
    const size_t part = bytes < LOOKED_AT ? bytes : LOOKED_AT;
    expect_words(w, address, part, word);
    if (!*w->failure) expect_words(w, address + bytes - part, part, word + (uint32_t)((bytes - part) / 4));
}

/* Queued: the host's memory is read before the call returns. */
static loch_status write_words(worker *w, void *address, size_t bytes, uint32_t word)
{
    for (uint32_t i = 0; i < bytes / 4; i++)
        w->host[i] = word + i;
    return loch_copy_on(address, w->host, bytes, w->stream);
}

static void write_thing(worker *w, const thing *t)
{
    void *address = t->block;
    if (t->buffer) TRY(loch_buffer_pin(t->buffer, w->stream, &address));
    TRY(write_words(w, address, t->bytes, t->word));
    if (t->buffer) TRY(loch_buffer_unpin(t->buffer, w->stream));
}

static void look_at_buffer(worker *w, loch_buffer *buffer, uint32_t word)
{
    void *address;
    TRY(loch_buffer_pin(buffer, w->stream, &address));
    look_at(w, address, loch_buffer_get_bytes(buffer), word);
    TRY(loch_buffer_unpin(buffer, w->stream));
}

static void look_at_thing(worker *w, const thing *t)
{
    if (t->buffer)
        look_at_buffer(w, t->buffer, t->word);
    else
        look_at(w, t->block, t->bytes, t->word);
}

/* --- owners --- */

static size_t pick_bytes(worker *w)
{
    static const size_t limits[] = {2000, 20 << 10, 200 << 10, MOST_BYTES};
    return 4 + 4 * test_random_below(&w->random, limits[test_random_below(&w->random, 4)] / 4);
}

/* Makes a thing of a pool, movable or not, raw or not, and fills it. Stays empty when there is no room. */
static void make_thing(worker *w, loch_allocator *pool, thing *t, loch_tag tag)
{
    const bool is_raw = chance(w, 4), is_movable = !is_raw && !chance(w, 4);
    const loch_request request = {.size = sizeof request,
                                  .bytes = pick_bytes(w),
                                  .stream = w->stream,
                                  .tag = tag,
                                  .flags = is_movable ? LOCH_ALLOC_MOVABLE : 0};
    *t = (thing){.bytes = request.bytes, .word = (uint32_t)test_random_next(&w->random)};
    const loch_status status = is_raw ? loch_allocator_alloc(pool, &request, &t->block)
                                      : loch_buffer_create(pool, request.bytes, &request, &t->buffer);
    if (is_short(status)) return;
    TRY(status);
    w->done++;
    if (t->buffer) t->word = (uint32_t)loch_buffer_get_id(t->buffer);
    write_thing(w, t);
}

static void end_thing(worker *w, loch_allocator *pool, thing *t)
{
    if (t->block) TRY(loch_free(pool, t->block));
    loch_buffer_release(t->buffer);
    *t = (thing){NULL};
}

/* Puts a reference into a slot for another thread, and checks the buffer that was there. This may release the last
 * reference of a buffer. */
static void share_thing(worker *w, thing *t)
{
    if (!t->buffer) return;
    TRY(loch_stream_sync(w->stream)); /* it is filled, for all streams */
    t->is_shared = true;
    loch_buffer *old =
        atomic_exchange(&w->scene->shared[test_random_below(&w->random, SHARED)], loch_buffer_retain(t->buffer));
    if (old) look_at_buffer(w, old, (uint32_t)loch_buffer_get_id(old));
    loch_buffer_release(old);
}

static void touch_thing(worker *w, thing *t, bool may_share)
{
    const size_t what = test_random_below(&w->random, 8);
    if (what < 3) {
        look_at_thing(w, t);
        if (!*w->failure) end_thing(w, w->scene->pool, t);
    } else if (what == 3 && may_share) {
        share_thing(w, t);
    } else if (what == 4 && t->buffer && !t->is_shared) {
        write_thing(w, t);
    } else {
        look_at_thing(w, t);
    }
}

static void job_own(worker *w)
{
    scene *s = w->scene;
    while ((!atomic_load(&s->is_over) || !w->done) && !*w->failure) { /* each gets its turn on a busy machine too */
        thing *t = &w->things[test_random_below(&w->random, LIVE)];
        if (t->buffer || t->block)
            touch_thing(w, t, true);
        else
            make_thing(w, s->pool, t, chance(w, 3) ? s->weights : 0);
    }
}

/* Uses a buffer with a tag that sleeps now and then: not while it sleeps, and not shared with threads that do not check
 * for sleep. */
static void job_own_what_sleeps(worker *w)
{
    scene *s = w->scene;
    while ((!atomic_load(&s->is_over) || !w->done) && !*w->failure) { /* each gets its turn on a busy machine too */
        thing *t = &w->things[test_random_below(&w->random, LIVE)];
        pthread_rwlock_rdlock(&s->awake);
        if (t->buffer || t->block)
            touch_thing(w, t, false);
        else
            make_thing(w, s->pool, t, s->sleepy);
        pthread_rwlock_unlock(&s->awake);
    }
}

/* --- disturbing threads --- */

static void compact(worker *w)
{
    const loch_compact_options options = {.size = sizeof options,
                                          .contiguous_bytes = chance(w, 2) ? 0 : pick_bytes(w),
                                          .budget_bytes = chance(w, 2) ? 0 : TEST_MIB,
                                          .stream = chance(w, 2) ? NULL : w->stream};
    loch_compact_report report = {.size = sizeof report};
    const bool is_plan = chance(w, 4);
    const loch_status status = is_plan ? loch_pool_plan_compact(w->scene->pool, &options, NULL, NULL, &report)
                                       : loch_pool_compact(w->scene->pool, &options, &report);
    if (options.contiguous_bytes && status == LOCH_E_FRAGMENTED) return;
    TRY(status);
    if (!is_plan) w->done += report.moves;
    if (options.budget_bytes) EXPECT(report.moved_bytes <= options.budget_bytes);
}

static void freeze(worker *w)
{
    const loch_freeze_options options = {.size = sizeof options, .tag = w->scene->weights, .stream = w->stream};
    loch_freeze_report report = {.size = sizeof report};
    const loch_status status = loch_pool_freeze(w->scene->pool, &options, &report);
    if (status == LOCH_E_BUSY) return; /* a tag sleeps */
    TRY(status);
    for (size_t i = 0; i < 4; i++)
        sched_yield();
    TRY(loch_pool_unfreeze(w->scene->pool, w->scene->weights, NULL));
}

static void forbid(worker *w)
{
    loch_pool_info info = {.size = sizeof info};
    TRY(loch_pool_forbid_moving(w->scene->pool));
    EXPECT(loch_pool_compact(w->scene->pool, NULL, NULL) == LOCH_E_MOVING_FORBIDDEN);
    TRY(loch_pool_get_info(w->scene->pool, &info));
    TRY(loch_pool_allow_moving(w->scene->pool));
}

static void job_move(worker *w)
{
    for (size_t turn = 0; (turn < TURNS || !w->done) && !*w->failure; turn++) { /* owners may start late */
        size_t released;
        compact(w);
        if (turn % 4 == 1 && !*w->failure) freeze(w);
        if (turn % 4 == 2 && !*w->failure) forbid(w);
        if (turn % 16 == 3) TRY(loch_allocator_trim(w->scene->pool, TEST_MIB, &released));
        sched_yield();
    }
}

/* A child with things in it, moved within it, and looked at. */
static void raise_child(worker *w)
{
    thing things[4] = {{NULL}};
    loch_allocator *child;
    const bool is_range = chance(w, 2);
    const loch_child_options options = {.size = sizeof options,
                                        .kind = is_range ? LOCH_CHILD_RANGE : LOCH_CHILD_QUOTA,
                                        .limit_bytes = 2 * TEST_MIB,
                                        .stream = w->stream};
    const loch_status status = loch_pool_create_child(w->scene->pool, "child", &options, &child);
    if (is_short(status)) return;
    TRY(status);
    for (size_t i = 0; i < 4 && !*w->failure; i++)
        make_thing(w, child, &things[i], 0);
    if (things[1].buffer || things[1].block) end_thing(w, child, &things[1]);
    if (!*w->failure) TRY(loch_pool_compact(child, NULL, NULL));
    for (size_t i = 0; i < 4 && !*w->failure; i++) {
        if (!things[i].buffer && !things[i].block) continue;
        look_at_thing(w, &things[i]);
        if (!*w->failure) end_thing(w, child, &things[i]);
    }
    loch_allocator_release(child);
}

/* A session that frees what a thread has allocated in it, except one block. */
static void hold_session(worker *w)
{
    scene *s = w->scene;
    loch_session *session;
    void *blocks[4] = {NULL};
    const loch_request request = {.size = sizeof request, .bytes = pick_bytes(w), .stream = w->stream};
    TRY(loch_session_begin(s->pool, NULL, &session));
    const bool is_entered = chance(w, 2);
    if (is_entered) TRY(loch_session_enter(session));
    loch_allocator *from = is_entered ? s->pool : loch_session_get_allocator(session);
    for (size_t i = 0; i < 4; i++) {
        const loch_status status = loch_allocator_alloc(from, &request, &blocks[i]);
        if (!is_short(status)) TRY(status);
    }
    if (is_entered) TRY(loch_session_leave(session));
    if (blocks[2]) TRY(loch_session_promote(session, blocks[2]));
    TRY(loch_session_end(session, NULL, NULL));
    TRY(loch_free(s->pool, blocks[2]));
}

static void job_raise(worker *w)
{
    for (size_t turn = 0; turn < TURNS && !*w->failure; turn++) {
        raise_child(w);
        if (!*w->failure) hold_session(w);
        sched_yield();
    }
}

/* Others may have the room for now: until they have released something. */
static loch_status wake(const scene *s)
{
    loch_status status = LOCH_E_LIMIT;
    for (size_t i = 0; i < 1000000 && is_short(status); i++) {
        if (i) sched_yield();
        status = loch_pool_wake(s->pool, NULL);
    }
    return status;
}

static void job_sleep(worker *w)
{
    scene *s = w->scene;
    const loch_sleep_options options = {.size = sizeof options, .contents = LOCH_SLEEP_HOST, .tag = s->sleepy};
    for (size_t turn = 0; turn < TURNS / 4 && !*w->failure; turn++) {
        pthread_rwlock_wrlock(&s->awake);
        loch_status status = loch_pool_sleep(s->pool, &options, NULL);
        for (size_t i = 0; i < 4; i++)
            sched_yield();
        if (status == LOCH_OK) status = wake(s);
        pthread_rwlock_unlock(&s->awake);
        TRY(status);
        w->done++;
        for (size_t i = 0; i < 8; i++)
            sched_yield();
    }
}

/* --- rounds --- */

static void *worker_run(void *user)
{
    worker *w = user;
    w->job(w);
    return NULL;
}

static void expect_well(const scene *s, const worker *workers)
{
    for (size_t i = 0; i < WORKERS; i++)
        if (*workers[i].failure) fail_msg("worker %zu: %s", i, workers[i].failure);
    const char *wrong = lochi_pool_check(lochi_pool_of(s->pool));
    if (wrong) fail_msg("the pool is broken: %s", wrong);
    loch_sim_stats stats = {.size = sizeof stats};
    loch_sim_violation first;
    size_t violations;
    if (loch_sim_get_stats(s->device, &stats) != LOCH_OK || !stats.violations) return;
    CHECK_OK(test_sim_violations(s->device, &first, 1, &violations));
    fail_msg("%zu violations: %s", violations, first.text);
}

/* Disturbing threads run to their end, then the owners are stopped. Afterwards no thread uses the pool. */
static void run_round(scene *s, worker *workers)
{
    pthread_t threads[WORKERS];
    atomic_store(&s->is_over, false);
    for (size_t i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
    for (size_t i = WORKERS; i-- > 0;) {
        if (i == OWNERS - 1) atomic_store(&s->is_over, true);
        pthread_join(threads[i], NULL);
    }
    expect_well(s, workers);
}

static void open_scene(scene *s, const char *device, size_t limit)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = limit};
    *s = (scene){NULL};
    CHECK_OK(loch_tag_create("stress weights", &s->weights));
    CHECK_OK(loch_tag_create("stress sleepy", &s->sleepy));
    CHECK_OK(loch_device_open(device, &s->device));
    CHECK_OK(loch_pool_create(s->device, "moving", &options, &s->pool));
    pthread_rwlock_init(&s->awake, NULL);
}

static void close_scene(scene *s, worker *workers)
{
    for (size_t i = 0; i < SHARED; i++)
        loch_buffer_release(atomic_load(&s->shared[i]));
    for (size_t i = 0; i < WORKERS; i++)
        for (size_t k = 0; k < LIVE; k++)
            end_thing(&workers[i], s->pool, &workers[i].things[k]);
    CHECK_OK(loch_device_sync(s->device));
    expect_well(s, workers);
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(s->pool, &stats));
    assert_int_equal(stats.blocks, 0);
    for (size_t i = 0; i < WORKERS; i++)
        loch_stream_close(workers[i].stream);
    loch_allocator_release(s->pool);
    loch_sim_stats left = {.size = sizeof left};
    if (loch_sim_get_stats(s->device, &left) == LOCH_OK) assert_int_equal(left.physical_bytes + left.events, 0);
    loch_device_release(s->device);
    pthread_rwlock_destroy(&s->awake);
}

static void run(const char *device, size_t limit)
{
    static scene s;
    static worker workers[WORKERS];
    static void (*const jobs[WORKERS])(worker *) = {job_own,  job_own,   job_own_what_sleeps,
                                                    job_move, job_raise, job_sleep};
    const uint64_t seed = test_seed(83);
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    open_scene(&s, device, limit);
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.scene = &s, .random = {seed + i}, .job = jobs[i]};
        CHECK_OK(loch_stream_create(s.device, NULL, &workers[i].stream));
    }
    alarm(WATCHDOG_SECONDS);
    for (size_t round = 0; round < ROUNDS; round++)
        run_round(&s, workers);
    alarm(0);
    print_message("%s: %llu moves, %llu things of children, %llu sleeps\n", device, (unsigned long long)workers[3].done,
                  (unsigned long long)workers[4].done, (unsigned long long)workers[5].done);
    for (size_t i = 0; i < WORKERS; i++)
        assert_true(workers[i].done > 0);
    close_scene(&s, workers);
    test_end_defaults(); /* contents of what slept were in the default pool */
    CHECK_OK(loch_host_get_usage(&after));
    assert_int_equal(after.blocks, before.blocks);
}

static void buffers_keep_their_contents_while_memory_moves(void **state)
{
    (void)state;
    run("cpu", 32 * TEST_MIB);
    run("sim:256MiB,backed,granule=64KiB", 8 * TEST_MIB);
    run("sim:256MiB,backed,granule=64KiB,alias=off,seed=5", 8 * TEST_MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(buffers_keep_their_contents_while_memory_moves)};
    return cmocka_run_group_tests_name("moving", tests, NULL, NULL);
}
