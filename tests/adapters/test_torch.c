/* SPDX-License-Identifier: MIT */
/* The PyTorch plug-in, loaded as PyTorch loads it and given simulated devices.
 *
 * It reads its settings once, so every set of them has a process of its own. The program shares libloch.so with the
 * plug-in: it makes the streams that PyTorch would make, and sees what the simulated devices saw. */
#include "support/test.h"
#include "support/worker.h"
#include "json_check.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    void *(*malloc)(size_t, int, void *);
    void *(*malloc_or_raise)(size_t, int, void *);
    void (*free)(void *, size_t, int, void *);
    void (*record_stream)(void *, void *);
    void (*empty_cache)(void);
    const char *(*stats_json)(void);
    void (*reset_peaks)(void);
} torch;

static void torch_find(void *library, const char *name, void *out)
{
    void *address = dlsym(library, name);
    if (!address) fail_msg("%s", dlerror());
    memcpy(out, &address, sizeof address);
}

/* LOCH_TORCH_LIBRARY, or the one of the build folder that this program lies in. */
static int torch_load(void **state)
{
    (void)state;
    char path[4096 + 64];
    const char *library_path = getenv("LOCH_TORCH_LIBRARY");
    if (!library_path) {
        const ssize_t length = readlink("/proc/self/exe", path, 4096);
        assert_true(length > 0);
        path[length] = 0;
        for (int i = 0; i < 3; i++)
            *strrchr(path, '/') = 0; /* build/tests/adapters/test_torch */
        strcat(path, "/lib/libloch_torch.so");
        library_path = path;
    }
    void *library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    torch_find(library, "loch_torch_malloc", &torch.malloc);
    torch_find(library, "loch_torch_malloc_or_raise", &torch.malloc_or_raise);
    torch_find(library, "loch_torch_free", &torch.free);
    torch_find(library, "loch_torch_record_stream", &torch.record_stream);
    torch_find(library, "loch_torch_empty_cache", &torch.empty_cache);
    torch_find(library, "loch_torch_stats_json", &torch.stats_json);
    torch_find(library, "loch_torch_reset_peaks", &torch.reset_peaks);
    return 0;
}

/* One figure out of the JSON. */
static uint64_t figure(const char *name)
{
    char key[64];
    const char *json = torch.stats_json();
    if (!json_is_valid(json)) fail_msg("not JSON: %s", json);
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(json, key);
    if (!at) {
        fail_msg("no %s in %s", name, json);
        return 0;
    }
    return strtoull(at + strlen(key), NULL, 10);
}

/* --- what it writes to stderr --- */

typedef struct listener {
    FILE *file;
    int saved;
    char text[8192];
} listener;

static void listen_begin(listener *ear)
{
    fflush(stderr);
    ear->file = tmpfile();
    assert_non_null(ear->file);
    ear->saved = dup(STDERR_FILENO);
    dup2(fileno(ear->file), STDERR_FILENO);
}

static const char *listen_end(listener *ear)
{
    fflush(stderr);
    dup2(ear->saved, STDERR_FILENO);
    close(ear->saved);
    rewind(ear->file);
    ear->text[fread(ear->text, 1, sizeof ear->text - 1, ear->file)] = 0;
    fclose(ear->file);
    return ear->text;
}

#define SAYS(words, call)                                                                                              \
    do {                                                                                                               \
        listener heard;                                                                                                \
        listen_begin(&heard);                                                                                          \
        call;                                                                                                          \
        if (!strstr(listen_end(&heard), words)) fail_msg("expected \"%s\" on stderr, got \"%s\"", words, heard.text);  \
    } while (0)

#define SAYS_NOTHING(call)                                                                                             \
    do {                                                                                                               \
        listener heard;                                                                                                \
        listen_begin(&heard);                                                                                          \
        call;                                                                                                          \
        assert_string_equal(listen_end(&heard), "");                                                                   \
    } while (0)

/* --- two simulated devices of 1 GiB --- */

static loch_device *device_open(int number)
{
    char name[64];
    loch_device *device = NULL;
    snprintf(name, sizeof name, "sim:1GiB,clock=stepped,id=%d", number); /* as in main: the same device */
    CHECK_OK(loch_device_open(name, &device));
    return device;
}

/* A stream that stays until the process ends, as PyTorch's do. */
static loch_stream *stream_create(loch_device *device)
{
    static loch_stream *kept[64];
    static int count;
    assert_true(count < 64);
    CHECK_OK(loch_stream_create(device, NULL, &kept[count]));
    return kept[count++];
}

static void blocks_are_counted(void **state)
{
    (void)state;
    torch.reset_peaks();
    const uint64_t calls = figure("driver_calls");
    void *a = torch.malloc(TEST_MIB, 0, NULL);
    void *b = torch.malloc(100, 0, NULL);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    assert_int_equal((uintptr_t)a % 256, 0);
    assert_int_equal((uintptr_t)b % 256, 0);
    assert_int_equal(figure("devices"), 1);
    assert_int_equal(figure("requested"), TEST_MIB + 100);
    assert_true(figure("allocated") >= TEST_MIB + 100);
    assert_true(figure("reserved") >= figure("allocated"));
    assert_int_equal(figure("allocs"), 2);
    assert_true(figure("driver_calls") > calls);
    assert_non_null(strstr(torch.stats_json(), "\"driver_calls_by_name\": {\""));

    SAYS_NOTHING(torch.free(a, 17, 0, NULL)); /* a wrong size is not looked at */
    SAYS_NOTHING(torch.free(b, 100, 0, NULL));
    assert_int_equal(figure("requested"), 0);
    assert_int_equal(figure("peak_requested"), TEST_MIB + 100);
    assert_true(figure("peak_reserved") >= TEST_MIB + 100);
    torch.reset_peaks();
    assert_int_equal(figure("peak_requested"), 0);
    assert_int_equal(figure("allocs"), 0);
}

static void nothing_is_no_block(void **state)
{
    (void)state;
    torch.reset_peaks();
    SAYS_NOTHING(assert_null(torch.malloc(0, 0, NULL)));
    SAYS_NOTHING(assert_null(torch.malloc_or_raise(0, 0, NULL)));
    SAYS_NOTHING(torch.free(NULL, 0, 0, NULL));
    SAYS_NOTHING(torch.record_stream(NULL, NULL));
    assert_int_equal(figure("allocs"), 0);
}

static void too_much_fails_with_a_reason(void **state)
{
    (void)state;
    SAYS("CUDA out of memory. Loch has no 2147483648 bytes on device 0: ",
         assert_null(torch.malloc(2 * TEST_GIB, 0, NULL)));
    assert_true(figure("failures") > 0);
    void *block = torch.malloc(TEST_MIB, 0, NULL);
    assert_non_null(block);
    torch.free(block, TEST_MIB, 0, NULL);
}

static void wrong_frees_are_reported(void **state)
{
    (void)state;
    void *kept = torch.malloc(TEST_MIB, 0, NULL), *block = torch.malloc(TEST_MIB, 0, NULL);
    torch.free(block, TEST_MIB, 0, NULL);
    SAYS("Loch could not free", torch.free(block, TEST_MIB, 0, NULL));
    SAYS("Loch could not free", torch.free((char *)kept + 256, TEST_MIB, 0, NULL));
    SAYS("Loch could not free", torch.free(&block, TEST_MIB, 0, NULL));
    SAYS("nothing was handed out on device 77", torch.free(kept, TEST_MIB, 77, NULL));
    assert_int_equal(figure("requested"), TEST_MIB);
    SAYS_NOTHING(torch.free(kept, TEST_MIB, 0, NULL));
    assert_int_equal(figure("requested"), 0);
}

static void wrong_devices_and_streams_fail(void **state)
{
    (void)state;
    SAYS("no device number -1", assert_null(torch.malloc(1, -1, NULL)));
    SAYS("no device number 128", assert_null(torch.malloc(1, 128, NULL)));
    SAYS("is not a stream", assert_null(torch.malloc(1, 0, (void *)(uintptr_t)0xbad0)));
}

static void empty_cache_gives_back(void **state)
{
    (void)state;
    void *block = torch.malloc(64 * TEST_MIB, 0, NULL);
    assert_non_null(block);
    torch.free(block, 0, 0, NULL);
    SAYS_NOTHING(torch.empty_cache());
    assert_true(figure("reserved") < 64 * TEST_MIB);
}

static void launch(loch_stream *stream, void *block, size_t bytes, uint64_t duration_ns)
{
    const loch_sim_range range = {block, bytes};
    const loch_sim_kernel kernel = {
        .size = sizeof kernel, .writes = &range, .writes_count = 1, .duration_ns = duration_ns};
    CHECK_OK(loch_sim_launch(stream, &kernel));
}

static size_t violations(loch_device *device)
{
    size_t count = 0;
    CHECK_OK(test_sim_violations(device, NULL, 0, &count));
    CHECK_OK(loch_sim_clear_violations(device));
    return count;
}

/* A block of one stream that another one is still writing when it is freed; returns what the checker found. */
static size_t use_elsewhere(int number, bool is_recorded)
{
    loch_device *device = device_open(number);
    loch_stream *own = stream_create(device), *other = stream_create(device);
    void *own_native = loch_stream_get_native(own), *other_native = loch_stream_get_native(other);
    loch_event *made = NULL;
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &made));

    void *block = torch.malloc(TEST_MIB, number, own_native);
    assert_non_null(block);
    launch(own, block, TEST_MIB, 1000);
    CHECK_OK(loch_event_record(made, own));
    CHECK_OK(loch_stream_wait(other, made));
    launch(other, block, TEST_MIB, 1000000);
    if (is_recorded) torch.record_stream(block, other_native);
    torch.free(block, TEST_MIB, number, own_native);
    void *again = torch.malloc(TEST_MIB, number, own_native);
    assert_non_null(again);
    launch(own, again, TEST_MIB, 1000);
    torch.free(again, TEST_MIB, number, own_native);
    const size_t found = violations(device);

    CHECK_OK(loch_device_sync(device));
    loch_event_destroy(made);
    loch_device_release(device);
    return found;
}

static void a_free_waits_for_recorded_streams(void **state)
{
    (void)state;
    SAYS_NOTHING(assert_int_equal(use_elsewhere(0, true), 0));
    assert_int_not_equal(use_elsewhere(0, false), 0); /* so the check above can fail */
}

static void memory_from_elsewhere_is_left_alone(void **state)
{
    (void)state;
    int on_stack;
    SAYS_NOTHING(torch.record_stream(&on_stack, NULL));
}

static void devices_have_figures_of_their_own(void **state)
{
    (void)state;
    void *first = torch.malloc(TEST_MIB, 0, NULL), *second = torch.malloc(2 * TEST_MIB, 1, NULL);
    assert_non_null(first);
    assert_non_null(second);
    assert_int_equal(figure("devices"), 2);
    assert_int_equal(figure("requested"), 3 * TEST_MIB);
    SAYS("Loch could not free", torch.free(second, 0, 0, NULL));
    torch.free(first, 0, 0, NULL);
    torch.free(second, 0, 1, NULL);
    assert_int_equal(figure("requested"), 0);
    SAYS_NOTHING(assert_int_equal(use_elsewhere(1, true), 0)); /* the device is found from the address */
}

/* --- threads --- */

#define WORKERS 4
#define ROUNDS 2000

typedef struct worker {
    int number;
    void *native;
    _Atomic(void *) *mailbox; /* a block for the next allocation */
    char failure[300];
} worker;

static void work_rounds(worker *w)
{
    test_random random = {(uint64_t)w->number};
    void *held[8] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        void **slot = &held[test_random_below(&random, 8)];
        if (*slot) *slot = atomic_exchange(w->mailbox, *slot); /* another thread's, or nothing */
        if (*slot) torch.free(*slot, 0, 0, w->native);
        *slot = torch.malloc(1 + test_random_below(&random, 64 * TEST_KIB), 0, w->native);
        EXPECT(*slot);
        if (i % 16 == 0) torch.record_stream(*slot, w->native);
        if (i % 256 == 0) EXPECT(json_is_valid(torch.stats_json()));
        if (w->number == 0 && i % 128 == 0) torch.empty_cache();
    }
    for (int i = 0; i < 8; i++)
        torch.free(held[i], 0, 0, w->native);
}

static void *work(void *user)
{
    work_rounds(user);
    return NULL;
}

static void threads_allocate_and_free_each_others_blocks(void **state)
{
    (void)state;
    static worker workers[WORKERS];
    static _Atomic(void *) mailbox;
    loch_device *device = device_open(0);
    for (int i = 0; i < WORKERS; i++) {
        void *native = loch_stream_get_native(stream_create(device));
        workers[i] = (worker){.number = i, .native = native, .mailbox = &mailbox};
    }
    TEST_THREADS_RUN(work, workers);
    for (int i = 0; i < WORKERS; i++)
        assert_string_equal(workers[i].failure, "");
    torch.free(atomic_load(&mailbox), 0, 0, NULL);
    assert_int_equal(figure("requested"), 0);
    assert_int_equal(figure("blocks"), 0);
    loch_device_release(device);
}

/* --- exceptions: no frame here catches them, so the C++ library calls the terminate handler that was set --- */

#define UNCAUGHT 42

static void leave(void)
{
    _exit(UNCAUGHT);
}

static void failure_raises_where_there_is_cxx(void **state)
{
    (void)state;
    if (!dlopen("libstdc++.so.6", RTLD_NOW | RTLD_NOLOAD)) /* some sanitizers bring it */
        SAYS("CUDA out of memory. Loch has no", assert_null(torch.malloc_or_raise(2 * TEST_GIB, 0, NULL)));
    void *library = dlopen("libstdc++.so.6", RTLD_NOW);
    if (!library) skip();
    void *(*set_terminate)(void (*)(void));
    torch_find(library, "_ZSt13set_terminatePFvvE", &set_terminate);
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        set_terminate(leave);
        torch.malloc_or_raise(2 * TEST_GIB, 0, NULL);
        _exit(0);
    }
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), UNCAUGHT);
}

/* --- other settings --- */

static void the_limit_option_refuses_what_is_above_it(void **state)
{
    (void)state;
    SAYS("CUDA out of memory. ", assert_null(torch.malloc(128 * TEST_MIB, 0, NULL)));
    void *block = torch.malloc(32 * TEST_MIB, 0, NULL);
    assert_non_null(block);
    SAYS("CUDA out of memory. ", assert_null(torch.malloc(48 * TEST_MIB, 0, NULL)));
    torch.free(block, 0, 0, NULL);
}

static void bad_limit_is_named(void **state)
{
    (void)state;
    SAYS("LOCH_TORCH_LIMIT takes a size like 40GiB, not \"", assert_null(torch.malloc(1, 0, NULL)));
}

static void one_name_is_one_device(void **state)
{
    (void)state;
    SAYS("names one device", assert_null(torch.malloc(1, 1, NULL)));
    void *block = torch.malloc(1, 0, NULL);
    assert_non_null(block);
    torch.free(block, 1, 0, NULL);
}

static void missing_device_is_named(void **state)
{
    (void)state;
    SAYS("on device 0: ", assert_null(torch.malloc(1, 0, NULL)));
    assert_int_equal(figure("devices"), 0);
}

static void *left_over;

static void free_at_exit(void)
{
    torch.free(left_over, 1, 0, NULL);
    torch.empty_cache();
}

/* As PyTorch's static destructors do; the process has to end well. */
static void frees_work_at_exit(void **state)
{
    (void)state;
    left_over = torch.malloc(TEST_MIB, 0, NULL);
    assert_non_null(left_over);
    assert_int_equal(atexit(free_at_exit), 0);
}

#define RUN(device, limit, tests) run(device, limit, #tests, tests, sizeof tests / sizeof *tests)

/* Runs the tests in a process with these settings. Returns whether they passed and it ended well. */
static int run(const char *device, const char *limit, const char *name, const struct CMUnitTest *tests, size_t count)
{
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        setenv("LOCH_TORCH_DEVICE", device, 1);
        if (limit) setenv("LOCH_TORCH_LIMIT", limit, 1);
        if (!limit) unsetenv("LOCH_TORCH_LIMIT");
        exit(_cmocka_run_group_tests(name, tests, count, torch_load, NULL) != 0);
    }
    int result = 1;
    if (child < 0 || waitpid(child, &result, 0) != child) return 0;
    return WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

int main(void)
{
    const struct CMUnitTest two_devices[] = {
        cmocka_unit_test(blocks_are_counted),
        cmocka_unit_test(nothing_is_no_block),
        cmocka_unit_test(too_much_fails_with_a_reason),
        cmocka_unit_test(wrong_frees_are_reported),
        cmocka_unit_test(wrong_devices_and_streams_fail),
        cmocka_unit_test(empty_cache_gives_back),
        cmocka_unit_test(a_free_waits_for_recorded_streams),
        cmocka_unit_test(memory_from_elsewhere_is_left_alone),
        cmocka_unit_test(devices_have_figures_of_their_own),
        cmocka_unit_test(threads_allocate_and_free_each_others_blocks),
        cmocka_unit_test(failure_raises_where_there_is_cxx),
        cmocka_unit_test(frees_work_at_exit),
    };
    const struct CMUnitTest limited[] = {cmocka_unit_test(the_limit_option_refuses_what_is_above_it)};
    const struct CMUnitTest badly_limited[] = {cmocka_unit_test(bad_limit_is_named)};
    const struct CMUnitTest one_device[] = {cmocka_unit_test(one_name_is_one_device)};
    const struct CMUnitTest no_device[] = {cmocka_unit_test(missing_device_is_named)};
    int is_good = RUN("sim:1GiB,clock=stepped,id=%d", NULL, two_devices);
    is_good &= RUN("sim:1GiB,id=%d", "64MiB", limited);
    is_good &= RUN("sim:1GiB,id=%d", "67108864", limited);
    is_good &= RUN("sim:1GiB,id=%d", "64M", limited);
    is_good &= RUN("sim:1GiB,id=%d", "soon", badly_limited);
    is_good &= RUN("sim:1GiB,id=%d", "64 MiB", badly_limited);
    is_good &= RUN("sim:1GiB,id=%d", "99999999T", badly_limited);
    is_good &= RUN("sim:1GiB", NULL, one_device);
    is_good &= RUN("moon:%d", NULL, no_device);
    return !is_good;
}
