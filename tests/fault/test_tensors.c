/* SPDX-License-Identifier: MIT */
/* A program that uses buffers and tensors fully, run while every host allocation and every driver call fails in turn,
 * once and for good, and while the device is lost before each of its steps. After each fault memory from outside was
 * given back exactly once, what is said to be copied is, and nothing is left in the end: neither on the host nor on the
 * device. */
#include "sweep.h"
#include "test.h"

#define ROWS 12
#define COLUMNS 20
#define SLOTS 13

typedef struct program {
    test_notes notes; /* with the device, which is open around the runs */
    loch_stream *stream;
    loch_allocator *allocator;
    loch_tensor *tensors[SLOTS];
    loch_buffer_pool *pool;
    loch_workspace *workspace;
    loch_mapping mapping;
    float memory[ROWS * COLUMNS]; /* the memory from outside */
    size_t wrapped, deleted;
} program;

#define STEP(call) TEST_STEP(&p->notes, call)

static void program_delete(void *address, size_t bytes, void *user)
{
    program *p = user;
    if (address != p->memory || bytes != sizeof p->memory) p->notes.wrong = "the deleter got something else";
    p->deleted++;
}

static loch_status program_wrap(program *p, size_t slot)
{
    const loch_external external = {.size = sizeof external, .deleter = program_delete, .user = p};
    const loch_status status =
        loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(ROWS, COLUMNS), p->memory, &external, &p->tensors[slot]);
    p->wrapped += status == LOCH_OK;
    return status;
}

static loch_status program_make(program *p, size_t slot, loch_dtype dtype, int64_t rows, int64_t columns)
{
    const loch_tensor_options options = {.size = sizeof options, .allocator = p->allocator, .stream = p->stream};
    return loch_tensor_create(dtype, LOCH_SHAPE(rows, columns), &options, &p->tensors[slot]);
}

/* The element of a row and column has to be as in the memory from outside. */
static void program_expect(program *p, loch_tensor *tensor, float factor)
{
    loch_scalar value = {0};
    STEP(loch_tensor_read_item(tensor, LOCH_SHAPE(3, -1), NULL, &value));
    if (value.value.f != (double)(factor * (float)(3 * COLUMNS + COLUMNS - 1)))
        p->notes.wrong = "a copy is not what it should be";
}

static void program_copies(program *p)
{
    const loch_tensor_copy_options queued = {.size = sizeof queued, .stream = p->stream};
    loch_tensor **t = p->tensors;
    STEP(program_wrap(p, 0));
    STEP(program_make(p, 1, LOCH_F32, ROWS, COLUMNS));
    STEP(program_make(p, 2, LOCH_F64, COLUMNS, ROWS));
    STEP(program_make(p, 3, LOCH_F32, 2 * ROWS, 2 * COLUMNS));
    STEP(loch_tensor_copy(t[1], t[0], &queued)); /* plain */
    STEP(loch_tensor_transpose(t[2], 0, 1, &t[4]));
    STEP(loch_tensor_copy(t[4], t[1], &queued)); /* turned and converted: through the host */
    STEP(loch_stream_sync(p->stream));
    program_expect(p, t[4], 1);
    if (p->notes.status != LOCH_OK) return;
    STEP(loch_tensor_slice(t[3], 1, 1, LOCH_OPEN, 2, &t[5]));
    STEP(loch_tensor_slice(t[5], 0, 0, ROWS, 1, &t[6]));
    STEP(loch_tensor_copy(t[6], t[1], &queued)); /* every second column: rows of one element */
    STEP(loch_stream_sync(p->stream));
    program_expect(p, t[6], 1);
    if (p->notes.status != LOCH_OK) return;
    STEP(loch_tensor_slice(t[3], 1, 3, 3 + COLUMNS, 1, &t[7]));
    STEP(loch_tensor_slice(t[7], 0, 2, 2 + ROWS, 1, &t[8]));
    STEP(loch_tensor_copy(t[8], t[0], &queued)); /* rows with gaps, from the host */
    STEP(loch_stream_sync(p->stream));
    program_expect(p, t[8], 1);
    if (p->notes.status != LOCH_OK) return;
    STEP(loch_tensor_fill(t[8], loch_scalar_of(1), p->stream));
    STEP(loch_tensor_copy(t[0], t[1], &queued));
}

static void program_contents(program *p)
{
    loch_tensor **t = p->tensors;
    const loch_tensor_options queued = {.size = sizeof queued, .stream = p->stream};
    float host[ROWS * COLUMNS];
    char text[64];
    STEP(loch_tensor_clone(t[8], &queued, &t[9]));
    STEP(loch_tensor_to(t[1], LOCH_F16, &queued, &t[10]));
    STEP(loch_tensor_to_device(t[0], p->notes.device, p->stream, &t[12]));
    STEP(loch_tensor_reshape(t[4], LOCH_SHAPE(-1), NULL, &t[11]));
    STEP(loch_tensor_read(t[1], host, sizeof host, p->stream));
    STEP(loch_tensor_write(t[8], host, sizeof host, p->stream));
    STEP(loch_tensor_map(t[8], LOCH_MAP_READ_WRITE, p->stream, &p->mapping));
    ((float *)p->mapping.address)[0] = 5;
    STEP(loch_tensor_unmap(&p->mapping, p->stream));
    STEP(loch_tensor_print(t[8], NULL, text, sizeof text, NULL));
    STEP(loch_buffer_resize(loch_tensor_get_buffer(t[9]), TEST_MIB, LOCH_CONTENTS_KEEP, p->stream));
}

static void program_scratch(program *p)
{
    STEP(loch_buffer_pool_create(p->allocator, NULL, &p->pool));
    for (size_t i = 0; i < 3; i++) {
        loch_buffer *buffer;
        STEP(loch_buffer_pool_acquire(p->pool, 1000, i % 2 ? p->stream : NULL, &buffer));
        test_notes_step(&p->notes);
        const loch_status status = loch_buffer_pool_release(p->pool, buffer, i % 2 ? p->stream : NULL);
        if (status != LOCH_OK) loch_buffer_release(buffer); /* nothing was */
        if (!test_notes_take(&p->notes, status, "loch_buffer_pool_release")) return;
    }
    STEP(loch_workspace_create(p->allocator, p->stream, NULL, &p->workspace));
    for (size_t i = 0; i < 3; i++) {
        loch_buffer *buffer;
        STEP(loch_workspace_acquire(p->workspace, 1000 << i, &buffer));
        loch_buffer_release(buffer);
    }
}

static void program_work(program *p)
{
    static void (*const parts[])(program *) = {program_copies, program_contents, program_scratch};
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        p->memory[i] = (float)i;
    STEP(loch_stream_create(p->notes.device, NULL, &p->stream));
    STEP(loch_device_acquire_default(p->notes.device, &p->allocator));
    for (size_t i = 0; i < sizeof parts / sizeof *parts && p->notes.status == LOCH_OK; i++)
        parts[i](p);
}

/* Everything is let go while the fault lasts; what waits for work is given back when it is over. */
static void program_let_go(program *p)
{
    if (p->mapping.inside) LOCH_IGNORE(loch_tensor_unmap(&p->mapping, p->stream));
    for (size_t i = 0; i < SLOTS; i++)
        loch_tensor_clear(&p->tensors[i]);
    loch_workspace_destroy(p->workspace);
    loch_buffer_pool_destroy(p->pool);
}

static void program_end(program *p)
{
    size_t waiting = 0;
    if (loch_buffer_collect(LOCH_WAIT_END, &waiting) != LOCH_OK || waiting) p->notes.wrong = "memory waits for ever";
    if (p->wrapped != p->deleted) p->notes.wrong = "memory from outside was not given back once";
    loch_allocator_release(p->allocator);
    loch_stream_close(p->stream);
    size_t leaks = 0;
    if (loch_registry_clear(NULL, NULL, &leaks) != LOCH_OK || leaks) p->notes.wrong = "blocks are left";
}

static void run_to_the_end(program *p, test_round *round)
{
    program_end(p);
    test_notes_check(&p->notes, round);
    test_sim_expect_empty(p->notes.device, !round->is_felt && !p->notes.lose_before, round->when, p->notes.call);
    loch_device_release(p->notes.device);
}

static void run_faulted(test_round *round, const void *user)
{
    program p = {.wrapped = 0};
    CHECK_OK(loch_device_open(user, &p.notes.device));
    test_round_begin(round, p.notes.device);
    program_work(&p);
    program_let_go(&p);
    test_round_end(round);
    run_to_the_end(&p, round);
}

static const char *const grounds[] = {"sim:64MiB,backed", "sim:64MiB,backed,virtual=off,alias=off",
                                      "sim:64MiB,backed,async=off"};

static void sweep(const test_faults *from)
{
    for (size_t i = 0; i < sizeof grounds / sizeof *grounds; i++) {
        const test_rounds rounds = test_rounds_run(from, grounds[i], run_faulted, grounds[i]);
        assert_true(rounds.places > 60 && rounds.felt > 20);
    }
}

static void tensors_survive_failing_host_memory(void **state)
{
    (void)state;
    sweep(&test_host_faults);
}

static void tensors_survive_failing_driver_calls(void **state)
{
    (void)state;
    sweep(&test_sim_faults);
}

static void tensors_survive_a_device_lost_before_any_step(void **state)
{
    (void)state;
    uint64_t step = 0;
    for (bool is_reached = true; is_reached; step++) {
        loch_host_usage before = {.size = sizeof before}, usage = {.size = sizeof usage};
        test_round round = {.when = "the device was lost"};
        program p = {.notes.lose_before = step + 1};
        CHECK_OK(loch_host_get_usage(&before));
        CHECK_OK(loch_device_open(grounds[0], &p.notes.device));
        program_work(&p);
        is_reached = p.notes.steps > step;
        program_let_go(&p);
        run_to_the_end(&p, &round);
        CHECK_OK(loch_host_get_usage(&usage));
        assert_int_equal(usage.blocks, before.blocks);
    }
    assert_true(step > 30);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_survive_failing_host_memory),
        cmocka_unit_test(tensors_survive_failing_driver_calls),
        cmocka_unit_test(tensors_survive_a_device_lost_before_any_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
