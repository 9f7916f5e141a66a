/* SPDX-License-Identifier: MIT */
/* fork() with a real GPU: a device that was opened before answers E_FORKED in the child, all can be given back there,
 * the child ends quietly, and the parent does not notice. A child of a process that has not started CUDA may use it.
 *
 * Without a GPU the program says why and is skipped; LOCH_REQUIRE_GPU=1 makes that a failure. An argument names another
 * device than cuda:0 ("sim:1GiB,backed" tries the program itself). */
#include "environment/fork_fixture.h"

#define THREADS 3
#define BYTES (3 * TEST_MIB)

static const char *device_name = "cuda:0";

typedef struct all {
    loch_device *device;
    loch_allocator *pool, *direct, *pinned;
    loch_stream *stream;
    loch_event *event;
    void *small, *large, *of_direct, *of_pinned;
} all;

static void all_open(all *a)
{
    const loch_pool_options pinned = {.size = sizeof pinned, .kind = LOCH_MEMORY_PINNED};
    DO_OK(loch_device_open(device_name, &a->device));
    DO_OK(loch_pool_create(a->device, "pool", NULL, &a->pool));
    DO_OK(loch_pool_create(a->device, "pinned", &pinned, &a->pinned));
    DO_OK(loch_direct_create(a->device, "direct", NULL, &a->direct));
    DO_OK(loch_stream_create(a->device, NULL, &a->stream));
    DO_OK(loch_event_create(a->device, LOCH_EVENT_TIMED, &a->event));
    DO_OK(loch_alloc(a->pool, 100, &a->small));
    DO_OK(loch_alloc(a->pool, BYTES, &a->large));
    DO_OK(loch_alloc(a->direct, BYTES, &a->of_direct));
    DO_OK(loch_alloc(a->pinned, BYTES, &a->of_pinned));
    DO_OK(loch_fill_on(a->large, BYTES, "\x5c", 1, a->stream));
    DO_OK(loch_event_record(a->event, a->stream));
    DO_OK(loch_stream_sync(a->stream));
}

static void all_close(all *a)
{
    DO_OK(loch_free(a->pool, a->small));
    DO_OK(loch_free(a->pool, a->large));
    DO_OK(loch_free(a->direct, a->of_direct));
    DO_OK(loch_free(a->pinned, a->of_pinned));
    loch_event_destroy(a->event);
    loch_stream_close(a->stream);
    loch_allocator_release(a->direct);
    loch_allocator_release(a->pinned);
    loch_allocator_release(a->pool);
    loch_device_release(a->device);
}

static void all_check(const all *a)
{
    static unsigned char bytes[BYTES];
    DO_OK(loch_copy(bytes, a->large, BYTES));
    for (size_t i = 0; i < BYTES; i++)
        if (bytes[i] != 0x5c) fail_msg("byte %zu is 0x%02x", i, bytes[i]);
}

static loch_status find_cuda(const char *name, void *user)
{
    *(bool *)user |= !strncmp(name, "cuda", 4);
    return LOCH_OK;
}

static void child_is_refused(void *user)
{
    all *a = user;
    void *block;
    char byte;
    loch_memory_info info = {.size = sizeof info};
    loch_stream *stream;
    loch_event *event;
    loch_device *again;
    const bool is_cuda = !strncmp(device_name, "cuda", 4);
    NEED_FORKED(loch_alloc(a->pool, 100, &block));
    NEED_FORKED(loch_alloc(a->pinned, 100, &block));
    NEED_FORKED(loch_alloc(a->direct, 100, &block));
    NEED_FORKED(loch_copy(&byte, a->large, 1));
    NEED_FORKED(loch_fill(a->large, 1, "", 1));
    NEED_FORKED(loch_device_calculate_memory(a->device, &info));
    NEED_FORKED(loch_device_sync(a->device));
    NEED_FORKED(loch_stream_create(a->device, NULL, &stream));
    NEED_FORKED(loch_stream_require_thread_default(a->device, &stream));
    NEED_FORKED(loch_stream_sync(a->stream));
    NEED_FORKED(loch_stream_query(a->stream));
    NEED_FORKED(loch_event_create(a->device, LOCH_EVENT_PLAIN, &event));
    NEED_FORKED(loch_event_record(a->event, a->stream));
    NEED_FORKED(loch_event_sync(a->event));
    if (is_cuda) {
        bool is_found = false;
        NEED_FORKED(loch_device_open(device_name, &again));
        NEED_OK(loch_device_walk(find_cuda, &is_found));
        NEED(!is_found);
    }
    all_close(a);
    loch_allocator *pool; /* the CPU is as ever */
    NEED_OK(loch_device_open("cpu", &again));
    NEED_OK(loch_pool_create(again, "cpu", NULL, &pool));
    NEED_OK(loch_alloc(pool, BYTES, &block));
    memset(block, 1, BYTES);
    NEED_OK(loch_free(pool, block));
    loch_allocator_release(pool);
    loch_device_release(again);
#if defined(__SANITIZE_ADDRESS__)
    _exit(0); /* LeakSanitizer would look for the stacks of threads that a child does not have */
#endif
    exit(0); /* with all that libraries do at the end */
}

typedef struct busy {
    all *all;
    atomic_bool is_over;
    atomic_int failures;
} busy;

static void *busy_thread(void *user)
{
    busy *b = user;
    test_random random = {1};
    while (!atomic_load(&b->is_over)) {
        void *block = NULL;
        loch_allocator *allocator = test_random_below(&random, 4) ? b->all->pool : b->all->direct;
        if (loch_alloc(allocator, 1 + test_random_below(&random, BYTES), &block) != LOCH_OK ||
            loch_free(allocator, block) != LOCH_OK)
            atomic_fetch_add(&b->failures, 1);
    }
    return NULL;
}

static void a_child_is_refused_the_gpu(void **state)
{
    (void)state;
    all a;
    all_open(&a);
    assert_int_equal(fork_run(child_is_refused, &a), 0);
    all_check(&a);
    all_close(&a);
}

static void children_of_a_busy_process_are_refused_the_gpu(void **state)
{
    (void)state;
    all a;
    busy b = {.all = &a};
    pthread_t threads[THREADS];
    all_open(&a);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, busy_thread, &b), 0);
    int bad = 0;
    for (int i = fork_count(20); i > 0 && !bad; i--)
        bad = fork_run(child_is_refused, &a);
    atomic_store(&b.is_over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(bad, 0);
    assert_int_equal(atomic_load(&b.failures), 0);
    all_check(&a);
    all_close(&a);
}

static void child_works(void *user)
{
    (void)user;
    all a;
    loch_device *device;
    if (loch_device_open(device_name, &device) != LOCH_OK) _exit(TEST_SKIPPED);
    loch_device_release(device);
    all_open(&a);
    all_check(&a);
    all_close(&a);
}

/* Before the process has started CUDA itself. */
static int first_child;

static void a_child_alone_may_open_the_gpu(void **state)
{
    (void)state;
    assert_int_equal(first_child, 0);
}

int main(int count, char **arguments)
{
    if (count > 1) device_name = arguments[1];
    first_child = fork_run(child_works, NULL);
    loch_device *device;
    if (loch_device_open(device_name, &device) != LOCH_OK) return test_skip_gpu();
    loch_device_release(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_alone_may_open_the_gpu),
        cmocka_unit_test(a_child_is_refused_the_gpu),
        cmocka_unit_test(children_of_a_busy_process_are_refused_the_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
