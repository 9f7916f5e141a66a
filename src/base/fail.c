/* SPDX-License-Identifier: MIT */
/* Each thread's record of its last failure. It is in the thread's room; a thread that can have none keeps the status, and finds
 * a constant record with the general meaning. So writing it cannot fail. */
#include "base/fail.h"
#include "base/room.h"
#include "base/status.h"
#include "base/thread_own.h"
#include <stdarg.h>
#include <stdio.h>

/* Notes the status alone; a code outside the list is the driver's. */
static void fail_set_bare(loch_status status)
{
    lochi_thread_own_small.bare_status = (uint8_t)((unsigned)status < LOCH_STATUS_COUNT ? status : LOCH_E_DRIVER);
}

const loch_error *loch_error_get(void)
{
    const lochi_room *room = lochi_room_get();
    return room ? &room->error : lochi_error_bare();
}

void loch_error_clear(void)
{
    lochi_thread_own_small.bare_status = 0;
    if (lochi_room_own) lochi_room_own->error = (loch_error){.driver = ""};
}

/* A sentence that was cut must not end in the middle of a character: takes an unfinished UTF-8 sequence off its end. */
static void fail_mend_end(char *sentence, size_t length)
{
    size_t tail = 0; /* bytes of the last character behind its first */
    while (tail < 3 && tail < length && ((unsigned char)sentence[length - 1 - tail] & 0xc0) == 0x80)
        tail++;
    if (tail == length) return;
    const unsigned char lead = (unsigned char)sentence[length - 1 - tail];
    const size_t wanted = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;
    if (tail < wanted) sentence[length - 1 - tail] = '\0';
}

/* Keeps the sentence on one line, whatever a name or a file had in it: control characters become '?'. */
static void fail_keep_line(char *sentence)
{
    for (char *at = sentence; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
}

loch_status loch_error_set(loch_status status, const char *driver, long driver_code, const char *format, ...)
{
    lochi_room *room = lochi_room_get();
    if (!room) {
        fail_set_bare(status);
        return status;
    }
    loch_error *error = &room->error;
    error->status = status;
    error->driver = driver ? driver : "";
    error->driver_code = driver_code;
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(error->sentence, sizeof error->sentence, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof error->sentence) fail_mend_end(error->sentence, sizeof error->sentence - 1);
    fail_keep_line(error->sentence);
    if (!*error->sentence) /* never empty: the general meaning is better than nothing */
        snprintf(error->sentence, sizeof error->sentence, "%s", loch_status_text(status));
    return status;
}

loch_error lochi_error_save(void)
{
    return lochi_room_own ? lochi_room_own->error : *lochi_error_bare();
}

void lochi_error_restore(const loch_error *saved)
{
    if (saved->status == LOCH_OK && !lochi_room_own) {
        lochi_thread_own_small.bare_status = 0;
        return;
    }
    lochi_room *room = lochi_room_get();
    if (room)
        room->error = *saved;
    else
        fail_set_bare(saved->status);
}
