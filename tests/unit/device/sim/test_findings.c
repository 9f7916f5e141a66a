/* SPDX-License-Identifier: MIT */
/* What becomes of the findings of the checker: one for each fault, a line in the log, and on a strict device a failure
 * of the call. */
#include "pool_fixture.h"

#define STEPPED "sim:1GiB,granule=64KiB,clock=stepped,lag=1000"
#define GRANULE (64 * TEST_KIB)

static char line[1024]; /* the last line of the log */
static size_t lines;

static void note_line(loch_log_level level, const char *text, void *user)
{
    (void)user;
    assert_int_equal(level, LOCH_LOG_ERROR);
    snprintf(line, sizeof line, "%s", text);
    lines++;
}

static int begin(void **state)
{
    lines = 0;
    line[0] = '\0';
    loch_log_set_hook(note_line, NULL, LOCH_LOG_ERROR);
    return sim_setup(state);
}

static int end(void **state)
{
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF);
    return sim_teardown(state);
}

static bool has(const char *part)
{
    if (strstr(line, part)) return true;
    print_error("\"%s\" is not in: %s\n", part, line);
    return false;
}

/* A pool, two streams and a block over several handles. */
typedef struct bench {
    loch_device *device;
    loch_allocator *pool;
    loch_stream *a, *b;
    loch_tag tag;
    char *block;
} bench;

static bench bench_open(const char *name, size_t bytes)
{
    const loch_pool_options options = {.size = sizeof options, .handle_bytes = GRANULE};
    bench it = {.device = sim_open(name)};
    void *block;
    it.pool = pool_make(it.device, &options);
    it.a = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    it.b = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    CHECK_OK(loch_tag_create("weights", &it.tag));
    const loch_request request = {.size = sizeof request, .bytes = bytes, .tag = it.tag, .stream = it.a};
    CHECK_OK(loch_allocator_alloc(it.pool, &request, &block));
    it.block = block;
    return it;
}

static void bench_close(bench *it)
{
    CHECK_OK(loch_device_sync(it->device));
    if (it->block) CHECK_OK(loch_free(it->pool, it->block));
    loch_allocator_release(it->pool);
    loch_stream_close(it->a);
    loch_stream_close(it->b);
    loch_device_release(it->device);
}

/* --- one fault, one finding --- */

static void a_race_over_several_handles_is_one_finding(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, 4 * GRANULE);
    loch_pool_info info = pool_info(it.pool);
    assert_true(info.handles >= 4);
    CHECK_OK(sim_writes(it.a, it.block, 4 * GRANULE));
    CHECK_OK(sim_reads(it.b, it.block + 100, 3 * GRANULE));
    loch_sim_violation found;
    assert_int_equal(sim_violations(it.device, &found), 1);
    assert_ptr_equal(found.address, it.block + 100);
    assert_int_equal(found.bytes, 3 * GRANULE);
    assert_int_equal(lines, 1);
    bench_close(&it);
}

/* --- the log --- */

static void a_finding_is_logged_with_both_pieces_of_work_and_the_block(void **state)
{
    (void)state;
    char want[160];
    bench it = bench_open(STEPPED, 3 * TEST_MIB);
    const unsigned long long a = sim_number(it.a), b = sim_number(it.b);
    CHECK_OK(sim_writes(it.a, it.block, 4096));
    CHECK_OK(sim_reads(it.b, it.block, 100));
    assert_int_equal(lines, 1);
    snprintf(want, sizeof want,
             "reader on stream %llu reads %p without order behind writer on stream %llu, which wrote it", b,
             (void *)it.block, a);
    assert_true(has(want));
    snprintf(want, sizeof want, "(block of 3 MiB at %p (tag \"weights\") of pool \"pool\")", (void *)it.block);
    assert_true(has(want));
    snprintf(want, sizeof want, "record an event on stream %llu", a);
    assert_true(has(want));
    assert_true(has("loch_allocator_record_use"));
    bench_close(&it);
}

/* The classic: a stream uses a block that is freed in the order of another stream. */
static void memory_that_was_freed_is_called_so(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, 3 * TEST_MIB);
    CHECK_OK(sim_writes(it.a, it.block, 4096));
    CHECK_OK(loch_free(it.pool, it.block));
    CHECK_OK(sim_reads(it.b, it.block, 100)); /* mapped still, but freed */
    assert_int_equal(lines, 1);
    assert_true(has("(memory of pool \"pool\" that was freed)"));
    it.block = NULL;
    bench_close(&it);
}

static void small_blocks_and_raw_blocks_are_described(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, 600);
    CHECK_OK(sim_writes(it.a, it.block, 600));
    CHECK_OK(sim_writes(it.b, it.block, 600));
    assert_true(has("(block of 600 B at "));
    assert_true(has("(tag \"weights\") of pool \"pool\")"));
    char *raw = sim_raw(it.device, 8192);
    CHECK_OK(sim_writes(it.a, raw, 100));
    CHECK_OK(sim_reads(it.b, raw, 100));
    assert_true(has("(memory of sim:1GiB"));
    assert_true(has("8 KiB at "));
    CHECK_OK(loch_device_sync(it.device));
    CHECK_OK(sim_writes(it.a, raw, 100));
    CHECK_OK(loch_raw_free(raw)); /* while it is used */
    assert_true(has("were freed while writer on stream "));
    assert_true(has("wait for stream "));
    assert_int_equal(lines, 3);
    bench_close(&it);
}

static void the_log_says_when_findings_are_counted_only(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, 3 * TEST_MIB);
    for (int i = 0; i < 50; i++) {
        CHECK_OK(sim_writes(it.a, it.block, 64));
        CHECK_OK(sim_writes(it.b, it.block, 64));
    }
    assert_int_equal(sim_stats(it.device).violations, 99);
    assert_int_equal(lines, 65);
    assert_true(has("this was finding 64 of the device; later ones are counted only"));
    bench_close(&it);
}

static void a_checker_that_is_off_logs_nothing(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED ",check=off", 3 * TEST_MIB);
    CHECK_OK(sim_writes(it.a, it.block, 64));
    CHECK_OK(sim_writes(it.b, it.block, 64));
    assert_int_equal(lines, 0);
    bench_close(&it);
}

/* --- strict devices --- */

static void a_strict_device_refuses_work_without_order(void **state)
{
    (void)state;
    bench it = bench_open("sim:64MiB,granule=64KiB,clock=stepped,backed,check=strict", 3 * TEST_MIB);
    const uint32_t one = 0x11111111, two = 0x22222222;
    uint32_t seen = 0;
    CHECK_OK(loch_fill_on(it.block, 4096, &one, sizeof one, it.a));
    CHECK_FAILS(loch_fill_on(it.block, 4096, &two, sizeof two, it.b), INVALID);
    assert_non_null(strstr(loch_error_get()->sentence, "fill on stream"));
    assert_non_null(strstr(loch_error_get()->sentence, "without order behind fill on stream"));
    CHECK_OK(loch_device_sync(it.device));
    CHECK_OK(loch_copy(&seen, it.block, sizeof seen));
    assert_int_equal(seen, one);                                    /* the refused work has no effect */
    CHECK_OK(loch_fill_on(it.block, 4096, &two, sizeof two, it.b)); /* the host has waited: in order now */
    bench_close(&it);
}

static void a_strict_device_keeps_memory_that_is_used(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED ",check=strict", 3 * TEST_MIB);
    char *raw = sim_raw(it.device, 8192);
    CHECK_OK(sim_writes(it.a, raw, 100));
    CHECK_FAILS(loch_raw_free(raw), INVALID);
    assert_non_null(strstr(loch_error_get()->sentence, "were freed while writer"));
    CHECK_OK(loch_device_sync(it.device));
    CHECK_OK(loch_raw_free(raw));
    bench_close(&it);
}

static void an_option_makes_devices_strict(void **state)
{
    (void)state;
    CHECK_OK(loch_option_set("sim_strict", "on"));
    bench it = bench_open(STEPPED, 3 * TEST_MIB);
    CHECK_OK(sim_writes(it.a, it.block, 64));
    CHECK_FAILS(sim_writes(it.b, it.block, 64), INVALID);
    CHECK_OK(loch_option_set("sim_strict", NULL));
    bench_close(&it);
    loch_device *device = TEST_UNTOUCHED;
    CHECK_FAILS(loch_device_open("sim:1GiB,check=very", &device), INVALID);
}

int main(void)
{
#define FINDING_TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)
    const struct CMUnitTest tests[] = {
        FINDING_TEST(a_race_over_several_handles_is_one_finding),
        FINDING_TEST(a_finding_is_logged_with_both_pieces_of_work_and_the_block),
        FINDING_TEST(memory_that_was_freed_is_called_so),
        FINDING_TEST(small_blocks_and_raw_blocks_are_described),
        FINDING_TEST(the_log_says_when_findings_are_counted_only),
        FINDING_TEST(a_checker_that_is_off_logs_nothing),
        FINDING_TEST(a_strict_device_refuses_work_without_order),
        FINDING_TEST(a_strict_device_keeps_memory_that_is_used),
        FINDING_TEST(an_option_makes_devices_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
