/* SPDX-License-Identifier: MIT */
/* Files that are not what they should be: each gets one sentence that says what is wrong. */
#include "safetensors_fixture.h"

#define X(dtype, shape, offsets) "\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define Y(dtype, shape, offsets) "\"y\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define GOOD X("U8", "[8]", "[0,8]")

/* A header that is refused, with 8 bytes of data, and a part of the sentence. */
static const struct {
    const char *header, *says;
} cases[] = {
    /* JSON */
    {"", "wrong at byte 0: it does not begin with {"},
    {" {" GOOD "}", "it does not begin with {"},
    {"[]", "it does not begin with {"},
    {"{", "the text ends too early"},
    {"{" GOOD, "the text ends too early"},
    {"{" GOOD ",}", "text is expected"},
    {"{" GOOD "}}", "there is text behind the end"},
    {"{" GOOD "} x", "there is text behind the end"},
    {"{" GOOD " \"y\":1}", "a comma or a closing bracket is expected"},
    {"{x:1}", "text is expected"},
    {"{\"x\" 1}", "a colon is expected"},
    {"{\"x\":1}", "in \"x\": the tensor is not an object"},
    {"{\"x\":null}", "the tensor is not an object"},
    {"{\"x\":[]}", "the tensor is not an object"},
    {"{\"x\":{\"dtype\":\"U8\"", "the text ends too early"},
    {"{\"a\\qb\":{}}", "an unknown escape in text"},
    {"{\"a\\", "the text ends too early"},
    {"{\"a\\u12g4\":{}}", "\\u needs four hexadecimal digits"},
    {"{\"a\\u12", "\\u needs four hexadecimal digits"},
    {"{\"a\\ud800\":{}}", "half of a surrogate pair is missing"},
    {"{\"a\\ud800\\u0041\":{}}", "half of a surrogate pair is missing"},
    {"{\"a\\udc00\":{}}", "half of a surrogate pair is missing"},
    {"{\"a\\u0000b\":{}}", "text has a zero in it"},
    {"{\"a\nb\":{}}", "text has a control character in it"},
    {"{\"a", "the text ends too early"},
    {"{\"\xff\":{}}", "wrong at byte 2: not UTF-8"},
    {"{\"\xc0\xaf\":{}}", "not UTF-8"},     /* too long a form */
    {"{\"\xe0\x9f\xbf\":{}}", "not UTF-8"}, /* too long a form */
    {"{\"\xed\xa0\x80\":{}}", "not UTF-8"}, /* a surrogate */
    {"{\"\xf4\x90\x80\x80\":{}}", "not UTF-8"},
    {"{\"\xf0\x8f\xbf\xbf\":{}}", "not UTF-8"},
    {"{\"\xc3", "not UTF-8"},
    {"{\"x\":{\"more\":tru}}", "a value is expected"},
    {"{\"x\":{\"more\":01}}", "a number begins with 0"},
    {"{\"x\":{\"more\":1.}}", "a number lacks digits"},
    {"{\"x\":{\"more\":1e}}", "a number lacks digits"},
    {"{\"x\":{\"more\":-}}", "a number lacks digits"},
    {"{\"x\":{\"more\":[1,]}}", "a value is expected"},
    {"{\"x\":{\"more\":[1}}", "a comma or a closing bracket is expected"},
    {"{\"x\":{\"more\":{\"a\":1]}}", "a comma or a closing bracket is expected"},
    /* members */
    {"{\"x\":{}}", "dtype, shape or data_offsets is missing"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[8]}}", "dtype, shape or data_offsets is missing"},
    {"{\"x\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", "is there twice"},
    {"{\"x\":{\"shape\":[],\"shape\":[]}}", "is there twice"},
    {"{\"x\":{\"dtype\":8}}", "text is expected"},
    {"{" X("U8", "8", "[0,8]") "}", "the shape is not a list"},
    {"{" X("U8", "[-8]", "[0,8]") "}", "a number is negative"},
    {"{" X("U8", "[8.0]", "[0,8]") "}", "a number is not whole"},
    {"{" X("U8", "[8e0]", "[0,8]") "}", "a number is not whole"},
    {"{" X("U8", "[08]", "[0,8]") "}", "a number begins with 0"},
    {"{" X("U8", "[\"8\"]", "[0,8]") "}", "a whole number is expected"},
    {"{" X("U8", "[null]", "[0,8]") "}", "a whole number is expected"},
    {"{" X("U8", "[18446744073709551616]", "[0,8]") "}", "a number is above 2^64 - 1"},
    {"{" X("U8", "[9223372036854775808]", "[0,8]") "}", "a size of the shape is above 2^63 - 1"},
    {"{" X("U8", "[8]", "[0]") "}", "not a list of two numbers"},
    {"{" X("U8", "[8]", "[0,8,8]") "}", "not a list of two numbers"},
    {"{" X("U8", "[8]", "[]") "}", "not a list of two numbers"},
    {"{" X("U8", "[8]", "{}") "}", "not a list of two numbers"},
    {"{" X("U8", "[8]", "[0,-8]") "}", "a number is negative"},
    {"{" X("U8", "[8]", "[0,99999999999999999999]") "}", "a number is above 2^64 - 1"},
    /* metadata */
    {"{\"__metadata__\":1," GOOD "}", "the metadata is not an object"},
    {"{\"__metadata__\":{\"a\":1}," GOOD "}", "a value of the metadata is not text"},
    {"{\"__metadata__\":{\"a\":{}}," GOOD "}", "a value of the metadata is not text"},
    {"{\"__metadata__\":{\"a\":\"b\",\"\\u0061\":\"c\"}," GOOD "}", "has the key \"a\" twice in its metadata"},
    {"{\"__metadata__\":{},\"__metadata__\":{}," GOOD "}", "there is a second __metadata__"},
    /* tensors */
    {"{" X("U8", "[9]", "[0,8]") "}", "\"x\", U8 [9], needs 9 bytes and has 8"},
    {"{" X("F32", "[2, 3]", "[0,8]") "}", "\"x\", F32 [2, 3], needs 24 bytes and has 8"},
    {"{" X("F32", "[]", "[0,8]") "}", "\"x\", F32 [], needs 4 bytes and has 8"},
    {"{" X("F4", "[17]", "[0,8]") "}", "is not whole or does not fit"},
    {"{" X("U8", "[4294967296,4294967296]", "[0,8]") "}", "is not whole or does not fit"},
    {"{" X("U64", "[2305843009213693953]", "[0,8]") "}", "is not whole or does not fit"},
    {"{" X("U8", "[8]", "[8,0]") "}", "end before they begin: [8, 0]"},
    {"{" X("U8", "[8]", "[18446744073709551608,0]") "}", "end before they begin"},
    {"{" GOOD "," GOOD "}", "has two tensors with the name \"x\""},
    {"{" GOOD ",\"\\u0078\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}}", "has two tensors"},
    {"{" X("U8", "[8]", "[0,8]") "," Y("U8", "[4]", "[4,8]") "}",
     "\"y\" begins at byte 4 of the data, inside \"x\", which ends at 8"},
    {"{" X("U8", "[8]", "[0,8]") "," Y("U8", "[8]", "[0,8]") "}", "inside"},
    {"{" X("U8", "[8]", "[0,8]") "," Y("U8", "[0]", "[4,4]") "}", "inside"},
    {"{" X("U8", "[4]", "[4,8]") "}", "bytes 0 to 4 of the data, before \"x\", belong to no tensor"},
    {"{" X("U8", "[2]", "[0,2]") "," Y("U8", "[4]", "[4,8]") "}", "bytes 2 to 4 of the data, before \"y\""},
    {"{" X("U8", "[4]", "[0,4]") "}", "4 bytes behind the last tensor, which ends at 4 of the data"},
    {"{}", "8 bytes behind the last tensor"},
    {"{" X("U8", "[12]", "[0,12]") "}", "is truncated: 4 of 12 bytes of data are missing"},
    {"{" X("U8", "[9223372036854775807]", "[0,9223372036854775807]") "}", "does not fit"},
    {"{" X("U8", "[1152921504606846976]", "[0,1152921504606846976]") "}", "is truncated"},
    {"{" X("Q9", "[1]", "[0,18446744073709551615]") "}", "is truncated"},
    {"{" X("Q9", "[1]", "[0,8]") "," Y("Q9", "[1]", "[8,18446744073709551615]") "}", "is truncated"},
};

static void check_refused(const char *says)
{
    loch_safetensors *file = TEST_UNTOUCHED;
    CHECK_FAILS(loch_safetensors_open(fixture_path, NULL, &file), CORRUPT);
    assert_null(file);
    CHECK_SAYS("a.safetensors");
    CHECK_SAYS(says);
}

static void wrong_headers_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture_make_counted(fixture_path, cases[i].header, 8);
        check_refused(cases[i].says);
    }
}

/* Every beginning of a good file is refused, and so is a good file with more behind it. */
static void other_lengths_are_refused(void **state)
{
    (void)state;
    static const char header[] = "{" GOOD "}";
    char bytes[100];
    const size_t whole = 8 + strlen(header) + 8;
    loch_safetensors *file;
    fixture_make_counted(fixture_path, header, 8);
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    loch_safetensors_close(file);
    FILE *read = fopen(fixture_path, "rb");
    assert_int_equal(fread(bytes, 1, sizeof bytes, read), whole);
    fclose(read);
    for (size_t length = 0; length < whole; length++) {
        fixture_write(fixture_path, bytes, length);
        check_refused(length < 8 ? "is not a safetensors file: it has" : "is truncated");
    }
    bytes[whole] = 'x';
    fixture_write(fixture_path, bytes, whole + 1);
    check_refused("1 bytes behind the last tensor");
}

static void long_headers_are_refused_before_they_are_read(void **state)
{
    (void)state;
    static const unsigned char above[] = {0x01, 0xe1, 0xf5, 0x05, 0, 0, 0, 0}, /* 100,000,001 */
        allowed[] = {0x00, 0xe1, 0xf5, 0x05, 0, 0, 0, 0}, most[] = {255, 255, 255, 255, 255, 255, 255, 255};
    fixture_write(fixture_path, above, sizeof above);
    check_refused("a header of 100000001 bytes; the format allows 100000000");
    fixture_write(fixture_path, most, sizeof most);
    check_refused("a header of 18446744073709551615 bytes");
    fixture_write(fixture_path, allowed, sizeof allowed);
    check_refused("is truncated: 100000000 of 100000000 bytes of the header are missing");
}

static void depth_is_limited(void **state)
{
    (void)state;
    char header[2000] = "{\"x\":{\"more\":";
    loch_safetensors *file;
    for (int i = 0; i < 62; i++) /* two are around them */
        strcat(header, i % 2 ? "[" : "{\"a\":");
    strcat(header, "0");
    for (int i = 62; i--;)
        strcat(header, i % 2 ? "]" : "}");
    strcat(header, ",\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}");
    fixture_make_counted(fixture_path, header, 8);
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    loch_safetensors_close(file);
    strcpy(header, "{\"x\":{\"more\":");
    memset(header + strlen(header), '[', 1900);
    fixture_make_counted(fixture_path, header, 8);
    check_refused("more than 64 levels deep");
}

/* A sentence has one line, whatever a name contains. */
static void sentences_have_one_line(void **state)
{
    (void)state;
    fixture_make_counted(fixture_path, "{\"a\\nb\\u0007\":{}}", 0);
    check_refused("in \"a?b?\"");
    char header[400] = "{\"";
    memset(header + 2, 'n', 300);
    strcat(header, "\":{}}");
    fixture_make_counted(fixture_path, header, 0);
    check_refused("dtype, shape or data_offsets is missing"); /* the name is cut, not what is wrong */
}

/* Long paths and names are cut, not the figures: the end of the path and of the sentence are there. */
static void figures_fit_the_sentence(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "\"dtype\":\"F8_E5M2FNUZ\",\"shape\":[1152921504606846975,2,2,2,2,2,2],\"data_offsets\":[0,"
        "1234567890123456789]",
        "\"dtype\":\"Q\",\"shape\":[],\"data_offsets\":[1234567890123456789,1234567890123456789]",
        "\"dtype\":\"Q\",\"shape\":[],\"data_offsets\":[0,9000000000000000001]},"
        "\"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\":"
        "{\"dtype\":\"Q\",\"shape\":[],\"data_offsets\":[9000000000000000000,9000000000000000000]",
        "\"dtype\":\"Q\",\"shape\":[],\"data_offsets\":[9000000000000000000,1]",
        "\"dtype\":\"Q\",\"shape\":[],\"data_offsets\":[0,9000000000000000000]",
    };
    static const char *const ends[] = {"does not fit 2^61", "belong to no tensor", "which ends at 9000000000000000001",
                                       "[9000000000000000000, 1]", "bytes of data are missing"};
    char folder[256], path[300], header[600];
    memset(folder, 'f', sizeof folder);
    const int length = snprintf(folder, sizeof folder, "%s/", fixture_folder);
    folder[length] = 'f';
    folder[200] = '\0';
    snprintf(path, sizeof path, "%s-\xc3\xa4.safetensors", folder);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        loch_safetensors *file;
        snprintf(header, sizeof header, "{\"%.100s\":{%s}}", folder, bodies[i]);
        fixture_make_counted(path, header, 0);
        CHECK_FAILS(loch_safetensors_open(path, NULL, &file), CORRUPT);
        CHECK_SAYS("-\xc3\xa4.safetensors");
        const char *sentence = loch_error_get()->sentence;
        const size_t end = strlen(ends[i]), whole = strlen(sentence);
        if (whole < end || strcmp(sentence + whole - end, ends[i]) != 0)
            fail_msg("\"%s\" does not end with \"%s\"", sentence, ends[i]);
    }
}

/* Many names cost no quadratic time, in any order: 200,000 would take minutes. */
static void many_names_are_read(void **state)
{
    (void)state;
    enum { MANY = 200000 };
    char *header = malloc(80 * (size_t)MANY + 8), *at = header;
    assert_non_null(header);
    *at++ = '{';
    for (unsigned i = 0; i < MANY; i++) {
        const unsigned place = i % 2 ? MANY - 1 - i / 2 : i / 2;
        at += sprintf(at, "%s\"n%u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%u,%u]}", i ? "," : "", i, place,
                      place + 1);
    }
    *at++ = '}';
    *at = '\0';
    fixture_make_counted(fixture_path, header, MANY);
    free(header);
    loch_safetensors *file;
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    assert_int_equal(fixture_count(file), MANY);
    loch_safetensors_info info = {.size = sizeof info}, first = {.size = sizeof first};
    CHECK_OK(loch_safetensors_find(file, "n0", &first));
    for (unsigned i = 0; i < MANY; i += 997) {
        char name[16];
        snprintf(name, sizeof name, "n%u", i);
        CHECK_OK(loch_safetensors_find(file, name, &info));
        assert_int_equal(info.offset - first.offset, i % 2 ? MANY - 1 - i / 2 : i / 2);
    }
    loch_safetensors_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(wrong_headers_are_refused),
        FIXTURE_TEST(other_lengths_are_refused),
        FIXTURE_TEST(long_headers_are_refused_before_they_are_read),
        FIXTURE_TEST(depth_is_limited),
        FIXTURE_TEST(sentences_have_one_line),
        FIXTURE_TEST(figures_fit_the_sentence),
        FIXTURE_TEST(many_names_are_read),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}
