/* SPDX-License-Identifier: MIT */
/* The option table. Values are stored as text. A value is checked against the type of its option when it is set, and
 * a value from the environment when it is read. An invalid value from the environment is not stored: every read of
 * the option fails until the environment is corrected or a value is set. */
#include "kit/cancel.h"
#include "base/options.h"
#include "base/fail.h"
#include "base/lock.h"
#include "kit/parse.h"
#include "kit/text.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const loch_option option_table[] = {
    {"log", "LOCH_LOG", "off|error|warning|info|debug", "off",
     "Level of the log on standard error when the program sets no hook. Read at the first message, or when a device is "
     "opened."},
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
    {"pool_headroom", "LOCH_POOL_HEADROOM", "bytes", "0",
     "Bytes of a device that the idle memory of each pool leaves to others; 0 means 1 GiB on CUDA (1/32 of a device "
     "below 32 GiB) and none elsewhere. Read when a pool is made."},
    {"pinned", "LOCH_PINNED", "switch", "on",
     "Whether the library's own allocators hand out pinned host memory. Read whenever pinned memory is asked of a "
     "device."},
    {"pinned_limit", "LOCH_PINNED_LIMIT", "bytes", "0",
     "Bytes of pinned host memory that a device's own allocator may hold; 0 means no limit. Read when that allocator "
     "is made."},
    {"leaks", "LOCH_LEAKS", "off|0|on|1|exit", "off",
     "Prints the blocks that are not freed when the process ends, by tag and call site, on standard error. "
     "\"exit\" also ends the process with code 23 if there are any. Read when an allocator is made; blocks of older "
     "allocators are not listed."},
    {"sleep_nan", "LOCH_SLEEP_NAN", "switch", "off",
     "Whether contents that a sleep dropped read as 0xFF bytes after the wake, which is NaN in floating-point types, "
     "and not as zeros. For debugging: what reads them is found. Read when a pool sleeps."},
    {"sim_costs", "LOCH_SIM_COSTS", "text", "",
     "File with the costs of driver calls for simulated devices; empty means those of an H200. Read when a simulated "
     "device is opened."},
    {"sim_strict", "LOCH_SIM_STRICT", "switch", "off",
     "Whether a finding of the checker of stream order fails the call that caused it. Read when a simulated device is "
     "opened."},
    {"trace", "LOCH_TRACE", "text", "",
     "File to which the process records what it does with its memory, \"%p\" stands for the process id; empty means "
     "none. Read when the first allocator is made."},
    {"trace_stacks", "LOCH_TRACE_STACKS", "number", "0",
     "Frames of the call stacks that LOCH_TRACE records with allocations, 0 to 64. Read when the first allocator is "
     "made."},
    {"snapshot", "LOCH_SNAPSHOT", "text", "",
     "File for a snapshot of all memory, written when a request for memory fails in the end for the first time; %p is "
     "the process id; empty means none. Read at each such failure until the file was written."},
    {"read_mib", "LOCH_READ_MIB", "number", "4096",
     "MiB that a compressed recording may have when it is unpacked, so that a small file cannot fill the memory; the "
     "default is at most a quarter of the memory that is available; 0 means no limit. Read when a recording is "
     "loaded."},
    {"top", "LOCH_TOP", "switch", "off",
     "Whether `loch top` may look at the process, through a socket for its user alone. Read when the first allocator "
     "is "
     "made."},
};

#define OPTION_COUNT (sizeof option_table / sizeof *option_table)

/* Values; under option_lock. `known` is true once a value was set or read from the environment or the default. */
static struct {
    bool known;
    char value[LOCH_OPTION_VALUE_MAX];
} option_values[OPTION_COUNT];
static lochi_lock option_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_OPTIONS);

size_t lochi_option_count(void)
{
    return OPTION_COUNT;
}

const loch_option *lochi_option_at(size_t index)
{
    return index < OPTION_COUNT ? &option_table[index] : NULL;
}

loch_status loch_option_walk(loch_option_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!visitor) return LOCH_FAIL(INVALID, "loch_option_walk needs a visitor");
    for (size_t i = 0; i < OPTION_COUNT; i++)
        LOCH_TRY_RETURN(visitor(&option_table[i], user));
    return LOCH_OK;
}

static size_t option_find(const char *name)
{
    size_t at = 0;
    while (at < OPTION_COUNT && strcmp(option_table[at].name, name) != 0)
        at++;
    return at;
}

/* Returns whether `value` is one of the words in `words`: "a|b|c". */
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

#define OPTION_TAKES_MAX 96

/* Writes the values that an option takes, for people: "off, error, warning, info, debug". */
static const char *option_takes(const loch_option *option, char text[OPTION_TAKES_MAX])
{
    if (!strcmp(option->type, "text")) {
        snprintf(text, OPTION_TAKES_MAX, "text of at most %d bytes", LOCH_OPTION_VALUE_MAX - 1);
        return text;
    }
    if (!strcmp(option->type, "number")) return "a whole number";
    if (!strcmp(option->type, "bytes")) return "bytes, e.g. 8GiB";
    if (!strcmp(option->type, "switch")) return "on or off";
    lochi_text words = lochi_text_begin(text, OPTION_TAKES_MAX);
    for (const char *at = option->type; *at; at++)
        lochi_text_write(&words, *at == '|' ? ", " : "%c", *at);
    return text;
}

/* Copies the value in force. If the environment has an invalid value, copies the beginning of that value and returns
 * false. An empty variable counts as not set. Does not change the error record. */
static bool option_read(size_t at, char value[LOCH_OPTION_VALUE_MAX])
{
    const loch_option *option = &option_table[at];
    bool is_good = true;
    lochi_lock_take(&option_lock);
    if (!option_values[at].known) {
        const char *text = secure_getenv(option->environment); /* secure_getenv: the value may name a library to load */
        if (!text || !*text) text = option->fallback;
        is_good = option_fits(option, text);
        snprintf(option_values[at].value, LOCH_OPTION_VALUE_MAX, "%s", text);
        option_values[at].known = is_good;
    }
    memcpy(value, option_values[at].value, LOCH_OPTION_VALUE_MAX);
    lochi_lock_drop(&option_lock);
    return is_good;
}

static loch_status option_get(size_t at, char value[LOCH_OPTION_VALUE_MAX])
{
    if (option_read(at, value)) return LOCH_OK;
    const loch_option *option = &option_table[at];
    char takes[OPTION_TAKES_MAX];
    const loch_status status =
        LOCH_FAIL(INVALID, "%s is \"%.80s\": it takes %s", option->environment, value, option_takes(option, takes));
    memset(value, 0, LOCH_OPTION_VALUE_MAX);
    return status;
}

loch_status loch_option_get(const char *name, char value[LOCH_OPTION_VALUE_MAX])
{
    if (!name || !value) return LOCH_FAIL(INVALID, "loch_option_get needs a name and a buffer for the value");
    const size_t at = option_find(name);
    if (at == OPTION_COUNT) return LOCH_FAIL(NOT_FOUND, "there is no option \"%s\": `loch info` lists them", name);
    return option_get(at, value);
}

loch_status loch_option_set(const char *name, const char *value)
{
    if (!name) return LOCH_FAIL(INVALID, "loch_option_set needs a name");
    const size_t at = option_find(name);
    if (at == OPTION_COUNT) return LOCH_FAIL(NOT_FOUND, "there is no option \"%s\": `loch info` lists them", name);
    char takes[OPTION_TAKES_MAX];
    if (value && !option_fits(&option_table[at], value))
        return LOCH_FAIL(INVALID, "option \"%s\" takes %s, not \"%.80s\"", name, option_takes(&option_table[at], takes),
                         value);
    lochi_lock_take(&option_lock);
    option_values[at].known = value != NULL;
    if (value) memcpy(option_values[at].value, value, strlen(value) + 1);
    lochi_lock_drop(&option_lock);
    return LOCH_OK;
}

static size_t option_find_own(const char *name)
{
    const size_t at = option_find(name);
    assert(at < OPTION_COUNT);
    return at;
}

bool lochi_option_try_text(const char *name, char value[LOCH_OPTION_VALUE_MAX])
{
    return option_read(option_find_own(name), value);
}

loch_status lochi_option_text(const char *name, char value[LOCH_OPTION_VALUE_MAX])
{
    return option_get(option_find_own(name), value);
}

loch_status lochi_option_number(const char *name, uint64_t *out)
{
    char value[LOCH_OPTION_VALUE_MAX];
    *out = 0;
    LOCH_TRY_RETURN(lochi_option_text(name, value));
    lochi_parse_number(value, out);
    return LOCH_OK;
}

loch_status lochi_option_bytes(const char *name, size_t *out)
{
    char value[LOCH_OPTION_VALUE_MAX];
    *out = 0;
    LOCH_TRY_RETURN(lochi_option_text(name, value));
    lochi_parse_bytes(value, out);
    return LOCH_OK;
}

loch_status lochi_option_switch(const char *name, bool *out)
{
    char value[LOCH_OPTION_VALUE_MAX];
    *out = false;
    LOCH_TRY_RETURN(lochi_option_text(name, value));
    lochi_parse_switch(value, out);
    return LOCH_OK;
}
