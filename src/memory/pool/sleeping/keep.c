/* SPDX-License-Identifier: MIT */
/* Saves the contents of sleeping memory. Pinned memory, and host memory of devices whose memory the host can reach,
 * is copied directly: a few large copies and one wait. Other host memory and files go through a stage: pinned memory
 * in two halves. The device fills one half while the host empties the other. */
#include "memory/pool/sleeping/keep.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "kit/text.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/own_file.h"
#include "device/copy.h"
#include "memory/live/live.h"
#include "memory/session/session.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <loch/copy.h>
#include <loch/registry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEEP_PIECE ((size_t)64 << 20) /* large enough for full bandwidth, small enough to fit between other blocks */
#define KEEP_VERIFY_BYTES ((size_t)1 << 20)
#define KEEP_IO_MAX ((size_t)1 << 30)

/* --- files --- */

static const char *keep_name(const pool_keep *keep)
{
    return keep->path ? keep->path : "a file for a sleeping pool";
}

static loch_status keep_fail(const pool_keep *keep, const char *what, int error)
{
    return LOCH_FAIL(IO, "%.120s cannot be %s: %s", keep_name(keep), what, strerror(error));
}

/* Opens a file without a name in a folder, or one whose name is removed at once. */
static loch_status keep_open_unnamed(pool_keep *keep, const char *folder)
{
    LOCHI_NOT_CANCELLED;
#ifdef O_TMPFILE
    keep->file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (keep->file >= 0) return LOCH_OK;
#endif
    char name[PATH_MAX];
    const int length = snprintf(name, sizeof name, "%s/loch-sleep-XXXXXX", folder);
    if (length > 0 && (size_t)length < sizeof name)
        keep->file = mkostemp(name, O_CLOEXEC);
    else
        errno = ENAMETOOLONG;
    if (keep->file < 0) return LOCH_FAIL(IO, "no file can be made in \"%.120s\": %s", folder, strerror(errno));
    unlink(name);
    return LOCH_OK;
}

/* Opens a file by its path. Only regular files return what was written to them. */
static loch_status keep_open_file(pool_keep *keep, const char *path)
{
    LOCHI_NOT_CANCELLED;
    const char *temporary = secure_getenv("TMPDIR");
    if (!path) return keep_open_unnamed(keep, temporary && *temporary ? temporary : "/tmp");
    const size_t length = strlen(path);
    if (length && path[length - 1] == '/') return keep_open_unnamed(keep, path);
    keep->path = lochi_strdup(path);
    if (!keep->path) return LOCH_FAIL(HOST_MEMORY, "no host memory for the name of a file");
    bool is_special;
    keep->file = lochi_own_file_open(path, O_RDWR, &is_special);
    if (keep->file >= 0 && !is_special) return LOCH_OK;
    const loch_status status =
        keep->file < 0 ? keep_fail(keep, "made", errno)
                       : LOCH_FAIL(IO, "%.120s is not a regular file: contents cannot be read back from it", path);
    lochi_free(keep->path); /* the file existed before: it is not removed */
    keep->path = NULL;
    return status;
}

/* Removes the file, unless another file has been put at its path. */
static void keep_close_file(pool_keep *keep)
{
    LOCHI_NOT_CANCELLED;
    struct stat own, there;
    if (keep->path && fstat(keep->file, &own) == 0 && lstat(keep->path, &there) == 0 && own.st_dev == there.st_dev &&
        own.st_ino == there.st_ino)
        unlink(keep->path);
    if (keep->file >= 0) close(keep->file);
    lochi_free(keep->path);
}

/* Returns a checksum: the sum of all 8-byte words, each times an odd factor that depends on its position. It does
 * not depend on how the bytes are split into calls, and it changes if any one word changes. */
static uint64_t keep_sum(const char *from, size_t bytes, size_t offset)
{
    uint64_t sum = 0;
    while (bytes) {
        uint64_t word = 0;
        const size_t inside = offset % sizeof word, left = sizeof word - inside, piece = bytes < left ? bytes : left;
        memcpy((char *)&word + inside, from, piece);
        sum += word * (offset / sizeof word * 0x9e3779b97f4a7c16u + 1);
        from += piece;
        offset += piece;
        bytes -= piece;
        for (uint64_t place = offset / sizeof word; bytes >= sizeof word; place++) { /* whole words */
            memcpy(&word, from, sizeof word);
            sum += word * (place * 0x9e3779b97f4a7c16u + 1);
            from += sizeof word;
            offset += sizeof word;
            bytes -= sizeof word;
        }
    }
    return sum;
}

static loch_status keep_write(pool_keep *keep, const char *from, size_t bytes, size_t offset)
{
    LOCHI_NOT_CANCELLED;
    if (!bytes) return LOCH_OK; /* an empty half of a stage, whose offset is an old one */
    if (!offset) keep->sum = 0;
    keep->sum += keep_sum(from, bytes, offset);
    keep->written = offset + bytes; /* pieces are written one after the other */
    while (bytes) {
        const ssize_t count = pwrite(keep->file, from, bytes < KEEP_IO_MAX ? bytes : KEEP_IO_MAX, (off_t)offset);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return keep_fail(keep, "written", count < 0 ? errno : ENOSPC);
        from += count;
        offset += (size_t)count;
        bytes -= (size_t)count;
    }
    return LOCH_OK;
}

static loch_status keep_read(const pool_keep *keep, char *to, size_t bytes, size_t offset)
{
    LOCHI_NOT_CANCELLED;
    while (bytes) {
        const ssize_t count = pread(keep->file, to, bytes < KEEP_IO_MAX ? bytes : KEEP_IO_MAX, (off_t)offset);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return keep_fail(keep, "read", errno);
        if (!count) return LOCH_FAIL(CORRUPT, "%.120s became shorter while contents were kept in it", keep_name(keep));
        to += count;
        offset += (size_t)count;
        bytes -= (size_t)count;
    }
    return LOCH_OK;
}

/* Checks that the file returns what was written to it. Flushes it to disk first, so that errors of delayed writes
 * are found now. */
static loch_status keep_verify(const pool_keep *keep)
{
    LOCHI_NOT_CANCELLED;
    struct stat about;
    if (fdatasync(keep->file) != 0) return keep_fail(keep, "written", errno);
    if (fstat(keep->file, &about) != 0 || (size_t)about.st_size < keep->written)
        return LOCH_FAIL(IO, "%.120s does not have the %zu bytes that were written to it", keep_name(keep),
                         keep->written);
    char *back = lochi_alloc(KEEP_VERIFY_BYTES);
    if (!back) return LOCH_FAIL(HOST_MEMORY, "no host memory to check saved contents");
    loch_status status = LOCH_OK;
    uint64_t sum = 0;
    for (size_t offset = 0; offset < keep->written && status == LOCH_OK; offset += KEEP_VERIFY_BYTES) {
        const size_t left = keep->written - offset, bytes = left < KEEP_VERIFY_BYTES ? left : KEEP_VERIFY_BYTES;
        status = keep_read(keep, back, bytes, offset);
        if (status == LOCH_OK) sum += keep_sum(back, bytes, offset);
    }
    lochi_free(back);
    if (status == LOCH_OK && sum != keep->sum)
        status = LOCH_FAIL(IO, "%.120s does not contain what was written to it", keep_name(keep));
    return status;
}

/* --- opening and closing --- */

/* Chooses the allocator of the pieces and takes a reference to it. */
static loch_status keep_choose_allocator(pool_keep *keep, loch_allocator *given)
{
    if (given) {
        keep->allocator = loch_allocator_retain(given);
        return LOCH_OK;
    }
    const uint32_t pinned = keep->contents == LOCH_SLEEP_PINNED ? LOCH_ATTRIBUTE_GPU_COMPATIBLE : 0;
    const loch_attributes attributes = {.bits = LOCH_ATTRIBUTE_ON_HOST | pinned};
    if (pinned)
        return loch_device_acquire_allocator(keep->device, attributes, LOCH_FALLBACK_PAGEABLE, &keep->allocator);
    loch_device *cpu;
    LOCH_TRY_RETURN(loch_device_open("cpu", &cpu));
    const loch_status status = loch_device_acquire_allocator(cpu, attributes, LOCH_FALLBACK_NONE, &keep->allocator);
    loch_device_release(cpu);
    return status;
}

loch_status lochi_keep_open(pool_keep *keep, loch_device *device, const loch_sleep_options *options)
{
    *keep = (pool_keep){.contents = options->contents, .device = device, .file = -1};
    const bool is_reached = loch_device_can(device, LOCH_CAN_HOST_ACCESS);
    loch_status status = LOCH_OK;
    if (options->contents == LOCH_SLEEP_FILE) {
        status = keep_open_file(keep, options->path);
        keep->is_staged = !is_reached;
    } else if (options->contents != LOCH_SLEEP_DROP) {
        status = keep_choose_allocator(keep, options->allocator);
        const bool is_pinned =
            status == LOCH_OK && loch_allocator_get_attributes(keep->allocator).bits & LOCH_ATTRIBUTE_GPU_COMPATIBLE;
        keep->is_staged = !is_reached && !is_pinned;
    }
    if (status != LOCH_OK) lochi_keep_close(keep);
    return status;
}

void lochi_keep_close(pool_keep *keep)
{
    const loch_error saved = lochi_error_save();
    for (size_t i = 0; i < keep->pieces_count; i++)
        if ((keep->is_wiped && loch_fill(keep->pieces[i].address, keep->pieces[i].bytes, "", 1) != LOCH_OK) ||
            loch_free(keep->allocator, keep->pieces[i].address) != LOCH_OK)
            LOCHI_LOG(ERROR, "%s of host memory with saved contents are lost: %s", LOCHI_SIZE(keep->pieces[i].bytes),
                      loch_error_get()->sentence);
    lochi_free(keep->pieces);
    loch_allocator_release(keep->allocator);
    keep_close_file(keep);
    *keep = (pool_keep){.file = -1};
    lochi_error_restore(&saved);
}

static loch_status keep_add_piece(pool_keep *keep, size_t bytes)
{
    if (keep->pieces_count == keep->pieces_capacity) {
        const size_t capacity = keep->pieces_capacity ? 2 * keep->pieces_capacity : 16;
        pool_keep_piece *grown = lochi_realloc(keep->pieces, capacity * sizeof *grown);
        if (!grown) return LOCH_FAIL(HOST_MEMORY, "no host memory for the list of saved contents");
        keep->pieces = grown;
        keep->pieces_capacity = capacity;
    }
    void *address;
    lochi_session_frame frame;
    lochi_session_hush(&frame); /* the pieces outlive the session that the thread is in */
    lochi_live_hide();
    const loch_status status = loch_alloc(keep->allocator, bytes, &address);
    lochi_live_show();
    lochi_session_unhush(&frame);
    if (status != LOCH_OK) return status;
    keep->pieces[keep->pieces_count++] = (pool_keep_piece){address, keep->room, bytes};
    keep->room += bytes;
    return LOCH_OK;
}

loch_status lochi_keep_grow(pool_keep *keep, size_t bytes)
{
    if (!keep->allocator) return LOCH_OK;
    while (keep->room < bytes) {
        const size_t left = bytes - keep->room;
        LOCH_TRY_RETURN(keep_add_piece(keep, left < KEEP_PIECE ? left : KEEP_PIECE));
    }
    /* The blocks are free in the order of that stream, and the host or another device writes to them next. */
    return loch_stream_sync(loch_stream_get_default(loch_allocator_get_device(keep->allocator)));
}

loch_status lochi_stage_open(pool_stage *stage, loch_device *device)
{
    const loch_attributes attributes = {.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    loch_status status;
    void *memory;
    LOCH_TRY(loch_device_acquire_allocator(device, attributes, LOCH_FALLBACK_PAGEABLE, &stage->allocator), fail);
    lochi_live_hide();
    status = loch_alloc(stage->allocator, 2 * POOL_STAGE_HALF, &memory);
    lochi_live_show();
    LOCH_TRY(status, fail);
    stage->memory = memory;
    for (int i = 0; i < 2; i++)
        LOCH_TRY(loch_event_create(device, LOCH_EVENT_PLAIN, &stage->events[i]), fail);
    LOCH_TRY(loch_stream_sync(loch_stream_get_default(loch_allocator_get_device(stage->allocator))), fail);
    return LOCH_OK;
fail:
    lochi_stage_close(stage);
    return status;
}

void lochi_stage_close(pool_stage *stage)
{
    const loch_error saved = lochi_error_save();
    for (int i = 0; i < 2; i++)
        loch_event_destroy(stage->events[i]);
    if ((stage->memory && stage->is_wiped && loch_fill(stage->memory, 2 * POOL_STAGE_HALF, "", 1) != LOCH_OK) ||
        (stage->memory && loch_free(stage->allocator, stage->memory) != LOCH_OK))
        LOCHI_LOG(ERROR, "the pinned memory of a stage is lost: %s", loch_error_get()->sentence);
    loch_allocator_release(stage->allocator);
    *stage = (pool_stage){0};
    lochi_error_restore(&saved);
}

/* --- moving on the host --- */

/* Returns the address of an offset, and the bytes left in its piece. */
static char *keep_at(pool_keep *keep, size_t offset, size_t *bytes)
{
    size_t i = keep->last;
    if (offset < keep->pieces[i].offset) i = 0;
    while (offset - keep->pieces[i].offset >= keep->pieces[i].bytes)
        i++;
    keep->last = i;
    const size_t inside = offset - keep->pieces[i].offset, left = keep->pieces[i].bytes - inside;
    if (*bytes > left) *bytes = left;
    return keep->pieces[i].address + inside;
}

/* Writes host memory to where contents are kept. */
static loch_status keep_put(pool_keep *keep, const char *from, size_t bytes, size_t offset)
{
    if (keep->file >= 0) return keep_write(keep, from, bytes, offset);
    for (size_t piece; bytes; from += piece, offset += piece, bytes -= piece) {
        piece = bytes;
        char *to = keep_at(keep, offset, &piece);
        memcpy(to, from, piece);
    }
    return LOCH_OK;
}

static loch_status keep_get(pool_keep *keep, char *to, size_t bytes, size_t offset)
{
    if (keep->file >= 0) return keep_read(keep, to, bytes, offset);
    for (size_t piece; bytes; to += piece, offset += piece, bytes -= piece) {
        piece = bytes;
        const char *from = keep_at(keep, offset, &piece);
        memcpy(to, from, piece);
    }
    return LOCH_OK;
}

/* --- copying directly --- */

static loch_status keep_copy(pool_keep *keep, char *address, size_t bytes, size_t offset, bool is_saving)
{
    loch_stream *stream = &keep->device->default_stream;
    if (keep->file >= 0)
        return is_saving ? keep_put(keep, address, bytes, offset) : keep_get(keep, address, bytes, offset);
    for (size_t piece; bytes; address += piece, offset += piece, bytes -= piece) {
        piece = bytes;
        char *kept = keep_at(keep, offset, &piece);
        LOCH_TRY_RETURN(is_saving ? lochi_copy_own(stream, kept, address, piece)
                                  : lochi_copy_own(stream, address, kept, piece));
    }
    return LOCH_OK;
}

/* --- copying through a stage --- */

static char *stage_at(const pool_stage *stage, int half)
{
    return stage->memory + (size_t)half * POOL_STAGE_HALF;
}

static loch_status stage_wait(pool_stage *stage, int half)
{
    if (!stage->is_pending[half]) return LOCH_OK;
    LOCH_TRY_RETURN(loch_event_sync(stage->events[half]));
    stage->is_pending[half] = false;
    return LOCH_OK;
}

/* Saves the contents that the device has copied to a half. */
static loch_status stage_empty(pool_stage *stage, pool_keep *keep, int half)
{
    LOCH_TRY_RETURN(stage_wait(stage, half));
    const size_t filled = stage->filled[half];
    stage->filled[half] = 0;
    return keep_put(keep, stage_at(stage, half), filled, stage->offsets[half]);
}

/* Switches to the other half when one is full, after the copies of the other half are done. */
static loch_status stage_turn(pool_stage *stage, pool_keep *keep, bool is_saving)
{
    const int full = stage->half, next = !full;
    LOCH_TRY_RETURN(loch_event_record(stage->events[full], &keep->device->default_stream));
    stage->is_pending[full] = true;
    stage->half = next;
    if (is_saving) return stage_empty(stage, keep, next);
    LOCH_TRY_RETURN(stage_wait(stage, next));
    stage->filled[next] = 0;
    return LOCH_OK;
}

static loch_status stage_copy(pool_stage *stage, pool_keep *keep, char *address, size_t bytes, size_t offset,
                              bool is_saving)
{
    loch_stream *stream = &keep->device->default_stream;
    for (size_t piece; bytes; address += piece, offset += piece, bytes -= piece) {
        const int half = stage->half;
        char *at = stage_at(stage, half) + stage->filled[half];
        const size_t left = POOL_STAGE_HALF - stage->filled[half];
        piece = bytes < left ? bytes : left;
        if (!stage->filled[half]) stage->offsets[half] = offset;
        if (!is_saving) LOCH_TRY_RETURN(keep_get(keep, at, piece, offset));
        LOCH_TRY_RETURN(is_saving ? lochi_copy_own(stream, at, address, piece)
                                  : lochi_copy_own(stream, address, at, piece));
        stage->filled[half] += piece;
        if (stage->filled[half] == POOL_STAGE_HALF) LOCH_TRY_RETURN(stage_turn(stage, keep, is_saving));
    }
    return LOCH_OK;
}

/* --- entry points --- */

loch_status lochi_keep_check(const pool_keep *keep)
{
    lochi_place place;
    for (size_t i = 0; i < keep->pieces_count; i++) {
        const loch_status status = lochi_ranges_locate(keep->pieces[i].address, keep->pieces[i].bytes, &place);
        if (status == LOCH_E_NOT_FOUND || status == LOCH_E_OUT_OF_RANGE)
            return LOCH_FAIL(BUSY, "pool \"%s\", which keeps the contents, is asleep: wake it first",
                             loch_allocator_get_name(keep->allocator));
    }
    return LOCH_OK;
}

loch_status lochi_keep_save(pool_keep *keep, pool_stage *stage, uintptr_t address, size_t bytes, size_t offset)
{
    return keep->is_staged ? stage_copy(stage, keep, (char *)address, bytes, offset, true)
                           : keep_copy(keep, (char *)address, bytes, offset, true);
}

loch_status lochi_keep_restore(pool_keep *keep, pool_stage *stage, uintptr_t address, size_t bytes, size_t offset)
{
    return keep->is_staged ? stage_copy(stage, keep, (char *)address, bytes, offset, false)
                           : keep_copy(keep, (char *)address, bytes, offset, false);
}

loch_status lochi_keep_finish(pool_keep *keep, pool_stage *stage)
{
    if (keep->is_staged) {
        LOCH_TRY_RETURN(stage_turn(stage, keep, true)); /* empties the other half */
        LOCH_TRY_RETURN(stage_empty(stage, keep, !stage->half));
    }
    LOCH_TRY_RETURN(loch_stream_sync(&keep->device->default_stream));
    return keep->file >= 0 ? keep_verify(keep) : LOCH_OK;
}
