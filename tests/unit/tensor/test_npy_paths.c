/* SPDX-License-Identifier: MIT */
/* Paths of .npy files: what cannot be written, old files, limits, permissions, links and pipes. */
#include "npy_fixture.h"
#include "sim_fixture.h"
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>

/* --- saving --- */

static loch_tensor *small_tensor(void)
{
    static int32_t data[3] = {1, 2, 3};
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_wrap(LOCH_I32, LOCH_SHAPE(3), data, NULL, &tensor));
    return tensor;
}

static void what_cannot_be_written_is_told(void **state)
{
    (void)state;
    loch_tensor *tensor = small_tensor();
    char path[128];
    snprintf(path, sizeof path, "%s/nowhere/a.npy", npy_folder);
    CHECK_FAILS(loch_npy_save(tensor, path, NULL), IO);
    CHECK_FAILS(loch_npy_save(tensor, npy_folder, NULL), IO);
    CHECK_FAILS(loch_npy_save(tensor, "", NULL), IO);
    char *longer = malloc(8192);
    assert_non_null(longer);
    memset(longer, 'x', 8191);
    longer[8191] = '\0';
    CHECK_FAILS(loch_npy_save(tensor, longer, NULL), IO);
    free(longer);
    if (access("/dev/full", W_OK) == 0) {
        CHECK_FAILS(loch_npy_save(tensor, "/dev/full", NULL), IO);
        assert_int_equal(access("/dev/full", F_OK), 0);
    }
    if (access("/dev/null", W_OK) == 0) {
        struct stat about;
        CHECK_OK(loch_npy_save(tensor, "/dev/null", NULL));
        assert_int_equal(stat("/dev/null", &about), 0);
        assert_true(S_ISCHR(about.st_mode));
    }
    assert_int_equal(npy_count_files(), 0);
    loch_tensor_release(tensor);
}

/* A failure on the way leaves the old file, and nothing beside it. */
static void a_failure_leaves_the_old_file(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    const loch_tensor_options memory = memory_on(device);
    loch_tensor *tensor = make_tensor(LOCH_U8, LOCH_SHAPE(100), &memory);
    npy_put_file(npy_path, "old", 3);
    const loch_sim_fault fault = {.size = sizeof fault, .mode = LOCH_SIM_FAULT_FOREVER};
    CHECK_OK(loch_sim_set_fault(device, &fault));
    CHECK_FAILS(loch_npy_save(tensor, npy_path, NULL), DRIVER);
    CHECK_OK(loch_sim_set_fault(device, NULL));
    size_t bytes;
    char *now = npy_get_file(npy_path, &bytes);
    assert_int_equal(bytes, 3);
    assert_memory_equal(now, "old", 3);
    free(now);
    assert_int_equal(npy_count_files(), 1);
    CHECK_OK(loch_npy_save(tensor, npy_path, NULL));
    assert_int_equal(npy_count_files(), 1);
    loch_tensor_release(tensor);
    loch_allocator_release(memory.allocator);
    loch_device_release(device);
}

static void a_file_that_may_not_grow_leaves_the_old_one(void **state)
{
    (void)state;
    /* a file that may not grow beyond its header: what a full disk does, without one */
    loch_tensor *tensor = make_tensor(LOCH_U8, LOCH_SHAPE(1000), NULL);
    struct sigaction old, ignore = {.sa_handler = SIG_IGN};
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 500;
    npy_put_file(npy_path, "old", 3);
    sigaction(SIGXFSZ, &ignore, &old);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_FAILS(loch_npy_save(tensor, npy_path, NULL), IO);
    setrlimit(RLIMIT_FSIZE, &before);
    sigaction(SIGXFSZ, &old, NULL);
    assert_int_equal(npy_count_files(), 1);
    struct stat about;
    assert_int_equal(stat(npy_path, &about), 0);
    assert_int_equal(about.st_size, 3);
    loch_tensor_release(tensor);
}

static void permissions_and_links_are_kept(void **state)
{
    (void)state;
    loch_tensor *tensor = small_tensor();
    struct stat about;
    char link[128];
    snprintf(link, sizeof link, "%s/link", npy_folder);
    const mode_t mask = umask(027);
    CHECK_OK(loch_npy_save(tensor, npy_path, NULL));
    umask(mask);
    assert_int_equal(stat(npy_path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    assert_int_equal(chmod(npy_path, 0600), 0);
    assert_int_equal(symlink("a.npy", link), 0);
    CHECK_OK(loch_npy_save(tensor, link, NULL)); /* through the link */
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(stat(npy_path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_int_equal(unlink(link), 0);
    if (geteuid() != 0) {
        assert_int_equal(chmod(npy_path, 0400), 0);
        CHECK_FAILS(loch_npy_save(tensor, npy_path, NULL), IO);
        assert_int_equal(chmod(npy_folder, 0500), 0);
        unlink(npy_path);
        CHECK_FAILS(loch_npy_save(tensor, npy_path, NULL), IO);
        assert_int_equal(chmod(npy_folder, 0700), 0);
    }
    loch_tensor_release(tensor);
}

/* --- pipes: pieces of any size, and signals --- */

static char pipe_data[20000];

static void on_alarm(int signal)
{
    (void)signal;
}

/* Feeds the pipe little by little. */
static void *feed_pipe(void *path)
{
    const int file = open(path, O_WRONLY | O_CLOEXEC); /* signals are blocked here */
    for (size_t at = 0, step = 1; file >= 0 && at < sizeof pipe_data; at += step, step = step % 97 + 1) {
        const size_t left = sizeof pipe_data - at;
        if (write(file, pipe_data + at, left < step ? left : step) < 0) break;
    }
    if (file >= 0) close(file);
    return NULL;
}

/* The other end of a saved pipe. */
static void *drain_pipe(void *path)
{
    size_t at = 0;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t count; file >= 0 && at<sizeof pipe_data; at += count> 0 ? (size_t)count : 0) {
        const size_t left = sizeof pipe_data - at;
        count = read(file, pipe_data + at, left < 100 ? left : 100);
        if (count <= 0) break;
    }
    if (file >= 0) close(file);
    return NULL;
}

/* Only the first thread receives the alarm: it is the thread inside the library. */
static pthread_t start_deaf(void *(*function)(void *))
{
    sigset_t alarms;
    pthread_t thread;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    assert_int_equal(pthread_create(&thread, NULL, function, npy_path), 0);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    return thread;
}

static void pipes_are_read_and_written(void **state)
{
    (void)state;
    static const char dict[] = "{'descr': '>u2', 'fortran_order': False, 'shape': (9900,), }";
    const size_t header = npy_make_header(pipe_data, 1, dict, strlen(dict), 128);
    for (size_t i = 0; i < 9900; i++) {
        pipe_data[header + 2 * i] = (char)(i >> 8);
        pipe_data[header + 2 * i + 1] = (char)i;
    }
    struct sigaction old, handler = {.sa_handler = on_alarm}; /* interrupts calls */
    const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    assert_int_equal(mkfifo(npy_path, 0600), 0);
    sigaction(SIGALRM, &handler, &old);
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_t thread = start_deaf(feed_pipe);
    loch_tensor *tensor = load(NULL);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < 9900; i += 101)
        assert_true(item(tensor, i, false) == (double)i);
    memset(pipe_data, 0, sizeof pipe_data);
    thread = start_deaf(drain_pipe);
    CHECK_OK(loch_npy_save(tensor, npy_path, NULL));
    pthread_join(thread, NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &old, NULL);
    for (size_t i = 0; i < 9900; i += 101)
        assert_int_equal((unsigned char)pipe_data[128 + 2 * i], i & 0xff);
    assert_memory_equal(pipe_data + 10, "{'descr': '<u2'", 15);
    loch_tensor_release(tensor);
}

/* A pipe has no length to compare with: the end comes as a surprise. */
static void a_pipe_that_ends_early_is_told(void **state)
{
    (void)state;
    static const char dict[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (30000,), }";
    npy_make_header(pipe_data, 1, dict, strlen(dict), 128);
    assert_int_equal(mkfifo(npy_path, 0600), 0);
    const pthread_t thread = start_deaf(feed_pipe);
    LOAD_FAILS(NULL, CORRUPT);
    assert_non_null(strstr(loch_error_get()->sentence, "10128 of 30000"));
    pthread_join(thread, NULL);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* a reader may have all that it needs before the pipe is empty */
    const struct CMUnitTest tests[] = {
        NPY_TEST(what_cannot_be_written_is_told),
        NPY_TEST(a_failure_leaves_the_old_file),
        NPY_TEST(a_file_that_may_not_grow_leaves_the_old_one),
        NPY_TEST(permissions_and_links_are_kept),
        NPY_TEST(pipes_are_read_and_written),
        NPY_TEST(a_pipe_that_ends_early_is_told),
    };
    return cmocka_run_group_tests(tests, npy_group_setup, npy_group_teardown);
}
