/* SPDX-License-Identifier: MIT */
/* The log hook: which messages it receives. */
#include "base/logging.h"
#include "test.h"

typedef struct heard {
    size_t count;
    loch_log_level level;
    char line[1024];
} heard;

static void hear(loch_log_level level, const char *line, void *user)
{
    heard *all = user;
    all->count++;
    all->level = level;
    snprintf(all->line, sizeof all->line, "%s", line);
}

static void the_log_is_silent_unless_asked(void **state)
{
    (void)state;
    assert_int_equal(lochi_log_get_level(), LOCH_LOG_OFF);
    LOCHI_LOG(ERROR, "not logged %d", 1);
}

static void a_hook_hears_its_level_and_above(void **state)
{
    (void)state;
    heard all = {0};
    loch_log_set_hook(hear, &all, LOCH_LOG_WARNING);
    assert_int_equal(lochi_log_get_level(), LOCH_LOG_WARNING);
    LOCHI_LOG(DEBUG, "no");
    LOCHI_LOG(INFO, "no");
    assert_int_equal(all.count, 0);
    LOCHI_LOG(WARNING, "warned of %s", "this");
    assert_int_equal(all.count, 1);
    assert_int_equal(all.level, LOCH_LOG_WARNING);
    assert_string_equal(all.line, "warned of this");
    LOCHI_LOG(ERROR, "failed %d times", 3);
    assert_int_equal(all.count, 2);
    assert_int_equal(all.level, LOCH_LOG_ERROR);
    loch_log_set_hook(NULL, NULL, LOCH_LOG_DEBUG);
    assert_int_equal(lochi_log_get_level(), LOCH_LOG_OFF);
    LOCHI_LOG(ERROR, "no");
    assert_int_equal(all.count, 2);
}

static void a_hook_may_be_replaced(void **state)
{
    (void)state;
    heard first = {0}, second = {0};
    loch_log_set_hook(hear, &first, LOCH_LOG_DEBUG);
    LOCHI_LOG(DEBUG, "one");
    loch_log_set_hook(hear, &second, LOCH_LOG_OFF);
    LOCHI_LOG(ERROR, "two");
    loch_log_set_hook(hear, &second, LOCH_LOG_ERROR);
    LOCHI_LOG(ERROR, "three");
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF);
    assert_int_equal(first.count, 1);
    assert_int_equal(second.count, 1);
    assert_string_equal(second.line, "three");
}

static void long_lines_are_cut(void **state)
{
    (void)state;
    heard all = {0};
    char text[4096];
    memset(text, 'y', sizeof text);
    text[sizeof text - 1] = '\0';
    loch_log_set_hook(hear, &all, LOCH_LOG_INFO);
    LOCHI_LOG(INFO, "%s", text);
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF);
    assert_int_equal(all.count, 1);
    assert_true(strlen(all.line) > 100 && strlen(all.line) < sizeof text - 1);
}

static void opening_a_device_is_news(void **state)
{
    (void)state;
    heard all = {0};
    loch_device *device = NULL;
    loch_log_set_hook(hear, &all, LOCH_LOG_INFO);
    CHECK_OK(loch_device_open("cpu", &device));
    loch_device_release(device);
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF);
    assert_true(all.count >= 1);
    assert_true(all.line[0] && !strchr(all.line, '\n'));
}

static void driver_calls_are_details(void **state)
{
    (void)state;
    heard all = {0};
    loch_device *device = NULL;
    void *block = NULL;
    CHECK_OK(loch_device_open("cpu", &device));
    loch_log_set_hook(hear, &all, LOCH_LOG_DEBUG);
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &block));
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF);
    assert_true(all.count >= 1);
    assert_int_equal(all.level, LOCH_LOG_DEBUG);
    assert_non_null(strstr(all.line, "raw_alloc"));
    CHECK_OK(loch_raw_free(block));
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_is_silent_unless_asked), cmocka_unit_test(a_hook_hears_its_level_and_above),
        cmocka_unit_test(a_hook_may_be_replaced),         cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(opening_a_device_is_news),       cmocka_unit_test(driver_calls_are_details),
    };
    unsetenv("LOCH_LOG");
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
