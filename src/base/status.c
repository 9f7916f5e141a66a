/* SPDX-License-Identifier: MIT */
/* Names and texts of the status codes, and each thread's record of its last failure. The record is a plain thread-local
 * struct: writing it takes no memory and cannot fail. */
#include "base/fail.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local loch_error error_of_thread = {.driver = ""};

static const struct {
    const char *name, *text;
} status_table[] = {
#define STATUS_ROW(suffix, text) {#suffix, text},
    LOCH_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

const char *loch_version(void)
{
    return LOCH_VERSION_STRING;
}

const char *loch_status_name(loch_status status)
{
    return (unsigned)status < LOCH_STATUS_COUNT ? status_table[status].name : "E_UNKNOWN";
}

const char *loch_status_text(loch_status status)
{
    return (unsigned)status < LOCH_STATUS_COUNT ? status_table[status].text : "an unknown status";
}

const loch_error *loch_error_get(void)
{
    return &error_of_thread;
}

void loch_error_clear(void)
{
    error_of_thread = (loch_error){.driver = ""};
}

/* A sentence that was cut must not end in the middle of a character: takes an unfinished UTF-8 sequence off its end. */
static void error_mend_end(char *sentence, size_t length)
{
    size_t tail = 0; /* bytes of the last character behind its first */
    while (tail < 3 && tail < length && ((unsigned char)sentence[length - 1 - tail] & 0xc0) == 0x80)
        tail++;
    if (tail == length) return;
    const unsigned char lead = (unsigned char)sentence[length - 1 - tail];
    const size_t wanted = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;
    if (tail < wanted) sentence[length - 1 - tail] = '\0';
}

loch_status loch_error_set(loch_status status, const char *driver, long driver_code, const char *format, ...)
{
    error_of_thread.status = status;
    error_of_thread.driver = driver ? driver : "";
    error_of_thread.driver_code = driver_code;
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(error_of_thread.sentence, sizeof error_of_thread.sentence, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof error_of_thread.sentence)
        error_mend_end(error_of_thread.sentence, sizeof error_of_thread.sentence - 1);
    if (!*error_of_thread.sentence) /* never empty: the general meaning is better than nothing */
        snprintf(error_of_thread.sentence, sizeof error_of_thread.sentence, "%s", loch_status_text(status));
    return status;
}

loch_error lochi_error_save(void)
{
    return error_of_thread;
}

void lochi_error_restore(const loch_error *saved)
{
    error_of_thread = *saved;
}
