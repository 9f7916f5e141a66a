/* SPDX-License-Identifier: MIT */
/* .npy files: what NumPy wrote is read and written alike, round trips of all types and layouts, mappings, and
 * everything fails in turn. */
#include "npy_cases.h"
#include "npy_fixture.h"
#include "sim_fixture.h"
#include "sweep.h"
#include <signal.h>

#define CASES (sizeof npy_cases / sizeof *npy_cases)

static loch_npy_load_options mapping(loch_npy_mapping how)
{
    return (loch_npy_load_options){.size = sizeof(loch_npy_load_options), .mapping = how};
}

/* What is -2 to an unsigned type. */
static double wrap_around(double value, loch_dtype dtype)
{
    if (value >= 0) return value;
    return dtype == LOCH_U8    ? value + 256
           : dtype == LOCH_U16 ? value + 65536
           : dtype == LOCH_U32 ? value + 4294967296.
           : dtype == LOCH_U64 ? value + 18446744073709551616.
                               : value;
}

static void expect_case(loch_tensor *tensor, const npy_case *what)
{
    assert_int_equal(loch_tensor_get_dtype(tensor), what->dtype);
    assert_int_equal(loch_tensor_get_dimensions(tensor), what->dimensions);
    for (size_t i = 0; i < what->dimensions; i++)
        assert_int_equal(loch_tensor_get_shape(tensor)[i], what->shape[i]);
    for (size_t i = 0; i < loch_tensor_get_elements(tensor); i++) {
        const double expected = what->dtype == LOCH_BOOL ? i % 3 == 0 : wrap_around(3. * (double)i - 2, what->dtype);
        assert_true(item(tensor, i, what->is_columns) == expected);
    }
}

static size_t make_case(const npy_case *what, int version, char *out)
{
    const size_t more = version == 1 ? 0 : 64;
    const size_t header = npy_make_header(out, version, what->dict, strlen(what->dict), what->header_bytes + more);
    memcpy(out + header, what->data, what->data_bytes);
    return header + what->data_bytes;
}

static void files_of_numpy_are_read(void **state)
{
    (void)state;
    char file[1024];
    for (size_t i = 0; i < CASES; i++) {
        for (int version = 1; version <= 3; version++) {
            const npy_case *what = &npy_cases[i];
            const bool is_swapped = strchr(what->dict, '>') != NULL;
            const size_t bytes = make_case(what, version, file);
            npy_put_file(npy_path, file, bytes);
            for (loch_npy_mapping how = LOCH_NPY_MAP_AUTO; how <= LOCH_NPY_MAP_REQUIRE; how++) {
                const loch_npy_load_options options = mapping(how);
                if (how == LOCH_NPY_MAP_REQUIRE && is_swapped) continue;
                loch_tensor *tensor = load(&options);
                expect_case(tensor, what);
                loch_tensor_release(tensor);
            }
        }
    }
}

/* Byte for byte what NumPy writes; the big-endian ones are written in this machine's order. */
static void files_are_written_as_by_numpy(void **state)
{
    (void)state;
    char expected[1024];
    for (size_t i = 0; i < CASES; i++) {
        const npy_case *what = &npy_cases[i];
        if (strchr(what->dict, '>')) continue;
        const size_t length = make_case(what, 1, expected);
        npy_put_file(npy_path, expected, length);
        loch_tensor *tensor = load(NULL);
        unlink(npy_path);
        CHECK_OK(loch_npy_save(tensor, npy_path, NULL));
        loch_tensor_release(tensor);
        size_t bytes;
        char *written = npy_get_file(npy_path, &bytes);
        assert_int_equal(bytes, length);
        assert_memory_equal(written, expected, length);
        free(written);
    }
}

/* --- round trips --- */

static void expect_equal(loch_tensor *a, loch_tensor *b)
{
    const size_t bytes = loch_tensor_get_bytes(a);
    assert_int_equal(loch_tensor_get_dtype(a), loch_tensor_get_dtype(b));
    assert_int_equal(loch_tensor_get_dimensions(a), loch_tensor_get_dimensions(b));
    for (size_t i = 0; i < loch_tensor_get_dimensions(a); i++)
        assert_int_equal(loch_tensor_get_shape(a)[i], loch_tensor_get_shape(b)[i]);
    char *x = malloc(bytes + 1), *y = malloc(bytes + 1);
    assert_true(x && y);
    CHECK_OK(loch_tensor_read(a, x, bytes, NULL));
    CHECK_OK(loch_tensor_read(b, y, bytes, NULL));
    assert_memory_equal(x, y, bytes);
    free(x);
    free(y);
}

static void round_trip(loch_tensor *tensor, const loch_tensor_options *memory)
{
    const loch_npy_save_options raw = {.size = sizeof raw, .as_bits = 1};
    loch_npy_load_options options = {.size = sizeof options, .dtype = loch_tensor_get_dtype(tensor), .memory = memory};
    CHECK_OK(loch_npy_save(tensor, npy_path, &raw));
    for (options.mapping = LOCH_NPY_MAP_AUTO; options.mapping <= LOCH_NPY_MAP_NEVER; options.mapping++) {
        loch_tensor *back = load(&options);
        expect_equal(tensor, back);
        loch_tensor_release(back);
    }
}

/* A tensor and views of it that lie in rows, in columns, and in neither. */
static void round_trips_of_layouts(loch_tensor *tensor, const loch_tensor_options *memory)
{
    loch_tensor *view;
    round_trip(tensor, memory);
    CHECK_OK(loch_tensor_permute(tensor, 3, (int[]){2, 1, 0}, &view));
    round_trip(view, memory);
    loch_tensor_release(view);
    CHECK_OK(loch_tensor_permute(tensor, 3, (int[]){1, 2, 0}, &view));
    round_trip(view, memory);
    loch_tensor_release(view);
    CHECK_OK(loch_tensor_slice(tensor, 1, LOCH_OPEN, LOCH_OPEN, -2, &view));
    round_trip(view, memory);
    loch_tensor_release(view);
    CHECK_OK(loch_tensor_slice(tensor, 2, 1, 1, 1, &view));
    round_trip(view, memory);
    loch_tensor_release(view);
    CHECK_OK(loch_tensor_unsqueeze(tensor, 1, &view));
    round_trip(view, memory);
    loch_tensor_release(view);
}

static void round_trips_on(const char *name)
{
    loch_device *device = sim_open(name);
    const loch_tensor_options memory = memory_on(device);
    for (loch_dtype dtype = LOCH_F64; dtype < LOCH_DTYPE_COUNT; dtype++) {
        loch_tensor *tensor = make_tensor(dtype, LOCH_SHAPE(3, 4, 5), &memory);
        round_trips_of_layouts(tensor, &memory);
        round_trips_of_layouts(tensor, NULL);
        loch_tensor_release(tensor);
        tensor = make_tensor(dtype, LOCH_SCALAR, &memory);
        round_trip(tensor, &memory);
        loch_tensor_release(tensor);
    }
    loch_allocator_release(memory.allocator);
    loch_device_release(device);
}

static void round_trips_on_the_host(void **state)
{
    (void)state;
    round_trips_on("cpu");
}

static void round_trips_on_a_device(void **state)
{
    (void)state;
    round_trips_on("sim:64MiB,backed");
}

/* More than one piece, with rows that fit and rows that do not. */
static void large_tensors_go_in_pieces(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,backed");
    const loch_tensor_options memory = memory_on(device);
    loch_tensor *tensor = make_tensor(LOCH_F32, LOCH_SHAPE(2, 3, 500001), &memory), *view;
    round_trip(tensor, &memory);
    CHECK_OK(loch_tensor_slice(tensor, 2, 1, LOCH_OPEN, 1, &view));
    round_trip(view, &memory);
    loch_tensor_release(view);
    CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &view));
    round_trip(view, NULL);
    loch_tensor_release(view);
    loch_tensor_release(tensor);
    loch_allocator_release(memory.allocator);
    loch_device_release(device);
}

static void elements_that_share_a_place_are_written_out(void **state)
{
    (void)state;
    float one = 1.5F;
    loch_tensor *tensor, *wide;
    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SCALAR, &one, NULL, &tensor));
    CHECK_OK(loch_tensor_expand(tensor, LOCH_SHAPE(3, 4), &wide));
    round_trip(wide, NULL);
    loch_tensor_release(wide);
    loch_tensor_release(tensor);
}

/* --- files --- */

static void files_that_are_too_short_or_too_long_are_told(void **state)
{
    (void)state;
    char file[1024];
    const npy_case *what = &npy_cases[0];
    const size_t bytes = make_case(what, 1, file);
    for (size_t length = 0; length < bytes; length++) {
        npy_put_file(npy_path, file, length);
        LOAD_FAILS(NULL, CORRUPT);
        char missing[64];
        snprintf(missing, sizeof missing, "%zu of %zu bytes", bytes - length, what->data_bytes);
        if (length >= what->header_bytes) assert_non_null(strstr(loch_error_get()->sentence, missing));
    }
    memset(file + bytes, 'x', 100);
    npy_put_file(npy_path, file, bytes + 100);
    loch_tensor *tensor = load(NULL);
    expect_case(tensor, what);
    loch_tensor_release(tensor);
}

static void what_is_no_npy_file_is_refused(void **state)
{
    (void)state;
    npy_put_file(npy_path, "hello, world, this is no .npy file", 34);
    LOAD_FAILS(NULL, CORRUPT);
    npy_put_file(npy_path, "PK\3\4........", 12);
    LOAD_FAILS(NULL, CORRUPT);
    assert_non_null(strstr(loch_error_get()->sentence, "archive"));
    npy_put_file(npy_path, "\x93NUMPY\4\0....", 12);
    LOAD_FAILS(NULL, UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "4.0"));
    npy_put_file(npy_path, "\x93NUMPY\1\1....", 12);
    LOAD_FAILS(NULL, UNSUPPORTED);
    unlink(npy_path);
    LOAD_FAILS(NULL, NOT_FOUND);
    loch_tensor *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_npy_load(npy_folder, NULL, &none), IO);
    assert_null(none);
}

static void bad_calls_are_refused(void **state)
{
    (void)state;
    char data = 0;
    loch_tensor *tensor, *none;
    put_dict("{'descr': '|i1', 'fortran_order': False, 'shape': (2,)}", 2);
    CHECK_FAILS(loch_npy_load(NULL, NULL, &none), INVALID);
    CHECK_FAILS(loch_npy_load(npy_path, NULL, NULL), INVALID);
    loch_npy_load_options options = {.size = 0};
    LOAD_FAILS(&options, INVALID);
    options = mapping((loch_npy_mapping)3);
    LOAD_FAILS(&options, INVALID);
    options = mapping(LOCH_NPY_MAP_AUTO);
    options.access = (loch_access)2;
    LOAD_FAILS(&options, INVALID);
    options.access = LOCH_READ_WRITE;
    options.dtype = LOCH_DTYPE_COUNT;
    LOAD_FAILS(&options, INVALID);
    const loch_tensor_options unsized = {.size = 0};
    options = mapping(LOCH_NPY_MAP_AUTO);
    options.memory = &unsized;
    LOAD_FAILS(&options, INVALID);
    CHECK_OK(loch_tensor_wrap(LOCH_I8, LOCH_SCALAR, &data, NULL, &tensor));
    CHECK_FAILS(loch_npy_save(tensor, NULL, NULL), INVALID);
    CHECK_FAILS(loch_npy_save(NULL, npy_path, NULL), INVALID);
    CHECK_FAILS(loch_npy_save(tensor, npy_path, &(loch_npy_save_options){.size = 0}), INVALID);
    loch_tensor_release(tensor);
}

static void types_that_numpy_lacks_are_saved_as_raw_bytes(void **state)
{
    (void)state;
    loch_npy_load_options options = mapping(LOCH_NPY_MAP_AUTO);
    loch_tensor *tensor;
    uint16_t data[2] = {0x3fc0, 0x4000}; /* 1.5 and 2 as bf16 */
    CHECK_OK(loch_tensor_wrap(LOCH_BF16, LOCH_SHAPE(2), data, NULL, &tensor));
    CHECK_FAILS(loch_npy_save(tensor, npy_path, NULL), UNSUPPORTED);
    assert_int_equal(npy_count_files(), 0);
    const loch_npy_save_options raw = {.size = sizeof raw, .as_bits = 1};
    CHECK_OK(loch_npy_save(tensor, npy_path, &raw));
    loch_tensor_release(tensor);
    LOAD_FAILS(&options, UNSUPPORTED);
    options.dtype = LOCH_F8E4M3;
    LOAD_FAILS(&options, INVALID);
    options.dtype = LOCH_BF16;
    tensor = load(&options);
    assert_int_equal(loch_tensor_get_dtype(tensor), LOCH_BF16);
    assert_true(item(tensor, 0, false) == 1.5 && item(tensor, 1, false) == 2);
    loch_tensor_release(tensor);
    put_dict("{'descr': '>V2', 'fortran_order': False, 'shape': ()}", 0);
    FILE *file = fopen(npy_path, "ae");
    assert_int_equal(fwrite("\x3f\xc0", 1, 2, file), 2);
    fclose(file);
    tensor = load(&options);
    assert_true(item(tensor, 0, false) == 1.5);
    loch_tensor_release(tensor);
    put_dict("{'descr': '<f1', 'fortran_order': False, 'shape': (3,)}", 3);
    tensor = load(NULL); /* as ml_dtypes writes it */
    assert_int_equal(loch_tensor_get_dtype(tensor), LOCH_F8E5M2);
    loch_tensor_release(tensor);
}

/* --- mappings --- */

static void a_mapped_file_is_read_in_place(void **state)
{
    (void)state;
    char file[1024];
    const npy_case *what = &npy_cases[1];
    const size_t bytes = make_case(what, 1, file);
    npy_put_file(npy_path, file, bytes);
    loch_npy_load_options options = mapping(LOCH_NPY_MAP_REQUIRE);
    const loch_tensor_options named = {.size = sizeof named, .name = "mapped"};
    options.memory = &named;
    loch_tensor *tensor = load(&options);
    assert_string_equal(loch_tensor_get_name(tensor), "mapped");
    assert_null(loch_buffer_get_allocator(loch_tensor_get_buffer(tensor)));
    /* what is written stays with the tensor */
    CHECK_OK(loch_tensor_write_item(tensor, 2, (int64_t[]){0, 0}, loch_scalar_of(99), NULL));
    assert_true(item(tensor, 0, false) == 99);
    size_t length;
    char *now = npy_get_file(npy_path, &length);
    assert_memory_equal(now, file, bytes);
    free(now);
    loch_tensor_release(tensor);
    options.access = LOCH_READ_ONLY;
    tensor = load(&options);
    assert_int_equal(loch_tensor_get_access(tensor), LOCH_READ_ONLY);
    CHECK_FAILS(loch_tensor_write_item(tensor, 2, (int64_t[]){0, 0}, loch_scalar_of(99), NULL), INVALID);
    /* the file may go: the mapping holds it, and saving over it is no harm */
    CHECK_OK(loch_npy_save(tensor, npy_path, NULL));
    unlink(npy_path);
    expect_case(tensor, what);
    loch_tensor_release(tensor);
    npy_put_file(npy_path, file, bytes);
    options = mapping(LOCH_NPY_MAP_NEVER);
    tensor = load(&options);
    assert_non_null(loch_buffer_get_allocator(loch_tensor_get_buffer(tensor)));
    loch_tensor_release(tensor);
}

static void what_cannot_be_mapped_is_told(void **state)
{
    (void)state;
    loch_device *cpu = sim_open("cpu"), *sim = sim_open("sim:64MiB,backed");
    const loch_tensor_options pool = memory_on(cpu), elsewhere = {.size = sizeof elsewhere, .device = sim};
    const loch_tensor_options aligned = {.size = sizeof aligned, .alignment = TEST_MIB};
    const loch_tensor_options at_home = {.size = sizeof at_home, .device = cpu};
    loch_npy_load_options options = mapping(LOCH_NPY_MAP_REQUIRE);
    put_dict("{'descr': '<i2', 'fortran_order': False, 'shape': (3,) }", 6); /* 64 bytes before the data */
    options.memory = &pool;
    LOAD_FAILS(&options, UNSUPPORTED);
    options.memory = &elsewhere;
    LOAD_FAILS(&options, UNSUPPORTED);
    options.memory = &aligned;
    LOAD_FAILS(&options, UNSUPPORTED);
    options.memory = &at_home;
    loch_tensor *tensor = load(&options);
    assert_ptr_equal(loch_tensor_get_device(tensor), cpu);
    loch_tensor_release(tensor);
    options.memory = NULL;
    put_dict("{'descr': '<i2', 'fortran_order': False, 'shape': (3,)}", 6); /* 65 */
    LOAD_FAILS(&options, UNSUPPORTED);
    tensor = load(NULL);
    assert_non_null(loch_buffer_get_allocator(loch_tensor_get_buffer(tensor)));
    assert_true(item(tensor, 2, false) == 257);
    loch_tensor_release(tensor);
    put_dict("{'descr': '>i2', 'fortran_order': False, 'shape': (3,) }", 6);
    LOAD_FAILS(&options, UNSUPPORTED);
    put_dict("{'descr': '<i2', 'fortran_order': False, 'shape': (0,) }", 0);
    tensor = load(&options);
    assert_int_equal(loch_tensor_get_elements(tensor), 0);
    loch_tensor_release(tensor);
    loch_allocator_release(pool.allocator);
    loch_device_release(sim);
    loch_device_release(cpu);
}

/* --- everything fails in turn --- */

static loch_status save_and_load(loch_device *device)
{
    static float data[60];
    loch_allocator *allocator = NULL;
    loch_tensor *tensor = NULL, *turned = NULL, *back = NULL;
    loch_tensor_options memory = {.size = sizeof memory};
    const loch_npy_load_options options = {.size = sizeof options, .memory = &memory};
    loch_status status = loch_direct_create(device, "direct", NULL, &allocator);
    memory.allocator = allocator;
    if (status == LOCH_OK) status = loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(3, 4, 5), data, NULL, &tensor);
    if (status == LOCH_OK) status = loch_tensor_permute(tensor, 3, (int[]){1, 0, 2}, &turned);
    if (status == LOCH_OK) status = loch_npy_save(turned, npy_path, NULL);
    if (status == LOCH_OK) status = loch_npy_load(npy_path, NULL, &back);
    loch_tensor_clear(&back);
    loch_tensor_clear(&turned);
    if (status == LOCH_OK) status = loch_tensor_permute(tensor, 3, (int[]){2, 1, 0}, &turned);
    if (status == LOCH_OK) status = loch_npy_save(turned, npy_path, NULL);
    if (status == LOCH_OK) status = loch_npy_load(npy_path, &options, &back);
    if (status == LOCH_OK) status = loch_npy_save(back, npy_path, NULL);
    loch_tensor_release(back);
    loch_tensor_release(turned);
    loch_tensor_release(tensor);
    loch_allocator_release(allocator);
    assert_true(npy_count_files() <= 1);
    return status;
}

static loch_status save_and_load_once(const void *user)
{
    (void)user;
    loch_device *device;
    loch_status status = loch_device_open("sim:64MiB,backed", &device);
    if (status != LOCH_OK) return status;
    status = save_and_load(device);
    loch_device_release(device);
    return status;
}

static void files_survive_failing_host_memory(void **state)
{
    (void)state;
    test_host_sweep(save_and_load_once, NULL);
}

static void files_survive_failing_driver_calls(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_sim_fault fault = {.size = sizeof fault};
    size_t felt = 0, unfelt = 0;
    CHECK_OK(save_and_load(device));
    for (; unfelt < 20; fault.after++) { /* a few calls in a row may be of the kind that never fails */
        CHECK_OK(loch_sim_set_fault(device, &fault));
        loch_error_clear();
        const loch_status status = save_and_load(device);
        CHECK_OK(loch_sim_set_fault(device, NULL));
        if (status != LOCH_OK) {
            test_check_fails(status, TEST_SET(DRIVER) | TEST_SET(DEVICE_MEMORY), "save and load", __FILE__, __LINE__);
            felt++;
            unfelt = 0;
        } else {
            unfelt++;
        }
        CHECK_OK(save_and_load(device));
    }
    assert_true(felt > 2);
    loch_device_release(device);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* a reader may have all that it needs before the pipe is empty */
    const struct CMUnitTest tests[] = {
        NPY_TEST(files_of_numpy_are_read),
        NPY_TEST(files_are_written_as_by_numpy),
        NPY_TEST(round_trips_on_the_host),
        NPY_TEST(round_trips_on_a_device),
        NPY_TEST(large_tensors_go_in_pieces),
        NPY_TEST(elements_that_share_a_place_are_written_out),
        NPY_TEST(files_that_are_too_short_or_too_long_are_told),
        NPY_TEST(what_is_no_npy_file_is_refused),
        NPY_TEST(bad_calls_are_refused),
        NPY_TEST(types_that_numpy_lacks_are_saved_as_raw_bytes),
        NPY_TEST(a_mapped_file_is_read_in_place),
        NPY_TEST(what_cannot_be_mapped_is_told),
        NPY_TEST(files_survive_failing_host_memory),
        NPY_TEST(files_survive_failing_driver_calls),
    };
    return cmocka_run_group_tests(tests, npy_group_setup, npy_group_teardown);
}
