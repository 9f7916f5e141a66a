/* SPDX-License-Identifier: MIT */
/* Fuzz target: options, by call and from the environment, and the numbers and sizes in them, beside a plain reading of
 * those. The first byte chooses the option, or a name that is taken from the input; the rest is the value. */
#include "base/options.h"
#include "kit/parse.h"
#include "fuzz.h"

__extension__ typedef unsigned __int128 wide;

/* Decimal digits alone, below 2^64. */
static bool plain_number(const char *text, uint64_t *out)
{
    wide value = 0;
    if (!*text || strspn(text, "0123456789") != strlen(text)) return false;
    for (; *text; text++)
        if ((value = 10 * value + (unsigned)(*text - '0')) > UINT64_MAX) return false;
    *out = (uint64_t)value;
    return true;
}

static void expect_numbers(const char *text)
{
    uint64_t number = 7, plain = 7;
    size_t bytes = 7;
    bool is_on;
    FUZZ_EXPECT(lochi_parse_number(text, &number) == plain_number(text, &plain) && number == plain);
    if (!lochi_parse_bytes(text, &bytes)) {
        FUZZ_EXPECT(bytes == 7);
        FUZZ_EXPECT(!plain_number(text, &plain)); /* a plain number is a size */
        return;
    }
    if (plain_number(text, &plain)) FUZZ_EXPECT(bytes == plain);
    /* What was read is at least the whole number in front, and below that plus one, times the largest unit. */
    char digits[2 * LOCH_OPTION_VALUE_MAX];
    const size_t length = strspn(text, "0123456789");
    FUZZ_EXPECT(length && length < sizeof digits);
    snprintf(digits, sizeof digits, "%.*s", (int)length, text);
    FUZZ_EXPECT(plain_number(digits, &plain) && bytes >= plain && (wide)bytes < ((wide)plain + 1) << 50);
    (void)lochi_parse_switch(text, &is_on);
}

static void expect_option(const loch_option *option, const char *value)
{
    char before[LOCH_OPTION_VALUE_MAX], now[LOCH_OPTION_VALUE_MAX];
    CHECK_OK(loch_option_get(option->name, before));
    loch_error_clear();
    const loch_status status = loch_option_set(option->name, value);
    CHECK_OK(loch_option_get(option->name, now));
    if (status == LOCH_OK) {
        FUZZ_EXPECT(!strcmp(now, value));
        size_t read;
        bool is_on;
        if (!strcmp(option->type, "bytes")) CHECK_OK(lochi_option_bytes(option->name, &read));
        if (!strcmp(option->type, "switch")) CHECK_OK(lochi_option_switch(option->name, &is_on));
    } else {
        FUZZ_FAILED(status, TEST_SET(INVALID));
        FUZZ_EXPECT(!strcmp(now, before));
    }
    /* From the environment: what the call takes is taken there, what it does not take fails; empty means not set. */
    CHECK_OK(loch_option_set(option->name, NULL));
    FUZZ_EXPECT(setenv(option->environment, value, 1) == 0);
    const loch_status from_environment = loch_option_get(option->name, now);
    if (!*value || status == LOCH_OK) {
        CHECK_OK(from_environment);
        FUZZ_EXPECT(!strcmp(now, *value ? value : option->fallback));
    } else {
        FUZZ_FAILED(from_environment, TEST_SET(INVALID));
    }
    unsetenv(option->environment);
    CHECK_OK(loch_option_set(option->name, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_input input = {data, bytes};
    char name[64], value[2 * LOCH_OPTION_VALUE_MAX];
    const loch_option *option = test_option_at(fuzz_byte(&input) % (test_option_count() + 1));
    fuzz_begin();
    if (!option) {
        fuzz_text(&input, name, sizeof name);
        loch_error_clear();
        const loch_status status = loch_option_get(name, value);
        if (status != LOCH_OK) FUZZ_FAILED(status, TEST_SET(NOT_FOUND));
    }
    fuzz_text(&input, value, sizeof value);
    expect_numbers(value);
    /* The level of the log is left alone: it would print what is wrong with the values of others. */
    if (option && strcmp(option->name, "log") != 0) expect_option(option, value);
    fuzz_end();
    return 0;
}
