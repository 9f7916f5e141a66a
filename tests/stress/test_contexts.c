/* SPDX-License-Identifier: MIT */
/* Eight threads with a context each on one engine of several simulated devices: tensors, guards, pools that come and
 * go, copies of each other's tensors, parameters, spans; contexts end and are made again. What is read is what was
 * written, and the devices' checkers find nothing. */
#include "test.h"
#include "worker.h"

#include <pthread.h>

enum { THREADS = 8, STEPS = 1000, SEATS = 4, SLOTS = 6, OWN = 6 };

static const char *const names[SEATS] = {"sim:256MiB,backed", "sim:256MiB,backed,id=1", "sim:256MiB,backed,id=2",
                                         "cpu"};

/* A tensor that all threads may copy: it is not written any more. */
typedef struct parcel {
    loch_tensor *tensor;
    int value; /* of all elements */
} parcel;

typedef struct shared {
    loch_engine *engine;
    pthread_mutex_t mutex;
    parcel slots[SLOTS];
} shared;

typedef struct worker {
    shared *with;
    loch_context *context;
    parcel own[OWN];
    int pools[SEATS]; /* on the stacks */
    test_random random;
    int number, made;
    char failure[512];
} worker;

static size_t below(worker *w, size_t limit)
{
    return test_random_below(&w->random, limit);
}

static loch_stream *stream_of(const worker *w)
{
    return test_context_stream(w->context);
}

static void worker_expect(worker *w, loch_tensor *tensor, int value)
{
    loch_scalar seen = {0};
    const int64_t index = loch_tensor_get_size(tensor, 0) - 1;
    TRY(loch_tensor_read_item(tensor, LOCH_SHAPE(index), stream_of(w), &seen));
    EXPECT(seen.value.f == value);
}

static void worker_make(worker *w, parcel *out)
{
    const int64_t elements = 1 + (int64_t)below(w, 50000);
    out->value = ++w->made;
    TRY(loch_context_create_tensor(w->context, LOCH_F32, LOCH_SHAPE(elements), "made", 0, &out->tensor));
    TRY(loch_tensor_fill(out->tensor, loch_scalar_of(out->value), stream_of(w)));
}

/* A tensor of its own: made, or written, copied to where the thread is, and let go at times. */
static void worker_use_own(worker *w)
{
    parcel *at = &w->own[below(w, OWN)];
    loch_tensor *copy;
    if (!at->tensor) {
        worker_make(w, at);
        return;
    }
    TRY(loch_context_acquire_copy(w->context, at->tensor, &copy));
    worker_expect(w, copy, at->value);
    loch_tensor_release(copy);
    if (below(w, 3) == 0) loch_tensor_clear(&at->tensor);
}

/* Puts a tensor, whose writes have ended, where all see it. */
static void worker_send(worker *w)
{
    parcel made = {0};
    worker_make(w, &made);
    if (w->failure[0]) {
        loch_tensor_release(made.tensor);
        return;
    }
    TRY(loch_stream_sync(stream_of(w)));
    pthread_mutex_lock(&w->with->mutex);
    parcel *slot = &w->with->slots[below(w, SLOTS)];
    const parcel old = *slot;
    *slot = made;
    pthread_mutex_unlock(&w->with->mutex);
    loch_tensor_release(old.tensor); /* ends in this thread, even if other contexts have copies of it */
}

static void worker_receive(worker *w)
{
    pthread_mutex_lock(&w->with->mutex);
    parcel found = w->with->slots[below(w, SLOTS)];
    (void)loch_tensor_retain(found.tensor);
    pthread_mutex_unlock(&w->with->mutex);
    if (!found.tensor) return;
    loch_tensor *copy = NULL;
    const loch_status status = loch_context_acquire_copy(w->context, found.tensor, &copy);
    if (status == LOCH_OK && copy != found.tensor) worker_expect(w, copy, found.value);
    loch_tensor_release(copy);
    loch_tensor_release(found.tensor);
    TRY(status);
}

static void worker_use_pools(worker *w)
{
    const unsigned seat = loch_context_get_seat(w->context).number;
    const loch_child_options options = {
        .size = sizeof options, .kind = below(w, 2) ? LOCH_CHILD_RANGE : LOCH_CHILD_QUOTA, .limit_bytes = 2 * TEST_MIB};
    if (w->pools[seat] < 2 && below(w, 2)) {
        TRY(loch_context_push_pool(w->context, "pushed", &options, NULL));
        w->pools[seat]++;
    } else if (w->pools[seat]) {
        TRY(loch_context_pop_pool(w->context));
        w->pools[seat]--;
    }
    TRY(loch_context_use_pool(w->context, below(w, 4) != 0));
}

static void worker_use_parameter(worker *w)
{
    loch_tensor *host = NULL, *there = NULL;
    loch_parameter *parameter = NULL;
    TRY(loch_tensor_create(LOCH_F32, LOCH_SHAPE(40, 8), NULL, &host));
    TRY(loch_tensor_fill(host, loch_scalar_of(w->number), NULL));
    TRY(loch_context_declare(w->context, "parameter", LOCH_BF16, LOCH_SHAPE(40, 8),
                             below(w, 2) ? LOCH_SPREAD_PARTS : LOCH_SPREAD_COPIES, 0, 0, &parameter));
    TRY(loch_context_load(w->context, parameter, host));
    TRY(loch_parameter_acquire_tensor(parameter, loch_context_get_seat(w->context), &there));
    loch_scalar seen = {0};
    TRY(loch_tensor_read_item(there, LOCH_SHAPE(1, 1), stream_of(w), &seen));
    EXPECT(seen.value.f == w->number);
    loch_tensor_release(there);
    loch_parameter_release(parameter);
    loch_tensor_release(host);
}

static void worker_guarded(worker *w)
{
    loch_status status;
    LOCH_GUARD(status, seat, w->context, LOCH_SEAT((unsigned)below(w, SEATS)),
               below(w, 4) ? LOCH_SEAT_PLAIN : LOCH_SEAT_LOCKED);
    TRY(status);
    LOCH_GUARD(status, still, w->context);
    TRY(status);
    switch (below(w, 6)) {
    case 0: worker_send(w); break;
    case 1:
    case 2: worker_receive(w); break;
    case 3: worker_use_parameter(w); break;
    default: worker_use_own(w);
    }
}

static void worker_timed(worker *w)
{
    const loch_span_options options = {.size = sizeof options, .stream = stream_of(w)};
    loch_span span = loch_span_begin(loch_engine_get_timeline(w->with->engine), "step", &options);
    worker_guarded(w);
    loch_span_end(&span);
}

static void worker_step(worker *w)
{
    loch_context_stats stats = {.size = sizeof stats};
    switch (below(w, 11)) {
    case 0: TRY(loch_context_set_seat(w->context, LOCH_SEAT((unsigned)below(w, SEATS)))); break;
    case 1: worker_use_pools(w); break;
    case 2:
        TRY(loch_context_get_stats(w->context, &stats));
        EXPECT(stats.used_bytes <= stats.peak_bytes);
        break;
    case 3: {
        const loch_status status = test_context_compact(w->context, NULL);
        if (status != LOCH_E_MOVING_FORBIDDEN) TRY(status); /* another thread guards the pool */
        break;
    }
    default: worker_timed(w);
    }
}

static void worker_open(worker *w)
{
    const loch_context_options options = {.size = sizeof options, .flags = w->number % 2 ? LOCH_ALLOC_MOVABLE : 0};
    memset(w->pools, 0, sizeof w->pools);
    TRY(loch_context_open(w->with->engine, &options, &w->context));
}

/* Its tensors are used on behind it: the work of its streams has to have ended. */
static void worker_close(worker *w)
{
    for (unsigned i = 0; i < SEATS; i++) {
        TRY(loch_context_set_seat(w->context, LOCH_SEAT(i)));
        TRY(loch_stream_sync(stream_of(w)));
    }
    TRY(loch_context_close(w->context));
}

static void *worker_run(void *user)
{
    worker *w = user;
    worker_open(w);
    for (int i = 0; i < STEPS && !w->failure[0]; i++) {
        worker_step(w);
        if (i % 100 != 99 || w->failure[0]) continue;
        worker_close(w);
        if (!w->failure[0]) worker_open(w);
    }
    if (!w->failure[0]) worker_close(w);
    for (size_t i = 0; i < OWN; i++)
        loch_tensor_release(w->own[i].tensor);
    return NULL;
}

static void open_engine(shared *with, loch_device **devices)
{
    loch_engine_device table[SEATS];
    for (size_t i = 0; i < SEATS; i++) {
        CHECK_OK(loch_device_open(names[i], &devices[i]));
        table[i] = (loch_engine_device){.size = sizeof table[i], .name = names[i], .limit_bytes = 128 * TEST_MIB};
    }
    const loch_timeline_options timeline = {.size = sizeof timeline, .capacity = 1000};
    const loch_engine_options options = {
        .size = sizeof options, .devices = table, .devices_count = SEATS, .timeline = &timeline};
    CHECK_OK(loch_engine_open(&options, &with->engine));
    pthread_mutex_init(&with->mutex, NULL);
}

static void close_engine(shared *with, loch_device **devices)
{
    loch_engine_leaks leaks = {.size = sizeof leaks};
    size_t kept, left;
    for (size_t i = 0; i < SLOTS; i++)
        loch_tensor_release(with->slots[i].tensor);
    loch_timeline_count(loch_engine_get_timeline(with->engine), &kept, NULL);
    assert_true(kept > THREADS);
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, NULL));
    CHECK_OK(loch_engine_close(with->engine, LOCH_WORKERS_DRAIN, NULL, NULL, &leaks));
    assert_int_equal(leaks.blocks, 0);
    CHECK_OK(loch_registry_clear(NULL, NULL, &left));
    assert_int_equal(left, 0);
    for (size_t i = 0; i < SEATS; i++) {
        loch_sim_violation first;
        size_t count = 0;
        if (test_sim_violations(devices[i], &first, 1, &count) == LOCH_OK && count)
            fail_msg("%zu uses without order on %s, the first: %s", count, names[i], first.text);
        loch_device_release(devices[i]);
    }
    pthread_mutex_destroy(&with->mutex);
}

static void a_context_in_each_thread_keeps_its_contents(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(7);
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    loch_device *devices[SEATS];
    shared with = {0};
    static worker workers[THREADS];
    CHECK_OK(loch_host_get_usage(&before));
    open_engine(&with, devices);
    for (int i = 0; i < THREADS; i++)
        workers[i] = (worker){.with = &with, .number = i, .made = i * 10000, .random = {seed + (uint64_t)i}};
    TEST_THREADS_RUN(worker_run, workers);
    for (int i = 0; i < THREADS; i++)
        if (workers[i].failure[0]) fail_msg("thread %d: %s", i, workers[i].failure);
    close_engine(&with, devices);
    CHECK_OK(loch_host_get_usage(&after));
    assert_int_equal(after.blocks, before.blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_context_in_each_thread_keeps_its_contents)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
