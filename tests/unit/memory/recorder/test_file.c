/* SPDX-License-Identifier: MIT */
/* The streamed file: it survives the death of its process, belongs to one process, and a full disk ends it without
 * harm. */
#include "recorder_fixture.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define CHECK_CHILD(condition)                                                                                         \
    if (!(condition)) _exit(__LINE__ % 200 + 1)

static int wait_for(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

/* Allocates and frees, and reports after each event how many there were, until it is killed. */
static void record_until_killed(int report)
{
    loch_device *device;
    loch_allocator *pool;
    void *blocks[64] = {0};
    const loch_recorder_options options = {.size = sizeof options, .path = recorder_path};
    CHECK_CHILD(loch_device_open("cpu", &device) == LOCH_OK);
    CHECK_CHILD(loch_pool_create(device, "doomed", NULL, &pool) == LOCH_OK);
    CHECK_CHILD(loch_recorder_start(&options) == LOCH_OK);
    for (uint64_t count = 0;;) {
        void **block = &blocks[count / 2 % 64];
        if (*block) {
            CHECK_CHILD(loch_free(pool, *block) == LOCH_OK);
            *block = NULL;
        } else {
            CHECK_CHILD(loch_alloc(pool, 1 + count % 100000, block) == LOCH_OK);
        }
        count++;
        CHECK_CHILD(write(report, &count, sizeof count) == sizeof count);
    }
}

static void a_killed_process_leaves_all_that_it_did(void **state)
{
    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        int pipes[2];
        recorder_name("killed");
        assert_int_equal(pipe(pipes), 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            (void)close(pipes[0]);
            record_until_killed(pipes[1]);
        }
        (void)close(pipes[1]);
        uint64_t last = 0, now;
        const uint64_t wanted = turn == 0 ? 1 : 40000u * (unsigned)turn; /* in the first chunk, and behind it */
        while (read(pipes[0], &now, sizeof now) == sizeof now) {
            last = now;
            if (last == wanted) assert_int_equal(kill(child, SIGKILL), 0);
        }
        (void)close(pipes[0]);
        assert_true(WIFSIGNALED(wait_for(child)));
        loch_recording *r = recorder_load(recorder_path);
        const loch_recording_info info = recorder_info(r);
        const uint64_t recorded = recorder_count(r, LOCH_RECORDED_ALLOC) + recorder_count(r, LOCH_RECORDED_FREE);
        assert_true(last >= wanted);
        assert_true(recorded >= last);
        assert_true(recorded <= last + 1); /* an event that was not reported any more */
        assert_int_equal(info.unknown, 0);
        assert_int_equal(info.was_ended, 0);
        assert_int_equal(info.lost, 0);
        loch_recording_destroy(r);
        assert_int_equal(unlink(recorder_path), 0);
    }
}

static void the_child_of_a_fork_records_nothing(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    recorder_begin("forked");
    void *before = pool_alloc(pool, 100);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        void *block;
        for (int i = 0; i < 1000; i++) {
            CHECK_CHILD(loch_alloc(pool, 10, &block) == LOCH_OK);
            CHECK_CHILD(loch_free(pool, block) == LOCH_OK);
        }
        CHECK_CHILD(loch_free(pool, before) == LOCH_OK);
        CHECK_CHILD(loch_recorder_stop() == LOCH_E_NOT_FOUND);
        /* It may record by itself. */
        char own[sizeof recorder_path + 8];
        snprintf(own, sizeof own, "%s.child", recorder_path);
        const loch_recorder_options options = {.size = sizeof options, .path = own};
        CHECK_CHILD(loch_recorder_start(&options) == LOCH_OK);
        CHECK_CHILD(loch_alloc(pool, 10, &block) == LOCH_OK);
        CHECK_CHILD(loch_recorder_stop() == LOCH_OK);
        loch_recording *r;
        CHECK_CHILD(loch_recording_load(own, NULL, &r) == LOCH_OK);
        CHECK_CHILD(recorder_count(r, LOCH_RECORDED_ALLOC) == 1);
        (void)unlink(own);
        _exit(0);
    }
    assert_int_equal(wait_for(child), 0);
    CHECK_OK(loch_free(pool, before));
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    assert_int_equal(recorder_info(r).blocks, 1);
    loch_recording_destroy(r);
    pool_end(pool, device);
}

/* A limit of the file's size stands for a full disk. The system sends no signal, and no store fails. */
static void a_file_that_cannot_grow_ends_the_recording_only(void **state)
{
    (void)state;
    recorder_name("full");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        const struct rlimit limit = {.rlim_cur = 1200000, .rlim_max = 1200000};
        loch_device *device;
        loch_allocator *pool;
        void *block;
        CHECK_CHILD(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        CHECK_CHILD(loch_device_open("cpu", &device) == LOCH_OK);
        CHECK_CHILD(loch_pool_create(device, "main", NULL, &pool) == LOCH_OK);
        const loch_recorder_options options = {.size = sizeof options, .path = recorder_path};
        CHECK_CHILD(loch_recorder_start(&options) == LOCH_OK);
        for (int i = 0; i < 400000; i++) {
            CHECK_CHILD(loch_alloc(pool, 10, &block) == LOCH_OK);
            CHECK_CHILD(loch_free(pool, block) == LOCH_OK);
        }
        CHECK_CHILD(loch_recorder_stop() == LOCH_E_IO);
        CHECK_CHILD(strstr(loch_error_get()->sentence, "events are missing"));
        _exit(0);
    }
    assert_int_equal(wait_for(child), 0);
    loch_recording *r = recorder_load(recorder_path);
    const loch_recording_info info = recorder_info(r);
    const size_t recorded = recorder_count(r, LOCH_RECORDED_ALLOC) + recorder_count(r, LOCH_RECORDED_FREE);
    assert_int_equal(info.was_ended, 1);
    assert_true(info.lost > 0);
    assert_int_equal(info.unknown, 0);
    assert_true(recorded > 50000);
    assert_true(recorded + info.lost >= 800000);
    loch_recording_destroy(r);
    assert_int_equal(unlink(recorder_path), 0);
}

static void a_file_has_one_writer(void **state)
{
    (void)state;
    recorder_begin("shared");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        const loch_recorder_options options = {.size = sizeof options, .path = recorder_path};
        CHECK_CHILD(loch_recorder_start(&options) == LOCH_E_BUSY);
        _exit(0);
    }
    assert_int_equal(wait_for(child), 0);
    loch_recording_destroy(recorder_finish());
}

static void a_path_may_have_the_process_id(void **state)
{
    (void)state;
    char path[sizeof recorder_path + 16], pattern[sizeof recorder_path + 16];
    recorder_name("id");
    snprintf(pattern, sizeof pattern, "%s.%%p.x", recorder_path);
    snprintf(path, sizeof path, "%s.%ld.x", recorder_path, (long)getpid());
    const loch_recorder_options options = {.size = sizeof options, .path = pattern};
    CHECK_OK(loch_recorder_start(&options));
    CHECK_OK(loch_recorder_stop());
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(unlink(path), 0);
}

static void paths_that_cannot_be_written_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"/no/such/folder/file", "/dev/null", "/tmp"};
    for (size_t i = 0; i < 3; i++) {
        const loch_recorder_options options = {.size = sizeof options, .path = wrong[i]};
        CHECK_FAILS(loch_recorder_start(&options), IO);
        assert_non_null(strstr(loch_error_get()->sentence, wrong[i]));
    }
}

/* LOCH_TRACE: the recording starts with the first allocator and ends with the process. */
static void an_option_records_the_whole_process(void **state)
{
    (void)state;
    recorder_name("option");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        loch_device *device;
        loch_allocator *pool;
        void *block;
        CHECK_CHILD(loch_option_set("trace", recorder_path) == LOCH_OK);
        CHECK_CHILD(loch_option_set("trace_stacks", "8") == LOCH_OK);
        CHECK_CHILD(loch_device_open("cpu", &device) == LOCH_OK);
        CHECK_CHILD(loch_pool_create(device, "main", NULL, &pool) == LOCH_OK);
        CHECK_CHILD(loch_alloc(pool, 100, &block) == LOCH_OK);
        exit(0);
    }
    assert_int_equal(wait_for(child), 0);
    loch_recording *r = recorder_load(recorder_path);
    recorder_expect_whole(r);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_ALLOC), 1);
    assert_int_equal(recorder_info(r).live_blocks, 1);
    assert_int_equal(recorder_info(r).stacks, 1);
    loch_recording_destroy(r);
    assert_int_equal(unlink(recorder_path), 0);
}

static void a_wrong_option_fails_the_first_allocator(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool;
    CHECK_OK(loch_option_set("trace", "/no/such/folder/file"));
    const pid_t child = fork(); /* the process has no allocator yet in any of the other tests of this program */
    assert_true(child >= 0);
    if (!child) {
        for (int i = 0; i < 2; i++) {
            CHECK_CHILD(loch_pool_create(device, "main", NULL, &pool) == LOCH_E_IO);
            CHECK_CHILD(strstr(loch_error_get()->sentence, "/no/such/folder/file"));
        }
        CHECK_CHILD(loch_option_set("trace", recorder_name("wrong")) == LOCH_OK);
        CHECK_CHILD(loch_option_set("trace_stacks", "65") == LOCH_OK);
        CHECK_CHILD(loch_pool_create(device, "main", NULL, &pool) == LOCH_E_INVALID);
        CHECK_CHILD(strstr(loch_error_get()->sentence, "LOCH_TRACE_STACKS"));
        CHECK_CHILD(loch_option_set("trace_stacks", "many") == LOCH_E_INVALID);
        CHECK_CHILD(loch_option_set("trace", NULL) == LOCH_OK);
        CHECK_CHILD(loch_pool_create(device, "main", NULL, &pool) == LOCH_OK);
        _exit(0);
    }
    assert_int_equal(wait_for(child), 0);
    CHECK_OK(loch_option_set("trace", NULL));
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(a_wrong_option_fails_the_first_allocator), /* first: later ones read the option */
        SIM_TEST(an_option_records_the_whole_process),
        SIM_TEST(a_killed_process_leaves_all_that_it_did),
        SIM_TEST(the_child_of_a_fork_records_nothing),
        SIM_TEST(a_file_that_cannot_grow_ends_the_recording_only),
        SIM_TEST(a_file_has_one_writer),
        SIM_TEST(a_path_may_have_the_process_id),
        SIM_TEST(paths_that_cannot_be_written_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
