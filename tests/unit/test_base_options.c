/* SPDX-License-Identifier: MIT */
/* Run-time options. The environment counts when an option is first read, so main sets it up before anything runs. */
#include "base/options.h"
#include "test.h"

static void the_table_is_well_formed(void **state)
{
    (void)state;
    size_t count = loch_option_count();
    assert_true(count > 0);
    assert_null(loch_option_at(count));
    assert_null(loch_option_at(SIZE_MAX));
    for (size_t i = 0; i < count; i++) {
        const loch_option *option = loch_option_at(i);
        assert_non_null(option);
        assert_true(option->name[0] && option->type[0] && option->text[0] && option->fallback);
        assert_true(strncmp(option->environment, "LOCH_", 5) == 0);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(option->name, loch_option_at(k)->name);
            assert_string_not_equal(option->environment, loch_option_at(k)->environment);
        }
        /* what is the default must be allowed */
        CHECK_OK(loch_option_set(option->name, option->fallback));
        char value[LOCH_OPTION_VALUE_MAX];
        CHECK_OK(loch_option_get(option->name, value));
        assert_string_equal(value, option->fallback);
        CHECK_OK(loch_option_set(option->name, NULL));
    }
}

static void unknown_names(void **state)
{
    (void)state;
    char value[LOCH_OPTION_VALUE_MAX];
    CHECK_FAILS(loch_option_get("nosuchoption", value), NOT_FOUND);
    assert_non_null(strstr(loch_error_get()->sentence, "nosuchoption"));
    CHECK_FAILS(loch_option_set("nosuchoption", "1"), NOT_FOUND);
    CHECK_FAILS(loch_option_get(NULL, value), INVALID);
    CHECK_FAILS(loch_option_set(NULL, "1"), INVALID);
}

/* main put "info" into the environment. */
static void the_environment_comes_before_the_default(void **state)
{
    (void)state;
    char value[LOCH_OPTION_VALUE_MAX];
    CHECK_OK(loch_option_get("log", value));
    assert_string_equal(value, "info");
    CHECK_OK(loch_option_set("log", "error"));
    CHECK_OK(loch_option_get("log", value));
    assert_string_equal(value, "error");
    CHECK_OK(loch_option_set("log", NULL));
    CHECK_OK(loch_option_get("log", value));
    assert_string_equal(value, "info");
}

static void values_have_to_fit(void **state)
{
    (void)state;
    char value[LOCH_OPTION_VALUE_MAX], long_text[LOCH_OPTION_VALUE_MAX + 1];
    const char *wrong[] = {"shouting", "", "err", "errors", "error|warning", "|", "ERROR "};
    CHECK_OK(loch_option_set("log", "warning"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_FAILS(loch_option_set("log", wrong[i]), INVALID);
    CHECK_OK(loch_option_get("log", value));
    assert_string_equal(value, "warning");
    CHECK_OK(loch_option_set("log", NULL));

    CHECK_FAILS(loch_option_set("cpu_huge_pages", "perhaps"), INVALID);
    CHECK_OK(loch_option_set("cpu_huge_pages", "yes"));
    assert_true(lochi_option_switch("cpu_huge_pages"));
    CHECK_OK(loch_option_set("cpu_huge_pages", "0"));
    assert_false(lochi_option_switch("cpu_huge_pages"));
    CHECK_OK(loch_option_set("cpu_huge_pages", NULL));

    memset(long_text, 'z', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    CHECK_FAILS(loch_option_set("cuda_library", long_text), INVALID);
    long_text[LOCH_OPTION_VALUE_MAX - 1] = '\0';
    CHECK_OK(loch_option_set("cuda_library", long_text));
    lochi_option_text("cuda_library", value);
    assert_string_equal(value, long_text);
    CHECK_OK(loch_option_set("cuda_library", NULL));
}

typedef struct heard {
    size_t count;
    char line[512];
} heard;

static void hear(loch_log_level level, const char *line, void *user)
{
    heard *all = user;
    if (level > LOCH_LOG_WARNING) return;
    all->count++;
    snprintf(all->line, sizeof all->line, "%s", line);
}

/* main put nonsense into LOCH_CPU_HUGE_PAGES: reported, and the default used. */
static void nonsense_in_the_environment(void **state)
{
    (void)state;
    heard all = {0};
    loch_log_set_hook(hear, &all, LOCH_LOG_WARNING);
    CHECK_OK(loch_option_set("cpu_huge_pages", NULL));
    assert_false(lochi_option_switch("cpu_huge_pages"));
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF);
    assert_int_equal(all.count, 1);
    assert_non_null(strstr(all.line, "LOCH_CPU_HUGE_PAGES"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_well_formed),
        cmocka_unit_test(unknown_names),
        cmocka_unit_test(the_environment_comes_before_the_default),
        cmocka_unit_test(values_have_to_fit),
        cmocka_unit_test(nonsense_in_the_environment),
    };
    for (size_t i = 0; i < loch_option_count(); i++)
        unsetenv(loch_option_at(i)->environment);
    setenv("LOCH_LOG", "info", 1);
    setenv("LOCH_CPU_HUGE_PAGES", "perhaps", 1);
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF); /* the level above is for the option, not for standard error */
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
