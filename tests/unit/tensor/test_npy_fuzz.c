/* SPDX-License-Identifier: MIT */
/* Damaged and invented .npy files: each loads or gives a status with a sentence, and what loads can be read to its last
 * element. To be run under the sanitizers above all. */
#include "npy_cases.h"
#include "npy_fixture.h"

#define CASES (sizeof npy_cases / sizeof *npy_cases)
#define ROUNDS 6000
#define ROOM 4096

/* What became of the files so far: a fuzzer that only ever fails at once tests little. */
static size_t counts[LOCH_STATUS_COUNT];

static void touch(loch_tensor *tensor)
{
    const size_t bytes = loch_tensor_get_bytes(tensor);
    assert_true(bytes <= TEST_MIB);
    char *data = malloc(bytes + 1);
    assert_non_null(data);
    CHECK_OK(loch_tensor_read(tensor, data, bytes, NULL));
    free(data);
}

static void try_file(const char *data, size_t bytes, test_random *random)
{
    loch_npy_load_options options = {.size = sizeof options,
                                     .mapping = (loch_npy_mapping)test_random_below(random, 3),
                                     .access = (loch_access)test_random_below(random, 2),
                                     .dtype = (loch_dtype)test_random_below(random, LOCH_DTYPE_COUNT)};
    loch_tensor *tensor = TEST_UNTOUCHED;
    npy_put_file(npy_path, data, bytes);
    loch_error_clear();
    const loch_status status = loch_npy_load(npy_path, &options, &tensor);
    counts[status]++;
    if (status == LOCH_OK) {
        touch(tensor);
        loch_tensor_release(tensor);
        return;
    }
    assert_null(tensor);
    test_check_fails(status, TEST_SET(CORRUPT) | TEST_SET(UNSUPPORTED) | TEST_SET(OVERFLOW) | TEST_SET(INVALID), "load",
                     __FILE__, __LINE__);
}

static void expect_variety(void)
{
    print_message("%zu loaded, %zu corrupt, %zu unsupported, %zu overflows, %zu invalid\n", counts[LOCH_OK],
                  counts[LOCH_E_CORRUPT], counts[LOCH_E_UNSUPPORTED], counts[LOCH_E_OVERFLOW], counts[LOCH_E_INVALID]);
    assert_true(counts[LOCH_OK] > ROUNDS / 50);
    assert_true(counts[LOCH_E_CORRUPT] > ROUNDS / 50);
    assert_true(counts[LOCH_E_UNSUPPORTED] > ROUNDS / 50);
    memset(counts, 0, sizeof counts);
}

static char random_sign(test_random *random)
{
    static const char signs[] = "{}()[]'\",: \n\t\\0123456789LfiubVTrueFalse<>=|?-.descrshape\xff";
    return test_random_below(random, 4) ? signs[test_random_below(random, sizeof signs)]
                                        : (char)test_random_next(random);
}

/* One small damage anywhere before the data. */
static size_t damage(char *data, size_t bytes, size_t header, test_random *random)
{
    const size_t at = test_random_below(random, header), tail = bytes - at;
    const size_t length = 1 + test_random_below(random, 8);
    switch (test_random_below(random, 6)) {
    case 0: data[at] ^= (char)(1 << test_random_below(random, 8)); break;
    case 1: data[at] = random_sign(random); break;
    case 2: return test_random_below(random, bytes + 1);
    case 3: /* something goes */
        if (tail <= length) break;
        memmove(data + at, data + at + length, tail - length);
        return bytes - length;
    case 4: /* something comes */
        if (bytes + length > ROOM) break;
        memmove(data + at + length, data + at, tail);
        for (size_t i = 0; i < length; i++)
            data[at + i] = random_sign(random);
        return bytes + length;
    default: /* something comes twice */
        if (tail <= length || bytes + length > ROOM) break;
        memmove(data + at + length, data + at, tail);
        return bytes + length;
    }
    return bytes;
}

static void damaged_files_load_or_are_refused(void **state)
{
    (void)state;
    test_random random = {test_seed(21)};
    char data[ROOM];
    for (int i = 0; i < ROUNDS; i++) {
        const npy_case *what = &npy_cases[test_random_below(&random, CASES)];
        const int version = 1 + (int)test_random_below(&random, 3);
        size_t header = npy_make_header(data, version, what->dict, strlen(what->dict), what->header_bytes + 64);
        memcpy(data + header, what->data, what->data_bytes);
        size_t bytes = header + what->data_bytes;
        for (size_t times = test_random_below(&random, 4); times > 0 && bytes; times--) {
            if (header > bytes) header = bytes;
            bytes = damage(data, bytes, header, &random);
        }
        try_file(data, bytes, &random);
    }
    expect_variety();
}

/* --- dicts made of pieces --- */

typedef struct dict {
    char text[ROOM / 2];
    size_t length;
} dict;

static void add(dict *out, const char *text)
{
    const size_t length = strlen(text);
    if (out->length + length > sizeof out->text) return;
    memcpy(out->text + out->length, text, length);
    out->length += length;
}

static const char *choose(test_random *random, const char *const *choices, size_t count)
{
    return choices[test_random_below(random, count)];
}

#define CHOOSE(random, ...)                                                                                            \
    choose((random), (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void add_type(dict *out, test_random *random)
{
    if (test_random_below(random, 2)) {
        add(out, CHOOSE(random, "'<f4'", "'>i8'", "'|b1'", "\"<u2\"", "'|V1'", "u'<f8'"));
        return;
    }
    if (!test_random_below(random, 12))
        add(out, CHOOSE(random, "[('a', '<f4')]", "[('a', [('b', '|V1')]), ('c', '<i2', (3,))]", "(1, [", "7", "None",
                        "[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]", "''", "\"'\"", "'\\''"));
    const char *quote = CHOOSE(random, "'", "'", "\"");
    add(out, quote);
    add(out, CHOOSE(random, "<", ">", "|", "=", "", "<", "<<"));
    add(out, CHOOSE(random, "f", "i", "u", "b", "V", "f", "i", "c", "U", "O", "M", "?", ""));
    add(out, CHOOSE(random, "1", "2", "4", "8", "4", "8", "16", "0", "99999999999999999999", "8[ns]", "", "-1"));
    add(out, quote);
}

static void add_shape(dict *out, test_random *random)
{
    if (test_random_below(random, 2)) {
        add(out, CHOOSE(random, "()", "(3,)", "(2, 3)", "( 2,3 ,)", "(0, 7)", "(1L, 2L)", "(2, 2, 2, 2, 2)"));
        return;
    }
    add(out, CHOOSE(random, "(", "(", "(", "(", "(", "( ", "[", ""));
    for (size_t left = test_random_below(random, 6); left > 0; left--) {
        add(out, CHOOSE(random, "1", "2", "3", "0", "1", "2", "2", "7L", "1 ", " 2", "4294967296",
                        "9223372036854775807", "18446744073709551616", "-1", "1.5", "x"));
        add(out, left > 1 ? CHOOSE(random, ",", ", ", ",", ", ", ",,", " ") : CHOOSE(random, ",", ", ", ",", ""));
    }
    add(out, CHOOSE(random, ")", ")", ")", ")", ")", " )", "]", ""));
}

static void add_entry(dict *out, test_random *random, size_t which)
{
    static const char *const keys[] = {"'descr'", "'fortran_order'", "'shape'"};
    add(out, test_random_below(random, 30) ? keys[which] : CHOOSE(random, "'other'", "descr", "u'shape'", "\"descr\""));
    add(out, CHOOSE(random, ":", ": ", ": ", ": ", ":\n", " : "));
    if (which == 0) add_type(out, random);
    if (which == 1) add(out, CHOOSE(random, "True", "False", "False", "True", "False", "0", "None", "true"));
    if (which == 2) add_shape(out, random);
    add(out, test_random_below(random, 40) ? ", " : "");
}

static void invented_headers_load_or_are_refused(void **state)
{
    (void)state;
    test_random random = {test_seed(22)};
    char data[ROOM];
    for (int i = 0; i < ROUNDS; i++) {
        dict header = {.length = 0};
        const size_t first = test_random_below(&random, 3);
        add(&header, test_random_below(&random, 50) ? "{" : "");
        for (size_t j = 0; j < 3; j++)
            if (test_random_below(&random, 40)) add_entry(&header, &random, (first + j) % 3);
        add(&header, test_random_below(&random, 50) ? "}" : CHOOSE(&random, "", "}}", "]", "} x"));
        const size_t length = npy_make_header(data, 1 + (int)test_random_below(&random, 3), header.text, header.length,
                                              test_random_below(&random, 2) ? header.length + 64 : 0);
        const size_t most = ROOM - length,
                     more = test_random_below(&random, 5) ? most : test_random_below(&random, most);
        memset(data + length, 0x41, more);
        try_file(data, length + more, &random);
    }
    expect_variety();
}

/* Nothing but noise behind a magic number. */
static void noise_is_refused(void **state)
{
    (void)state;
    test_random random = {test_seed(23)};
    char data[ROOM];
    for (int i = 0; i < ROUNDS / 4; i++) {
        const size_t bytes = test_random_below(&random, 600);
        for (size_t j = 0; j < bytes; j++)
            data[j] = random_sign(&random);
        memcpy(data, "\x93NUMPY\1\0", 8);
        if (bytes > 12) data[8] = (char)(bytes - 10), data[9] = (char)((bytes - 10) >> 8);
        try_file(data, bytes, &random);
    }
    assert_int_equal(counts[LOCH_OK], 0);
    assert_int_equal(counts[LOCH_E_CORRUPT], ROUNDS / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {NPY_TEST(damaged_files_load_or_are_refused),
                                       NPY_TEST(invented_headers_load_or_are_refused), NPY_TEST(noise_is_refused)};
    return cmocka_run_group_tests(tests, npy_group_setup, npy_group_teardown);
}
