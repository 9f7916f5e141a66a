/* SPDX-License-Identifier: MIT */
/* A family of pools under everything at once: threads take, use and free blocks of a parent near its limit, of its
 * children and theirs, make children and let go of them with blocks out, while another walks, trims and changes limits.
 * Kernels write every block, so the simulator's checker sees memory that two have at a time; TSan sees the rest. */
#include "test.h"
#include "worker.h"

#include <pthread.h>
#include <stdatomic.h>

#define WORKERS 4
#define STEPS 8000
#define LIVE 8
#define STANDING 4
#define LIMIT (96 * TEST_MIB)

typedef struct scene {
    loch_device *device;
    loch_allocator *standing[STANDING]; /* the root, a quota, a quota in it, a range in the root */
    atomic_bool is_over;
} scene;

typedef struct worker {
    scene *scene;
    loch_stream *stream;
    test_random random;
    uint64_t children;
    char failure[400];
} worker;

static bool is_short(loch_status status)
{
    return status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED || status == LOCH_E_DEVICE_MEMORY;
}

static void use(worker *w, const void *block, size_t bytes)
{
    const loch_sim_range range = {block, bytes};
    const loch_sim_kernel kernel = {
        .size = sizeof kernel, .name = "writer", .duration_ns = 2000, .writes = &range, .writes_count = 1};
    TRY(loch_sim_launch(w->stream, &kernel));
}

static void take(worker *w, loch_allocator *pool, void **out)
{
    static const size_t limits[] = {2000, 20 << 10, 300 << 10, 4 << 20};
    const loch_request request = {.size = sizeof request,
                                  .bytes = 1 + test_random_below(&w->random, limits[test_random_below(&w->random, 4)]),
                                  .stream = w->stream};
    const loch_status status = loch_allocator_alloc(pool, &request, out);
    if (is_short(status)) return;
    TRY(status);
    use(w, *out, request.bytes);
}

/* A child comes, is used, and goes before its blocks or after them. */
static void raise_child(worker *w)
{
    loch_allocator *parent = w->scene->standing[test_random_below(&w->random, STANDING)], *child = NULL;
    const bool is_range = test_random_below(&w->random, 2);
    const loch_child_options options = {.size = sizeof options,
                                        .kind = is_range ? LOCH_CHILD_RANGE : LOCH_CHILD_QUOTA,
                                        .minimum_bytes = is_range ? 0 : test_random_below(&w->random, 3 * TEST_MIB),
                                        .limit_bytes = 4 * TEST_MIB + test_random_below(&w->random, TEST_MIB),
                                        .stream = w->stream};
    const loch_status status = loch_pool_create_child(parent, "child", &options, &child);
    if (is_short(status) || status == LOCH_E_UNSUPPORTED) return; /* a quota in a range */
    TRY(status);
    w->children++;
    void *blocks[LIVE] = {NULL};
    for (size_t i = 0; i < LIVE && !*w->failure; i++)
        take(w, child, &blocks[i]);
    const bool is_first = test_random_below(&w->random, 2);
    bool has_blocks = false;
    for (size_t i = 0; i < LIVE; i++)
        has_blocks |= blocks[i] != NULL;
    if (is_first && has_blocks) loch_allocator_release(child);
    for (size_t i = 0; i < LIVE; i++)
        if (blocks[i]) TRY(loch_free(child, blocks[i])); /* the last one may be the child's end */
    if (!is_first || !has_blocks) loch_allocator_release(child);
}

static void *work(void *user)
{
    worker *w = user;
    struct {
        void *address;
        loch_allocator *pool;
    } live[LIVE] = {{NULL, NULL}};
    for (size_t step = 0; step < STEPS && !*w->failure; step++) {
        const size_t i = test_random_below(&w->random, LIVE);
        if (test_random_below(&w->random, 16) == 0) {
            raise_child(w);
        } else if (live[i].address) {
            if (loch_free(live[i].pool, live[i].address) != LOCH_OK)
                snprintf(w->failure, sizeof w->failure, "%.300s", loch_error_get()->sentence);
            live[i].address = NULL;
        } else {
            live[i].pool = w->scene->standing[test_random_below(&w->random, STANDING)];
            take(w, live[i].pool, &live[i].address);
        }
    }
    for (size_t i = 0; i < LIVE; i++)
        if (live[i].address && loch_free(live[i].pool, live[i].address) != LOCH_OK)
            snprintf(w->failure, sizeof w->failure, "%.300s", loch_error_get()->sentence);
    return NULL;
}

static loch_status see(loch_allocator *child, void *user)
{
    loch_pool_info info = {.size = sizeof info};
    const loch_status status = loch_pool_get_info(child, &info);
    if (loch_pool_get_parent(child) != user) return LOCH_E_FOREIGN;
    return status;
}

static void meddle(worker *w, size_t turn)
{
    scene *s = w->scene;
    size_t released;
    loch_allocator *pool = s->standing[turn % STANDING];
    TRY(loch_pool_walk_children(pool, see, pool));
    loch_pool_info info = {.size = sizeof info};
    TRY(loch_pool_get_info(pool, &info));
    EXPECT(info.reserved_bytes <= LIMIT);
    if (turn % 8 == 0) TRY(loch_allocator_trim(pool, 2 * TEST_MIB, &released));
    if (turn % 16 != 0) return;
    const loch_status status = loch_pool_set_limit(s->standing[0], turn % 32 ? LIMIT : LIMIT / 2);
    EXPECT(status == LOCH_OK || status == LOCH_E_LIMIT); /* minima are promised */
}

static void *disturb(void *user)
{
    worker *w = user;
    for (size_t turn = 0; !atomic_load(&w->scene->is_over) && !*w->failure; turn++)
        meddle(w, turn);
    return NULL;
}

static void make_standing(scene *s)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    const loch_child_options quota = {.size = sizeof quota, .minimum_bytes = 8 * TEST_MIB};
    const loch_child_options inner = {.size = sizeof inner, .limit_bytes = 24 * TEST_MIB};
    const loch_child_options range = {
        .size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = 16 * TEST_MIB - 12345};
    CHECK_OK(loch_pool_create(s->device, "root", &options, &s->standing[0]));
    CHECK_OK(loch_pool_create_child(s->standing[0], "quota", &quota, &s->standing[1]));
    CHECK_OK(loch_pool_create_child(s->standing[1], "inner", &inner, &s->standing[2]));
    CHECK_OK(loch_pool_create_child(s->standing[0], "range", &range, &s->standing[3]));
}

static void run(const char *device)
{
    scene s = {.is_over = false};
    const uint64_t seed = test_seed(61);
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    CHECK_OK(loch_device_open(device, &s.device));
    make_standing(&s);
    worker workers[WORKERS + 1];
    pthread_t threads[WORKERS + 1];
    for (size_t i = 0; i <= WORKERS; i++) {
        workers[i] = (worker){.scene = &s, .random = {seed + i}};
        CHECK_OK(loch_stream_create(s.device, NULL, &workers[i].stream));
    }
    for (size_t i = 0; i <= WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < WORKERS ? work : disturb, &workers[i]), 0);
    uint64_t children = 0;
    for (size_t i = 0; i <= WORKERS; i++) {
        if (i == WORKERS) atomic_store(&s.is_over, true);
        pthread_join(threads[i], NULL);
        if (*workers[i].failure) fail_msg("%s", workers[i].failure);
        children += workers[i].children;
    }
    print_message("%s: %llu children\n", device, (unsigned long long)children);
    assert_true(children > STEPS / 16);
    for (size_t i = 0; i <= WORKERS; i++)
        loch_stream_close(workers[i].stream);
    for (size_t i = 0; i < STANDING; i++)
        loch_allocator_release(s.standing[i]);
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_device_sync(s.device));
    CHECK_OK(loch_sim_get_stats(s.device, &stats));
    loch_sim_violation first;
    size_t violations;
    CHECK_OK(test_sim_violations(s.device, &first, 1, &violations));
    if (violations) fail_msg("%zu violations: %s", violations, first.text);
    assert_int_equal(stats.physical_bytes, 0);
    assert_int_equal(stats.mappings, 0);
    assert_int_equal(stats.events, 0);
    loch_device_release(s.device);
    CHECK_OK(loch_host_get_usage(&after));
    assert_int_equal(after.blocks, before.blocks);
}

static void families_of_pools_stay_whole_under_threads(void **state)
{
    (void)state;
    run("sim:1GiB");
    run("sim:1GiB,granule=64KiB,alias=off");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(families_of_pools_stay_whole_under_threads)};
    return cmocka_run_group_tests_name("families", tests, NULL, NULL);
}
