/* SPDX-License-Identifier: MIT */
/* Status codes and each thread's record of its last failure. */
#include "base/fail.h"
#include "test.h"

#include <pthread.h>

static void every_code_has_a_name_and_a_text(void **state)
{
    (void)state;
    assert_int_equal(LOCH_OK, 0);
    assert_string_equal(loch_status_name(LOCH_OK), "OK");
    assert_string_equal(loch_status_name(LOCH_E_LIMIT), "E_LIMIT");
    for (int i = 0; i < LOCH_STATUS_COUNT; i++) {
        const char *name = loch_status_name((loch_status)i), *text = loch_status_text((loch_status)i);
        assert_true(name[0] && text[0]);
        assert_true(text[strlen(text) - 1] != '.');
        if (i) assert_true(strncmp(name, "E_", 2) == 0);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(name, loch_status_name((loch_status)k));
    }
    assert_string_equal(loch_status_name((loch_status)LOCH_STATUS_COUNT), "E_UNKNOWN");
    assert_string_equal(loch_status_name((loch_status)-1), "E_UNKNOWN");
    assert_non_null(loch_status_text((loch_status)9999));
}

static void version_is_the_one_compiled_against(void **state)
{
    (void)state;
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", LOCH_VERSION_MAJOR, LOCH_VERSION_MINOR, LOCH_VERSION_PATCH);
    assert_string_equal(loch_version(), expected);
    assert_string_equal(LOCH_VERSION_STRING, expected);
}

static void record_starts_empty_and_is_cleared(void **state)
{
    (void)state;
    loch_error_clear();
    const loch_error *error = loch_error_get();
    assert_int_equal(error->status, LOCH_OK);
    assert_string_equal(error->sentence, "");
    assert_string_equal(error->driver, "");
    assert_int_equal(loch_error_set(LOCH_E_BUSY, "cuda", 719, "kernel %d of %s", 7, "nine"), LOCH_E_BUSY);
    assert_int_equal(error->status, LOCH_E_BUSY);
    assert_string_equal(error->driver, "cuda");
    assert_int_equal(error->driver_code, 719);
    assert_string_equal(error->sentence, "kernel 7 of nine");
    assert_int_equal(loch_error_set(LOCH_E_LIMIT, NULL, 0, "plain"), LOCH_E_LIMIT);
    assert_string_equal(error->driver, "");
    assert_int_equal(error->driver_code, 0);
    loch_error_clear();
    assert_int_equal(error->status, LOCH_OK);
    assert_string_equal(error->sentence, "");
}

static void sentences_are_cut_not_overrun(void **state)
{
    (void)state;
    char text[2 * LOCH_ERROR_SENTENCE_MAX];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(loch_error_set(LOCH_E_IO, NULL, 0, "%s", text), LOCH_E_IO);
    assert_int_equal(strlen(loch_error_get()->sentence), LOCH_ERROR_SENTENCE_MAX - 1);
    loch_error_clear();
}

/* A sentence is UTF-8 and never empty, whatever a driver writes. */
static void sentences_stay_readable(void **state)
{
    (void)state;
    char text[2 * LOCH_ERROR_SENTENCE_MAX];
    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'a', sizeof text);
        for (size_t i = shift; i + 3 < sizeof text; i += 3)
            memcpy(text + i, "\xe2\x82\xac", 3); /* the euro sign */
        text[sizeof text - 1] = '\0';
        assert_int_equal(loch_error_set(LOCH_E_IO, NULL, 0, "%s", text), LOCH_E_IO);
        const char *sentence = loch_error_get()->sentence;
        size_t length = strlen(sentence);
        assert_true(length >= LOCH_ERROR_SENTENCE_MAX - 4);
        assert_int_equal((length - shift) % 3, 0); /* whole characters */
    }
    assert_int_equal(loch_error_set(LOCH_E_IO, NULL, 0, "%s", ""), LOCH_E_IO);
    assert_true(loch_error_get()->sentence[0]);
    loch_error_clear();
}

static void *fail_in_a_thread(void *argument)
{
    bool *is_fresh = argument;
    *is_fresh = loch_error_get()->status == LOCH_OK && !loch_error_get()->sentence[0];
    loch_error_set(LOCH_E_IO, "other", 1, "in a thread");
    return NULL;
}

/* Names and values from outside cannot break a line of a log, or write control characters to a terminal. */
static void sentences_are_one_line(void **state)
{
    (void)state;
    loch_device *device;
    CHECK_FAILS(loch_device_open("sim:1Gi\n", &device), INVALID);
    assert_null(strchr(loch_error_get()->sentence, '\n'));
    assert_int_equal(loch_error_set(LOCH_E_INVALID, "", 0, "a%sb\x7f", "\r\n\t\x1b[2J"), LOCH_E_INVALID);
    assert_string_equal(loch_error_get()->sentence, "a????[2Jb?");
}

static void record_is_the_threads_own(void **state)
{
    (void)state;
    pthread_t thread;
    bool is_fresh = false;
    loch_error_set(LOCH_E_CORRUPT, NULL, 0, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fail_in_a_thread, &is_fresh), 0);
    pthread_join(thread, NULL);
    assert_true(is_fresh);
    assert_int_equal(loch_error_get()->status, LOCH_E_CORRUPT);
    assert_string_equal(loch_error_get()->sentence, "mine");
    loch_error_clear();
}

static void record_is_saved_over_clean_up(void **state)
{
    (void)state;
    loch_error_set(LOCH_E_LIMIT, "sim", 3, "first");
    loch_error saved = lochi_error_save();
    loch_error_set(LOCH_E_DRIVER, NULL, 0, "second");
    lochi_error_restore(&saved);
    assert_int_equal(loch_error_get()->status, LOCH_E_LIMIT);
    assert_int_equal(loch_error_get()->driver_code, 3);
    assert_string_equal(loch_error_get()->driver, "sim");
    assert_string_equal(loch_error_get()->sentence, "first");
    loch_error_clear();
}

static loch_status build(int *steps, loch_status result)
{
    loch_status status = LOCH_OK;
    ++*steps;
    LOCH_TRY(result, fail);
    ++*steps;
fail:
    return status;
}

static loch_status pass_on(loch_status result)
{
    LOCH_TRY_RETURN(result);
    return LOCH_FAIL(EXISTS, "number %d", 5);
}

static void the_macros_of_failing_leave_at_the_first_failure(void **state)
{
    (void)state;
    int steps = 0;
    assert_int_equal(build(&steps, LOCH_OK), LOCH_OK);
    assert_int_equal(steps, 2);
    assert_int_equal(build(&steps, LOCH_E_IO), LOCH_E_IO);
    assert_int_equal(steps, 3);
    assert_int_equal(pass_on(LOCH_E_IO), LOCH_E_IO);
    assert_int_equal(pass_on(LOCH_OK), LOCH_E_EXISTS);
    assert_string_equal(loch_error_get()->sentence, "number 5");
    assert_int_equal(loch_error_get()->status, LOCH_E_EXISTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_name_and_a_text),
        cmocka_unit_test(version_is_the_one_compiled_against),
        cmocka_unit_test(record_starts_empty_and_is_cleared),
        cmocka_unit_test(sentences_are_cut_not_overrun),
        cmocka_unit_test(sentences_stay_readable),
        cmocka_unit_test(sentences_are_one_line),
        cmocka_unit_test(record_is_the_threads_own),
        cmocka_unit_test(record_is_saved_over_clean_up),
        cmocka_unit_test(the_macros_of_failing_leave_at_the_first_failure),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
