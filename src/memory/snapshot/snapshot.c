/* SPDX-License-Identifier: MIT */
/* Snapshots: copies first, then the file. No lock is held while the file is written. */
#include "memory/snapshot/snapshot.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/logging.h"
#include "base/options.h"
#include "kit/new_file.h"
#include "memory/snapshot/collect.h"
#include "memory/snapshot/write.h"
#include <loch/snapshot.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static loch_status snapshot_write_file(void *user, const void *text, size_t bytes)
{
    return lochi_new_file_write(user, text, bytes);
}

static loch_status snapshot_save(const char *path, const snapshot_failure *failure)
{
    LOCHI_NOT_CANCELLED;
    snapshot_contents contents;
    loch_status status = lochi_snapshot_collect(true, &contents);
    contents.failure = failure;
    if (status == LOCH_OK) {
        lochi_new_file file;
        status = lochi_new_file_open_private(&file, path);
        if (status == LOCH_OK) status = lochi_snapshot_write(&contents, snapshot_write_file, &file);
        status = lochi_new_file_close(&file, status);
    }
    lochi_snapshot_drop(&contents);
    return status;
}

loch_status loch_snapshot_save(const char *path)
{
    if (!path) return LOCH_FAIL(INVALID, "a snapshot needs a path");
    return snapshot_save(path, NULL);
}

/* --- when memory is short --- */

/* Copies a path; "%p" becomes the process id. Returns false if it does not fit. */
static bool snapshot_expand(const char *path, char *out, size_t bytes)
{
    size_t used = 0;
    for (; *path && used < bytes; path++) {
        const bool is_pid = path[0] == '%' && path[1] == 'p';
        const int length = is_pid ? snprintf(out + used, bytes - used, "%ld", (long)getpid())
                                  : snprintf(out + used, bytes - used, "%c", *path);
        used += length > 0 ? (size_t)length : 0;
        path += is_pid;
    }
    return used < bytes;
}

atomic_bool lochi_snapshot_is_written;

void lochi_snapshot_note_failure(const loch_allocator *allocator, const loch_request *request, loch_status status)
{
    char option[LOCH_OPTION_VALUE_MAX], path[LOCH_OPTION_VALUE_MAX + 32];
    if (status != LOCH_E_DEVICE_MEMORY && status != LOCH_E_LIMIT && status != LOCH_E_FRAGMENTED) return;
    if (atomic_load_explicit(&lochi_snapshot_is_written, memory_order_relaxed)) return;
    if (!lochi_option_try_text("snapshot", option) || !option[0]) return;
    if (!snapshot_expand(option, path, sizeof path)) return;
    if (atomic_exchange_explicit(&lochi_snapshot_is_written, true, memory_order_relaxed)) return;
    const loch_error saved = lochi_error_save();
    const snapshot_failure failure = {.bytes = request->bytes,
                                      .allocator = allocator->node.key,
                                      .stream = loch_stream_get_id(request->stream),
                                      .tag = request->tag,
                                      .status = status,
                                      .sentence = saved.status == status ? saved.sentence : ""};
    const loch_status result = snapshot_save(path, &failure);
    if (result == LOCH_OK)
        LOCHI_LOG(WARNING, "a request for memory failed: the snapshot is in %.200s", path);
    else
        LOCHI_LOG(ERROR, "a request for memory failed, and so did its snapshot: %s", loch_error_get()->sentence);
    lochi_error_restore(&saved);
}
