/* SPDX-License-Identifier: MIT */
/* .npy files: what NumPy wrote is read and written the same, round trips of all types and layouts, mappings, and everything
 * that is wrong with a file or a path. */
#include "npy_cases.h"
#include "npy_fixture.h"
#include "sim_fixture.h"
#include "sweep.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>

#define CASES (sizeof npy_cases / sizeof *npy_cases)

static loch_npy_load_options mapping(loch_npy_mapping how)
{
    return (loch_npy_load_options){.size = sizeof(loch_npy_load_options), .mapping = how};
}

static loch_tensor *load(const loch_npy_load_options *options)
{
    loch_tensor *tensor;
    CHECK_OK(loch_npy_load(npy_path, options, &tensor));
    return tensor;
}

#define LOAD_FAILS(options, suffix)                                                                                    \
    do {                                                                                                               \
        loch_tensor *loaded = TEST_UNTOUCHED;                                                                          \
        CHECK_FAILS(loch_npy_load(npy_path, (options), &loaded), suffix);                                              \
        assert_null(loaded);                                                                                           \
    } while (0)

/* Elements of a tensor by indices, in the order of the file, as f64. */
static double item(loch_tensor *tensor, size_t place, bool is_columns)
{
    const size_t dimensions = loch_tensor_get_dimensions(tensor);
    const int64_t *shape = loch_tensor_get_shape(tensor);
    int64_t indices[LOCH_DIMENSIONS_MAX];
    for (size_t i = 0; i < dimensions; i++) {
        const size_t axis = is_columns ? i : dimensions - 1 - i;
        indices[axis] = (int64_t)(place % (size_t)shape[axis]);
        place /= (size_t)shape[axis];
    }
    loch_scalar scalar;
    CHECK_OK(loch_tensor_read_item(tensor, dimensions, indices, NULL, &scalar));
    return scalar.dtype == LOCH_F64   ? scalar.value.f
           : scalar.dtype == LOCH_I64 ? (double)scalar.value.i
                                      : (double)scalar.value.u;
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

static void files_of_numpy(void **state)
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
static void written_as_by_numpy(void **state)
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

static loch_tensor *make_tensor(loch_dtype dtype, size_t dimensions, const int64_t *shape,
                                const loch_tensor_options *memory)
{
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(dtype, dimensions, shape, memory, &tensor));
    const size_t bytes = loch_tensor_get_bytes(tensor);
    char *data = malloc(bytes + 1);
    assert_non_null(data);
    test_pattern_write(data, bytes, dtype);
    CHECK_OK(loch_tensor_write(tensor, data, bytes, NULL));
    free(data);
    return tensor;
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

static loch_tensor_options memory_on(loch_device *device)
{
    loch_tensor_options memory = {.size = sizeof memory};
    CHECK_OK(loch_direct_create(device, "direct", NULL, &memory.allocator));
    return memory;
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
static void large_ones(void **state)
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

static void elements_that_share_a_place(void **state)
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

/* --- headers --- */

static void put_dict(const char *dict, size_t data_bytes)
{
    static char file[4096];
    const size_t header = npy_make_header(file, 1, dict, strlen(dict), 0);
    memset(file + header, 1, data_bytes);
    npy_put_file(npy_path, file, header + data_bytes);
}

static void ways_to_write_a_dict(void **state)
{
    (void)state;
    static const char *const dicts[] = {
        "{'descr':'<i2','fortran_order':False,'shape':(2,3)}",
        "{\"shape\": (2, 3,), \"descr\": \"<i2\", \"fortran_order\": False}",
        "  {'fortran_order': False, 'descr': '<i2', 'shape': (2L, 3L), }\n",
        "{ u'descr' : b'<i2' ,\n\t'fortran_order' : False , 'shape' : ( 2 , 3 ) }   \n",
        "{'descr': '|i2', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': '=i2', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': 'i2', 'fortran_order': False, 'shape': (02, 3), }",
    };
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        put_dict(dicts[i], 12);
        loch_tensor *tensor = load(NULL);
        assert_int_equal(loch_tensor_get_dtype(tensor), LOCH_I16);
        assert_int_equal(loch_tensor_get_size(tensor, 0), 2);
        assert_int_equal(loch_tensor_get_size(tensor, 1), 3);
        assert_true(item(tensor, 5, false) == 257);
        loch_tensor_release(tensor);
    }
    put_dict("{'descr': '?', 'fortran_order': True, 'shape': (2, 3)}", 6);
    loch_tensor *tensor = load(NULL);
    assert_int_equal(loch_tensor_get_dtype(tensor), LOCH_BOOL);
    assert_int_equal(loch_tensor_get_strides(tensor)[1], 2);
    loch_tensor_release(tensor);
}

static void damaged_dicts(void **state)
{
    (void)state;
    static const char *const dicts[] = {
        "",
        "   \n",
        "{",
        "{}",
        "[]",
        "{'descr': '<i2', 'fortran_order': False}",
        "{'descr': '<i2', 'shape': (2, 3)}",
        "{'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), 'more': 1}",
        "{'descr': '<i2', 'descr': '<i2', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<i2' 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<i2', 'fortran_order': 0, 'shape': (2, 3)}",
        "{'descr': '<i2', 'fortran_order': Falsely, 'shape': (2, 3)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (6)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': [2, 3]}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': 6}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, -3)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2 3)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (,)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2,, 3)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2.5,)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3)",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3)}}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3)} x",
        "{'descr': '<i2, 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<i2",
        "{'descr': '<i2\n', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': [('a', '<f4'), 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': ['\\",
        "{descr: '<i2', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr' '<i2', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': 7, 'fortran_order': False, 'shape': (2, 3)}",
    };
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        put_dict(dicts[i], 12);
        LOAD_FAILS(NULL, CORRUPT);
        assert_non_null(strstr(loch_error_get()->sentence, npy_path));
    }
}

static void types_that_loch_lacks(void **state)
{
    (void)state;
    static const char *const types[] = {"<c8",    "<c16", "<U5",  "|S3",  "|O",  "O",    "<M8[ns]", "<m8[s]",
                                        "<f16",   "<f12", "<i3",  "|b2",  "f",   "",     "<",       "float64x",
                                        "<f8888", "|V0",  "<x\t", "|V16", "|V2", "?\xff"};
    char dict[128];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (1,)}", types[i]);
        put_dict(dict, 64);
        LOAD_FAILS(NULL, UNSUPPORTED);
        if (i < 14 && types[i][0] != '|') assert_non_null(strstr(loch_error_get()->sentence, types[i]));
    }
    put_dict("{'descr': [('a]', '<f4'), ('b', [('c\\'', '<i8', (2,))])], 'fortran_order': False, 'shape': (1,)}", 64);
    LOAD_FAILS(NULL, UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "[('a]', '<f4')"));
}

static void sizes_beyond_all_bounds(void **state)
{
    (void)state;
    put_dict("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}", 8);
    LOAD_FAILS(NULL, OVERFLOW);
    put_dict("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", 8);
    LOAD_FAILS(NULL, OVERFLOW);
    put_dict("{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693952,)}", 8);
    LOAD_FAILS(NULL, OVERFLOW);
    put_dict("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}", 8);
    LOAD_FAILS(NULL, CORRUPT);
    put_dict("{'descr': '<f8', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}", 8);
    LOAD_FAILS(NULL, UNSUPPORTED);
    char file[16];
    npy_make_header(file, 2, "", 0, 0);
    memcpy(file + 8, "\xff\xff\xff\xff", 4);
    npy_put_file(npy_path, file, 12);
    LOAD_FAILS(NULL, CORRUPT);
    assert_non_null(strstr(loch_error_get()->sentence, "4294967295"));
}

/* A header that is long, but there. */
static void long_headers(void **state)
{
    (void)state;
    static const char dict[] = "{'descr': '|i1', 'fortran_order': False, 'shape': (), }";
    const size_t most = TEST_MIB + 12 + 1;
    char *file = malloc(most + 1);
    assert_non_null(file);
    for (size_t header = most - 1; header <= most; header++) {
        assert_int_equal(npy_make_header(file, 2, dict, strlen(dict), header), header);
        file[header] = 5;
        npy_put_file(npy_path, file, header + 1);
        if (header == most) {
            LOAD_FAILS(NULL, CORRUPT);
            continue;
        }
        loch_tensor *tensor = load(NULL);
        assert_true(item(tensor, 0, false) == 5);
        loch_tensor_release(tensor);
    }
    free(file);
}

/* --- files --- */

static void too_short_and_too_long(void **state)
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

static void no_npy_file(void **state)
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

static void bad_calls(void **state)
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

static void raw_bytes(void **state)
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

static void mapped(void **state)
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

static void cannot_be_mapped(void **state)
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

/* --- saving --- */

static loch_tensor *small_tensor(void)
{
    static int32_t data[3] = {1, 2, 3};
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_wrap(LOCH_I32, LOCH_SHAPE(3), data, NULL, &tensor));
    return tensor;
}

static void cannot_be_written(void **state)
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
static void old_file_stays(void **state)
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

static void limit_on_files(void **state)
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

static void permissions_and_links(void **state)
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

/* Only the first thread hears the alarm: it is the one inside the library. */
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

static void through_pipes(void **state)
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
static void short_pipe(void **state)
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

static void host_memory_fails(void **state)
{
    (void)state;
    test_host_sweep(save_and_load_once, NULL);
}

static void driver_calls_fail(void **state)
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
        NPY_TEST(files_of_numpy),
        NPY_TEST(written_as_by_numpy),
        NPY_TEST(round_trips_on_the_host),
        NPY_TEST(round_trips_on_a_device),
        NPY_TEST(large_ones),
        NPY_TEST(elements_that_share_a_place),
        NPY_TEST(ways_to_write_a_dict),
        NPY_TEST(damaged_dicts),
        NPY_TEST(types_that_loch_lacks),
        NPY_TEST(sizes_beyond_all_bounds),
        NPY_TEST(long_headers),
        NPY_TEST(too_short_and_too_long),
        NPY_TEST(no_npy_file),
        NPY_TEST(bad_calls),
        NPY_TEST(raw_bytes),
        NPY_TEST(mapped),
        NPY_TEST(cannot_be_mapped),
        NPY_TEST(cannot_be_written),
        NPY_TEST(old_file_stays),
        NPY_TEST(limit_on_files),
        NPY_TEST(permissions_and_links),
        NPY_TEST(through_pipes),
        NPY_TEST(short_pipe),
        NPY_TEST(host_memory_fails),
        NPY_TEST(driver_calls_fail),
    };
    return cmocka_run_group_tests(tests, npy_group_setup, npy_group_teardown);
}
