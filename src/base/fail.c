/* SPDX-License-Identifier: MIT */
/* The error record of each thread: its last failure. The record is in the thread's room (base/room.h). A thread that
 * cannot get a room stores only the status and reads a constant record with the general text of that status. So
 * writing a record cannot fail. */
#include "base/fail.h"
#include "base/room.h"
#include "base/status.h"
#include "base/thread_own.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Stores only the status. A code outside the list is stored as E_DRIVER. */
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

/* Removes an unfinished UTF-8 sequence from the end of a sentence that was cut, so that the sentence does not end in
 * the middle of a character. */
static void fail_mend_end(char *sentence, size_t length)
{
    size_t tail = 0; /* bytes of the last character after its first byte */
    while (tail < 3 && tail < length && ((unsigned char)sentence[length - 1 - tail] & 0xc0) == 0x80)
        tail++;
    if (tail == length) return;
    const unsigned char lead = (unsigned char)sentence[length - 1 - tail];
    const size_t wanted = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;
    if (tail < wanted) sentence[length - 1 - tail] = '\0';
}

/* Replaces control characters by '?', so that the sentence stays on one line whatever a name or a file contains, and
 * does not command a terminal: also U+0080 to U+009F, which are two bytes in UTF-8. */
static void fail_keep_line(char *sentence)
{
    for (unsigned char *at = (unsigned char *)sentence; *at; at++) {
        if (*at < ' ' || *at == 0x7f) *at = '?';
        if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) at[0] = at[1] = '?';
    }
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
    *error->owner = '\0';
    error->missing_bytes = error->attempts = 0;
    error->remedy = LOCH_REMEDY_UNKNOWN;
    const size_t plain = strcspn(format, "%");
    if (!format[plain] && plain < sizeof error->sentence) { /* a constant sentence costs no formatting */
        memcpy(error->sentence, format, plain + 1);
    } else {
        va_list arguments;
        va_start(arguments, format);
        const int length = vsnprintf(error->sentence, sizeof error->sentence, format, arguments);
        va_end(arguments);
        if (length >= (int)sizeof error->sentence) fail_mend_end(error->sentence, sizeof error->sentence - 1);
    }
    fail_keep_line(error->sentence);
    if (!*error->sentence) /* never empty: fall back to the general text of the status */
        snprintf(error->sentence, sizeof error->sentence, "%s", loch_status_text(status));
    return status;
}

void lochi_error_note_short(const char *owner, uint64_t missing_bytes, loch_remedy remedy)
{
    lochi_room *room = lochi_room_own;
    if (!room) return;
    snprintf(room->error.owner, sizeof room->error.owner, "%s", owner);
    room->error.missing_bytes = missing_bytes;
    room->error.remedy = remedy;
    room->error.attempts = 1;
}

bool lochi_error_is_final(loch_status status)
{
    const lochi_room *room = lochi_room_own;
    return room && room->error.status == status && room->error.remedy == LOCH_REMEDY_NONE;
}

void lochi_error_note_attempts(uint32_t attempts)
{
    if (lochi_room_own) lochi_room_own->error.attempts = attempts;
}

void lochi_error_say(const char *sentence)
{
    if (lochi_room_own) snprintf(lochi_room_own->error.sentence, LOCH_ERROR_SENTENCE_MAX, "%s", sentence);
}

void lochi_error_append(const char *format, ...)
{
    lochi_room *room = lochi_room_own;
    if (!room) return;
    char *sentence = room->error.sentence;
    const size_t length = strlen(sentence), left = sizeof room->error.sentence - length;
    va_list arguments;
    va_start(arguments, format);
    const int added = vsnprintf(sentence + length, left, format, arguments);
    va_end(arguments);
    if (added >= (int)left) fail_mend_end(sentence, sizeof room->error.sentence - 1);
    fail_keep_line(sentence);
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
