/* SPDX-License-Identifier: MIT */
/* Files in which the kernel tells about the process: read whole or cut, or not there, and never a point where a thread
 * is cancelled. */
#include "base/clock.h"
#include "base/space.h"
#include "base/system_file.h"
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

static void a_file_is_read_or_cut(void **state)
{
    (void)state;
    char text[64], expected[32], small[4];
    snprintf(expected, sizeof expected, "%d (", (int)getpid());
    errno = 77;
    lochi_system_file_read("/proc/self/stat", text, sizeof text);
    assert_int_equal(strncmp(text, expected, strlen(expected)), 0);
    assert_int_equal(strlen(text), sizeof text - 1);
    lochi_system_file_read("/proc/self/stat", small, sizeof small);
    assert_int_equal(strlen(small), 3);
    assert_int_equal(strncmp(small, text, 3), 0);
    lochi_system_file_read("/proc/self/no such file", text, sizeof text);
    assert_string_equal(text, "");
    lochi_system_file_read("/proc/self", text, sizeof text); /* a folder */
    assert_string_equal(text, "");
    assert_int_equal(errno, 77);
}

/* Calls everything that reads such a file, with a cancellation pending. */
static void *read_while_cancelled(void *user)
{
    size_t *calls = user;
    pthread_cancel(pthread_self());
    (*calls)++;
    if (lochi_clock_age_ns() > 0) (*calls)++;
    if (lochi_address_room() != SIZE_MAX) (*calls)++;
    pthread_testcancel();
    return NULL;
}

static void reading_is_no_cancellation_point(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    struct rlimit limited = before;
    if (limited.rlim_cur == RLIM_INFINITY) limited.rlim_cur = (rlim_t)1 << 50;
    assert_int_equal(setrlimit(RLIMIT_AS, &limited), 0);
    const size_t room = lochi_address_room();
    size_t calls = 0;
    pthread_t thread;
    void *result = NULL;
    const int error = pthread_create(&thread, NULL, read_while_cancelled, &calls);
    if (!error) pthread_join(thread, &result);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(error, 0);
    assert_int_equal(calls, 3);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_true(room > 0 && room < limited.rlim_cur);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_or_cut),
        cmocka_unit_test(reading_is_no_cancellation_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
