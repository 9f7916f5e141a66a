/* SPDX-License-Identifier: MIT */
/* Every host allocation and every driver call of a snapshot fails in turn: the snapshot fails with a sentence or is
 * whole, and leaves nothing behind. A request that fails still gives its own error, however little host memory is
 * left for the snapshot that it asks for. */
#include "memory/snapshot/snapshot.h"
#include "sweep.h"
#include "test.h"
#include <unistd.h>

#define SNAPSHOT_PATH "/tmp/loch-fault-snapshot"

typedef struct ground {
    loch_device *device;
    loch_allocator *pool, *direct;
    void *blocks[3];
} ground;

static void save(test_round *round, const void *user)
{
    const ground *g = user;
    char path[64];
    snprintf(path, sizeof path, SNAPSHOT_PATH "-%ld", (long)getpid());
    loch_error_clear();
    test_round_begin(round, g->device);
    const loch_status status = loch_snapshot_save(path);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    round->call = "loch_snapshot_save";
    if (status != LOCH_OK && (loch_error_get()->status != status || !loch_error_get()->sentence[0]))
        fail_msg("%s: no sentence", round->when);
    assert_int_equal(access(path, F_OK), status == LOCH_OK ? 0 : -1);
    unlink(path);
}

static ground ground_open(void)
{
    ground g;
    loch_tag tag;
    CHECK_OK(loch_device_open("sim:64MiB,granule=64KiB", &g.device));
    CHECK_OK(loch_pool_create(g.device, "pool", NULL, &g.pool));
    CHECK_OK(loch_direct_create(g.device, "direct", NULL, &g.direct));
    CHECK_OK(loch_tag_create("fault", &tag));
    const loch_request request = {.size = sizeof request, .bytes = TEST_MIB, .tag = tag};
    CHECK_OK(loch_allocator_alloc(g.pool, &request, &g.blocks[0]));
    CHECK_OK(loch_alloc(g.pool, 100, &g.blocks[1]));
    CHECK_OK(loch_alloc(g.direct, 100, &g.blocks[2]));
    return g;
}

static void ground_close(ground *g)
{
    CHECK_OK(loch_free(g->pool, g->blocks[0]));
    CHECK_OK(loch_free(g->pool, g->blocks[1]));
    CHECK_OK(loch_free(g->direct, g->blocks[2]));
    loch_allocator_release(g->direct);
    loch_allocator_release(g->pool);
    loch_device_release(g->device);
}

static void a_snapshot_survives_failing_host_memory(void **state)
{
    (void)state;
    ground g = ground_open();
    const test_rounds seen = test_rounds_run(&test_host_faults, "a snapshot", save, &g);
    assert_true(seen.places > 5 && seen.felt > 5);
    ground_close(&g);
}

/* A device that does not tell its free memory does not keep a snapshot from being written. */
static void a_snapshot_survives_failing_drivers(void **state)
{
    (void)state;
    ground g = ground_open();
    const test_rounds seen = test_rounds_run(&test_sim_faults, "a snapshot", save, &g);
    assert_true(seen.places > 0);
    assert_int_equal(seen.felt, 0);
    ground_close(&g);
}

/* --- the walk over memory --- */

static loch_status add_bytes(const loch_memory_piece *piece, void *user)
{
    *(size_t *)user += piece->bytes;
    return LOCH_OK;
}

static void walk_memory(test_round *round, const void *user)
{
    const ground *g = user;
    size_t bytes = 0;
    loch_error_clear();
    test_round_begin(round, g->device);
    const loch_status status = loch_pool_walk_memory(g->pool, add_bytes, &bytes);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    round->call = "loch_pool_walk_memory";
    if (status != LOCH_OK && (status != LOCH_E_HOST_MEMORY || !loch_error_get()->sentence[0]))
        fail_msg("%s: status %d", round->when, (int)status);
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(g->pool, &info));
    assert_int_equal(bytes, status == LOCH_OK ? info.reserved_bytes : 0);
}

static void a_walk_over_memory_survives_failing_host_memory(void **state)
{
    (void)state;
    ground g = ground_open();
    const test_rounds seen = test_rounds_run(&test_host_faults, "a walk", walk_memory, &g);
    assert_true(seen.places >= 4 && seen.felt >= 4);
    ground_close(&g);
}

/* --- the snapshot of a failed request --- */

static void ask(test_round *round, const void *user)
{
    ground g = ground_open();
    void *none = TEST_UNTOUCHED;
    (void)user;
    loch_error_clear();
    atomic_store(&lochi_snapshot_is_written, false);
    test_round_begin(round, g.device);
    const loch_status status = loch_alloc(g.pool, 256 * TEST_MIB, &none);
    test_round_end(round);
    assert_null(none);
    if (status != LOCH_E_DEVICE_MEMORY && status != LOCH_E_HOST_MEMORY && status != LOCH_E_FRAGMENTED)
        fail_msg("%s: status %d", round->when, (int)status);
    assert_int_equal(loch_error_get()->status, status);
    if (round->mode == TEST_FAILING_NEVER) assert_true(atomic_load(&lochi_snapshot_is_written));
    ground_close(&g);
}

static void a_failed_request_keeps_its_error_without_memory_for_its_snapshot(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, SNAPSHOT_PATH "-%ld", (long)getpid());
    CHECK_OK(loch_option_set("snapshot", path));
    const test_rounds seen = test_rounds_run(&test_host_faults, "a failed request", ask, NULL);
    assert_true(seen.places > 5);
    CHECK_OK(loch_option_set("snapshot", NULL));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_survives_failing_host_memory),
        cmocka_unit_test(a_snapshot_survives_failing_drivers),
        cmocka_unit_test(a_walk_over_memory_survives_failing_host_memory),
        cmocka_unit_test(a_failed_request_keeps_its_error_without_memory_for_its_snapshot),
    };
    return cmocka_run_group_tests_name("snapshots fail", tests, test_faults_prepare, NULL);
}
