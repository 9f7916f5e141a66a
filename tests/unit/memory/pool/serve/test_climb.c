/* SPDX-License-Identifier: MIT */
/* A request that finds nothing climbs the ladder once. A plain request and one with a tag take different ways into the
 * pool: both make the same driver calls, give the same answer and leave the same figures. */
#include "pool_fixture.h"
#include <loch/buffer.h>

#define CALLS 64

static const char *const devices[] = {"sim:256MiB", "sim:256MiB,virtual=off", "sim:256MiB,alias=off"};
#define DEVICES (sizeof devices / sizeof *devices)
#define MIB ((size_t)1 << 20)

/* What a request did. */
typedef struct outcome {
    loch_status status;
    char sentence[LOCH_ERROR_SENTENCE_MAX];
    uint64_t calls[CALLS], all_calls;
    uint64_t failures, retries, waits_on_host, asked;
} outcome;

/* What stands in the way of the request, and what may help it. */
typedef struct climb_scene {
    size_t limit_bytes;   /* of the pool; 0: none */
    size_t used_bytes;    /* in one block of the pool, which stays out */
    size_t sibling_bytes; /* free in another pool of the device */
    size_t given_bytes;   /* in a block that the pressure function frees; 0: there is no function */
    size_t wanted_bytes;  /* what the request asks for */
    uint64_t timeout_ns;
} climb_scene;

typedef struct climb_giver {
    loch_allocator *pool;
    void *block; /* NULL once it was freed */
    uint64_t asked;
} climb_giver;

static size_t give(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator, (void)bytes;
    climb_giver *own = user;
    own->asked++;
    if (!own->block) return 0;
    CHECK_OK(loch_free(own->pool, own->block));
    own->block = NULL;
    return 1;
}

static void read_calls(loch_device *device, outcome *out)
{
    loch_call_count calls[CALLS];
    size_t count;
    CHECK_OK(test_device_calls(device, calls, CALLS, &count));
    assert_true(count <= CALLS);
    for (size_t i = 0; i < count; i++) {
        out->calls[i] = calls[i].count;
        out->all_calls += calls[i].count;
    }
}

static outcome play(const char *name, const climb_scene *scene, loch_tag tag)
{
    outcome out = {0};
    loch_device *device = sim_open(name);
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = scene->limit_bytes};
    loch_allocator *pool = pool_make(device, &options), *sibling = pool_make(device, NULL);
    climb_giver giver = {.pool = pool};
    void *used = scene->used_bytes ? pool_alloc(pool, scene->used_bytes) : NULL, *block;
    if (scene->given_bytes) {
        giver.block = pool_alloc(pool, scene->given_bytes);
        CHECK_OK(loch_allocator_add_pressure(pool, give, &giver));
    }
    if (scene->sibling_bytes) CHECK_OK(loch_free(sibling, pool_alloc(sibling, scene->sibling_bytes)));
    const uint64_t waits = pool_info(pool).waits_on_host;
    CHECK_OK(loch_device_measure_calls(device, LOCH_MEASURE_OFF)); /* begins at 0 */
    const loch_request request = {
        .size = sizeof request, .bytes = scene->wanted_bytes, .tag = tag, .timeout_ns = scene->timeout_ns};
    out.status = loch_allocator_alloc(pool, &request, &block);
    read_calls(device, &out);
    if (out.status != LOCH_OK) snprintf(out.sentence, sizeof out.sentence, "%s", loch_error_get()->sentence);
    const loch_stats stats = pool_stats(pool);
    out.failures = stats.failures;
    out.retries = stats.retries;
    out.waits_on_host = pool_info(pool).waits_on_host - waits;
    out.asked = giver.asked;
    CHECK_OK(loch_free(pool, block));
    CHECK_OK(loch_free(pool, used));
    CHECK_OK(loch_free(pool, giver.block));
    loch_allocator_release(sibling);
    pool_end(pool, device);
    return out;
}

/* Plays a scene plain and with a tag, and expects one answer; returns it. */
static outcome play_both(const char *name, const climb_scene *scene)
{
    loch_tag tag;
    CHECK_OK(loch_tag_create("climb", &tag));
    const outcome plain = play(name, scene, 0), tagged = play(name, scene, tag);
    assert_int_equal(plain.status, tagged.status);
    assert_int_equal(plain.failures, tagged.failures);
    if (scene->timeout_ns) return plain; /* how often it is tried while it waits depends on the machine */
    assert_string_equal(plain.sentence, tagged.sentence);
    for (size_t i = 0; i < CALLS; i++)
        assert_int_equal(plain.calls[i], tagged.calls[i]);
    assert_int_equal(plain.retries, tagged.retries);
    assert_int_equal(plain.waits_on_host, tagged.waits_on_host);
    assert_int_equal(plain.asked, tagged.asked);
    return plain;
}

static void a_full_device(void **state)
{
    (void)state;
    const climb_scene scene = {.used_bytes = 200 * MIB, .wanted_bytes = 128 * MIB};
    for (size_t d = 0; d < DEVICES; d++) {
        const outcome seen = play_both(devices[d], &scene);
        assert_int_equal(seen.status, LOCH_E_DEVICE_MEMORY);
        assert_int_equal(seen.failures, 1);
        assert_int_equal(seen.retries, 0);
        assert_true(seen.all_calls > 0);
    }
}

static void a_full_limit(void **state)
{
    (void)state;
    const climb_scene scene = {.limit_bytes = 64 * MIB, .used_bytes = 40 * MIB, .wanted_bytes = 32 * MIB};
    for (size_t d = 0; d < DEVICES; d++) {
        const outcome seen = play_both(devices[d], &scene);
        assert_int_equal(seen.status, LOCH_E_LIMIT);
        assert_int_equal(seen.failures, 1);
        assert_true(strstr(seen.sentence, "is at its limit of 64") != NULL);
    }
}

static void a_sibling_gives_memory(void **state)
{
    (void)state;
    const climb_scene scene = {.used_bytes = 40 * MIB, .sibling_bytes = 150 * MIB, .wanted_bytes = 128 * MIB};
    for (size_t d = 0; d < DEVICES; d++) {
        const outcome seen = play_both(devices[d], &scene);
        assert_int_equal(seen.status, LOCH_OK);
        assert_int_equal(seen.failures, 0);
        assert_int_equal(seen.retries, 1);
    }
}

static void a_pressure_function_gives_memory(void **state)
{
    (void)state;
    const climb_scene scene = {.used_bytes = 60 * MIB, .given_bytes = 150 * MIB, .wanted_bytes = 120 * MIB};
    for (size_t d = 0; d < DEVICES; d++) {
        const outcome seen = play_both(devices[d], &scene);
        assert_int_equal(seen.status, LOCH_OK);
        assert_int_equal(seen.failures, 0);
        assert_int_equal(seen.asked, 1);
        assert_int_equal(seen.retries, 1);
    }
}

/* No other thread has used the pool: the request is tried once more, and does not wait. */
static void a_request_with_a_timeout(void **state)
{
    (void)state;
    const climb_scene scene = {.used_bytes = 200 * MIB, .wanted_bytes = 128 * MIB, .timeout_ns = 100000000u};
    for (size_t d = 0; d < DEVICES; d++) {
        const outcome seen = play_both(devices[d], &scene);
        assert_int_equal(seen.status, LOCH_E_DEVICE_MEMORY);
        assert_int_equal(seen.failures, 1);
        assert_true(seen.retries >= 1);
    }
}

/* Each segment holds one buffer that may move and is free otherwise: the copies have to end before segments go back and
 * a large one comes. */
static void a_compaction_is_waited_for(void **state)
{
    (void)state;
    loch_tag tags[2] = {0};
    CHECK_OK(loch_tag_create("climb", &tags[1]));
    for (size_t i = 0; i < 2; i++) {
        loch_device *device = sim_open("sim:64MiB,virtual=off");
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB, .handle_bytes = 2 * MIB};
        loch_allocator *pool = pool_make(device, &options);
        const loch_request movable = {.size = sizeof movable, .flags = LOCH_ALLOC_MOVABLE};
        loch_buffer *buffers[8];
        void *fillers[8], *block;
        for (size_t k = 0; k < 8; k++) {
            CHECK_OK(loch_buffer_create(pool, 100 << 10, &movable, &buffers[k]));
            fillers[k] = pool_alloc(pool, 1900 << 10); /* the rest of a segment */
        }
        for (size_t k = 0; k < 8; k++)
            CHECK_OK(loch_free(pool, fillers[k]));
        const loch_request request = {.size = sizeof request, .bytes = 9 * MIB, .tag = tags[i]};
        CHECK_OK(loch_allocator_alloc(pool, &request, &block));
        pool_expect_whole(pool);
        CHECK_OK(loch_free(pool, block));
        for (size_t k = 0; k < 8; k++)
            loch_buffer_release(buffers[k]);
        CHECK_OK(loch_device_sync(device));
        pool_end(pool, device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_full_device),
        POOL_TEST(a_full_limit),
        POOL_TEST(a_sibling_gives_memory),
        POOL_TEST(a_pressure_function_gives_memory),
        POOL_TEST(a_request_with_a_timeout),
        POOL_TEST(a_compaction_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
