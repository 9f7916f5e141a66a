/* SPDX-License-Identifier: MIT */
/* Plans as values: made, checked, saved, loaded, refused; cancelled; made by several threads; without memory. */
#include "problems.h"
#include "check.h"
#include "memory.h"
#include "problem.h"
#include <stdatomic.h>
#include <unistd.h>

static char *plan_path(char *path, const char *name)
{
    snprintf(path, 128, "/tmp/loch-plan-%d-%s", (int)getpid(), name);
    return path;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* --- the checker --- */

/* Compares the sweep with a comparison of all pairs. */
static bool pairs_overlap(const loch_plan_problem *problem, const uint64_t *offsets)
{
    for (size_t i = 0; i < problem->count; i++)
        for (size_t j = 0; j < i; j++) {
            plan_stretch x, y;
            for (uint32_t a = 0; lochi_plan_stretch_next(&problem->buffers[i], &a, &x);)
                for (uint32_t b = 0; lochi_plan_stretch_next(&problem->buffers[j], &b, &y);)
                    if (x.first < y.last && y.first < x.last && offsets[i] + x.low < offsets[j] + y.high &&
                        offsets[j] + y.low < offsets[i] + x.high)
                        return true;
        }
    return false;
}

static void test_the_checker_finds_every_overlap(void **state)
{
    (void)state;
    test_random random = {test_seed(5)};
    size_t overlaps = 0;
    for (size_t round = 0; round < 3000; round++) {
        random_problem p = problem_create(2 + problem_below(&random, 7), 8, 6, WITH_GAPS | WITH_WINDOWS, &random);
        uint64_t offsets[16], height;
        for (size_t i = 0; i < p.problem.count; i++)
            offsets[i] = problem_below(&random, 30);
        const bool is_wrong = pairs_overlap(&p.problem, offsets);
        const loch_status status = lochi_plan_check_offsets(&p.problem, offsets, &height);
        assert_int_equal(status, is_wrong ? LOCH_E_CORRUPT : LOCH_OK);
        overlaps += is_wrong;
        problem_free(&p);
    }
    assert_true(overlaps > 100 && overlaps < 2900);
}

static void test_a_plan_of_another_problem_is_refused(void **state)
{
    (void)state;
    loch_plan_buffer buffers[] = {{.bytes = 8, .first = 0, .last = 2}, {.bytes = 4, .first = 1, .last = 3}};
    const loch_plan_problem problem = {.size = sizeof problem, .buffers = buffers, .count = 2};
    loch_plan *plan;
    CHECK_OK(loch_plan_create(&problem, NULL, &plan));
    CHECK_OK(loch_plan_check(plan, &problem));
    buffers[0].last = 4;
    CHECK_FAILS(loch_plan_check(plan, &problem), NOT_FOUND);
    buffers[0].last = 2;
    const loch_plan_problem less = {.size = sizeof less, .buffers = buffers, .count = 1};
    CHECK_FAILS(loch_plan_check(plan, &less), NOT_FOUND);
    CHECK_FAILS(loch_plan_check(NULL, &problem), INVALID);
    CHECK_FAILS(loch_plan_check(plan, NULL), INVALID);
    loch_plan_destroy(plan);
}

/* --- files --- */

static void test_plans_come_back_from_files(void **state)
{
    (void)state;
    test_random random = {test_seed(6)};
    char path[128];
    plan_path(path, "round");
    for (size_t round = 0; round < 20; round++) {
        random_problem p =
            problem_create(problem_below(&random, 30) + 1, 20, 1000, WITH_ALIGNMENT | WITH_GAPS, &random);
        const loch_plan_options options = {.size = sizeof options, .method = LOCH_PLAN_FAST};
        loch_plan *plan, *again;
        CHECK_OK(loch_plan_create(&p.problem, &options, &plan));
        CHECK_OK(loch_plan_save(plan, path));
        CHECK_OK(loch_plan_load(path, &again));
        CHECK_OK(loch_plan_check(again, &p.problem));
        const loch_plan_info one = plan_info(plan), two = plan_info(again);
        assert_int_equal(one.height, two.height);
        assert_int_equal(one.lower_bound, two.lower_bound);
        assert_int_equal(one.is_best, two.is_best);
        assert_memory_equal(loch_plan_get_offsets(plan), loch_plan_get_offsets(again),
                            p.problem.count * sizeof(uint64_t));
        loch_plan_destroy(plan);
        loch_plan_destroy(again);
        problem_free(&p);
    }
    unlink(path);
}

static void test_wrong_plans_are_refused(void **state)
{
    (void)state;
    static const char head[] = "loch-plan 1\nfingerprint 0123456789abcdef\n";
    static const char *const wrong[] = {
        "",
        "loch-plan",
        "loch-plan 1",
        "loch-plan x\n",
        "loch-plan 1\nfingerprint 0123456789abcdeg\n",
        "+buffers 99999999999\nheight 1\nbound 1\nend\n",
        "+buffers 1\nheight 1\nbound 2\n0\nend\n",
        "+buffers 1\nheight 1\nbound 1\n0\n",
        "+buffers 1\nheight 1\nbound 1\n-1\nend\n",
        "+buffers 1\nheight 1\nbound 1\n0\nend\nmore\n",
        "+buffers 1\nheight 99999999999999999999\nbound 1\n0\nend\n",
    };
    char path[128], text[256];
    plan_path(path, "wrong");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        loch_plan *plan = TEST_UNTOUCHED;
        snprintf(text, sizeof text, "%s%s", *wrong[i] == '+' ? head : "", wrong[i] + (*wrong[i] == '+'));
        write_file(path, text);
        CHECK_FAILS(loch_plan_load(path, &plan), CORRUPT);
        assert_null(plan);
    }
    loch_plan *plan = TEST_UNTOUCHED;
    write_file(path, "loch-plan 2\n");
    CHECK_FAILS(loch_plan_load(path, &plan), UNSUPPORTED);
    snprintf(text, sizeof text, "%sbuffers 1\nheight 1\nbound 1\n0\nend\n", head);
    write_file(path, text);
    CHECK_OK(loch_plan_load(path, &plan));
    const loch_plan_buffer buffer = {.bytes = 1, .first = 0, .last = 1};
    const loch_plan_problem problem = {.size = sizeof problem, .buffers = &buffer, .count = 1};
    CHECK_FAILS(loch_plan_check(plan, &problem), NOT_FOUND);
    loch_plan_destroy(plan);
    unlink(path);
    CHECK_FAILS(loch_plan_load(path, &plan), IO);
}

static void test_tables(void **state)
{
    (void)state;
    char path[128];
    loch_plan_problem *problem = TEST_UNTOUCHED;
    plan_path(path, "table");
    write_file(path,
               "# a comment\nsize,id,lower,upper,alignment,offset,gaps,hint\r\n8,weights,0,9,4,-1,2-3 5-6@1:4,-1\r\n\n"
               "16,input,3,4,1,32,,7\n");
    CHECK_OK(loch_plan_problem_load(path, &problem));
    assert_int_equal(problem->count, 2);
    assert_string_equal(problem->names[0], "weights");
    assert_string_equal(problem->names[1], "input");
    const loch_plan_buffer *b = problem->buffers;
    assert_true(b[0].bytes == 8 && b[0].alignment == 4 && b[0].first == 0 && b[0].last == 9 && !b[0].place);
    assert_true(b[0].gaps_count == 2 && b[0].gaps[0].first == 2 && b[0].gaps[0].last == 3);
    assert_true(b[0].gaps[1].window_begin == 1 && b[0].gaps[1].window_end == 4);
    assert_true(b[1].place && b[1].offset == 32 && !b[1].gaps_count);
    loch_plan_problem_destroy(problem);
    write_file(path, "buffer_id,start,end,size\na,0,4,8\n"); /* the end is included */
    CHECK_OK(loch_plan_problem_load(path, &problem));
    assert_int_equal(problem->buffers[0].last, 5);
    loch_plan_problem_destroy(problem);
    static const char *const wrong[] = {
        "",
        "id,lower,upper\n",
        "id,id,lower,upper,size\n",
        "id,lower,upper,size,colour\n",
        "id,lower,upper,size\na,0,1\n",
        "id,lower,upper,size\na,0,1,1,1\n",
        "id,lower,upper,size\na,1,1,1\n",
        "id,lower,upper,size\na,0,1,0\n",
        "id,lower,upper,size\na,-1,1,1\n",
        "id,lower,upper,size\na,0,1,99999999999999999999\n",
        "id,lower,upper,size,gaps\na,0,9,1,3\n",
        "id,lower,upper,size,gaps\na,0,9,1,3-4@\n",
        "id,lower,upper,size,gaps\na,0,9,1,5-6 3-4\n",
        "id,lower,upper,size,gaps\na,0,9,1,3-4@0:2\n",
        "id,lower,upper,size,alignment\na,0,9,1,0\n",
        "id,lower,upper,size,alignment,offset\na,0,9,1,4,2\n",
        "id,lower,end,size\na,0,18446744073709551615,1\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        problem = TEST_UNTOUCHED;
        write_file(path, wrong[i]);
        CHECK_FAILS(loch_plan_problem_load(path, &problem), INVALID);
        assert_null(problem);
    }
    write_file(path, "id,lower,upper,size\na,0,1,4611686018427387904\n");
    CHECK_FAILS(loch_plan_problem_load(path, &problem), OVERFLOW);
    unlink(path);
    CHECK_FAILS(loch_plan_problem_load(path, &problem), IO);
}

/* --- making --- */

static void test_bad_arguments(void **state)
{
    (void)state;
    loch_plan_buffer buffer = {.bytes = 1, .first = 0, .last = 1};
    loch_plan_problem problem = {.size = sizeof problem, .buffers = &buffer, .count = 1};
    loch_plan *plan = TEST_UNTOUCHED;
    loch_plan_options options = {.size = 0};
    loch_plan_info info = {.size = 0};
    CHECK_FAILS(loch_plan_create(NULL, NULL, &plan), INVALID);
    assert_null(plan);
    CHECK_FAILS(loch_plan_create(&problem, NULL, NULL), INVALID);
    CHECK_FAILS(loch_plan_create(&problem, &options, &plan), INVALID);
    options = (loch_plan_options){.size = sizeof options, .method = (loch_plan_method)9};
    CHECK_FAILS(loch_plan_create(&problem, &options, &plan), INVALID);
    problem.buffers = NULL;
    CHECK_FAILS(loch_plan_create(&problem, NULL, &plan), INVALID);
    problem.buffers = &buffer;
    buffer.bytes = UINT64_C(1) << 62;
    CHECK_FAILS(loch_plan_create(&problem, NULL, &plan), OVERFLOW);
    buffer.bytes = 0;
    CHECK_FAILS(loch_plan_create(&problem, NULL, &plan), INVALID);
    buffer.bytes = 1;
    buffer.gaps_count = 1;
    CHECK_FAILS(loch_plan_create(&problem, NULL, &plan), INVALID);
    problem.count = 0;
    CHECK_OK(loch_plan_create(&problem, NULL, &plan));
    CHECK_FAILS(loch_plan_get_info(plan, &info), INVALID);
    assert_int_equal(plan_info(plan).is_best, 1);
    CHECK_OK(loch_plan_check(plan, &problem));
    CHECK_FAILS(loch_plan_save(plan, "/nonexistent/plan"), IO);
    CHECK_FAILS(loch_plan_save(NULL, "plan"), INVALID);
    loch_plan_destroy(plan);
    loch_plan_destroy(NULL);
    loch_plan_problem_destroy(NULL);
    assert_null(loch_plan_get_offsets(NULL));
}

/* Random buffers in `parts` stretches of time that no buffer connects. */
static random_problem problem_in_parts(size_t parts, size_t count, uint64_t bytes_max, test_random *random)
{
    random_problem p = problem_create(parts * count, 40, bytes_max, 0, random);
    for (size_t i = 0; i < p.problem.count; i++) {
        p.buffers[i].first += 1000 * (i / count);
        p.buffers[i].last += 1000 * (i / count);
    }
    return p;
}

static void test_threads_do_not_change_the_plan(void **state)
{
    (void)state;
    test_random random = {test_seed(8)};
    for (size_t round = 0; round < 3; round++) {
        random_problem p = problem_in_parts(6, 14, 1000, &random);
        loch_plan_options options = {.size = sizeof options, .time_limit_ns = UINT64_MAX};
        loch_plan *one, *many;
        CHECK_OK(loch_plan_create(&p.problem, &options, &one));
        options.threads = 4;
        CHECK_OK(loch_plan_create(&p.problem, &options, &many));
        CHECK_OK(loch_plan_check(many, &p.problem));
        assert_int_equal(plan_info(one).height, plan_info(many).height);
        assert_int_equal(plan_info(one).is_best, 1);
        assert_memory_equal(loch_plan_get_offsets(one), loch_plan_get_offsets(many),
                            p.problem.count * sizeof(uint64_t));
        loch_plan_destroy(one);
        loch_plan_destroy(many);
        problem_free(&p);
    }
}

typedef struct report_user {
    atomic_size_t calls;
    loch_status answer;
} report_user;

static loch_status report(const loch_plan_progress *progress, void *user)
{
    report_user *u = user;
    assert_int_equal(progress->size, sizeof *progress);
    assert_true(progress->lower_bound <= progress->height);
    assert_true(progress->parts_done <= progress->parts);
    return atomic_fetch_add(&u->calls, 1) + 1 >= 3 ? u->answer : LOCH_OK;
}

/* A problem whose best plan is out of reach, because bytes that alignments waste are not part of the bound: the report
 * ends the search. */
static void test_cancelling(void **state)
{
    (void)state;
    test_random random = {test_seed(9)};
    random_problem p = problem_in_parts(3, 300, 100000000, &random);
    for (size_t i = 0; i < p.problem.count; i++) {
        p.buffers[i].bytes |= 1;
        p.buffers[i].alignment = 64;
    }
    report_user user = {.answer = LOCH_E_CANCELLED};
    loch_plan_options options = {
        .size = sizeof options, .time_limit_ns = UINT64_MAX, .threads = 3, .report = report, .user = &user};
    loch_plan *plan = NULL;
    CHECK_OK(loch_plan_create(&p.problem, &options, &plan)); /* the best plan so far */
    CHECK_OK(loch_plan_check(plan, &p.problem));
    const uint64_t bound = plan_info(plan).lower_bound;
    assert_int_equal(user.calls, 3);
    loch_plan_destroy(plan);
    user = (report_user){.answer = LOCH_E_FOREIGN};
    plan = TEST_UNTOUCHED;
    CHECK_STATUS(loch_plan_create(&p.problem, &options, &plan), LOCH_E_FOREIGN);
    assert_null(plan);
    options.capacity = bound;
    options.time_limit_ns = 1; /* one fast round, which does not reach the bound */
    CHECK_FAILS(loch_plan_create(&p.problem, &options, &plan), BUSY);
    problem_free(&p);
}

/* --- host memory --- */

static void test_without_host_memory(void **state)
{
    (void)state;
    test_random random = {test_seed(10)};
    random_problem p = problem_in_parts(2, 12, 1000, &random);
    char path[128], table[128];
    p.buffers[0].place = LOCH_PLAN_FIXED;
    write_file(plan_path(table, "memory.csv"), "id,lower,upper,size,gaps\na,0,9,4,3-4\nb,2,5,8,\n");
    plan_path(path, "memory");
    bool is_done = false;
    for (long n = 0; !is_done; n++) {
        loch_plan *plan = NULL, *again = NULL;
        loch_plan_problem *problem = NULL;
        const loch_plan_options options = {.size = sizeof options, .time_limit_ns = UINT64_MAX, .threads = 2};
        loch_error_clear();
        lochi_plan_fail_after(n);
        loch_status status = loch_plan_create(&p.problem, &options, &plan);
        if (status == LOCH_OK) status = loch_plan_check(plan, &p.problem);
        if (status == LOCH_OK) status = loch_plan_save(plan, path);
        if (status == LOCH_OK) status = loch_plan_load(path, &again);
        if (status == LOCH_OK) status = loch_plan_problem_load(table, &problem);
        is_done = !lochi_plan_failed();
        lochi_plan_fail_after(-1);
        if (status != LOCH_OK) {
            assert_int_equal(status, LOCH_E_HOST_MEMORY);
            assert_true(*loch_error_get()->sentence);
        }
        if (is_done) assert_int_equal(status, LOCH_OK);
        loch_plan_destroy(plan);
        loch_plan_destroy(again);
        loch_plan_problem_destroy(problem);
    }
    unlink(path);
    unlink(table);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_checker_finds_every_overlap),
        cmocka_unit_test(test_a_plan_of_another_problem_is_refused),
        cmocka_unit_test(test_plans_come_back_from_files),
        cmocka_unit_test(test_wrong_plans_are_refused),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_threads_do_not_change_the_plan),
        cmocka_unit_test(test_cancelling),
        cmocka_unit_test(test_without_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
