/* SPDX-License-Identifier: MIT */
/* Tensors as text: against what NumPy wrote, the types that it lacks, what is fetched of a device, and bad calls. */
#include "print_cases.h"
#include "sweep.h"
#include "tensor_fixture.h"
#include "tensor/digits.h"

#include <locale.h>
#include <unistd.h>

#define CASES (sizeof print_cases / sizeof *print_cases)

static size_t count_elements(size_t dimensions, const int64_t *shape)
{
    size_t elements = 1;
    for (size_t i = 0; i < dimensions; i++)
        elements *= (size_t)shape[i];
    return elements;
}

/* The text of a tensor, asked for with no room first; the caller frees it. */
static char *format(loch_tensor *tensor, const loch_print_options *options)
{
    size_t length, again;
    CHECK_OK(loch_tensor_print(tensor, options, NULL, 0, &length));
    char *text = malloc(length + 1);
    assert_non_null(text);
    CHECK_OK(loch_tensor_print(tensor, options, text, length + 1, &again));
    assert_int_equal(length, again);
    assert_int_equal(strlen(text), length);
    return text;
}

static void expect_text(loch_tensor *tensor, const loch_print_options *options, const char *expected)
{
    char *text = format(tensor, options);
    assert_string_equal(text, expected);
    free(text);
}

/* Host memory with elements of a case; the caller frees it. */
static void *make_values(const print_case *what)
{
    const size_t elements = count_elements(what->dimensions, what->shape);
    void *data = malloc(elements * loch_dtype_bytes(what->dtype) + 1);
    assert_non_null(data);
    if (what->values) {
        CHECK_OK(loch_convert(what->dtype, data, what->from, what->values, elements, NULL));
        return data;
    }
    double *ramp = malloc((elements + 1) * sizeof *ramp);
    assert_non_null(ramp);
    for (size_t i = 0; i < elements; i++)
        ramp[i] = what->start + what->step * (double)i;
    CHECK_OK(loch_convert(what->dtype, data, LOCH_F64, ramp, elements, NULL));
    free(ramp);
    return data;
}

static loch_print_options sized(loch_print_options options)
{
    options.size = sizeof options;
    return options;
}

/* Memory of a device by an allocator that goes with the last tensor; a device's default one stays. */
static loch_tensor_options memory_on(loch_device *device)
{
    loch_tensor_options memory = {.size = sizeof memory};
    CHECK_OK(loch_direct_create(device, "direct", NULL, &memory.allocator));
    return memory;
}

static void text_is_that_of_numpy(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        const print_case *what = &print_cases[i];
        const loch_print_options options = sized(what->options);
        void *data = make_values(what);
        loch_tensor *tensor;
        CHECK_OK(loch_tensor_wrap(what->dtype, what->dimensions, what->shape, data, NULL, &tensor));
        expect_text(tensor, &options, what->expected);
        loch_tensor_release(tensor);
        free(data);
    }
}

/* From a device, of which parts are copied. */
static void text_from_a_device_is_that_of_numpy(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    const loch_tensor_options memory = memory_on(device);
    for (size_t i = 0; i < CASES; i++) {
        const print_case *what = &print_cases[i];
        const loch_print_options options = sized(what->options);
        void *data = make_values(what);
        loch_tensor *tensor;
        CHECK_OK(loch_tensor_create_from(what->dtype, what->dimensions, what->shape, data, &memory, &tensor));
        expect_text(tensor, &options, what->expected);
        loch_tensor_release(tensor);
        free(data);
    }
    loch_allocator_release(memory.allocator);
    loch_device_release(device);
}

static void views_are_printed_in_their_own_order(void **state)
{
    (void)state;
    int32_t data[6] = {1, 2, 3, 4, 5, 6};
    loch_tensor *tensor, *turned, *backwards, *wide;
    CHECK_OK(loch_tensor_wrap(LOCH_I32, LOCH_SHAPE(2, 3), data, NULL, &tensor));
    CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &turned));
    CHECK_OK(loch_tensor_slice(tensor, 1, LOCH_OPEN, LOCH_OPEN, -2, &backwards));
    CHECK_OK(loch_tensor_expand(tensor, LOCH_SHAPE(1000, 2, 3), &wide));
    expect_text(turned, NULL, "[[1 4]\n [2 5]\n [3 6]]");
    expect_text(backwards, NULL, "[[3 1]\n [6 4]]");
    const loch_print_options one = {.size = sizeof one, .edge = 1};
    expect_text(wide, &one, "[[[1 ... 3]\n  [4 ... 6]]\n\n ...\n\n [[1 ... 3]\n  [4 ... 6]]]");
    loch_tensor_release(wide);
    loch_tensor_release(backwards);
    loch_tensor_release(turned);
    loch_tensor_release(tensor);
}

static void types_that_numpy_lacks_are_printed(void **state)
{
    (void)state;
    static const struct {
        loch_dtype dtype;
        double values[4];
        const char *expected;
    } cases[] = {
        {LOCH_BF16, {0.1, 3.140625, -2, 1. / 3}, "[ 0.1    3.14  -2.     0.334]"},
        {LOCH_BF16, {1e30, 1, INFINITY, NAN}, "[1.e+30 1.e+00    inf    nan]"},
        {LOCH_F8E4M3, {0.1, 448, NAN, -1.5}, "[ 1.0e-01  4.5e+02      nan -1.5e+00]"},
        {LOCH_F8E4M3, {0.5, 0.75, 13, -1.5}, "[ 0.5   0.75 13.   -1.5 ]"},
        {LOCH_F8E4M3, {0.001953125, 0.875, 0, -0.0}, "[ 0.002  0.9    0.    -0.   ]"},
        {LOCH_F8E5M2, {0.1, 1, 3, -INFINITY}, "[0.09 1.   3.   -inf]"},
        {LOCH_F8E5M2, {57344, 1, 2, 4}, "[6.e+04 1.e+00 2.e+00 4.e+00]"},
    };
    const loch_convert_options special = {.size = sizeof special, .overflow = LOCH_OVERFLOW_SPECIAL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned short data[4];
        loch_tensor *tensor;
        CHECK_OK(loch_convert(cases[i].dtype, data, LOCH_F64, cases[i].values, 4, &special));
        CHECK_OK(loch_tensor_wrap(cases[i].dtype, LOCH_SHAPE(4), data, NULL, &tensor));
        expect_text(tensor, NULL, cases[i].expected);
        loch_tensor_release(tensor);
    }
}

/* Without an exponent whatever the size: f64 has up to 309 digits before the point, and 324 behind it. */
static void fixed_notation_has_all_digits_at_the_ends(void **state)
{
    (void)state;
    double data[2] = {1e300, 5e-324};
    loch_tensor *tensor;
    char expected[2048] = "[1", *text;
    CHECK_OK(loch_tensor_wrap(LOCH_F64, LOCH_SHAPE(2), data, NULL, &tensor));
    const loch_print_options options = {
        .size = sizeof options, .notation = LOCH_NOTATION_FIXED, .precision = 100000, .width = 100000};
    text = format(tensor, &options);
    memset(expected + 2, '0', 300);
    snprintf(expected + 302, 1024, ".%324s %301s.", "", "0");
    memset(expected + strlen(expected), '0', 323);
    strcat(expected, "5]");
    assert_string_equal(text, expected);
    free(text);
    loch_tensor_release(tensor);
}

/* --- digits --- */

static double read_back(const lochi_digits *digits)
{
    char text[LOCHI_DIGITS_MAX + 16];
    snprintf(text, sizeof text, "0.%.*se%d", digits->count, digits->text, digits->exponent + 1);
    return strtod(text, NULL);
}

static bool is_same(loch_dtype dtype, const void *bits, double value)
{
    uint64_t back = 0;
    const loch_convert_options special = {.size = sizeof special, .overflow = LOCH_OVERFLOW_SPECIAL};
    CHECK_OK(loch_convert(dtype, &back, LOCH_F64, &value, 1, &special));
    return memcmp(&back, bits, loch_dtype_bytes(dtype)) == 0;
}

/* Reads back as the same number; no decimal with fewer digits does, from either side. */
static void check_digits(loch_dtype dtype, const void *bits)
{
    lochi_number number = lochi_number_read(dtype, bits);
    if (number.kind != LOCHI_FINITE || number.is_negative) return;
    const lochi_cutoff open = {.most = 1000, .least = -1};
    lochi_digits digits = lochi_digits_make(&number, &open);
    assert_true(is_same(dtype, bits, read_back(&digits)));
    if (digits.count == 1 || !number.mantissa) return;
    digits.count--;
    assert_false(is_same(dtype, bits, read_back(&digits)));
    if (digits.text[digits.count - 1]++ < '9') assert_false(is_same(dtype, bits, read_back(&digits)));
}

static void digits_are_the_shortest_that_read_back(void **state)
{
    (void)state;
    test_random random = {test_seed(7)};
    for (unsigned i = 0; i < 65536; i++) {
        const uint16_t bits = (uint16_t)i;
        const uint8_t byte = (uint8_t)i;
        check_digits(LOCH_F16, &bits);
        check_digits(LOCH_BF16, &bits);
        if (i < 256) check_digits(LOCH_F8E4M3, &byte);
        if (i < 256) check_digits(LOCH_F8E5M2, &byte);
    }
    for (int i = 0; i < 30000; i++) {
        const uint64_t bits = test_random_next(&random), power = bits & 0x7ff0000000000000;
        const uint32_t half = (uint32_t)test_random_next(&random);
        check_digits(LOCH_F64, &bits);
        check_digits(LOCH_F64, &power);
        check_digits(LOCH_F32, &half);
    }
}

/* Where digits are cut off, the C library agrees: both round ties to even. */
static void cut_digits_round_ties_to_even(void **state)
{
    (void)state;
    test_random random = {test_seed(8)};
    for (int i = 0; i < 20000; i++) {
        const uint64_t bits = test_random_next(&random) & INT64_MAX;
        const int places = 1 + (int)test_random_below(&random, 17);
        const lochi_number number = lochi_number_read(LOCH_F64, &bits);
        if (number.kind != LOCHI_FINITE) continue;
        const lochi_cutoff cutoff = {.most = places, .least = places};
        const lochi_digits digits = lochi_digits_make(&number, &cutoff);
        double value;
        char expected[64], text[64];
        memcpy(&value, &bits, sizeof value);
        snprintf(expected, sizeof expected, "%.*e", places - 1, value);
        snprintf(text, sizeof text, "%c%s%.*s", digits.text[0], places > 1 ? "." : "", digits.count - 1,
                 digits.text + 1);
        for (int missing = places - digits.count; missing > 0; missing--)
            strcat(text, "0");
        snprintf(text + strlen(text), 8, "e%+03d", digits.exponent);
        assert_string_equal(text, expected);
    }
}

/* --- where it goes --- */

static void text_is_cut_to_the_room_and_its_length_told(void **state)
{
    (void)state;
    double data[3] = {1, 2, 3};
    loch_tensor *tensor;
    size_t length;
    char text[16];
    CHECK_OK(loch_tensor_wrap(LOCH_F64, LOCH_SHAPE(3), data, NULL, &tensor));
    for (size_t bytes = 1; bytes < sizeof text; bytes++) {
        memset(text, 'x', sizeof text);
        CHECK_OK(loch_tensor_print(tensor, NULL, text, bytes, &length));
        assert_int_equal(length, 10);
        assert_int_equal(strlen(text), bytes > 10 ? 10 : bytes - 1);
        assert_memory_equal(text, "[1. 2. 3.]", strlen(text));
        assert_true(text[bytes] == 'x' || bytes > 10);
    }
    CHECK_OK(loch_tensor_print(tensor, NULL, text, sizeof text, NULL));
    loch_tensor_release(tensor);
}

static void a_tensor_is_printed_to_a_file(void **state)
{
    (void)state;
    double data[3] = {1, 2, 3};
    loch_tensor *tensor;
    char text[16] = "";
    CHECK_OK(loch_tensor_wrap(LOCH_F64, LOCH_SHAPE(3), data, NULL, &tensor));
    FILE *file = tmpfile();
    assert_non_null(file);
    CHECK_OK(loch_tensor_print_to(tensor, NULL, file));
    rewind(file);
    assert_int_equal(fread(text, 1, sizeof text - 1, file), 11);
    assert_string_equal(text, "[1. 2. 3.]\n");
    fclose(file);
    file = fopen("/dev/full", "w");
    if (file) {
        CHECK_FAILS(loch_tensor_print_to(tensor, NULL, file), IO);
        fclose(file);
    }
    loch_tensor_release(tensor);
}

static void text_does_not_depend_on_the_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "fr_FR", "ru_RU.UTF-8"};
    double data[2] = {1.5, 1e-9};
    loch_tensor *tensor;
    bool is_set = false;
    for (size_t i = 0; !is_set && i < sizeof names / sizeof *names; i++)
        is_set = setlocale(LC_ALL, names[i]) != NULL;
    if (!is_set) print_message("no locale with a decimal comma here; C it is\n");
    CHECK_OK(loch_tensor_wrap(LOCH_F64, LOCH_SHAPE(2), data, NULL, &tensor));
    expect_text(tensor, NULL, "[1.5e+00 1.0e-09]");
    loch_tensor_release(tensor);
    setlocale(LC_ALL, "C");
}

static void a_description_names_type_shape_and_place(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB");
    char text[128], expected[128];
    float data[6];
    size_t length;
    loch_tensor *tensor, *turned;
    loch_tensor_options memory = memory_on(device);
    memory.name = "weights";
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(2, 3), &memory, &tensor));
    CHECK_OK(loch_tensor_describe(tensor, text, sizeof text, &length));
    snprintf(expected, sizeof expected, "weights: f32[2, 3], 24 bytes on %s", loch_device_get_name(device));
    assert_string_equal(text, expected);
    assert_int_equal(length, strlen(expected));
    CHECK_OK(loch_tensor_describe(tensor, text, 10, &length));
    assert_string_equal(text, "weights: ");
    assert_int_equal(length, strlen(expected));
    loch_tensor_release(tensor);

    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(2, 3), data, NULL, &tensor));
    CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &turned));
    CHECK_OK(loch_tensor_describe(turned, text, sizeof text, NULL));
    assert_string_equal(text, "f32[3, 2] strides [1, 3], 24 bytes on the host");
    loch_tensor_release(turned);
    loch_tensor_release(tensor);
    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SCALAR, data, NULL, &tensor));
    CHECK_OK(loch_tensor_describe(tensor, text, sizeof text, NULL));
    assert_string_equal(text, "f32[], 4 bytes on the host");
    loch_tensor_release(tensor);
    loch_allocator_release(memory.allocator);
    loch_device_release(device);
}

/* --- what is fetched --- */

static uint64_t count_copies(loch_device *device)
{
    loch_call_count calls[64];
    uint64_t copies = 0;
    size_t count;
    CHECK_OK(test_device_calls(device, calls, 64, &count));
    for (size_t i = 0; i < count; i++)
        if (strncmp(calls[i].name, "copy", 4) == 0) copies += calls[i].count;
    return copies;
}

/* 40 GB that no machine of ours could fetch: the text needs 36 elements of them. */
static void only_the_corners_of_a_large_tensor_are_fetched(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:80GiB");
    const loch_tensor_options memory = memory_on(device);
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(100000, 100000), &memory, &tensor));
    CHECK_OK(loch_device_measure_calls(device, LOCH_MEASURE_OFF));
    expect_text(tensor, NULL,
                "[[0. 0. 0. ... 0. 0. 0.]\n [0. 0. 0. ... 0. 0. 0.]\n [0. 0. 0. ... 0. 0. 0.]\n ...\n"
                " [0. 0. 0. ... 0. 0. 0.]\n [0. 0. 0. ... 0. 0. 0.]\n [0. 0. 0. ... 0. 0. 0.]]");
    const uint64_t copies = count_copies(device);
    assert_in_range(copies, 1, 2 * 12); /* asked for twice; at most a copy for each end of a row */
    loch_tensor_release(tensor);
    loch_allocator_release(memory.allocator);
    loch_device_release(device);
}

/* Work queued on the stream that is named comes first. */
static void text_comes_behind_the_stream_that_is_named(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed,clock=stepped,lag=1000");
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_tensor_options memory = memory_on(device);
    memory.stream = stream;
    memory.flags = LOCH_ALLOC_ZEROED;
    loch_tensor *tensor;
    void *address;
    CHECK_OK(loch_tensor_create(LOCH_U8, LOCH_SHAPE(2000), &memory, &tensor));
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    const unsigned char pattern = 7;
    CHECK_OK(sim_busy(stream, 1000000));
    CHECK_OK(loch_fill_on(address, 2000, &pattern, 1, stream));
    const loch_print_options options = {.size = sizeof options, .stream = stream};
    expect_text(tensor, &options, "[7 7 7 ... 7 7 7]");
    loch_tensor_release(tensor);
    CHECK_OK(loch_stream_sync(stream));
    loch_allocator_release(memory.allocator);
    loch_stream_close(stream);
    assert_int_equal(sim_violations(device, NULL), 0);
    loch_device_release(device);
}

/* --- what goes wrong --- */

static void bad_calls_are_refused(void **state)
{
    (void)state;
    double data[1] = {1};
    loch_tensor *tensor;
    char text[8];
    size_t length = 9;
    CHECK_OK(loch_tensor_wrap(LOCH_F64, LOCH_SHAPE(1), data, NULL, &tensor));
    CHECK_FAILS(loch_tensor_print(NULL, NULL, text, sizeof text, &length), INVALID);
    assert_int_equal(length, 0);
    CHECK_FAILS(loch_tensor_print(tensor, NULL, NULL, 4, NULL), INVALID);
    CHECK_FAILS(loch_tensor_print_to(NULL, NULL, stdout), INVALID);
    CHECK_FAILS(loch_tensor_print_to(tensor, NULL, NULL), INVALID);
    CHECK_FAILS(loch_tensor_describe(NULL, text, sizeof text, NULL), INVALID);
    CHECK_FAILS(loch_tensor_describe(tensor, NULL, 1, NULL), INVALID);
    loch_print_options options = {.size = sizeof options, .precision = -2};
    CHECK_FAILS(loch_tensor_print(tensor, &options, text, sizeof text, NULL), INVALID);
    options = (loch_print_options){.size = sizeof options, .notation = (loch_notation)3};
    CHECK_FAILS(loch_tensor_print(tensor, &options, text, sizeof text, NULL), INVALID);
    options = (loch_print_options){.size = 0};
    CHECK_FAILS(loch_tensor_print(tensor, &options, text, sizeof text, NULL), INVALID);
    options = (loch_print_options){.size = sizeof options.size}; /* an older, shorter one */
    CHECK_OK(loch_tensor_print(tensor, &options, text, sizeof text, NULL));
    assert_string_equal(text, "[1.]");
    loch_tensor_release(tensor);
}

/* More than the address space holds would be shown. */
static void more_than_the_address_space_is_refused(void **state)
{
    (void)state;
    unsigned char data[1] = {0};
    loch_tensor *tensor, *wide;
    char text[8];
    CHECK_OK(loch_tensor_wrap(LOCH_U8, LOCH_SCALAR, data, NULL, &tensor));
    CHECK_OK(loch_tensor_expand(tensor, LOCH_SHAPE(INT64_MAX / 4), &wide));
    const loch_print_options options = {.size = sizeof options, .threshold = SIZE_MAX};
    CHECK_FAILS(loch_tensor_print(wide, &options, text, sizeof text, NULL), HOST_MEMORY);
    CHECK_OK(loch_tensor_print(wide, NULL, text, sizeof text, NULL));
    assert_string_equal(text, "[0 0 0 ");
    loch_tensor_release(wide);
    loch_tensor_release(tensor);
}

static loch_status print_something(const void *user)
{
    (void)user;
    static double data[2000];
    loch_tensor *tensor, *turned = NULL;
    char text[256];
    loch_status status = loch_tensor_wrap(LOCH_F64, LOCH_SHAPE(40, 50), data, NULL, &tensor);
    if (status != LOCH_OK) return status;
    status = loch_tensor_transpose(tensor, 0, 1, &turned);
    if (status == LOCH_OK) status = loch_tensor_print(turned, NULL, text, sizeof text, NULL);
    loch_tensor_release(turned);
    loch_tensor_release(tensor);
    return status;
}

static void printing_survives_failing_host_memory(void **state)
{
    (void)state;
    test_host_sweep(print_something, NULL);
}

static int install(void **state)
{
    (void)state;
    return test_heap_install() == LOCH_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(text_is_that_of_numpy),
        TENSOR_TEST(text_from_a_device_is_that_of_numpy),
        TENSOR_TEST(views_are_printed_in_their_own_order),
        TENSOR_TEST(types_that_numpy_lacks_are_printed),
        TENSOR_TEST(fixed_notation_has_all_digits_at_the_ends),
        TENSOR_TEST(digits_are_the_shortest_that_read_back),
        TENSOR_TEST(cut_digits_round_ties_to_even),
        TENSOR_TEST(text_is_cut_to_the_room_and_its_length_told),
        TENSOR_TEST(a_tensor_is_printed_to_a_file),
        TENSOR_TEST(text_does_not_depend_on_the_locale),
        TENSOR_TEST(a_description_names_type_shape_and_place),
        TENSOR_TEST(only_the_corners_of_a_large_tensor_are_fetched),
        TENSOR_TEST(text_comes_behind_the_stream_that_is_named),
        TENSOR_TEST(bad_calls_are_refused),
        TENSOR_TEST(more_than_the_address_space_is_refused),
        TENSOR_TEST(printing_survives_failing_host_memory),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}
