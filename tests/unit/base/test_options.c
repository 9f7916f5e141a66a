/* SPDX-License-Identifier: MIT */
/* Run-time options. The environment counts when an option is first read, so main sets it up before anything runs. */
#include "base/logging.h"
#include "base/options.h"
#include "test.h"
#include <loch/engine.h>
#include <loch/loch.h>
#include <loch/driver.h>

static void the_table_is_well_formed(void **state)
{
    (void)state;
    size_t count = test_option_count();
    assert_true(count > 0);
    assert_null(test_option_at(count));
    assert_null(test_option_at(SIZE_MAX));
    for (size_t i = 0; i < count; i++) {
        const loch_option *option = test_option_at(i);
        assert_non_null(option);
        assert_true(option->name[0] && option->type[0] && option->text[0] && option->fallback);
        assert_true(strncmp(option->environment, "LOCH_", 5) == 0);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(option->name, test_option_at(k)->name);
            assert_string_not_equal(option->environment, test_option_at(k)->environment);
        }
        /* what is the default must be allowed */
        CHECK_OK(loch_option_set(option->name, option->fallback));
        char value[LOCH_OPTION_VALUE_MAX];
        CHECK_OK(loch_option_get(option->name, value));
        assert_string_equal(value, option->fallback);
        CHECK_OK(loch_option_set(option->name, NULL));
    }
}

static void unknown_names_are_not_found(void **state)
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

static void values_that_do_not_fit_are_refused(void **state)
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
    bool is_on = false;
    CHECK_OK(lochi_option_switch("cpu_huge_pages", &is_on));
    assert_true(is_on);
    CHECK_OK(loch_option_set("cpu_huge_pages", "0"));
    CHECK_OK(lochi_option_switch("cpu_huge_pages", &is_on));
    assert_false(is_on);
    CHECK_OK(loch_option_set("cpu_huge_pages", NULL));

    memset(long_text, 'z', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    CHECK_FAILS(loch_option_set("cuda_library", long_text), INVALID);
    long_text[LOCH_OPTION_VALUE_MAX - 1] = '\0';
    CHECK_OK(loch_option_set("cuda_library", long_text));
    CHECK_OK(lochi_option_text("cuda_library", value));
    assert_string_equal(value, long_text);
    CHECK_OK(loch_option_set("cuda_library", NULL));
}

/* --- values in the environment that cannot be read: what reads them fails, and says why --- */

static loch_status open_cpu(void)
{
    loch_device *device;
    const loch_status status = loch_device_open("cpu", &device);
    assert_true((status == LOCH_OK) == (device != NULL));
    loch_device_release(device);
    return status;
}

static loch_status ask_allocator(uint32_t bits)
{
    loch_device *device;
    loch_allocator *allocator;
    CHECK_OK(loch_device_open("sim:64MiB", &device));
    const loch_status status =
        loch_device_acquire_allocator(device, (loch_attributes){bits, 0}, LOCH_FALLBACK_NONE, &allocator);
    assert_true((status == LOCH_OK) == (allocator != NULL));
    loch_allocator_release(allocator);
    const loch_error before = *loch_error_get();
    CHECK_OK(loch_registry_clear(NULL, NULL, NULL)); /* or the allocator would be there already the next time */
    loch_device_release(device);
    if (status != LOCH_OK) loch_error_set(before.status, NULL, 0, "%s", before.sentence);
    return status;
}

static loch_status ask_own(void)
{
    return ask_allocator(0);
}

static loch_status ask_pinned(void)
{
    return ask_allocator(LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE);
}

static loch_status create_engine(void)
{
    const loch_engine_device seat = {.size = sizeof seat, .name = "sim:64MiB"};
    const loch_engine_options options = {.size = sizeof options, .devices = &seat, .devices_count = 1};
    loch_engine *engine;
    const loch_status status = loch_engine_open(&options, &engine);
    assert_true((status == LOCH_OK) == (engine != NULL));
    if (engine) CHECK_OK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
    return status;
}

static loch_status count_device(const char *name, void *user)
{
    (void)name;
    (*(size_t *)user)++;
    return LOCH_OK;
}

static loch_status enumerate(void)
{
    size_t count = 0;
    return loch_device_walk(count_device, &count);
}

static loch_status open_sim(void)
{
    loch_device *device;
    const loch_status status = loch_device_open("sim:64MiB", &device);
    loch_device_release(device);
    return status;
}

/* Whether the library is there does not matter here. */
static loch_status load_cublas(void)
{
    const loch_status status = loch_library_load(LOCH_LIBRARY_CUBLAS, NULL);
    return status == LOCH_E_INVALID ? status : LOCH_OK;
}

static void unreadable_values_fail_where_they_are_read(void **state)
{
    (void)state;
    static char endless[2 * LOCH_OPTION_VALUE_MAX];
    memset(endless, 'z', sizeof endless - 1);
    static const struct {
        const char *option, *value, *takes;
        loch_status (*read)(void);
    } rows[] = {
        {"pool_limit", "abc", "takes bytes, e.g. 8GiB", ask_own},
        {"pool_limit", "8GiBs", "takes bytes, e.g. 8GiB", ask_own},
        {"pool_limit", "-1", "takes bytes, e.g. 8GiB", ask_own},
        {"pool_idle", "much", "takes bytes, e.g. 8GiB", ask_own},
        {"default_allocator", "pools", "takes pool, direct", ask_own},
        {"pinned_limit", "1e9", "takes bytes, e.g. 8GiB", ask_pinned},
        {"pinned", "maybe", "takes on or off", ask_pinned},
        {"cpu_huge_pages", "perhaps", "takes on or off", open_cpu},
        {"direct_memory", "2", "takes on or off", create_engine},
        {"sim_costs", endless, "takes text of at most 255 bytes", open_sim},
        {"cuda_library", endless, "takes text of at most 255 bytes", enumerate},
        {"cublas", endless, "takes text of at most 255 bytes", load_cublas},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char variable[64] = "LOCH_", value[LOCH_OPTION_VALUE_MAX], beginning[80];
        for (size_t k = 0; rows[i].option[k]; k++)
            variable[5 + k] = (char)(rows[i].option[k] == '_' ? '_' : rows[i].option[k] - 'a' + 'A');
        CHECK_OK(loch_option_set(rows[i].option, NULL));
        assert_int_equal(setenv(variable, rows[i].value, 1), 0);
        for (int again = 0; again < 2; again++) { /* never taken for the default later */
            CHECK_FAILS(rows[i].read(), INVALID);
            snprintf(beginning, sizeof beginning, "%s is \"%.40s", variable, rows[i].value);
            assert_memory_equal(loch_error_get()->sentence, beginning, strlen(beginning));
            assert_non_null(strstr(loch_error_get()->sentence, rows[i].takes));
            CHECK_FAILS(loch_option_get(rows[i].option, value), INVALID);
            assert_string_equal(value, "");
        }
        assert_int_equal(setenv(variable, "", 1), 0); /* as if it were not set */
        CHECK_OK(rows[i].read());
        CHECK_OK(loch_option_set(rows[i].option, NULL));
        assert_int_equal(unsetenv(variable), 0);
    }
}

/* --- the log, and variables that nothing reads --- */

/* Comes first: nothing has decided how much is logged. The log cannot fail, so opening a device does. */
static void an_unreadable_level_of_the_log_is_told(void **state)
{
    (void)state;
    assert_int_equal(setenv("LOCH_LOG", "shouting", 1), 0);
    CHECK_FAILS(open_cpu(), INVALID);
    assert_string_equal(loch_error_get()->sentence,
                        "LOCH_LOG is \"shouting\": it takes off, error, warning, info, debug");
    assert_int_equal(lochi_log_get_level(), LOCH_LOG_OFF);
    assert_int_equal(loch_error_get()->status, LOCH_E_INVALID);
    loch_error_clear();
    assert_int_equal(lochi_log_get_level(), LOCH_LOG_OFF); /* leaves the error record alone */
    assert_int_equal(loch_error_get()->status, LOCH_OK);
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF); /* the program decides: the variable does not matter any more */
    CHECK_OK(open_cpu());
    assert_int_equal(setenv("LOCH_LOG", "info", 1), 0);
}

typedef struct heard {
    size_t count;
    char lines[8][512];
} heard;

static void hear(loch_log_level level, const char *line, void *user)
{
    heard *all = user;
    if (level > LOCH_LOG_WARNING || all->count == 8) return;
    snprintf(all->lines[all->count++], sizeof all->lines[0], "%s", line);
}

static loch_status note_unknown(const char *variable, const char *nearest, void *user)
{
    heard *all = user;
    assert_true(all->count < 8);
    snprintf(all->lines[all->count++], sizeof all->lines[0], "%s %s", variable, nearest ? nearest : "-");
    return LOCH_OK;
}

static loch_status stop_at_once(const char *variable, const char *nearest, void *user)
{
    (void)variable;
    (void)nearest;
    ++*(int *)user;
    return loch_error_set(LOCH_E_BUSY, NULL, 0, "enough");
}

static void misspelt_variables_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *nearest; /* NULL: not visited */
    } rows[] = {
        {"LOCH_POOL_LIMT", "LOCH_POOL_LIMIT"},
        {"LOCH_POLO_IDLE", "LOCH_POOL_IDLE"},
        {"LOCH_PINED", "LOCH_PINNED"},
        {"LOCH_TORCH_LIMI", "LOCH_TORCH_LIMIT"},
        {"LOCH_LOGG", "LOCH_LOG"},
        {"LOCH_WHATEVER_ELSE", "-"},
        {"LOCH_", "-"},
        {"LOCH_LOG", NULL},
        {"LOCH_TEST_SEED", NULL},
        {"LOCH_TEST_OTHER", NULL},
        {"LOCH_REQUIRE_GPU", NULL},
        {"LOCH_CMOCKA_DIR", NULL},
        {"LOCH_PYTHON", NULL},
        {"LOCH_LIBRARY", NULL},
        {"LOCHS", NULL},
        {"MY_LOCH_LOG", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heard all = {0};
        char line[128];
        const bool was_there = getenv(rows[i].variable) != NULL;
        if (!was_there) assert_int_equal(setenv(rows[i].variable, "1", 1), 0);
        CHECK_OK(loch_option_walk_unknown(note_unknown, &all));
        if (!was_there) assert_int_equal(unsetenv(rows[i].variable), 0);
        assert_int_equal(all.count, rows[i].nearest ? 1 : 0);
        if (!rows[i].nearest) continue;
        snprintf(line, sizeof line, "%s %s", rows[i].variable, rows[i].nearest);
        assert_string_equal(all.lines[0], line);
    }
    char endless[1024] = "LOCH_"; /* too long to resemble anything, but none of ours */
    memset(endless + 5, 'X', 100);
    heard all = {0};
    int calls = 0;
    assert_int_equal(setenv(endless, "1", 1), 0);
    CHECK_OK(loch_option_walk_unknown(note_unknown, &all));
    assert_int_equal(all.count, 1);
    assert_int_equal(setenv("LOCH_POOL_LIMT", "1", 1), 0);
    CHECK_FAILS(loch_option_walk_unknown(stop_at_once, &calls), BUSY);
    assert_int_equal(calls, 1);
    assert_int_equal(unsetenv("LOCH_POOL_LIMT") | unsetenv(endless), 0);
    CHECK_FAILS(loch_option_walk_unknown(NULL, NULL), INVALID);
}

/* Not reported without a log hook; reported once when a hook is set. */
static void the_log_hears_of_misspelt_variables_once(void **state)
{
    (void)state;
    heard all = {0};
    assert_int_equal(setenv("LOCH_POOL_LIMT", "8GiB", 1), 0);
    CHECK_OK(open_cpu());
    loch_log_set_hook(hear, &all, LOCH_LOG_WARNING);
    for (int i = 0; i < 3; i++)
        CHECK_OK(open_cpu());
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF);
    assert_int_equal(unsetenv("LOCH_POOL_LIMT"), 0);
    assert_int_equal(all.count, 1);
    assert_string_equal(all.lines[0], "nothing reads LOCH_POOL_LIMT: did you mean LOCH_POOL_LIMIT?");
}

/* What a program sets comes before a variable that cannot be read. */
static void a_set_value_comes_first(void **state)
{
    (void)state;
    char value[LOCH_OPTION_VALUE_MAX];
    assert_int_equal(setenv("LOCH_POOL_LIMIT", "abc", 1), 0);
    CHECK_OK(loch_option_set("pool_limit", "32MiB"));
    CHECK_OK(ask_own());
    CHECK_OK(loch_option_get("pool_limit", value));
    assert_string_equal(value, "32MiB");
    CHECK_OK(loch_option_set("pool_limit", NULL));
    CHECK_FAILS(ask_own(), INVALID);
    assert_int_equal(unsetenv("LOCH_POOL_LIMIT"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unreadable_level_of_the_log_is_told),
        cmocka_unit_test(the_table_is_well_formed),
        cmocka_unit_test(unknown_names_are_not_found),
        cmocka_unit_test(the_environment_comes_before_the_default),
        cmocka_unit_test(values_that_do_not_fit_are_refused),
        cmocka_unit_test(unreadable_values_fail_where_they_are_read),
        cmocka_unit_test(a_set_value_comes_first),
        cmocka_unit_test(misspelt_variables_are_found),
        cmocka_unit_test(the_log_hears_of_misspelt_variables_once),
    };
    for (size_t i = 0; i < test_option_count(); i++)
        unsetenv(test_option_at(i)->environment);
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
