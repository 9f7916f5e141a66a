/* SPDX-License-Identifier: MIT */
/* Spans are recorded, walked, printed and saved while every host allocation and every driver call fails in turn, once
 * and for good. The program gets no failure: its error record stays, each span is kept or counted as lost, a span that
 * a device could not time has the host's time, text is complete, and nothing leaks. */
#include "faulty_driver.h"
#include "sweep.h"
#include "test.h"
#include <unistd.h>

#define TURNS 4
#define SPANS (TURNS * 4)

typedef struct program {
    loch_device *device;
    loch_stream *stream;
    loch_allocator *allocator;
    loch_timeline *timeline;
    uint64_t timed; /* spans that a device timed, at the last walk */
} program;

/* No part of it gives a failure. */
static void record(program *p)
{
    char name[200] = {0};
    memset(name, 'l', sizeof name - 1);
    for (int i = 0; i < TURNS; i++) {
        LOCH_SPAN(p->timeline, "turn", .allocator = p->allocator);
        {
            LOCH_SPAN(p->timeline, name, .stream = p->stream, .flops = 1);
            LOCH_SPAN(p->timeline, "default", .stream = loch_stream_get_default(p->device));
        }
        loch_span span = loch_span_begin(p->timeline, "by hand",
                                         &(loch_span_options){.size = sizeof(loch_span_options), .stream = p->stream});
        loch_span_end(&span);
        if (i == 1) loch_timeline_forget(p->timeline);
    }
}

static loch_status visit(const loch_span_record *record_of, void *user)
{
    program *p = user;
    p->timed += *record_of->device != '\0';
    return strlen(record_of->name) > 0 ? LOCH_OK : LOCH_E_CORRUPT;
}

/* Returns LOCH_OK, or the failure of a call that may fail. */
static loch_status look(program *p)
{
    static char text[1 << 16];
    size_t kept;
    uint64_t lost;
    p->timed = 0;
    CHECK_OK(loch_timeline_walk(p->timeline, visit, p));
    loch_timeline_count(p->timeline, &kept, &lost);
    if (lost == 0 && kept != SPANS / 2 + 1)
        fail_msg("%zu spans are kept and none lost", kept); /* turn 1 was cleared in */
    assert_true(kept + lost <= SPANS / 2 + 1 + 4);
    for (loch_timeline_format format = LOCH_TIMELINE_TREE; format <= LOCH_TIMELINE_TRACE; format++) {
        const size_t length = test_timeline_print(p->timeline, format, 20, text, sizeof text);
        assert_int_equal(strlen(text), length);
        assert_true(length > 0);
        assert_int_equal(text[length - 1], '\n');
    }
    return loch_timeline_save(p->timeline, "/dev/null", LOCH_TIMELINE_TRACE, 0);
}

static void program_open(program *p, const char *name)
{
    *p = (program){0};
    CHECK_OK(loch_device_open(name, &p->device));
    CHECK_OK(loch_stream_create(p->device, NULL, &p->stream));
    CHECK_OK(loch_direct_create(p->device, "figures", NULL, &p->allocator));
}

static void program_close(program *p)
{
    loch_allocator_release(p->allocator);
    loch_stream_close(p->stream);
    loch_device_release(p->device);
}

/* One run under a fault that is set. */
static loch_status run(program *p)
{
    loch_status status = loch_timeline_create(NULL, &p->timeline);
    if (status != LOCH_OK) return status;
    loch_error_set(LOCH_E_LIMIT, "mine", 4, "of the program");
    record(p);
    assert_int_equal(loch_error_get()->status, LOCH_E_LIMIT);
    assert_string_equal(loch_error_get()->sentence, "of the program");
    status = look(p);
    if (status == LOCH_OK) assert_int_equal(loch_error_get()->status, LOCH_E_LIMIT);
    loch_timeline_destroy(p->timeline);
    return status;
}

/* What a sweep runs on, and what it has seen. */
typedef struct sweep_state {
    program *program;
    uint64_t all;  /* spans that the device times without a fault */
    uint64_t less; /* rounds in which it timed fewer */
} sweep_state;

static void run_faulted(test_round *round, const void *user)
{
    sweep_state *state = *(sweep_state *const *)user;
    program *p = state->program;
    p->timed = 0;
    test_round_begin(round, p->device);
    const loch_status status = run(p);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    if (status != LOCH_OK) assert_int_equal(status, LOCH_E_HOST_MEMORY);
    state->less += p->timed < state->all;
    if (!round->is_reached) assert_int_equal(p->timed, state->all);
}

static void sweep(const char *name, const test_faults *from)
{
    program p;
    program_open(&p, name);
    CHECK_OK(run(&p));
    sweep_state state = {.program = &p, .all = p.timed}, *user = &state;
    const test_rounds rounds = test_rounds_run(from, name, run_faulted, &user);
    CHECK_OK(run(&p));
    assert_int_equal(p.timed, state.all);
    program_close(&p);
    print_message("in %llu of them a span was lost or timed on the host\n", (unsigned long long)state.less);
    assert_true(state.all == SPANS / 2 - 2 && rounds.places > 20 && state.less > 10);
}

static void spans_survive_failing_host_memory(void **state)
{
    (void)state;
    sweep("sim:64MiB,clock=stepped", &test_host_faults);
}

static void spans_survive_failing_calls_of_sim(void **state)
{
    (void)state;
    sweep("sim:64MiB,clock=stepped", &test_sim_faults);
}

static void spans_survive_failing_calls_of_a_driver_from_outside(void **state)
{
    (void)state;
    CHECK_OK(test_faulty_register());
    sweep("faulty:sim:64MiB,clock=stepped", &test_driver_faults);
}

/* Each line of a child stands under its own parent; returns how many spans are shown, and `missing` those that are said
 * not to be. */
static uint64_t check_tree(const char *text, unsigned long long *missing)
{
    uint64_t shown = 0;
    int parent = -1, number;
    *missing = 0;
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (sscanf(line, "%llu spans are not shown", missing) == 1) continue;
        if (sscanf(line, "  parent %d", &number) == 1) {
            parent = number;
            shown++;
        } else if (sscanf(line, "    child %d", &number) == 1) {
            assert_int_equal(number, parent);
            shown++;
        }
    }
    return shown;
}

typedef struct tree_state {
    loch_timeline *timeline;
    bool is_felt;
} tree_state;

static void print_faulted(test_round *round, const void *user)
{
    static char text[1 << 16];
    tree_state *state = *(tree_state *const *)user;
    unsigned long long missing;
    test_round_begin(round, NULL);
    (void)test_timeline_print(state->timeline, LOCH_TIMELINE_TREE, 0, text, sizeof text);
    test_round_end(round);
    assert_int_equal(check_tree(text, &missing) + missing, 201);
    round->is_felt = missing > 0;
    state->is_felt |= missing > 0;
}

static void a_tree_counts_the_spans_that_it_has_no_memory_for(void **state)
{
    (void)state;
    loch_timeline *timeline;
    CHECK_OK(loch_timeline_create(NULL, &timeline));
    {
        LOCH_SPAN(timeline, "parent 100"); /* so that memory is asked for at a parent at times */
    }
    for (int i = 0; i < 100; i++) {
        char parent[32], child[32];
        snprintf(parent, sizeof parent, "parent %d", i);
        snprintf(child, sizeof child, "child %d", i);
        LOCH_SPAN(timeline, parent);
        LOCH_SPAN(timeline, child);
    }
    tree_state tree = {.timeline = timeline}, *user = &tree;
    (void)test_rounds_run(&test_host_faults, "a tree", print_faulted, &user);
    assert_true(tree.is_felt);
    loch_timeline_destroy(timeline);
}

int main(void)
{
    CHECK_OK(test_heap_install());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_survive_failing_host_memory),
        cmocka_unit_test(a_tree_counts_the_spans_that_it_has_no_memory_for),
        cmocka_unit_test(spans_survive_failing_calls_of_sim),
        cmocka_unit_test(spans_survive_failing_calls_of_a_driver_from_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
