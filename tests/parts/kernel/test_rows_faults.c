/* SPDX-License-Identifier: MIT */
/* Rows by index while every driver call, and every allocation of the library's bookkeeping, fails in turn: each call
 * returns a status with a sentence, unpins its tensors, and works again when nothing fails any more. */
#include "sweep.h"
#include "test.h"
#include <loch/driver.h>
#include <loch/loch.h>
#include <loch/rows.h>
#include <loch/tensor.h>

enum { TABLE = 9, TAKEN = 5, ROW = 3 };

typedef struct story {
    loch_device *device;
    loch_stream *stream;
    loch_tensor *table, *rows, *indices; /* movable: calls pin them */
    int32_t numbers[TABLE * ROW];
} story;

static const int64_t table_shape[] = {TABLE, ROW}, rows_shape[] = {TAKEN, ROW}, taken = TAKEN;
static const int64_t places[TAKEN] = {8, 2, -1, 5, 0};

/* Opens the story on a device of a driver: the simulator, or the simulator without rows by index. */
static void story_open(story *s, const char *driver)
{
    char name[64];
    snprintf(name, sizeof name, "%s:64MiB,granule=64KiB,backed", driver);
    for (int i = 0; i < TABLE * ROW; i++)
        s->numbers[i] = 100 + i;
    CHECK_OK(loch_device_open(name, &s->device));
    CHECK_OK(loch_stream_create(s->device, NULL, &s->stream));
    const loch_tensor_options on = {.size = sizeof on, .device = s->device, .flags = LOCH_ALLOC_MOVABLE};
    CHECK_OK(loch_tensor_create_from(LOCH_I32, 2, table_shape, s->numbers, &on, &s->table));
    CHECK_OK(loch_tensor_create(LOCH_I32, 2, rows_shape, &on, &s->rows));
    CHECK_OK(loch_tensor_create_from(LOCH_I64, 1, &taken, places, &on, &s->indices));
}

static void story_close(story *s)
{
    loch_tensor_release(s->table);
    loch_tensor_release(s->rows);
    loch_tensor_release(s->indices);
    test_end_defaults();
    loch_stream_close(s->stream);
    loch_device_release(s->device);
}

/* Gathers on a stream, and scatters back, which changes nothing. The first failure ends it. */
static loch_status story_run(const story *s)
{
    const loch_status status = loch_rows_gather(s->rows, s->table, s->indices, s->stream);
    return status == LOCH_OK ? loch_rows_scatter(s->table, s->rows, s->indices, s->stream) : status;
}

static void expect_unpinned(const story *s)
{
    loch_tensor *const all[] = {s->table, s->rows, s->indices};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_true(loch_buffer_is_movable(loch_tensor_get_buffer(all[i])));
        CHECK_FAILS(loch_buffer_unpin(loch_tensor_get_buffer(all[i]), NULL), INVALID);
    }
}

/* Without faults: the rows are right. */
static void story_check(const story *s)
{
    int32_t got[TAKEN * ROW];
    CHECK_OK(loch_stream_sync(s->stream));
    CHECK_OK(loch_tensor_write(s->table, s->numbers, sizeof s->numbers, NULL));
    CHECK_OK(story_run(s));
    CHECK_OK(loch_tensor_read(s->rows, got, sizeof got, s->stream));
    for (int i = 0; i < TAKEN * ROW; i++)
        assert_int_equal(got[i], places[i / ROW] < 0 ? 0 : s->numbers[places[i / ROW] * ROW + i % ROW]);
}

static void run_faulted(test_round *round, const void *user)
{
    story s;
    story_open(&s, user);
    test_round_begin(round, s.device);
    loch_error_clear();
    const loch_status status = story_run(&s);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    if (status != LOCH_OK) assert_true(loch_error_get()->status == status && loch_error_get()->sentence[0]);
    /* a use that can neither be noted nor waited for keeps its pin */
    if (round->mode != TEST_FAILING_FOREVER) expect_unpinned(&s);
    story_check(&s);
    story_close(&s);
}

static void sweep(const test_faults *from)
{
    assert_true(test_rounds_run(from, "rows by the driver", run_faulted, "sim").felt > 0);
    assert_true(test_rounds_run(from, "rows one by one", run_faulted, "single").felt > 0);
}

static void rows_survive_driver_calls_that_fail(void **state)
{
    (void)state;
    sweep(&test_sim_faults);
}

static void rows_survive_bookkeeping_that_fails(void **state)
{
    (void)state;
    sweep(&test_host_faults);
}

static int install(void **state)
{
    (void)state;
    loch_driver single = *loch_driver_find("sim");
    single.name = "single";
    single.copy_strided = NULL;
    return test_heap_install() == LOCH_OK && loch_driver_register(&single) == LOCH_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_survive_driver_calls_that_fail),
        cmocka_unit_test(rows_survive_bookkeeping_that_fails),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}
