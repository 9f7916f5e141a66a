/* SPDX-License-Identifier: MIT */
/* Finding cuBLAS and NCCL: what is missing or wrong is one clear sentence, a failure leaves nothing behind, and a
 * library is found by the option's file or by the name that it carries when the process has it already. Loading is for
 * the life of the process, so the tests run in this order. */
#include "engine/cublas.h"
#include "engine/nccl.h"
#include "test.h"
#include <dlfcn.h>
#include <loch/library.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    loch_library library;
    const char *option, *environment, *files;
} rows[] = {{LOCH_LIBRARY_CUBLAS, "cublas", "LOCH_CUBLAS", "libcublas.so.13, libcublas.so.12, libcublas.so"},
            {LOCH_LIBRARY_NCCL, "nccl", "LOCH_NCCL", "libnccl.so.2, libnccl.so"}};

#define ROWS (sizeof rows / sizeof *rows)

static char fake[4096]; /* the file of fake_libraries.c, beside this program */

static void expect_sentence(const char *part)
{
    if (!strstr(loch_error_get()->sentence, part))
        fail_msg("\"%s\" is not in \"%s\"", part, loch_error_get()->sentence);
}

/* E_UNSUPPORTED by every way, twice, with `part` and the option in the sentence. */
static void expect_refused(size_t row, const char *part)
{
    for (int round = 0; round < 2; round++) {
        int version = 1;
        void *address = TEST_UNTOUCHED;
        CHECK_FAILS(loch_library_load(rows[row].library, &version), UNSUPPORTED);
        expect_sentence(part);
        expect_sentence(rows[row].environment);
        assert_int_equal(version, 0);
        CHECK_FAILS(loch_library_load(rows[row].library, NULL), UNSUPPORTED);
        CHECK_FAILS(loch_library_find(rows[row].library, "cos", &address), UNSUPPORTED);
        expect_sentence(part);
        assert_null(address);
    }
}

static void an_absent_library_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        CHECK_OK(loch_option_set(rows[i].option, "libthere-is-none.so.7"));
        expect_refused(i, "libthere-is-none.so.7");
        CHECK_OK(loch_option_set(rows[i].option, "/there/is/no/such.so"));
        expect_refused(i, "/there/is/no/such.so");
        CHECK_OK(loch_option_set(rows[i].option, NULL));
    }
}

/* Runs in a child, whose libraries end with it. Returns 0 if a library of this name is found and loads, 1 if it is
 * missing. */
static int find_really(size_t row)
{
    char files[64];
    snprintf(files, sizeof files, "%s", rows[row].files);
    void *handle = NULL;
    for (char *at = strtok(files, ", "); at && !handle; at = strtok(NULL, ", "))
        handle = dlopen(at, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return 1;
    int version = 0;
    void *address;
    if (loch_library_load(rows[row].library, &version) != LOCH_OK || version <= 0) return 2;
    return loch_library_find(rows[row].library, row ? "ncclAllReduce" : "cublasSgemm_v2", &address) == LOCH_OK ? 0 : 3;
}

/* A machine that has them finds them; one that does not names what it looked for. */
static void the_system_finds_a_library_or_its_names_are_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        int result = 0;
        CHECK_OK(loch_option_set(rows[i].option, ""));
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(find_really(i));
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFEXITED(result));
        assert_in_range(WEXITSTATUS(result), 0, 1);
        if (WEXITSTATUS(result) == 1) expect_refused(i, rows[i].files);
    }
}

static void a_file_that_is_no_library_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/loch-library-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, "this is text\n", 13), 13);
    close(file);
    for (size_t i = 0; i < ROWS; i++) {
        CHECK_OK(loch_option_set(rows[i].option, path));
        expect_refused(i, path);
    }
    unlink(path);
}

static void a_library_that_lacks_symbols_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        CHECK_OK(loch_option_set(rows[i].option, "libm.so.6"));
        expect_refused(i, i ? "libm.so.6 has no function ncclGetVersion" : "libm.so.6 has no function cublasCreate");
    }
}

/* Devices of other drivers are refused before a library is looked for: the option names none. */
static void devices_of_other_drivers_are_refused(void **state)
{
    (void)state;
    const char *const names[] = {"cpu", "sim:64MiB"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        loch_device *device;
        loch_stream *stream;
        CHECK_OK(loch_device_open(names[i], &device));
        CHECK_OK(loch_stream_create(device, NULL, &stream));
        loch_cublas *cublas = TEST_UNTOUCHED;
        CHECK_FAILS(loch_cublas_create(device, stream, &cublas), UNSUPPORTED);
        expect_sentence("works on CUDA devices");
        assert_null(cublas);
        loch_nccl *nccl = TEST_UNTOUCHED;
        CHECK_FAILS(lochi_nccl_create(&device, 1, &nccl), UNSUPPORTED);
        expect_sentence("works on CUDA devices");
        assert_null(nccl);
        loch_stream_close(stream);
        loch_device_release(device);
    }
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    loch_cublas *cublas = TEST_UNTOUCHED;
    loch_nccl *nccl = TEST_UNTOUCHED;
    loch_device *none = NULL;
    void *address = TEST_UNTOUCHED;
    int version = 1;
    CHECK_FAILS(loch_library_load((loch_library)7, &version), INVALID);
    CHECK_FAILS(loch_library_find((loch_library)7, "cos", &address), INVALID);
    CHECK_FAILS(loch_library_find(LOCH_LIBRARY_NCCL, NULL, &address), INVALID);
    CHECK_FAILS(loch_library_find(LOCH_LIBRARY_NCCL, "", &address), INVALID);
    CHECK_FAILS(loch_library_find(LOCH_LIBRARY_NCCL, "cos", NULL), INVALID);
    assert_null(address);
    CHECK_FAILS(loch_cublas_create(NULL, NULL, &cublas), INVALID);
    CHECK_FAILS(loch_cublas_create(NULL, NULL, NULL), INVALID);
    CHECK_FAILS(lochi_cublas_set_stream(NULL, NULL), INVALID);
    CHECK_FAILS(loch_cublas_get_native(NULL, &address), INVALID);
    CHECK_FAILS(lochi_nccl_create(NULL, 1, &nccl), INVALID);
    CHECK_FAILS(lochi_nccl_create(&none, 1, &nccl), INVALID);
    CHECK_FAILS(lochi_nccl_create(&none, 0, &nccl), INVALID);
    CHECK_FAILS(loch_nccl_get_native(NULL, 0, &address), INVALID);
    assert_null(cublas);
    assert_null(nccl);
    loch_cublas_destroy(NULL);
    lochi_nccl_destroy(NULL);
}

/* --- from here on they are loaded --- */

/* The library's own code and text; what failed can be tried again. */
static void an_error_of_the_library_itself_is_passed_on(void **state)
{
    (void)state;
    void *handle = dlopen(fake, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(handle);
    void (*fails)(int);
    void *address = dlsym(handle, "fake_nccl_fails");
    assert_non_null(address);
    memcpy(&fails, &address, sizeof fails);
    CHECK_OK(loch_option_set("nccl", fake));
    fails(3);
    int version = 1;
    CHECK_FAILS(loch_library_load(LOCH_LIBRARY_NCCL, &version), DRIVER);
    assert_string_equal(loch_error_get()->driver, "nccl");
    assert_int_equal(loch_error_get()->driver_code, 3);
    expect_sentence("the fake has had enough");
    assert_int_equal(version, 0);
    fails(0);
    CHECK_OK(loch_library_load(LOCH_LIBRARY_NCCL, &version));
    assert_int_equal(version, 22805);
    if (handle) dlclose(handle);
}

static void *load_in_thread(void *user)
{
    (void)user;
    int version = 0;
    return loch_library_load(LOCH_LIBRARY_CUBLAS, &version) == LOCH_OK && version > 120000 ? &fake : NULL;
}

/* What the process has already is found by its name, without a file, by any thread. */
static void a_library_that_is_loaded_is_found_by_its_name(void **state)
{
    (void)state;
    void *handle = dlopen(fake, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(handle);
    CHECK_OK(loch_option_set("cublas", ""));
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, load_in_thread, NULL), 0);
    for (size_t i = 0; i < 4; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &fake);
    }
    int version;
    CHECK_OK(loch_library_load(LOCH_LIBRARY_CUBLAS, &version));
    assert_int_equal(version, 12 * 10000 + 13 * 100 + 14);
    void *address;
    CHECK_OK(loch_library_find(LOCH_LIBRARY_CUBLAS, "cublasCreate_v2", &address));
    assert_ptr_equal(address, dlsym(handle, "cublasCreate_v2"));
    if (handle) dlclose(handle);
}

/* It stays, whatever the option says later. */
static void a_loaded_library_stays_whatever_the_option_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        CHECK_OK(loch_option_set(rows[i].option, "libthere-is-none.so.7"));
        CHECK_OK(loch_library_load(rows[i].library, NULL));
        void *address = TEST_UNTOUCHED;
        CHECK_FAILS(loch_library_find(rows[i].library, "cublasLookAndSee", &address), NOT_FOUND);
        expect_sentence("cublasLookAndSee");
        assert_null(address);
        CHECK_OK(loch_library_find(rows[i].library, "ncclGetVersion", &address));
        assert_non_null(address);
        CHECK_OK(loch_option_set(rows[i].option, NULL));
    }
    devices_of_other_drivers_are_refused(NULL);
    bad_arguments_are_refused(NULL);
}

static size_t blocks_before;

static int start(void **state)
{
    (void)state;
    loch_host_usage usage = {.size = sizeof usage};
    CHECK_OK(loch_host_get_usage(&usage));
    blocks_before = usage.blocks;
    return 0;
}

static int end(void **state)
{
    (void)state;
    loch_host_usage usage = {.size = sizeof usage};
    CHECK_OK(loch_host_get_usage(&usage));
    return usage.blocks == blocks_before ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_absent_library_is_named, start, end),
        cmocka_unit_test_setup_teardown(the_system_finds_a_library_or_its_names_are_told, start, end),
        cmocka_unit_test_setup_teardown(a_file_that_is_no_library_is_refused, start, end),
        cmocka_unit_test_setup_teardown(a_library_that_lacks_symbols_is_refused, start, end),
        cmocka_unit_test_setup_teardown(devices_of_other_drivers_are_refused, start, end),
        cmocka_unit_test_setup_teardown(bad_arguments_are_refused, start, end),
        cmocka_unit_test_setup_teardown(an_error_of_the_library_itself_is_passed_on, start, end),
        cmocka_unit_test_setup_teardown(a_library_that_is_loaded_is_found_by_its_name, start, end),
        cmocka_unit_test_setup_teardown(a_loaded_library_stays_whatever_the_option_says, start, end),
    };
    const ssize_t length = readlink("/proc/self/exe", fake, sizeof fake - 32);
    char *name = length > 0 ? strrchr(fake, '/') : NULL;
    if (!name) return 1;
    strcpy(name + 1, "fake_libraries.so");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
