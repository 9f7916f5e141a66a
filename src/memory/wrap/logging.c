/* SPDX-License-Identifier: MIT */
/* The logging wrapper: writes every allocation, free and further use to the log hook, a CSV file or a trace.
 *
 * Each logged block gets a number from the wrapper, which is never reused. Lines are written, and their times read,
 * under one lock, so times never go backwards in a file. A free is written after it happened. If another thread gets
 * the address before that, the line of its allocation comes first, with another number. Blocks that could not be
 * noted and lines that could not be written do not disturb the program; loch_logging_flush reports them. */
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/own_file.h"
#include "base/tree.h"
#include "device/device.h"
#include "memory/wrap/wrap.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <loch/host.h>
#include <loch/wrapper.h>
#include <stdio.h>
#include <unistd.h>

typedef struct logging_block {
    lochi_tree_node node; /* key: the address of the block */
    uint64_t id;
    size_t bytes;
    loch_tag tag;
    unsigned stream; /* stream of the allocation */
} logging_block;

typedef struct logging {
    loch_allocator *wrapped;   /* borrowed; the allocator around this struct retains it */
    loch_allocator *allocator; /* the allocator around this struct */
    loch_logging_format format;
    bool only_flagged;
    uint64_t start_ns;
    char *path;      /* NULL: lines go to the hook */
    lochi_lock lock; /* LOCHI_RANK_MEMORY: guards the members below; only the file is written under it */
    FILE *file;
    bool is_forked;           /* the file belongs to the parent of a fork; nothing is written */
    lochi_fork_item in_forks; /* used if there is a file */
    int error;                /* errno of the first failed write; nothing is written after it */
    lochi_tree blocks;
    uint64_t last_id, lost; /* lost: events that could not be noted because there was no host memory */
    uint64_t *streams;      /* ids of streams; the number in the log is the index plus 1 */
    unsigned streams_count, streams_capacity;
} logging;

/* The contents of one line. */
typedef struct logging_event {
    const char *what; /* "alloc", "use", "free", "resize" */
    uint64_t id;
    const void *address;
    size_t bytes, alignment;
    unsigned stream;
    bool names_stream; /* a free with a stream argument */
    loch_tag tag;
    loch_status status;
} logging_event;

/* --- lines --- */

/* Copies a tag's name and replaces the characters that would end a field. */
static void logging_clean(const char *name, char out[LOCH_TAG_NAME_MAX])
{
    size_t at = 0;
    for (; at < LOCH_TAG_NAME_MAX - 1 && name[at]; at++) {
        const unsigned char c = (unsigned char)name[at];
        out[at] = c <= ' ' || c == ',' || c == '"' || c == '#' || c == 0x7f ? '_' : name[at];
    }
    out[at] = '\0';
}

static int logging_write_trace(FILE *file, const logging_event *event, uint64_t ns, const char *tag)
{
    const uint64_t us = ns / 1000;
    if (event->status != LOCH_OK || event->what[0] == 'r') return 0; /* a resize is a free and an allocation */
    if (event->what[0] == 'u') return fprintf(file, "u %" PRIu64 " %u %" PRIu64 "\n", event->id, event->stream, us);
    if (event->what[0] == 'f') {
        if (!event->names_stream) return fprintf(file, "f %" PRIu64 " %" PRIu64 "\n", event->id, us);
        return fprintf(file, "f %" PRIu64 " %" PRIu64 " %u\n", event->id, us, event->stream);
    }
    int status = fprintf(file, "a %" PRIu64 " %zu %u %" PRIu64, event->id, event->bytes, event->stream, us);
    if (status >= 0 && event->alignment) status = fprintf(file, " align=%zu", event->alignment);
    if (status >= 0 && *tag) status = fprintf(file, " tag=%s", tag);
    return status < 0 ? status : fputc('\n', file);
}

static int logging_write_csv(FILE *file, const logging_event *event, uint64_t ns, const char *tag)
{
    return fprintf(file, "%" PRIu64 ",%s,%" PRIu64 ",0x%" PRIxPTR ",%zu,%u,%s,%s\n", ns, event->what, event->id,
                   (uintptr_t)event->address, event->bytes, event->stream, tag, loch_status_name(event->status));
}

/* Writes a line: to the file with the lock held, to the hook without it. */
static void logging_write(logging *self, const logging_event *event)
{
    LOCHI_NOT_CANCELLED;
    char tag[LOCH_TAG_NAME_MAX];
    logging_clean(loch_tag_name(event->tag), tag);
    if (!self->file) {
        LOCHI_LOG(INFO, "%s: %s of %zu bytes at 0x%" PRIxPTR ", id %" PRIu64 ", stream %u%s%s: %s",
                  self->allocator->name, event->what, event->bytes, (uintptr_t)event->address, event->id, event->stream,
                  *tag ? ", tag " : "", tag, event->status == LOCH_OK ? "ok" : loch_status_name(event->status));
        return;
    }
    lochi_lock_assert_held(&self->lock);
    if (self->error || self->is_forked) return;
    const uint64_t ns = loch_host_now_ns() - self->start_ns;
    const int written = self->format == LOCH_LOGGING_CSV ? logging_write_csv(self->file, event, ns, tag)
                                                         : logging_write_trace(self->file, event, ns, tag);
    if (written < 0) self->error = errno ? errno : EIO;
}

/* Drops the lock and writes a line: to a file before the drop, to the hook after it. */
static void logging_write_and_drop(logging *self, const logging_event *event)
{
    lochi_lock_assert_held(&self->lock);
    if (self->file) logging_write(self, event);
    lochi_lock_drop(&self->lock);
    if (!self->file) logging_write(self, event);
}

/* --- forks --- */

static lochi_fork_part logging_part;

static logging *logging_of(lochi_fork_item *item)
{
    return (logging *)((char *)item - offsetof(logging, in_forks));
}

/* Flushes all files before a fork, because parent and child would both write what is still buffered. */
static void logging_write_all(void)
{
    for (lochi_fork_item *item = logging_part.items; item; item = item->next) {
        logging *self = logging_of(item);
        if (!self->is_forked && !self->error && fflush(self->file) != 0) self->error = errno ? errno : EIO;
    }
}

static void logging_forked(void)
{
    for (lochi_fork_item *item = logging_part.items; item; item = item->next)
        logging_of(item)->is_forked = true;
}

static lochi_fork_part logging_part = {.prepare = logging_write_all, .child = logging_forked};

/* --- blocks and streams --- */

/* Finds the log's number of a stream; 0 is the default stream. Returns false if there is no memory for a new number. */
static bool logging_number(logging *self, const loch_stream *stream, unsigned *out)
{
    lochi_lock_assert_held(&self->lock);
    *out = 0;
    if (stream->kind == LOCHI_STREAM_DEFAULT) return true;
    for (unsigned i = 0; i < self->streams_count; i++)
        if (self->streams[i] == stream->id) {
            *out = i + 1;
            return true;
        }
    if (self->streams_count == self->streams_capacity) {
        const unsigned capacity = self->streams_capacity ? 2 * self->streams_capacity : 8;
        uint64_t *streams = lochi_realloc(self->streams, capacity * sizeof *streams);
        if (!streams) return false;
        self->streams = streams;
        self->streams_capacity = capacity;
    }
    self->streams[self->streams_count++] = stream->id;
    *out = self->streams_count;
    return true;
}

static logging_block *logging_find(const logging *self, const void *address)
{
    lochi_lock_assert_held(&self->lock);
    lochi_tree_node *node = lochi_tree_at_or_below(&self->blocks, (uintptr_t)address);
    return node && node->key == (uintptr_t)address ? LOCHI_CONTAINER(node, logging_block, node) : NULL;
}

static logging_event logging_event_of(const char *what, const logging_block *block)
{
    return (logging_event){.what = what,
                           .id = block->id,
                           .address = (const void *)block->node.key,
                           .bytes = block->bytes,
                           .stream = block->stream,
                           .tag = block->tag};
}

/* Adds a block. A block that is still noted at this address was freed past the wrapper, so its free is logged here. */
static void logging_insert(logging *self, logging_block *block)
{
    lochi_lock_assert_held(&self->lock);
    logging_block *old = logging_find(self, (const void *)block->node.key);
    if (old) {
        const logging_event event = logging_event_of("free", old);
        lochi_tree_remove(&self->blocks, &old->node);
        if (self->file) logging_write(self, &event);
        lochi_free(old);
    }
    lochi_tree_insert(&self->blocks, &block->node);
}

/* --- the slots --- */

static void logging_note_alloc(logging *self, const loch_request *request, void *address)
{
    logging_block *block = lochi_zalloc(sizeof *block);
    lochi_lock_take(&self->lock);
    if (!block || !logging_number(self, request->stream, &block->stream)) {
        self->lost++;
        lochi_lock_drop(&self->lock);
        lochi_free(block);
        return;
    }
    block->node.key = (uintptr_t)address;
    block->id = ++self->last_id;
    block->bytes = request->bytes;
    block->tag = request->tag;
    logging_event event = logging_event_of("alloc", block);
    event.alignment = request->alignment;
    logging_insert(self, block);
    logging_write_and_drop(self, &event);
}

static void logging_note_failure(logging *self, const loch_request *request, loch_status status)
{
    logging_event event = {.what = "alloc", .bytes = request->bytes, .tag = request->tag, .status = status};
    lochi_lock_take(&self->lock);
    if (!logging_number(self, request->stream, &event.stream)) self->lost++;
    logging_write_and_drop(self, &event);
}

static loch_status logging_alloc(void *user, const loch_request *request, void **out)
{
    logging *self = user;
    const loch_status status = lochi_allocator_try(self->wrapped, request, out);
    if (self->only_flagged && !(request->flags & LOCH_ALLOC_LOGGED)) return status;
    if (status != LOCH_OK)
        logging_note_failure(self, request, status);
    else if (*out)
        logging_note_alloc(self, request, *out);
    return status;
}

static void logging_note_free(logging *self, logging_block *block, void *address, loch_stream *stream,
                              loch_status status)
{
    /* Not logged, or its allocation could not be noted. */
    if (!block && (self->only_flagged || status == LOCH_OK)) return;
    logging_event event = {.what = "free", .address = address};
    if (block) event = logging_event_of("free", block);
    event.status = status;
    lochi_lock_take(&self->lock);
    if (stream) {
        event.names_stream = logging_number(self, stream, &event.stream);
        if (!event.names_stream) self->lost++;
    }
    const bool is_freed = lochi_is_freed(status);
    if (block && !is_freed) logging_insert(self, block);
    if (is_freed && self->format == LOCH_LOGGING_TRACE) event.status = LOCH_OK; /* the block was freed anyway */
    logging_write_and_drop(self, &event);
    if (is_freed) lochi_free(block);
}

static void logging_note_refused(void *user, void *address, loch_stream *stream, loch_status status)
{
    const loch_error saved = lochi_error_save();
    logging_note_free(user, NULL, address, stream, status);
    lochi_error_restore(&saved);
}

static loch_status logging_free(void *user, void *address, size_t bytes, loch_stream *stream)
{
    logging *self = user;
    lochi_lock_take(&self->lock);
    logging_block *block = logging_find(self, address);
    if (block) lochi_tree_remove(&self->blocks, &block->node); /* before another thread can get the address */
    lochi_lock_drop(&self->lock);
    const loch_status status = lochi_allocator_give_back(self->wrapped, address, bytes, stream);
    logging_note_free(self, block, address, stream, status);
    return status;
}

/* Notes the new size of a block. In a trace its old number is freed, and a new one allocated. */
static void logging_note_resize(logging *self, const void *address, size_t bytes, loch_status status)
{
    lochi_lock_take(&self->lock);
    logging_block *block = logging_find(self, address);
    if (!block) {
        lochi_lock_drop(&self->lock);
        return;
    }
    logging_event event = logging_event_of("resize", block);
    event.bytes = bytes;
    event.status = status;
    if (status == LOCH_OK && self->file && self->format == LOCH_LOGGING_TRACE) {
        event = logging_event_of("free", block);
        logging_write(self, &event);
        block->id = ++self->last_id;
        event = logging_event_of("alloc", block);
        event.bytes = bytes;
    }
    if (status == LOCH_OK) block->bytes = bytes;
    logging_write_and_drop(self, &event);
}

static loch_status logging_resize(void *user, void *address, size_t bytes, size_t *allocated)
{
    logging *self = user;
    const loch_status status = lochi_grow_pass(self->wrapped, address, bytes, allocated);
    const loch_error saved = lochi_error_save();
    logging_note_resize(self, address, bytes, status);
    if (status != LOCH_OK) lochi_error_restore(&saved);
    return status;
}

static loch_status logging_record_use(void *user, void *address, loch_stream *stream)
{
    logging *self = user;
    LOCH_TRY_RETURN(loch_allocator_record_use(self->wrapped, address, stream));
    lochi_lock_take(&self->lock);
    const logging_block *block = logging_find(self, address);
    logging_event event = {.what = "use"};
    if (block) event = logging_event_of("use", block);
    const bool is_known = block && logging_number(self, stream, &event.stream);
    if (block && !is_known) self->lost++;
    if (is_known)
        logging_write_and_drop(self, &event);
    else
        lochi_lock_drop(&self->lock);
    return LOCH_OK;
}

static void logging_destroy(void *user)
{
    LOCHI_NOT_CANCELLED;
    logging *self = user;
    if (!self) return;
    lochi_fork_leave(&self->in_forks);
    if (self->file && fclose(self->file) != 0 && !self->error) self->error = errno;
    if (self->error) LOCHI_LOG(ERROR, "%s is not complete: %s", self->path, strerror(self->error));
    lochi_tree_node *node;
    while ((node = lochi_tree_at_or_above(&self->blocks, 0))) {
        lochi_tree_remove(&self->blocks, node);
        lochi_free(LOCHI_CONTAINER(node, logging_block, node));
    }
    lochi_free(self->streams);
    lochi_free(self->path);
    lochi_lock_fini(&self->lock);
    lochi_free(self);
}

static const loch_allocator_ops logging_ops = {
    .size = sizeof logging_ops,
    .kind = "logging",
    .alloc = logging_alloc,
    .free = logging_free,
    .destroy = logging_destroy,
    .record_use = logging_record_use,
    .resize = logging_resize,
};

/* --- public functions --- */

static loch_status logging_open(logging *self, const char *path)
{
    LOCHI_NOT_CANCELLED;
    self->path = lochi_strdup(path);
    if (!self->path) return LOCH_FAIL(HOST_MEMORY, "no host memory for a log's path");
    bool is_special;
    const int file = lochi_own_file_open(path, O_WRONLY, &is_special);
    self->file = file >= 0 ? fdopen(file, "w") : NULL;
    if (!self->file) {
        const int error = errno;
        if (file >= 0) close(file);
        return LOCH_FAIL(IO, "%s cannot be written: %s", path, strerror(error));
    }
    const char *head =
        self->format == LOCH_LOGGING_CSV ? "time_ns,event,id,address,bytes,stream,tag,status\n" : "# loch-trace 1\n";
    if (fputs(head, self->file) < 0) self->error = errno ? errno : EIO;
    lochi_fork_enter(&logging_part, &self->in_forks);
    return LOCH_OK;
}

loch_status loch_logging_create(loch_allocator *wrapped, const char *name, const loch_logging_options *options,
                                loch_allocator **out)
{
    if (out) *out = NULL;
    if (!wrapped || !out) return LOCH_FAIL(INVALID, "logging needs an allocator to wrap and an out pointer");
    loch_logging_options read = {.size = sizeof read};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of logging options", options, &read, sizeof read));
    if ((unsigned)read.format > LOCH_LOGGING_TRACE)
        return LOCH_FAIL(INVALID, "logging format %d is not known", (int)read.format);
    if (read.format != LOCH_LOGGING_HOOK && !read.path) return LOCH_FAIL(INVALID, "logging to a file needs its path");
    logging *self = lochi_zalloc(sizeof *self);
    if (!self) return LOCH_FAIL(HOST_MEMORY, "no host memory for logging");
    self->wrapped = wrapped;
    self->format = read.format;
    self->only_flagged = read.filter == LOCH_LOGGING_FLAGGED;
    self->start_ns = loch_host_now_ns();
    lochi_lock_init(&self->lock, LOCHI_RANK_MEMORY);
    loch_status status = LOCH_OK;
    if (read.format != LOCH_LOGGING_HOOK) status = logging_open(self, read.path);
    if (status == LOCH_OK) status = loch_wrapper_create(wrapped, name, &logging_ops, self, out);
    if (status == LOCH_OK) {
        self->allocator = *out;
        self->allocator->hear_refused = logging_note_refused;
    } else {
        logging_destroy(self);
    }
    return status;
}

loch_status loch_logging_flush(loch_allocator *allocator)
{
    LOCHI_NOT_CANCELLED;
    if (!allocator || allocator->ops.alloc != logging_alloc)
        return LOCH_FAIL(INVALID, "the allocator is not a logging wrapper");
    logging *self = allocator->self;
    lochi_lock_take(&self->lock);
    if (self->file && !self->error && fflush(self->file) != 0) self->error = errno ? errno : EIO;
    const int error = self->error;
    const bool is_forked = self->is_forked;
    const uint64_t lost = self->lost;
    lochi_lock_drop(&self->lock);
    if (is_forked)
        return LOCH_FAIL(FORKED, "%.150s was opened before a fork and belongs to the parent: this process logs nothing",
                         self->path);
    if (error) return LOCH_FAIL(IO, "%s is not complete: %s", self->path, strerror(error));
    if (lost)
        return LOCH_FAIL(HOST_MEMORY, "%llu events are not in the log: there was no host memory",
                         (unsigned long long)lost);
    return LOCH_OK;
}
