/* SPDX-License-Identifier: MIT */
/* The option table. Values are kept as text; a value is checked against its type when it is set, and one from the
 * environment when it is first read. */
#include "base/options.h"
#include "base/fail.h"
#include "base/lock.h"
#include "base/logging.h"
#include "base/parse.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const loch_option option_table[] = {
    {"log", "LOCH_LOG", "off|error|warning|info|debug", "off",
     "Level of the log on standard error when the program sets no hook. Read at the first message."},
    {"cuda_library", "LOCH_CUDA_LIBRARY", "text", "",
     "File name of the CUDA driver library; empty means libcuda.so.1. Read when a CUDA device is first looked for."},
    {"cublas", "LOCH_CUBLAS", "text", "",
     "File name of the cuBLAS library; empty means libcublas.so.13, .12 or without a number, loaded already or found "
     "by "
     "the system. Read until it was loaded."},
    {"nccl", "LOCH_NCCL", "text", "",
     "File name of the NCCL library; empty means libnccl.so.2 or without a number, loaded already or found by the "
     "system. Read until it was loaded."},
    {"cpu_huge_pages", "LOCH_CPU_HUGE_PAGES", "switch", "off",
     "Asks the system for huge pages behind CPU memory of 2 MiB and more. Read when a CPU device is opened."},
    {"default_allocator", "LOCH_DEFAULT_ALLOCATOR", "pool|direct", "pool",
     "What a device's own allocators are: pools, or direct ones, which ask the driver for every block. Read when such "
     "an "
     "allocator is made."},
    {"direct_memory", "LOCH_DIRECT_MEMORY", "switch", "off",
     "Whether engines take memory directly from the driver, block by block, and not from pools. Read when an engine is "
     "opened."},
    {"pool_limit", "LOCH_POOL_LIMIT", "bytes", "0",
     "Bytes that the pool of a device's own memory may hold from the device; 0 means no limit. Read when that pool is "
     "made."},
    {"pool_idle", "LOCH_POOL_IDLE", "bytes", "0",
     "Bytes of free memory that each of a device's own pools keeps, more is given back; 0 means no cap. Read when such "
     "a "
     "pool is made."},
    {"pinned", "LOCH_PINNED", "switch", "on",
     "Whether the library's own allocators hand out pinned host memory. Read whenever pinned memory is asked of a "
     "device."},
    {"pinned_limit", "LOCH_PINNED_LIMIT", "bytes", "0",
     "Bytes of pinned host memory that a device's own allocator may hold; 0 means no limit. Read when that allocator "
     "is made."},
    {"sim_costs", "LOCH_SIM_COSTS", "text", "",
     "File with the costs of driver calls for simulated devices; empty means those of an H200. Read when a simulated "
     "device is opened."},
};

#define OPTION_COUNT (sizeof option_table / sizeof *option_table)

/* Under option_lock; `known` once a value was set or taken from the environment or the default. */
static struct {
    bool known;
    char value[LOCH_OPTION_VALUE_MAX];
} option_values[OPTION_COUNT];
static lochi_lock option_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_OPTIONS);

size_t loch_option_count(void)
{
    return OPTION_COUNT;
}

const loch_option *loch_option_at(size_t index)
{
    return index < OPTION_COUNT ? &option_table[index] : NULL;
}

static size_t option_find(const char *name)
{
    size_t at = 0;
    while (at < OPTION_COUNT && strcmp(option_table[at].name, name) != 0)
        at++;
    return at;
}

/* Whether `value` is one of the words in "a|b|c". */
static bool option_is_word(const char *words, const char *value)
{
    const size_t length = strcspn(value, "|");
    if (value[length]) return false;
    for (const char *at = words; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (length && !strncmp(at, value, length) && (at[length] == '|' || !at[length])) return true;
    }
    return false;
}

static bool option_fits(const loch_option *option, const char *value)
{
    uint64_t number;
    size_t bytes;
    bool is_on;
    if (strlen(value) >= LOCH_OPTION_VALUE_MAX) return false;
    if (!strcmp(option->type, "text")) return true;
    if (!strcmp(option->type, "number")) return lochi_parse_number(value, &number);
    if (!strcmp(option->type, "bytes")) return lochi_parse_bytes(value, &bytes);
    if (!strcmp(option->type, "switch")) return lochi_parse_switch(value, &is_on);
    return option_is_word(option->type, value);
}

/* Copies the value in force; says whether the environment held one that cannot be read. */
static bool option_read(size_t at, char value[LOCH_OPTION_VALUE_MAX])
{
    bool is_bad = false;
    lochi_lock_take(&option_lock);
    if (!option_values[at].known) {
        const loch_option *option = &option_table[at];
        const char *text = secure_getenv(option->environment); /* may name code to load */
        is_bad = text && !option_fits(option, text);
        if (!text || is_bad) text = option->fallback;
        memcpy(option_values[at].value, text, strlen(text) + 1);
        option_values[at].known = true;
    }
    memcpy(value, option_values[at].value, LOCH_OPTION_VALUE_MAX);
    lochi_lock_drop(&option_lock);
    return is_bad;
}

static void option_get(size_t at, char value[LOCH_OPTION_VALUE_MAX])
{
    const loch_option *option = &option_table[at];
    if (option_read(at, value))
        LOCHI_LOG(WARNING, "%s is not %s: using \"%s\"", option->environment, option->type, option->fallback);
}

loch_status loch_option_get(const char *name, char value[LOCH_OPTION_VALUE_MAX])
{
    if (!name || !value) return LOCH_FAIL(INVALID, "an option needs a name and room for its value");
    const size_t at = option_find(name);
    if (at == OPTION_COUNT) return LOCH_FAIL(NOT_FOUND, "there is no option \"%s\": `loch info` lists them", name);
    option_get(at, value);
    return LOCH_OK;
}

loch_status loch_option_set(const char *name, const char *value)
{
    if (!name) return LOCH_FAIL(INVALID, "an option needs a name");
    const size_t at = option_find(name);
    if (at == OPTION_COUNT) return LOCH_FAIL(NOT_FOUND, "there is no option \"%s\": `loch info` lists them", name);
    if (value && !option_fits(&option_table[at], value))
        return LOCH_FAIL(INVALID, "option \"%s\" takes %s, not \"%.80s\"", name, option_table[at].type, value);
    lochi_lock_take(&option_lock);
    option_values[at].known = value != NULL;
    if (value) memcpy(option_values[at].value, value, strlen(value) + 1);
    lochi_lock_drop(&option_lock);
    return LOCH_OK;
}

void lochi_option_text(const char *name, char value[LOCH_OPTION_VALUE_MAX])
{
    const size_t at = option_find(name);
    assert(at < OPTION_COUNT);
    option_get(at, value);
}

size_t lochi_option_bytes(const char *name)
{
    char value[LOCH_OPTION_VALUE_MAX];
    size_t bytes = 0;
    lochi_option_text(name, value);
    lochi_parse_bytes(value, &bytes);
    return bytes;
}

bool lochi_option_switch(const char *name)
{
    char value[LOCH_OPTION_VALUE_MAX];
    bool is_on = false;
    lochi_option_text(name, value);
    lochi_parse_switch(value, &is_on);
    return is_on;
}
