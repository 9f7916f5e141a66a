/* SPDX-License-Identifier: MIT */
/* The tokenizer: vocabularies that are refused, words with a small vocabulary, and the tokens of the real library for
 * texts that are hard (tokens.txt), where the real vocabulary is there. */
#include "embedder_fixture.h"
#include "wordpiece.h"

/* --- a small vocabulary --- */

static loch_status open_text(const char *text, wordpiece **out)
{
    char path[] = "/tmp/loch-embedder.XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    const loch_status status = wordpiece_open(path, out);
    unlink(path);
    return status;
}

static void check_tokens(const wordpiece *vocabulary, const char *text, size_t bytes, size_t most, const char *expected)
{
    int32_t tokens[600];
    size_t count;
    char found[6000] = "";
    CHECK_OK(wordpiece_encode(vocabulary, text, bytes, most, tokens, &count));
    assert_true(count <= most);
    for (size_t i = 0; i < count; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%d", i ? " " : "", (int)tokens[i]);
    if (strcmp(found, expected) != 0) fail_msg("\"%.200s\": %s, expected %s", text, found, expected);
}

static void bad_vocabularies_are_refused(void **state)
{
    (void)state;
    wordpiece *vocabulary = TEST_UNTOUCHED;
    CHECK_FAILS(wordpiece_open("/nowhere/vocab.txt", &vocabulary), NOT_FOUND);
    assert_null(vocabulary);
    CHECK_FAILS(open_text("", &vocabulary), CORRUPT);
    CHECK_FAILS(open_text("[UNK]\n[CLS]\n", &vocabulary), CORRUPT);
    CHECK_FAILS(open_text("[UNK]\n[CLS]\n[SEP]\na\nb\na\n", &vocabulary), CORRUPT);
    assert_non_null(strstr(loch_error_get()->sentence, "line 6"));
    CHECK_FAILS(wordpiece_open("/tmp", &vocabulary), IO);
}

static void words_are_cut_from_their_start(void **state)
{
    (void)state;
    wordpiece *vocabulary;
    CHECK_OK(open_text("[UNK]\r\n[CLS]\r\n[SEP]\r\nab\r\n##c\r\n##cd\r\na\r\n##b\r\n!", &vocabulary));
    assert_int_equal(wordpiece_get_count(vocabulary), 9);
    assert_string_equal(wordpiece_get_piece(vocabulary, 5), "##cd");
    assert_null(wordpiece_get_piece(vocabulary, 9));
    assert_null(wordpiece_get_piece(vocabulary, -1));
    check_tokens(vocabulary, "abcd", 4, 10, "1 3 5 2");
    check_tokens(vocabulary, "abccd!", 6, 10, "1 3 4 5 8 2");
    check_tokens(vocabulary, "abx ab", 6, 10, "1 0 3 2");
    check_tokens(vocabulary, "[SEP][MASK]", 11, 10, "1 2 0 0 0 2"); /* this vocabulary has no [MASK] */
    check_tokens(vocabulary, "ab ab ab ab", 11, 4, "1 3 3 2");
    check_tokens(vocabulary, "ab", 2, 2, "1 2");
    check_tokens(vocabulary,
                 "a\xff"
                 "b\xc3(\xed\xa0\x80",
                 8, 10, "1 3 0 2"); /* what is no UTF-8 is dropped */
    check_tokens(vocabulary, "\xf0\x9f", 2, 10, "1 2");
    int32_t tokens[2];
    size_t count;
    CHECK_FAILS(wordpiece_encode(vocabulary, "a", 1, 1, tokens, &count), INVALID);
    wordpiece_close(vocabulary);
    wordpiece_close(NULL);
}

/* --- the real vocabulary --- */

/* Replaces \xNN by the byte, in place, and returns the length. */
static size_t unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        const bool is_byte = *from == '\\';
        *to++ = is_byte ? (char)strtol((char[]){from[2], from[3], 0}, NULL, 16) : *from;
        from += is_byte ? 4 : 1;
    }
    return (size_t)(to - text);
}

static void tokens_are_those_of_the_real_library(void **state)
{
    (void)state;
    char path[4096], *line = NULL;
    size_t room = 0, lines = 0;
    wordpiece *vocabulary;
    if (!fixture_find_real("vocab.txt", path)) {
        print_message("there is no %s: scripts/setup embedder\n", path);
        skip();
    }
    CHECK_OK(wordpiece_open(path, &vocabulary));
    FILE *file = fopen(EMBEDDER_FILES "/tokens.txt", "re");
    assert_non_null(file);
    for (; getline(&line, &room, file) > 0; lines++) {
        line[strcspn(line, "\n")] = 0;
        char *text = strchr(line, '\t');
        assert_non_null(text);
        *text++ = 0;
        const size_t bytes = unescape(text);
        check_tokens(vocabulary, text, bytes, 256, line);
    }
    assert_true(lines > 60);
    free(line);
    fclose(file);
    wordpiece_close(vocabulary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_vocabularies_are_refused),
        cmocka_unit_test(words_are_cut_from_their_start),
        cmocka_unit_test(tokens_are_those_of_the_real_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
