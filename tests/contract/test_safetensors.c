/* SPDX-License-Identifier: MIT */
/* .safetensors files and every device: what is saved from it comes back, whole, in parts, converted, into memory that
 * exists, and into parameters on several seats. */
#include "bed.h"

#include <loch/safetensors.h>
#include <unistd.h>

#define ROWS 7
#define COLUMNS 12

static char path[] = "/tmp/loch-safetensors-XXXXXX";

/* The number at a place: exact in all types that the tests use. */
static float number_at(int64_t row, int64_t column)
{
    return (float)((row * COLUMNS + column) % 100);
}

static void fill_numbers(float *out)
{
    for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++)
        out[i] = number_at(i / COLUMNS, i % COLUMNS);
}

static loch_tensor *make_matrix(const test_bed *bed)
{
    float numbers[ROWS * COLUMNS];
    loch_tensor *tensor;
    const loch_tensor_options there = {.size = sizeof there, .device = bed->device};
    fill_numbers(numbers);
    CHECK_OK(loch_tensor_create_from(LOCH_F32, LOCH_SHAPE(ROWS, COLUMNS), numbers, &there, &tensor));
    return tensor;
}

/* Checks elements [first_row, ...) x [first_column, ...) of the matrix, of any type. */
static void expect_part(const test_bed *bed, loch_tensor *tensor, int64_t first_row, int64_t first_column)
{
    const int64_t rows = loch_tensor_get_size(tensor, 0), columns = loch_tensor_get_size(tensor, 1);
    loch_tensor *floats;
    float seen[ROWS * COLUMNS];
    CHECK_OK(loch_stream_sync(loch_stream_get_default(bed->device)));
    if (!bed->has_data) return;
    CHECK_OK(loch_tensor_to(tensor, LOCH_F32, NULL, &floats));
    CHECK_OK(loch_tensor_read(floats, seen, loch_tensor_get_bytes(floats), NULL));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            assert_float_equal(seen[i * columns + j], number_at(first_row + i, first_column + j), 0);
    loch_tensor_release(floats);
}

/* A file on the host with the matrix as "matrix", at an odd place as "odd", and a type of two bytes as "short". */
static loch_safetensors *open_matrix(void)
{
    float numbers[ROWS * COLUMNS];
    const size_t bytes = sizeof numbers;
    char header[512];
    fill_numbers(numbers);
    const int length = snprintf(header, sizeof header,
                                "{\"matrix\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]},"
                                "\"gap\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]},"
                                "\"odd\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}}",
                                ROWS, COLUMNS, bytes, bytes, bytes + 1, ROWS, COLUMNS, bytes + 1, 2 * bytes + 1);
    memset(header + length, ' ', 8);
    const size_t padded = ((size_t)length + 7) / 8 * 8;
    const unsigned char start[8] = {(unsigned char)padded, (unsigned char)(padded >> 8)};
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(start, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, padded, file), padded);
    assert_int_equal(fwrite(numbers, 1, bytes, file), bytes);
    assert_int_equal(fwrite("x", 1, 1, file), 1);
    assert_int_equal(fwrite(numbers, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    loch_safetensors *opened;
    CHECK_OK(loch_safetensors_open(path, NULL, &opened));
    return opened;
}

/* --- loads --- */

static void a_tensor_is_loaded_to_the_device(void **state)
{
    const test_bed *bed = *state;
    loch_safetensors *file = open_matrix();
    const loch_tensor_options there = {.size = sizeof there, .device = bed->device};
    for (int i = 0; i < 2; i++) {
        loch_tensor *tensor;
        loch_safetensors_load_options options = {.size = sizeof options, .memory = &there};
        CHECK_OK(loch_safetensors_load(file, i ? "odd" : "matrix", &options, &tensor));
        assert_ptr_equal(loch_tensor_get_device(tensor), bed->device);
        assert_int_equal(loch_tensor_get_access(tensor), LOCH_READ_WRITE);
        expect_part(bed, tensor, 0, 0);
        loch_tensor_release(tensor);
        options.dtype = LOCH_BF16;
        CHECK_OK(loch_safetensors_load(file, i ? "odd" : "matrix", &options, &tensor));
        assert_int_equal(loch_tensor_get_dtype(tensor), LOCH_BF16);
        expect_part(bed, tensor, 0, 0);
        loch_tensor_release(tensor);
    }
    loch_safetensors_close(file);
    test_end_defaults();
}

static void parts_are_loaded(void **state)
{
    const test_bed *bed = *state;
    loch_safetensors *file = open_matrix();
    const loch_tensor_options there = {.size = sizeof there, .device = bed->device};
    for (int odd = 0; odd < 2; odd++)
        for (int axis = -2; axis < 2; axis++)
            for (int64_t start = 0; start <= 3; start++)
                for (int64_t count = 0; count <= 2; count++) {
                    const bool is_columns = axis == 1 || axis == -1;
                    const int64_t size = is_columns ? COLUMNS : ROWS, expected = count ? count : size - start;
                    const loch_safetensors_load_options options = {
                        .size = sizeof options, .axis = axis, .start = start, .count = count, .memory = &there};
                    loch_tensor *tensor;
                    CHECK_OK(loch_safetensors_load(file, odd ? "odd" : "matrix", &options, &tensor));
                    assert_int_equal(loch_tensor_get_size(tensor, is_columns), expected);
                    assert_int_equal(loch_tensor_get_size(tensor, !is_columns), is_columns ? ROWS : COLUMNS);
                    expect_part(bed, tensor, is_columns ? 0 : start, is_columns ? start : 0);
                    loch_tensor_release(tensor);
                }
    loch_safetensors_close(file);
    test_end_defaults();
}

static void tensors_that_exist_are_filled(void **state)
{
    const test_bed *bed = *state;
    loch_safetensors *file = open_matrix();
    const loch_tensor_options there = {.size = sizeof there, .device = bed->device};
    loch_tensor *big, *turned, *part;
    loch_stream *stream;
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    /* a target with strides, of another type, on a stream */
    CHECK_OK(loch_tensor_create(LOCH_F64, LOCH_SHAPE(COLUMNS, ROWS), &there, &big));
    CHECK_OK(loch_tensor_transpose(big, 0, 1, &turned));
    loch_safetensors_load_options options = {.size = sizeof options, .stream = stream};
    CHECK_OK(loch_safetensors_copy(file, "matrix", turned, &options));
    CHECK_OK(loch_stream_sync(stream));
    expect_part(bed, turned, 0, 0);
    /* the file may be closed while a copy is queued */
    CHECK_OK(loch_tensor_slice(turned, 0, 0, 2, 1, &part));
    options.start = 3;
    options.count = 2;
    CHECK_OK(loch_safetensors_copy(file, "odd", part, &options));
    loch_safetensors_close(file);
    CHECK_OK(loch_stream_sync(stream));
    expect_part(bed, part, 3, 0);
    loch_tensor_release(part);
    loch_tensor_release(turned);
    loch_tensor_release(big);
    loch_stream_close(stream);
    test_end_defaults();
}

/* More than the pieces that a device is filled in, at an odd place of the file; whole, a part, and of several bytes. */
static void long_tensors_are_loaded_in_pieces(void **state)
{
    const test_bed *bed = *state;
    enum { BYTES = (33 << 20) + 12 };
    char header[200], *data = malloc(BYTES + 1);
    assert_non_null(data);
    test_pattern_write(data, BYTES + 1, 5);
    const int length = snprintf(header, sizeof header,
                                "{\"gap\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                "\"long\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[1,%d]}}",
                                BYTES / 4, BYTES + 1);
    const unsigned char start[8] = {(unsigned char)length, (unsigned char)(length >> 8)};
    FILE *written = fopen(path, "wb");
    assert_non_null(written);
    assert_int_equal(fwrite(start, 1, 8, written), 8);
    assert_int_equal(fwrite(header, 1, (size_t)length, written), length);
    assert_int_equal(fwrite(data, 1, BYTES + 1, written), BYTES + 1);
    assert_int_equal(fclose(written), 0);
    loch_safetensors *file;
    CHECK_OK(loch_safetensors_open(path, NULL, &file));
    const loch_tensor_options there = {.size = sizeof there, .device = bed->device};
    char *seen = malloc(BYTES);
    assert_non_null(seen);
    for (int64_t first = 0; first < 3; first++) {
        const loch_safetensors_load_options options = {.size = sizeof options, .start = first, .memory = &there};
        loch_tensor *tensor;
        CHECK_OK(loch_safetensors_load(file, "long", &options, &tensor));
        const size_t bytes = loch_tensor_get_bytes(tensor);
        assert_int_equal(bytes, BYTES - 4 * (size_t)first);
        CHECK_OK(loch_tensor_read(tensor, seen, bytes, NULL));
        if (bed->has_data) assert_memory_equal(seen, data + 1 + 4 * first, bytes);
        loch_tensor_release(tensor);
    }
    /* both at a time, on a stream; the file is closed while copies are queued */
    static const char *const names[] = {"long", "gap"};
    loch_tensor *both[2];
    loch_stream *stream;
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    const loch_tensor_options ordered = {.size = sizeof ordered, .device = bed->device, .stream = stream};
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(BYTES / 4), &ordered, &both[0]));
    CHECK_OK(loch_tensor_create(LOCH_U8, LOCH_SHAPE(1), &ordered, &both[1]));
    const loch_safetensors_load_options queued = {.size = sizeof queued, .stream = stream};
    CHECK_OK(loch_safetensors_copy_many(file, names, both, 2, &queued));
    loch_safetensors_close(file);
    for (int i = 0; i < 2; i++) {
        const size_t bytes = loch_tensor_get_bytes(both[i]);
        CHECK_OK(loch_tensor_read(both[i], seen, bytes, stream));
        if (bed->has_data) assert_memory_equal(seen, data + !i, bytes);
        loch_tensor_release(both[i]);
    }
    loch_stream_close(stream);
    free(seen);
    free(data);
    test_end_defaults();
}

static void wrong_loads_are_refused(void **state)
{
    const test_bed *bed = *state;
    loch_safetensors *file = open_matrix();
    loch_tensor *matrix = make_matrix(bed), *tensor = TEST_UNTOUCHED, *row;
    loch_safetensors_load_options options = {.size = sizeof options, .axis = 2};
    CHECK_FAILS(loch_safetensors_load(file, "matrix", &options, &tensor), INVALID);
    assert_null(tensor);
    options.axis = -3;
    CHECK_FAILS(loch_safetensors_load(file, "matrix", &options, &tensor), INVALID);
    options.axis = 0;
    options.start = ROWS + 1;
    CHECK_FAILS(loch_safetensors_load(file, "matrix", &options, &tensor), OUT_OF_RANGE);
    options.start = -1;
    CHECK_FAILS(loch_safetensors_load(file, "matrix", &options, &tensor), OUT_OF_RANGE);
    options.start = 1;
    options.count = ROWS;
    CHECK_FAILS(loch_safetensors_load(file, "matrix", &options, &tensor), OUT_OF_RANGE);
    options.start = options.count = INT64_MAX;
    CHECK_FAILS(loch_safetensors_load(file, "matrix", &options, &tensor), OUT_OF_RANGE);
    options.start = options.count = 0;
    options.dtype = (loch_dtype)99;
    CHECK_FAILS(loch_safetensors_load(file, "matrix", &options, &tensor), INVALID);
    CHECK_FAILS(loch_safetensors_load(file, "none", NULL, &tensor), NOT_FOUND);
    CHECK_FAILS(loch_safetensors_load(NULL, "matrix", NULL, &tensor), INVALID);
    CHECK_FAILS(loch_safetensors_load(file, "matrix", NULL, NULL), INVALID);
    options.size = 1;
    CHECK_FAILS(loch_safetensors_load(file, "matrix", &options, &tensor), INVALID);
    CHECK_FAILS(loch_safetensors_copy(file, "matrix", NULL, NULL), INVALID);
    CHECK_FAILS(loch_safetensors_copy(file, "gap", matrix, NULL), INVALID);
    assert_non_null(strstr(loch_error_get()->sentence, "\"gap\" has 1 dimensions"));
    CHECK_OK(loch_tensor_slice(matrix, 0, 0, 1, 1, &row));
    CHECK_FAILS(loch_safetensors_copy(file, "matrix", row, NULL), INVALID);
    assert_non_null(strstr(loch_error_get()->sentence, "has size 7 along axis 0"));
    loch_tensor_release(row);
    loch_tensor_release(matrix);
    loch_safetensors_close(file);
    test_end_defaults();
}

/* --- saves --- */

static void save_and_compare(const test_bed *bed, loch_tensor *tensor)
{
    static const char *const names[] = {"one"};
    loch_safetensors *file;
    loch_tensor *back;
    CHECK_OK(loch_safetensors_save(path, names, &tensor, 1, NULL));
    CHECK_OK(loch_safetensors_open(path, NULL, &file));
    CHECK_OK(loch_safetensors_acquire_tensor(file, "one", &back));
    const size_t bytes = loch_tensor_get_bytes(tensor);
    assert_int_equal(loch_tensor_get_bytes(back), bytes);
    assert_int_equal(loch_tensor_get_dtype(back), loch_tensor_get_dtype(tensor));
    char *saved = malloc(bytes + 1), *wanted = malloc(bytes + 1);
    CHECK_OK(loch_tensor_read(back, saved, bytes, NULL));
    CHECK_OK(loch_tensor_read(tensor, wanted, bytes, NULL));
    if (bed->has_data) assert_memory_equal(saved, wanted, bytes);
    free(saved);
    free(wanted);
    loch_tensor_release(back);
    loch_safetensors_close(file);
}

static void any_layout_is_saved(void **state)
{
    const test_bed *bed = *state;
    loch_tensor *matrix = make_matrix(bed), *view, *scalar;
    save_and_compare(bed, matrix);
    CHECK_OK(loch_tensor_transpose(matrix, 0, 1, &view));
    save_and_compare(bed, view);
    loch_tensor_release(view);
    CHECK_OK(loch_tensor_slice(matrix, 1, LOCH_OPEN, LOCH_OPEN, -2, &view));
    save_and_compare(bed, view);
    CHECK_OK(loch_tensor_index(view, 0, 3, &scalar));
    loch_tensor_release(view);
    CHECK_OK(loch_tensor_index(scalar, 0, 1, &view));
    save_and_compare(bed, view);
    loch_tensor_release(view);
    loch_tensor_release(scalar);
    CHECK_OK(loch_tensor_slice(matrix, 0, 3, 3, 1, &view)); /* no elements */
    save_and_compare(bed, view);
    loch_tensor_release(view);
    loch_tensor_release(matrix);
    test_end_defaults();
}

/* More than the pieces of a save: rows that fit a piece and rows that do not, in order and across. */
static void large_tensors_are_saved_in_pieces(void **state)
{
    const test_bed *bed = *state;
    static const int64_t shapes[][2] = {{9, 1 << 19}, {2, (5 << 20) + 3}, {(9 << 20) + 1, 1}};
    const loch_tensor_options there = {.size = sizeof there, .device = bed->device};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t bytes = (size_t)(shapes[i][0] * shapes[i][1]);
        loch_tensor *tensor, *turned;
        char *pattern = malloc(bytes);
        assert_non_null(pattern);
        test_pattern_write(pattern, bytes, i);
        CHECK_OK(loch_tensor_create_from(LOCH_U8, 2, shapes[i], pattern, &there, &tensor));
        free(pattern);
        save_and_compare(bed, tensor);
        CHECK_OK(loch_tensor_slice(tensor, 1, LOCH_OPEN, LOCH_OPEN, -1, &turned));
        save_and_compare(bed, turned);
        loch_tensor_release(turned);
        loch_tensor_release(tensor);
    }
    test_end_defaults();
}

/* --- parameters --- */

static void expect_parameter(const test_bed *bed, const loch_parameter *parameter, unsigned seats, loch_spread spread,
                             int axis)
{
    int64_t first = 0;
    for (unsigned seat = 0; seat < seats; seat++) {
        loch_tensor *tensor;
        CHECK_OK(loch_parameter_acquire_tensor(parameter, LOCH_SEAT(seat), &tensor));
        const bool is_cut = spread == LOCH_SPREAD_PARTS;
        expect_part(bed, tensor, is_cut && axis == 0 ? first : 0, is_cut && axis == 1 ? first : 0);
        first += loch_tensor_get_size(tensor, axis);
        loch_tensor_release(tensor);
        if (spread == LOCH_SPREAD_ONE) break;
    }
}

static void parameters_are_loaded_on_all_seats(void **state)
{
    const test_bed *bed = *state;
    enum { SEATS = 3 };
    loch_engine_device devices[SEATS];
    for (int i = 0; i < SEATS; i++)
        devices[i] = (loch_engine_device){.size = sizeof devices[i], .name = bed->name, .limit_bytes = 4 * TEST_MIB};
    const loch_engine_options options = {.size = sizeof options, .devices = devices, .devices_count = SEATS};
    loch_engine *engine;
    loch_context *context;
    CHECK_OK(loch_engine_open(&options, &engine));
    CHECK_OK(loch_context_open(engine, NULL, &context));
    loch_safetensors *file = open_matrix();
    for (int spread = LOCH_SPREAD_ONE; spread <= LOCH_SPREAD_PARTS; spread++)
        for (int axis = 0; axis < 2; axis++) {
            loch_parameter *two[2], *missing[2];
            CHECK_OK(loch_context_declare(context, "matrix", LOCH_F32, LOCH_SHAPE(ROWS, COLUMNS), (loch_spread)spread,
                                          axis, 0, &two[0]));
            CHECK_OK(loch_context_declare(context, "odd", LOCH_F16, LOCH_SHAPE(ROWS, COLUMNS), (loch_spread)spread,
                                          axis, 0, &two[1]));
            CHECK_OK(
                loch_context_declare(context, "none", LOCH_F16, LOCH_SHAPE(1), LOCH_SPREAD_ONE, 0, 0, &missing[1]));
            missing[0] = two[0];
            CHECK_FAILS(loch_safetensors_load_parameters(file, context, missing, 2), NOT_FOUND);
            loch_tensor *none; /* names are looked up first */
            CHECK_FAILS(loch_parameter_acquire_tensor(two[0], LOCH_SEAT(0), &none), BUSY);
            CHECK_OK(loch_safetensors_load_parameters(file, context, two, 2));
            for (int i = 0; i < 2; i++) {
                expect_parameter(bed, two[i], SEATS, (loch_spread)spread, axis);
                loch_parameter_release(two[i]);
            }
            loch_parameter_release(missing[1]);
        }
    loch_parameter *wrong;
    CHECK_OK(
        loch_context_declare(context, "matrix", LOCH_F32, LOCH_SHAPE(COLUMNS, ROWS), LOCH_SPREAD_ONE, 0, 0, &wrong));
    CHECK_FAILS(loch_safetensors_load_parameters(file, context, &wrong, 1), INVALID);
    loch_parameter *none = NULL;
    CHECK_FAILS(loch_safetensors_load_parameters(file, context, &none, 1), INVALID);
    CHECK_FAILS(loch_safetensors_load_parameters(file, context, NULL, 1), INVALID);
    CHECK_FAILS(loch_safetensors_load_parameters(file, NULL, &wrong, 1), INVALID);
    CHECK_OK(loch_safetensors_load_parameters(file, context, NULL, 0));
    loch_parameter_release(wrong);
    loch_safetensors_close(file);
    CHECK_OK(loch_context_close(context));
    CHECK_OK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
    test_end_defaults();
}

int main(void)
{
    const int made = mkstemp(path);
    if (made < 0) return 1;
    close(made);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_is_loaded_to_the_device),  cmocka_unit_test(parts_are_loaded),
        cmocka_unit_test(tensors_that_exist_are_filled),     cmocka_unit_test(long_tensors_are_loaded_in_pieces),
        cmocka_unit_test(wrong_loads_are_refused),           cmocka_unit_test(any_layout_is_saved),
        cmocka_unit_test(large_tensors_are_saved_in_pieces), cmocka_unit_test(parameters_are_loaded_on_all_seats),
    };
    const int failed = TEST_BED_RUN(tests);
    unlink(path);
    return failed;
}
