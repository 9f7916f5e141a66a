/* SPDX-License-Identifier: MIT */
/* Copies and fills of tensors while every driver call, and every allocation of the library's bookkeeping, fails in
 * turn: each returns a status, leaves nothing behind, and works again when nothing fails any more. */
#include "failing_heap.h"
#include "sweep.h"
#include "test.h"
#include <loch/loch.h>
#include <loch/driver.h>
#include <loch/tensor.h>

#define SIDE 48

typedef struct story {
    loch_device *device, *cpu;
    loch_stream *stream;
    loch_tensor *square, *padded, *other, *narrow, *numbers; /* on the device; narrow on the host */
    loch_tensor *turned, *shifted, *unshifted;               /* views of square and padded */
    float contents[SIDE * SIDE];
} story;

static loch_tensor *tensor_on(loch_device *device, loch_dtype dtype, int64_t columns)
{
    loch_tensor *tensor;
    const loch_tensor_options options = {.size = sizeof options, .device = device};
    CHECK_OK(loch_tensor_create(dtype, LOCH_SHAPE(SIDE, columns), &options, &tensor));
    return tensor;
}

/* The first columns of a wider tensor, which goes. */
static loch_tensor *first_columns(loch_tensor *wide, int64_t from)
{
    loch_tensor *view;
    CHECK_OK(loch_tensor_slice(wide, 1, from, from + SIDE, 1, &view));
    return view;
}

/* Opens the story on a device of a driver: the simulator, or the simulator without copies between layouts. */
static void story_open(story *s, const char *driver)
{
    char name[64];
    memset(s, 0, sizeof *s);
    snprintf(name, sizeof name, "%s:64MiB,granule=64KiB,backed", driver);
    CHECK_OK(loch_device_open(name, &s->device));
    CHECK_OK(loch_device_open("cpu", &s->cpu));
    CHECK_OK(loch_stream_create(s->device, NULL, &s->stream));
    s->square = tensor_on(s->device, LOCH_F32, SIDE);
    s->other = tensor_on(s->device, LOCH_F32, SIDE);
    s->narrow = tensor_on(s->cpu, LOCH_U16, SIDE);
    loch_tensor *wide = tensor_on(s->device, LOCH_F32, SIDE + 8);
    s->padded = first_columns(wide, 0);
    s->unshifted = loch_tensor_retain(s->padded);
    s->shifted = first_columns(wide, 3);
    loch_tensor_release(wide);
    wide = tensor_on(s->device, LOCH_I64, SIDE + 8);
    s->numbers = first_columns(wide, 0);
    loch_tensor_release(wide);
    CHECK_OK(loch_tensor_transpose(s->square, 0, 1, &s->turned));
    for (size_t i = 0; i < SIDE * SIDE; i++)
        s->contents[i] = (float)i;
    CHECK_OK(loch_tensor_write(s->square, s->contents, sizeof s->contents, NULL));
}

static void story_close(story *s)
{
    loch_tensor *all[] = {s->square, s->padded, s->other, s->narrow, s->turned, s->shifted, s->unshifted, s->numbers};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        loch_tensor_release(all[i]);
    test_end_defaults();
    loch_stream_close(s->stream);
    loch_device_release(s->device);
    loch_device_release(s->cpu);
}

/* Every way that a copy or a fill takes; the first failure ends it. */
static loch_status story_run(story *s)
{
    const loch_tensor_copy_options on_stream = {.size = sizeof on_stream, .stream = s->stream};
    loch_status status = loch_tensor_copy(s->padded, s->square, NULL);                           /* rows */
    if (status == LOCH_OK) status = loch_tensor_copy(s->other, s->padded, &on_stream);           /* rows, queued */
    if (status == LOCH_OK) status = loch_tensor_copy(s->other, s->turned, &on_stream);           /* through the host */
    if (status == LOCH_OK) status = loch_tensor_copy(s->narrow, s->turned, NULL);                /* another type */
    if (status == LOCH_OK) status = loch_tensor_copy(s->padded, s->narrow, &on_stream);          /* and back */
    if (status == LOCH_OK) status = loch_tensor_copy(s->shifted, s->unshifted, &on_stream);      /* through a block */
    if (status == LOCH_OK) status = loch_tensor_fill(s->padded, loch_scalar_of(1.5), s->stream); /* rows */
    if (status == LOCH_OK) status = loch_tensor_fill(s->numbers, loch_scalar_of(0x0102030405060708), NULL);
    return status;
}

/* Without faults: what the copies made is right. */
static void story_check(story *s)
{
    float now[SIDE * SIDE];
    CHECK_OK(loch_stream_sync(s->stream));
    CHECK_OK(story_run(s));
    CHECK_OK(loch_tensor_read(s->other, now, sizeof now, s->stream));
    for (size_t i = 0; i < SIDE * SIDE; i++)
        assert_true(now[i] == s->contents[i % SIDE * SIDE + i / SIDE]);
    CHECK_OK(loch_tensor_read(s->unshifted, now, sizeof now, s->stream));
    for (size_t i = 0; i < SIDE * SIDE; i++)
        assert_true(now[i] == 1.5f);
}

static void run_faulted(test_round *round, const void *user)
{
    story s;
    story_open(&s, user);
    test_round_begin(round, s.device);
    const loch_status status = story_run(&s);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    if (status != LOCH_OK) assert_true(loch_error_get()->sentence[0]);
    story_check(&s);
    story_close(&s);
}

static void sweep(test_faults from, test_failing mode)
{
    from.only = mode;
    assert_true(test_rounds_run(&from, "copies and fills inside the device", run_faulted, "sim").felt > 0);
    assert_true(test_rounds_run(&from, "copies and fills through the host", run_faulted, "plain").felt > 0);
}

static void copies_survive_driver_calls_that_fail_once(void **state)
{
    (void)state;
    sweep(test_sim_faults, TEST_FAILING_ONCE);
}

static void copies_survive_driver_calls_that_fail_for_good(void **state)
{
    (void)state;
    sweep(test_sim_faults, TEST_FAILING_FOREVER);
}

static void copies_survive_bookkeeping_that_fails_once(void **state)
{
    (void)state;
    sweep(test_host_faults, TEST_FAILING_ONCE);
}

static void copies_survive_bookkeeping_that_fails_for_good(void **state)
{
    (void)state;
    sweep(test_host_faults, TEST_FAILING_FOREVER);
}

static int install(void **state)
{
    (void)state;
    loch_driver plain = *loch_driver_find("sim");
    plain.name = "plain";
    plain.copy_strided = plain.fill_strided = NULL;
    return test_heap_install() == LOCH_OK && loch_driver_register(&plain) == LOCH_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_survive_driver_calls_that_fail_once),
        cmocka_unit_test(copies_survive_driver_calls_that_fail_for_good),
        cmocka_unit_test(copies_survive_bookkeeping_that_fails_once),
        cmocka_unit_test(copies_survive_bookkeeping_that_fails_for_good),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}
