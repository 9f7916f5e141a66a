/* SPDX-License-Identifier: MIT */
/* A program that uses a context fully, run while every host allocation and every driver call of either device fails in
 * turn, once and for good. A call that failed has changed nothing: no seat is current or locked that was not before, no
 * pool is on a stack, no parameter is loaded, and in the end nothing is left, neither on the host nor on the
 * devices. */
#include "engine/context/parameter.h"
#include "base/thread.h"
#include "device/sim/sim.h"
#include "engine/engine_state.h"
#include "sweep.h"
#include "test.h"

#define SEATS 3
#define SLOTS 8

static const char *const names[SEATS] = {"sim:64MiB,backed", "sim:64MiB,backed,id=1", "cpu"};

typedef struct program {
    test_notes notes;
    loch_device *devices[SEATS]; /* open around the runs */
    loch_engine *engine;         /* open around the runs */
    loch_context *context;
    loch_tensor *tensors[SLOTS];
    loch_tensor *host; /* made before */
    loch_parameter *parameters[2];
    loch_guard guards[3];
} program;

#define STEP(call) TEST_STEP(&p->notes, call)

#define PROMISE(condition, text)                                                                                       \
    do {                                                                                                               \
        if (!(condition)) p->notes.wrong = (text);                                                                     \
    } while (0)

static bool is_locked(const program *p, unsigned seat)
{
    return atomic_load(&p->engine->seats[seat].lock.owner) == lochi_thread_number();
}

static void program_guards(program *p)
{
    const loch_status status = loch_context_begin_seat(p->context, LOCH_SEAT(1), LOCH_SEAT_LOCKED, &p->guards[0]);
    PROMISE(is_locked(p, 1) == (status == LOCH_OK), "a seat is locked by a guard that did not begin");
    PROMISE(loch_context_get_seat(p->context).number == (status == LOCH_OK), "a seat is current without its guard");
    PROMISE((lochi_sim_get_current() != 0) == (status == LOCH_OK), "a device is current without its guard");
    STEP(status);
    STEP(loch_context_begin_debug(p->context, 2, &p->guards[1]));
    STEP(loch_context_begin_still(p->context, &p->guards[2]));
    loch_guard_end(&p->guards[1]);
    loch_guard_end(&p->guards[0]);
    PROMISE(!is_locked(p, 1) && loch_context_get_seat(p->context).number == 0, "a guard was not undone");
    PROMISE(!lochi_sim_get_current(), "a device is current behind its guard");
    const loch_status begun = loch_context_begin_stream(p->context, NULL, &p->guards[0]); /* is left to the end */
    STEP(begun);
}

static void program_memory(program *p)
{
    const loch_child_options range = {.size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = TEST_MIB};
    loch_allocator *own = loch_context_get_allocator(p->context), *child = NULL;
    float data[16] = {0};
    STEP(loch_context_create_tensor(p->context, LOCH_F32, LOCH_SHAPE(64, 64), "plain", 0, &p->tensors[0]));
    const loch_status status = loch_context_push_pool(p->context, "range", &range, &child);
    PROMISE(loch_context_get_allocator(p->context) == (status == LOCH_OK ? child : own), "another pool is current");
    STEP(status);
    STEP(loch_context_create_from(p->context, LOCH_F32, LOCH_SHAPE(4, 4), data, "child", 0, &p->tensors[1]));
    STEP(test_context_compact(p->context, NULL));
    STEP(loch_context_pop_pool(p->context));
    STEP(loch_tensor_fill(p->tensors[0], loch_scalar_of(3), test_context_stream(p->context)));
}

static void program_copies(program *p)
{
    loch_tensor **t = p->tensors;
    for (unsigned seat = 1; seat < SEATS; seat++) {
        STEP(loch_context_set_seat(p->context, LOCH_SEAT(seat)));
        loch_context_stats before = {.size = sizeof before}, after = {.size = sizeof after};
        STEP(loch_context_get_stats(p->context, &before));
        const bool is_made = test_notes_take(&p->notes, loch_context_acquire_copy(p->context, t[0], &t[1 + seat]),
                                             "loch_context_acquire_copy");
        if (loch_context_get_stats(p->context, &after) != LOCH_OK) p->notes.wrong = "no figures";
        PROMISE(after.copies == before.copies + is_made, "a copy is kept that was not made");
        if (!is_made) return;
        STEP(loch_context_acquire_copy(p->context, t[0], &t[4]));
        PROMISE(t[4] == t[1 + seat], "a copy is not found again");
        loch_tensor_clear(&t[4]);
    }
    STEP(loch_context_set_seat(p->context, LOCH_SEAT(0)));
    loch_tensor_clear(&t[2]);
    STEP(loch_tensor_fill(t[0], loch_scalar_of(4), test_context_stream(p->context)));
}

static loch_status program_load(program *p, loch_parameter *parameter)
{
    loch_context_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    if (loch_context_get_stats(p->context, &before) != LOCH_OK) p->notes.wrong = "no figures";
    const loch_status status = loch_context_load(p->context, parameter, p->host);
    const loch_error error = *loch_error_get();
    if (loch_context_get_stats(p->context, &after) != LOCH_OK) p->notes.wrong = "no figures";
    PROMISE(lochi_parameter_is_loaded(parameter) == (status == LOCH_OK), "loaded or not, against what was said");
    if (status != LOCH_OK) PROMISE(after.used_bytes == before.used_bytes, "a failed load has memory");
    if (status != LOCH_OK) (void)loch_error_set(status, NULL, 0, "%s", error.sentence);
    return status;
}

static void program_parameters(program *p)
{
    loch_tensor *part = NULL;
    STEP(loch_context_declare(p->context, "cut", LOCH_F16, LOCH_SHAPE(24, 8), LOCH_SPREAD_PARTS, 0, 0,
                              &p->parameters[0]));
    STEP(loch_context_declare(p->context, "all", LOCH_F32, LOCH_SHAPE(24, 8), LOCH_SPREAD_COPIES, 0, 0,
                              &p->parameters[1]));
    STEP(program_load(p, p->parameters[0]));
    STEP(loch_tensor_slice(p->host, 0, 0, 10, 1, &p->tensors[5]));
    STEP(loch_tensor_slice(p->host, 0, 10, 24, 1, &p->tensors[6]));
    STEP(loch_context_load_part(p->context, p->parameters[1], 0, 0, p->tensors[5]));
    STEP(loch_context_load_part(p->context, p->parameters[1], 0, 10, p->tensors[6]));
    PROMISE(lochi_parameter_is_loaded(p->parameters[1]), "all parts were loaded");
    STEP(loch_parameter_acquire_tensor(p->parameters[1], LOCH_SEAT(1), &part));
    p->tensors[7] = part;
}

static void program_work(program *p)
{
    static void (*const parts[])(program *) = {program_guards, program_memory, program_copies, program_parameters};
    STEP(loch_context_open(p->engine, NULL, &p->context));
    for (size_t i = 0; i < sizeof parts / sizeof *parts && p->notes.status == LOCH_OK; i++)
        parts[i](p);
}

/* While the fault lasts. Guards and pools that are left are the context's to undo. */
static void program_let_go(program *p)
{
    if (loch_context_close(p->context) != LOCH_OK) p->notes.wrong = "a context cannot be ended";
    for (size_t i = 0; i < 3; i++)
        loch_guard_end(&p->guards[i]);
    for (size_t i = 0; i < SLOTS; i++)
        loch_tensor_clear(&p->tensors[i]);
    for (size_t i = 0; i < 2; i++)
        loch_parameter_release(p->parameters[i]);
}

static void program_open(program *p)
{
    loch_engine_device devices[SEATS];
    for (size_t i = 0; i < SEATS; i++) {
        CHECK_OK(loch_device_open(names[i], &p->devices[i]));
        devices[i] = (loch_engine_device){.size = sizeof devices[i], .name = names[i], .limit_bytes = 16 * TEST_MIB};
    }
    const loch_engine_options options = {.size = sizeof options, .devices = devices, .devices_count = SEATS};
    CHECK_OK(loch_engine_open(&options, &p->engine));
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(24, 8), NULL, &p->host));
    CHECK_OK(loch_tensor_fill(p->host, loch_scalar_of(1), NULL));
}

static void program_close(program *p, test_round *round)
{
    size_t waiting = 0, leaks = 0;
    loch_engine_leaks left = {.size = sizeof left};
    loch_tensor_release(p->host);
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, &waiting));
    CHECK_OK(loch_engine_close(p->engine, LOCH_WORKERS_DRAIN, NULL, NULL, &left));
    CHECK_OK(loch_registry_clear(NULL, NULL, &leaks));
    if (waiting || leaks || left.blocks) p->notes.wrong = "blocks are left";
    test_notes_check(&p->notes, round);
    for (size_t i = 0; i < SEATS; i++) {
        test_sim_expect_empty(p->devices[i], !round->is_felt, round->when, p->notes.call);
        loch_device_release(p->devices[i]);
    }
}

/* `user` is the number of the seat whose device the fault is set on. */
static void run_faulted(test_round *round, const void *user)
{
    program p = {.engine = NULL};
    program_open(&p);
    test_round_begin(round, p.devices[*(const size_t *)user]);
    program_work(&p);
    program_let_go(&p);
    test_round_end(round);
    program_close(&p, round);
}

static void sweep(const test_faults *from, size_t seat)
{
    const test_rounds rounds = test_rounds_run(from, names[seat], run_faulted, &seat);
    assert_true(rounds.places > 40 && rounds.felt > 20);
}

static void a_context_survives_failing_host_memory(void **state)
{
    (void)state;
    sweep(&test_host_faults, 0);
}

static void a_context_survives_failing_calls_of_its_first_device(void **state)
{
    (void)state;
    sweep(&test_sim_faults, 0);
}

static void a_context_survives_failing_calls_of_its_second_device(void **state)
{
    (void)state;
    sweep(&test_sim_faults, 1);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_survives_failing_host_memory),
        cmocka_unit_test(a_context_survives_failing_calls_of_its_first_device),
        cmocka_unit_test(a_context_survives_failing_calls_of_its_second_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
