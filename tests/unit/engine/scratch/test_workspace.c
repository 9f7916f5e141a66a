/* SPDX-License-Identifier: MIT */
/* Workspaces: one buffer that grows, whose old memory stays for work that was queued with its address. */
#include "sim_fixture.h"
#include "sweep.h"
#include "worker.h"

#define KIB TEST_KIB
#define STEPPED "sim:64MiB,granule=64KiB,clock=stepped,lag=1000,backed"

typedef struct bench {
    loch_device *device;
    loch_allocator *allocator;
    loch_stream *stream;
    loch_workspace *workspace;
} bench;

static bench bench_open(const char *name, const loch_request *request)
{
    bench it = {.device = sim_open(name)};
    CHECK_OK(loch_pool_create(it.device, "workspace", NULL, &it.allocator));
    CHECK_OK(loch_stream_create(it.device, NULL, &it.stream));
    CHECK_OK(loch_workspace_create(it.allocator, it.stream, request, &it.workspace));
    return it;
}

static void bench_close(bench *it)
{
    loch_workspace_destroy(it->workspace);
    loch_stream_close(it->stream);
    sim_expect_order(it->device);
    loch_allocator_release(it->allocator);
    loch_device_release(it->device);
}

static loch_buffer *get(const bench *it, size_t bytes)
{
    loch_buffer *buffer;
    CHECK_OK(loch_workspace_acquire(it->workspace, bytes, &buffer));
    assert_true(loch_buffer_get_bytes(buffer) >= bytes);
    return buffer;
}

static size_t blocks(const bench *it)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(it->allocator, &stats));
    return (size_t)stats.blocks;
}

static void a_workspace_grows_to_the_largest_request(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", STEPPED};
    for (size_t n = 0; n < 2; n++) {
        bench it = bench_open(names[n], NULL);
        assert_int_equal(blocks(&it), 0);
        static const size_t asked[] = {1000, 10, 5000, 5000, 0, 4999}, has[] = {1000, 1000, 5000, 5000, 5000, 5000};
        for (size_t i = 0; i < 6; i++) {
            loch_buffer *buffer = get(&it, asked[i]);
            assert_int_equal(loch_buffer_get_bytes(buffer), has[i]);
            loch_buffer_release(buffer);
            assert_int_equal(blocks(&it), 1);
        }
        bench_close(&it);
    }
}

/* A defect to avoid: the old memory is freed while a holder or queued kernels use it. */
static void old_memory_stays_for_its_holders(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_buffer *old = get(&it, 64 * KIB);
    void *address = loch_buffer_get_address(old);
    CHECK_OK(sim_writes(it.stream, address, 64 * KIB)); /* queued, far from done */
    loch_buffer *larger = get(&it, 128 * KIB);
    assert_ptr_not_equal(old, larger);
    assert_ptr_equal(loch_buffer_get_address(old), address);
    assert_int_equal(blocks(&it), 2);
    CHECK_OK(sim_writes(it.stream, address, 64 * KIB));
    CHECK_OK(sim_writes(it.stream, loch_buffer_get_address(larger), 128 * KIB));
    loch_buffer_release(old);
    assert_int_equal(blocks(&it), 1);
    /* The next owner of that memory on another stream is ordered after the work; the checker would report it
     * otherwise. */
    loch_stream *other = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    for (int i = 0; i < 8; i++) {
        void *block;
        const loch_request request = {.size = sizeof request, .bytes = 64 * KIB, .stream = other};
        CHECK_OK(loch_allocator_alloc(it.allocator, &request, &block));
        CHECK_OK(sim_writes(other, block, 64 * KIB));
        CHECK_OK(loch_free(it.allocator, block));
    }
    loch_stream_close(other);
    loch_buffer_release(larger);
    bench_close(&it);
}

static void queued_work_survives_growing_and_the_end(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    for (size_t bytes = KIB; bytes <= 512 * KIB; bytes *= 2) {
        loch_buffer *buffer = get(&it, bytes);
        CHECK_OK(sim_writes(it.stream, loch_buffer_get_address(buffer), bytes));
        loch_buffer_release(buffer); /* after the work was queued */
    }
    assert_true(sim_stats(it.device).pending > 0);
    loch_buffer *kept = get(&it, 1);
    loch_workspace_destroy(it.workspace);
    it.workspace = NULL;
    CHECK_OK(sim_writes(it.stream, loch_buffer_get_address(kept), 512 * KIB));
    loch_buffer_release(kept);
    assert_int_equal(blocks(&it), 0);
    bench_close(&it);
}

static void a_failure_leaves_the_present_buffer(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_buffer *buffer = get(&it, 1000), *out = TEST_UNTOUCHED;
    CHECK_FAILS_SET(loch_workspace_acquire(it.workspace, 4 * TEST_GIB, &out),
                    TEST_SET(DEVICE_MEMORY) | TEST_SET(LIMIT));
    assert_null(out);
    loch_buffer *again = get(&it, 1000);
    assert_ptr_equal(again, buffer);
    loch_buffer_release(again);
    loch_buffer_release(buffer);
    bench_close(&it);
}

static void memory_is_taken_as_the_request_says(void **state)
{
    (void)state;
    const loch_request request = {.size = sizeof request, .bytes = 7, .alignment = 8192, .flags = LOCH_ALLOC_ZEROED};
    bench it = bench_open("cpu", &request);
    loch_buffer *buffer = get(&it, 1000);
    const unsigned char *bytes = loch_buffer_get_address(buffer);
    assert_int_equal((uintptr_t)bytes % 8192, 0);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(bytes[i], 0);
    loch_buffer_release(buffer);
    bench_close(&it);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_workspace *workspace = TEST_UNTOUCHED;
    loch_buffer *out = TEST_UNTOUCHED;
    loch_device *cpu = sim_open("cpu");
    const loch_request sizeless = {0};
    CHECK_FAILS(loch_workspace_create(NULL, NULL, NULL, &workspace), INVALID);
    assert_null(workspace);
    CHECK_FAILS(loch_workspace_create(it.allocator, NULL, NULL, NULL), INVALID);
    CHECK_FAILS(loch_workspace_create(it.allocator, NULL, &sizeless, &workspace), INVALID);
    CHECK_FAILS(loch_workspace_create(it.allocator, loch_stream_get_default(cpu), NULL, &workspace), INVALID);
    CHECK_FAILS(loch_workspace_acquire(NULL, 1, &out), INVALID);
    assert_null(out);
    CHECK_FAILS(loch_workspace_acquire(it.workspace, 1, NULL), INVALID);
    loch_workspace_destroy(NULL);
    loch_device_release(cpu);
    bench_close(&it);
}

typedef struct worker {
    const bench *it;
    uint64_t seed;
    char failure[512];
} worker;

static void worker_work(worker *w)
{
    test_random random = {w->seed};
    for (int i = 0; i < 300; i++) {
        const size_t bytes = 1 + test_random_below(&random, (size_t)(i + 1) * 100);
        loch_buffer *buffer;
        TRY(loch_workspace_acquire(w->it->workspace, bytes, &buffer));
        EXPECT(loch_buffer_get_bytes(buffer) >= bytes && loch_buffer_get_bytes(buffer) <= 30000);
        TRY(loch_fill_on(loch_buffer_get_address(buffer), bytes, "w", 1, w->it->stream));
        loch_buffer_release(buffer);
    }
}

static void *worker_run(void *user)
{
    worker_work(user);
    return NULL;
}

static void threads_share_a_workspace(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    bench it = bench_open("sim:64MiB,granule=64KiB,lag=3000,backed", NULL);
    worker workers[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        workers[i] = (worker){.it = &it, .seed = i + 1};
    TEST_THREADS_RUN(worker_run, workers);
    for (size_t i = 0; i < THREADS; i++)
        if (workers[i].failure[0]) fail_msg("%s", workers[i].failure);
    assert_true(blocks(&it) <= 1);
    bench_close(&it);
}

static loch_status sweep_run(const void *user)
{
    (void)user;
    loch_device *device = NULL;
    loch_allocator *allocator = NULL;
    loch_workspace *workspace = NULL;
    loch_status status = loch_device_open("sim:64MiB,granule=64KiB,clock=stepped", &device);
    if (status == LOCH_OK) status = loch_direct_create(device, NULL, NULL, &allocator);
    if (status == LOCH_OK) status = loch_workspace_create(allocator, NULL, NULL, &workspace);
    for (size_t bytes = 1000; status == LOCH_OK && bytes < 4000; bytes += 1000) {
        loch_buffer *buffer;
        status = loch_workspace_acquire(workspace, bytes, &buffer);
        loch_buffer_release(buffer);
    }
    loch_workspace_destroy(workspace);
    loch_allocator_release(allocator);
    loch_device_release(device);
    return status;
}

static void a_workspace_survives_failing_host_memory(void **state)
{
    (void)state;
    test_host_sweep(sweep_run, NULL);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        SIM_TEST(a_workspace_grows_to_the_largest_request),
        SIM_TEST(old_memory_stays_for_its_holders),
        SIM_TEST(queued_work_survives_growing_and_the_end),
        SIM_TEST(a_failure_leaves_the_present_buffer),
        SIM_TEST(memory_is_taken_as_the_request_says),
        SIM_TEST(wrong_calls_are_refused),
        SIM_TEST(threads_share_a_workspace),
        SIM_TEST(a_workspace_survives_failing_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
