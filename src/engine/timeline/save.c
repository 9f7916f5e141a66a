/* SPDX-License-Identifier: MIT */
/* Prints a timeline to a file. */
#include "base/fail.h"
#include "base/heap.h"
#include "kit/new_file.h"
#include <loch/timeline.h>

/* Prints into memory that this function allocates. If other threads record spans meanwhile and the text becomes longer,
 * prints again. */
static loch_status save_print(loch_timeline *timeline, loch_timeline_format format, size_t width, char **out,
                              size_t *length)
{
    LOCH_TRY_RETURN(loch_timeline_print(timeline, format, width, NULL, 0, length));
    for (;;) {
        const size_t bytes = *length + *length / 4 + 1; /* spans may end meanwhile */
        *out = lochi_alloc(bytes);
        if (!*out) return LOCH_FAIL(HOST_MEMORY, "no host memory for the text of a timeline");
        LOCH_TRY_RETURN(
            loch_timeline_print(timeline, format, width, *out, bytes, length)); /* cannot fail the second time */
        if (*length < bytes) return LOCH_OK;
        lochi_free(*out);
    }
}

loch_status loch_timeline_save(loch_timeline *timeline, const char *path, loch_timeline_format format, size_t width)
{
    if (!timeline || !path) return LOCH_FAIL(INVALID, "saving a timeline needs a timeline and a path");
    char *text;
    size_t length;
    LOCH_TRY_RETURN(save_print(timeline, format, width, &text, &length));
    lochi_new_file file;
    loch_status status = lochi_new_file_open(&file, path);
    if (status == LOCH_OK) status = lochi_new_file_write(&file, text, length);
    status = lochi_new_file_close(&file, status);
    lochi_free(text);
    return status;
}
