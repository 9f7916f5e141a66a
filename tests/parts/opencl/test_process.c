/* SPDX-License-Identifier: MIT */
/* The process around an OpenCL device: threads, forks, a machine without OpenCL, and the end. */
#include "opencl_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs a function in a child. Returns its result; 200 if the child did not end by itself. */
static int in_child(int (*run)(void *user), void *user)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(run(user));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

/* --- forks --- */

typedef struct before_fork {
    loch_device *device;
    loch_stream *stream;
    loch_event *event;
    loch_allocator *pool;
    void *block, *raw;
} before_fork;

/* Every use is refused, and everything can be given back. Returns the number of the first line that is wrong. */
static int use_after_fork(void *user)
{
    before_fork *b = user;
    loch_device *again = NULL;
    loch_opencl_handles handles = {.size = sizeof handles};
    void *block = NULL;
#define REFUSED(call)                                                                                                  \
    if ((call) != LOCH_E_FORKED) return __LINE__ & 0x7f
    REFUSED(loch_raw_alloc(b->device, LOCH_MEMORY_DEVICE, 4096, 0, &block));
    REFUSED(loch_stream_sync(b->stream));
    REFUSED(loch_event_record(b->event, b->stream));
    REFUSED(loch_fill(b->raw, 4096, "a", 1));
    REFUSED(loch_opencl_get_handles(b->device, &handles));
    REFUSED(loch_device_open("opencl:1", &again)); /* another device: the driver itself refuses */
    if (loch_stream_get_native(b->stream)) return __LINE__ & 0x7f;
    if (loch_free(b->pool, b->block) != LOCH_OK) return __LINE__ & 0x7f;
    if (loch_raw_free(b->raw) != LOCH_OK) return __LINE__ & 0x7f;
    loch_allocator_release(b->pool);
    loch_event_destroy(b->event);
    loch_stream_close(b->stream);
    loch_device_release(b->device);
    return 0;
}

static void a_child_is_refused_and_the_parent_goes_on(void **state)
{
    (void)state;
    before_fork b = {.device = opencl_open("opencl:0")};
    CHECK_OK(loch_stream_create(b.device, NULL, &b.stream));
    CHECK_OK(loch_event_create(b.device, LOCH_EVENT_PLAIN, &b.event));
    CHECK_OK(loch_pool_create(b.device, "forked", NULL, &b.pool));
    CHECK_OK(loch_alloc(b.pool, 4096, &b.block));
    CHECK_OK(loch_raw_alloc(b.device, LOCH_MEMORY_DEVICE, 4096, 0, &b.raw));
    assert_int_equal(in_child(use_after_fork, &b), 0);
    CHECK_OK(loch_fill(b.raw, 4096, "p", 1));
    CHECK_OK(loch_raw_free(b.raw));
    CHECK_OK(loch_free(b.pool, b.block));
    loch_allocator_release(b.pool);
    loch_event_destroy(b.event);
    loch_stream_close(b.stream);
    loch_device_release(b.device);
}

/* --- a machine without OpenCL --- */

/* Runs this program again, with a folder in which libOpenCL.so.1 is no library. Returns its exit code. */
static int run_without(const char *mode, const char *contents)
{
    char folder[] = "/tmp/loch-opencl.XXXXXX", file[128];
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/libOpenCL.so.1", folder);
    FILE *stream = fopen(file, "w");
    assert_non_null(stream);
    fputs(contents, stream);
    fclose(stream);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        setenv("LD_LIBRARY_PATH", folder, 1);
        execl("/proc/self/exe", "test_process", mode, (char *)NULL);
        _exit(201);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    unlink(file);
    rmdir(folder);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

static loch_status count_opencl(const char *name, void *user)
{
    if (strncmp(name, "opencl:", 7) == 0) ++*(int *)user;
    return LOCH_OK;
}

/* The program that run_without runs. */
static int without_opencl(void)
{
    loch_device *device = NULL;
    int count = 0;
    if (loch_opencl_register() != LOCH_OK) return 1;
    for (int i = 0; i < 2; i++) { /* it is tried again */
        if (loch_device_open("opencl:0", &device) != LOCH_E_NOT_FOUND || device) return 2;
        if (!strstr(loch_error_get()->sentence, "libOpenCL.so.1")) return 3;
        if (loch_device_open("opencl", &device) != LOCH_E_NOT_FOUND) return 4;
    }
    if (loch_device_walk(count_opencl, &count) != LOCH_OK || count) return 5; /* no devices, and no failure */
    if (loch_opencl_open(TEST_UNTOUCHED, TEST_UNTOUCHED, &device) != LOCH_E_NOT_FOUND) return 6;
    return 0;
}

static void a_machine_without_opencl_says_what_to_install(void **state)
{
    (void)state;
    assert_int_equal(run_without("without", ""), 0);
    lochi_opencl_api api;
    CHECK_FAILS(lochi_opencl_load_from("libno_such_opencl.so.1", &api), NOT_FOUND);
    assert_non_null(strstr(loch_error_get()->sentence, "libno_such_opencl.so.1"));
    CHECK_FAILS(lochi_opencl_load_from("libc.so.6", &api), UNSUPPORTED); /* a library, and not OpenCL */
    assert_non_null(strstr(loch_error_get()->sentence, "OpenCL 2.0"));
}

/* --- threads --- */

#define THREADS 6
#define ROUNDS 40

typedef struct worker {
    loch_allocator *pool;
    unsigned char number;
    loch_status status;
    int differs;
} worker;

static loch_status work_once(worker *w, loch_stream *stream, loch_event *event, size_t bytes, unsigned char *host)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream};
    void *block;
    LOCH_RETURN(loch_allocator_alloc(w->pool, &request, &block));
    loch_status status = loch_fill_on(block, bytes, &w->number, 1, stream);
    if (status == LOCH_OK) status = loch_event_record(event, stream);
    if (status == LOCH_OK) status = loch_event_sync(event);
    if (status == LOCH_OK) status = loch_copy_on(host, block, bytes, stream);
    for (size_t i = 0; status == LOCH_OK && i < bytes; i++)
        w->differs += host[i] != w->number;
    const loch_status freed = loch_allocator_free_on(w->pool, block, stream);
    return status != LOCH_OK ? status : freed;
}

static void *work(void *argument)
{
    worker *w = argument;
    static const size_t sizes[] = {100, 4096, 70000, 1 << 20};
    loch_device *device = loch_allocator_get_device(w->pool);
    unsigned char *host = malloc(sizes[3]);
    loch_event *event = NULL;
    w->status = host ? loch_event_create(device, LOCH_EVENT_PLAIN, &event) : LOCH_E_HOST_MEMORY;
    for (size_t i = 0; w->status == LOCH_OK && i < ROUNDS; i++) {
        loch_stream *stream = NULL;
        w->status = loch_stream_create(device, NULL, &stream);
        if (w->status == LOCH_OK) w->status = work_once(w, stream, event, sizes[(i + w->number) % 4], host);
        loch_stream_close(stream);
    }
    loch_event_destroy(event);
    free(host);
    return NULL;
}

static void threads_share_a_device_and_a_pool(void **state)
{
    (void)state;
    loch_device *device = opencl_open("opencl:0");
    loch_allocator *pool = NULL;
    worker workers[THREADS] = {0};
    CHECK_OK(loch_pool_create(device, "threads", NULL, &pool));
    for (size_t i = 0; i < THREADS; i++)
        workers[i] = (worker){.pool = pool, .number = (unsigned char)(i + 1)};
    TEST_THREADS_RUN(work, workers);
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_STATUS(workers[i].status, LOCH_OK);
        assert_int_equal(workers[i].differs, 0);
    }
    CHECK_OK(loch_device_sync(device));
    loch_allocator_release(pool);
    loch_device_release(device);
}

static void *open_and_close(void *argument)
{
    loch_status *status = argument;
    for (int i = 0; *status == LOCH_OK && i < 20; i++) {
        loch_device *device = NULL;
        *status = loch_device_open("opencl:0", &device);
        if (*status == LOCH_OK) *status = loch_device_sync(device);
        loch_device_release(device);
    }
    return NULL;
}

static void threads_open_and_close_a_device(void **state)
{
    (void)state;
    loch_status status[4] = {LOCH_OK, LOCH_OK, LOCH_OK, LOCH_OK};
    TEST_THREADS_RUN(open_and_close, status);
    for (size_t i = 0; i < 4; i++)
        CHECK_STATUS(status[i], LOCH_OK);
}

/* --- the end --- */

static int nothing_left(void)
{
    loch_device *device;
    loch_allocator *pool;
    void *block;
    LOCH_CHECK(loch_opencl_register());
    LOCH_CHECK(loch_device_open("opencl:0", &device));
    LOCH_CHECK(loch_pool_create(device, "leaks", NULL, &pool));
    LOCH_CHECK(loch_alloc(pool, 100000, &block));
    LOCH_CHECK(loch_fill(block, 100000, "x", 1));
    LOCH_CHECK(loch_free(pool, block));
    loch_allocator_release(pool);
    loch_device_release(device);
    return 0;
}

static int block_left(void)
{
    loch_device *device;
    loch_allocator *pool;
    void *block;
    LOCH_CHECK(loch_opencl_register());
    LOCH_CHECK(loch_device_open("opencl:0", &device));
    LOCH_CHECK(loch_pool_create(device, "leaks", NULL, &pool));
    LOCH_CHECK(loch_alloc(pool, 100000, &block));
    loch_allocator_release(pool); /* the device stays open, with a block and work on it */
    LOCH_CHECK(loch_fill_on(block, 100000, "x", 1, loch_stream_get_default(device)));
    return 0;
}

/* Runs this program again with LOCH_LEAKS=exit. Returns its exit code. */
static int run_leaks(const char *mode)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        setenv("LOCH_LEAKS", "exit", 1);
        const int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDERR_FILENO);
        execl("/proc/self/exe", "test_process", mode, (char *)NULL);
        _exit(201);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

static void leaks_are_found_on_opencl_devices(void **state)
{
    (void)state;
    assert_int_equal(run_leaks("nothing-left"), 0);
    const int code = run_leaks("block-left");
    assert_true(code != 0 && code < 200); /* listed, and the process ended by itself with work queued */
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_device_and_a_pool),
        cmocka_unit_test(threads_open_and_close_a_device),
        cmocka_unit_test(a_child_is_refused_and_the_parent_goes_on),
        cmocka_unit_test(a_machine_without_opencl_says_what_to_install),
        cmocka_unit_test(leaks_are_found_on_opencl_devices),
    };
    if (count > 1 && strcmp(arguments[1], "without") == 0) return without_opencl();
    if (count > 1 && strcmp(arguments[1], "nothing-left") == 0) return nothing_left();
    if (count > 1 && strcmp(arguments[1], "block-left") == 0) return block_left();
    opencl_need();
    return cmocka_run_group_tests_name("OpenCL in a process", tests, NULL, NULL);
}
