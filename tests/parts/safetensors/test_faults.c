/* SPDX-License-Identifier: MIT */
/* Every call of the system that the library makes fails in turn, once and for good: host memory, files, mappings,
 * threads. Every failure is told, nothing is held afterwards, and the file of a failed save is the old one. Reads and
 * writes that signals interrupt or that come short are no failures. */
#include "safetensors_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* --- calls that fail; the linker puts these in the place of the functions --- */

static atomic_int fault_mode;
static _Atomic uint64_t fault_after, fault_calls;

/* A mode of its own: every second read and write is interrupted by a signal, the others come short. */
enum { INTERRUPTED = 100 };

static int fault_error(int error)
{
    return atomic_load(&fault_mode) == INTERRUPTED ? EINTR : error;
}

static size_t fault_shorten(size_t bytes)
{
    return atomic_load(&fault_mode) == INTERRUPTED && bytes > 1 ? bytes / 2 : bytes;
}

static bool fault_strikes(int error)
{
    if (!atomic_load(&fault_mode)) return false;
    if (atomic_load(&fault_mode) == INTERRUPTED) {
        errno = error;
        return error == EINTR && atomic_fetch_add(&fault_calls, 1) % 2 == 0;
    }
    const uint64_t number = atomic_fetch_add(&fault_calls, 1), after = atomic_load(&fault_after);
    const bool is_hit = atomic_load(&fault_mode) == TEST_FAILING_ONCE ? number == after : number >= after;
    if (is_hit) errno = error;
    return is_hit;
}

/* FAULT(result, function, (parameters), (arguments), value on failure, errno) */
#define FAULT(result, name, parameters, arguments, failed, error)                                                      \
    result __real_##name parameters;                                                                                   \
    result __wrap_##name parameters;                                                                                   \
    result __wrap_##name parameters                                                                                    \
    {                                                                                                                  \
        return fault_strikes(error) ? (failed) : __real_##name arguments;                                              \
    }

FAULT(void *, malloc, (size_t bytes), (bytes), NULL, ENOMEM)
FAULT(void *, calloc, (size_t count, size_t bytes), (count, bytes), NULL, ENOMEM)
FAULT(void *, realloc, (void *address, size_t bytes), (address, bytes), NULL, ENOMEM)
FAULT(char *, strdup, (const char *text), (text), NULL, ENOMEM)
FAULT(ssize_t, pread, (int file, void *to, size_t bytes, off_t offset), (file, to, fault_shorten(bytes), offset), -1,
      fault_error(EIO))
FAULT(ssize_t, write, (int file, const void *from, size_t bytes), (file, from, fault_shorten(bytes)), -1,
      fault_error(ENOSPC))
FAULT(void *, mmap, (void *at, size_t bytes, int protection, int flags, int file, off_t offset),
      (at, bytes, protection, flags, file, offset), MAP_FAILED, ENOMEM)
FAULT(int, fstat, (int file, struct stat *out), (file, out), -1, EIO)
FAULT(int, fsync, (int file), (file), -1, EIO)
FAULT(int, rename, (const char *from, const char *to), (from, to), -1, EACCES)
FAULT(int, pthread_create, (pthread_t * out, const pthread_attr_t *how, void *(*run)(void *), void *user),
      (out, how, run, user), EAGAIN, EAGAIN)

/* --- what runs under them --- */

#define OLD "{\"old\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"
#define ALLOWED (TEST_SET(HOST_MEMORY) | TEST_SET(IO) | TEST_SET(UNSUPPORTED) | TEST_SET(DEVICE_MEMORY))
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((status = (call)) != LOCH_OK) goto end;                                                                    \
    } while (0)

static char index_path[96];
static loch_device *fault_device;

static loch_status ignore(const loch_safetensors_info *info, void *user)
{
    (void)info, (void)user;
    return LOCH_OK;
}

/* Loads onto a device in pieces: a tensor, and two at a time on a stream. */
static loch_status run_device(const loch_safetensors *file)
{
    static const char *const names[] = {"odd", "long"};
    loch_tensor *tensors[2] = {NULL};
    loch_stream *stream = NULL;
    loch_status status;
    const loch_tensor_options there = {.size = sizeof there, .device = fault_device};
    const loch_safetensors_load_options options = {.size = sizeof options, .memory = &there};
    TRY(loch_safetensors_load(file, "odd", &options, &tensors[0]));
    TRY(loch_safetensors_load(file, "long", &options, &tensors[1]));
    TRY(loch_stream_create(fault_device, NULL, &stream));
    const loch_safetensors_load_options queued = {.size = sizeof queued, .stream = stream};
    TRY(loch_safetensors_copy_many(file, names, tensors, 2, &queued));
    TRY(loch_stream_sync(stream));
end:
    loch_tensor_release(tensors[0]);
    loch_tensor_release(tensors[1]);
    loch_stream_close(stream);
    return status;
}

/* Opens the file and the model, and loads in all ways. */
static loch_status run_load(const char *path)
{
    loch_safetensors *file = NULL;
    loch_tensor *view = NULL, *odd = NULL, *loaded = NULL;
    loch_status status;
    TRY(loch_safetensors_open(path, NULL, &file));
    TRY(loch_safetensors_walk(file, ignore, NULL));
    TRY(loch_safetensors_acquire_tensor(file, "even", &view));
    TRY(loch_safetensors_acquire_tensor(file, "odd", &odd));
    TRY(loch_safetensors_load(file, "odd", NULL, &loaded));
    TRY(loch_safetensors_copy(file, "even", odd, NULL));
    loch_tensor_clear(&loaded);
    TRY(loch_safetensors_load(file, "long", NULL, &loaded));
    TRY(run_device(file));
end:
    if (status != LOCH_OK && !file) assert_null(view);
    loch_tensor_release(view);
    loch_tensor_release(odd);
    loch_tensor_release(loaded);
    loch_safetensors_close(file);
    return status;
}

static loch_status run_save(loch_tensor *tensor)
{
    static const char *const names[] = {"new"}, *const keys[] = {"k"}, *const values[] = {"v"};
    const loch_safetensors_save_options options = {
        .size = sizeof options, .metadata_keys = keys, .metadata_values = values, .metadata_count = 1};
    return loch_safetensors_save(fixture_path, names, &tensor, 1, &options);
}

/* Runs a body until it gets through without meeting the fault. */
#define SWEEP(body, check)                                                                                             \
    for (int mode = TEST_FAILING_ONCE; mode <= TEST_FAILING_FOREVER; mode++)                                           \
        for (uint64_t after = 0;; after++) {                                                                           \
            assert_true(after < 10000);                                                                                \
            const int number = fixture_next_number();                                                                  \
            loch_error_clear();                                                                                        \
            atomic_store(&fault_calls, 0);                                                                             \
            atomic_store(&fault_after, after);                                                                         \
            atomic_store(&fault_mode, mode);                                                                           \
            const loch_status status = (body);                                                                         \
            atomic_store(&fault_mode, 0);                                                                              \
            assert_int_equal(fixture_next_number(), number);                                                           \
            if (status != LOCH_OK) test_check_fails(status, ALLOWED, #body, __FILE__, __LINE__);                       \
            check;                                                                                                     \
            if (atomic_load(&fault_calls) <= after) {                                                                  \
                assert_int_equal(status, LOCH_OK);                                                                     \
                assert_true(after > 5);                                                                                \
                break;                                                                                                 \
            }                                                                                                          \
        }

/* A file with a tensor at an even place, one at an odd place, and one that is long enough for several threads. */
static void make_file(void)
{
    enum { LONG = 17 << 20 };
    char header[300], index[200];
    const int length =
        snprintf(header, sizeof header,
                 "{\"__metadata__\":{\"a\":\"b\"},\"even\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                 "\"gap\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]},"
                 "\"odd\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[9,17]},"
                 "\"long\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[17,%d]}}",
                 LONG, LONG + 17);
    while (strlen(header) % 8)
        strcat(header, " ");
    assert_true(length > 0);
    fixture_make_counted(fixture_path, header, LONG + 17);
    snprintf(index_path, sizeof index_path, "%s/index", fixture_folder);
    snprintf(index, sizeof index,
             "{\"metadata\":{\"a\":1},\"weight_map\":{\"even\":\"a.safetensors\",\"odd\":\"a.safetensors\","
             "\"long\":\"a.safetensors\"}}");
    fixture_write(index_path, index, strlen(index));
}

static void a_failing_load_is_told(void **state)
{
    (void)state;
    make_file();
    CHECK_OK(loch_device_open("sim:256MiB", &fault_device));
    CHECK_OK(run_load(fixture_path)); /* makes default allocators */
    SWEEP(run_load(fixture_path), (void)0);
    loch_device_release(fault_device);
}

static void a_failing_model_is_told(void **state)
{
    (void)state;
    make_file();
    CHECK_OK(loch_device_open("sim:256MiB", &fault_device));
    CHECK_OK(run_load(index_path));
    SWEEP(run_load(index_path), (void)0);
    loch_device_release(fault_device);
}

/* Returns whether the file in the folder is the old one, and the only one. */
static bool is_old(void)
{
    loch_safetensors *file;
    loch_safetensors_info info = {.size = sizeof info};
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    const bool found = loch_safetensors_find(file, "old", &info) == LOCH_OK;
    loch_safetensors_close(file);
    assert_int_equal(fixture_clear(), 1);
    fixture_make_counted(fixture_path, OLD, 4);
    return found;
}

static void a_failing_save_leaves_the_old_file(void **state)
{
    (void)state;
    loch_tensor *tensor, *turned;
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(3, 4), NULL, &tensor));
    CHECK_OK(loch_tensor_fill(tensor, loch_scalar_of(2), NULL));
    CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &turned));
    fixture_make_counted(fixture_path, OLD, 4);
    CHECK_OK(run_save(turned));
    assert_false(is_old());
    SWEEP(run_save(turned), assert_int_equal(is_old(), status != LOCH_OK));
    loch_tensor_release(turned);
    loch_tensor_release(tensor);
}

static void interrupted_calls_go_on(void **state)
{
    (void)state;
    loch_safetensors *file = NULL;
    loch_tensor *loaded = NULL, *again = NULL;
    make_file();
    atomic_store(&fault_calls, 0);
    atomic_store(&fault_mode, INTERRUPTED);
    const loch_status opened = loch_safetensors_open(fixture_path, NULL, &file);
    const loch_status status = opened == LOCH_OK ? loch_safetensors_load(file, "long", NULL, &loaded) : opened;
    atomic_store(&fault_mode, 0);
    assert_int_equal(status, LOCH_OK);
    CHECK_OK(loch_safetensors_load(file, "long", NULL, &again));
    assert_memory_equal(loch_buffer_get_address(loch_tensor_get_buffer(loaded)),
                        loch_buffer_get_address(loch_tensor_get_buffer(again)), loch_tensor_get_bytes(again));
    loch_safetensors_close(file);
    const uint64_t reads = atomic_exchange(&fault_calls, 0);
    assert_true(reads > 30);
    atomic_store(&fault_mode, INTERRUPTED);
    const loch_status saved = run_save(loaded);
    atomic_store(&fault_mode, 0);
    assert_int_equal(saved, LOCH_OK);
    assert_true(atomic_load(&fault_calls) > 30);
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    loch_tensor_clear(&again);
    CHECK_OK(loch_safetensors_load(file, "new", NULL, &again));
    assert_memory_equal(loch_buffer_get_address(loch_tensor_get_buffer(loaded)),
                        loch_buffer_get_address(loch_tensor_get_buffer(again)), loch_tensor_get_bytes(again));
    loch_safetensors_close(file);
    loch_tensor_release(again);
    loch_tensor_release(loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_failing_load_is_told),
        FIXTURE_TEST(a_failing_model_is_told),
        FIXTURE_TEST(a_failing_save_leaves_the_old_file),
        FIXTURE_TEST(interrupted_calls_go_on),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}
