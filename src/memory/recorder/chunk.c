/* SPDX-License-Identifier: MIT */
/* Chunks of a recording. Those of a file are mapped one by one, shared, so that the system has every record that was
 * written when the process dies. The room for them is allocated before they are mapped: a full disk ends the
 * recording, and never a store. Those of a ring are parts of one piece of memory; the oldest one that no thread writes
 * is used again. Chunks with names are never used again. */
#include "memory/recorder/chunk.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/own_file.h"
#include "kit/text.h"
#include "memory/recorder/clock.h"
#include "memory/recorder/shrink.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_STEP_FIRST ((uint64_t)1 << 20)
#define CHUNK_STEP_MAX ((uint64_t)16 << 20)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14 */
#endif
#define CHUNK_NAMES_MAX 4096 /* chunks with names of a ring */

/* --- opening --- */

/* Returns E_BUSY if a process is writing a recording to this path. */
static loch_status chunk_check_unused(const char *path)
{
    const int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return LOCH_OK; /* opening it for writing tells what is wrong */
    const bool is_locked = flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    (void)close(file);
    return is_locked
               ? LOCH_FAIL(BUSY, "%.180s is being written by a recorder: \"%%p\" in a name is the process id", path)
               : LOCH_OK;
}

static loch_status chunk_open_file(const char *path)
{
    recorder_state *all = &lochi_recorder_all;
    bool is_special = false;
    LOCH_TRY_RETURN(chunk_check_unused(path));
    all->file = lochi_own_file_open(path, O_RDWR, &is_special);
    if (all->file < 0) return LOCH_FAIL(IO, "recording to %.180s: %s", path, strerror(errno));
    struct stat info;
    if (is_special || fstat(all->file, &info) != 0 || !S_ISREG(info.st_mode))
        return LOCH_FAIL(IO, "recording to %.180s: not a regular file", path);
    (void)flock(all->file, LOCK_EX | LOCK_NB);
    const int error = posix_fallocate(all->file, 0, RECORDER_HEADER_BYTES);
    void *header =
        error ? MAP_FAILED : mmap(NULL, RECORDER_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, all->file, 0);
    if (header == MAP_FAILED) return LOCH_FAIL(IO, "recording to %.180s: %s", path, strerror(error ? error : errno));
    all->header = header;
    all->file_bytes = RECORDER_HEADER_BYTES;
    return LOCH_OK;
}

static loch_status chunk_open_ring(size_t bytes)
{
    recorder_state *all = &lochi_recorder_all;
    while (all->chunk_bytes > RECORDER_CHUNK_MIN && bytes / all->chunk_bytes < 64)
        all->chunk_bytes /= 2;
    all->place_count = bytes / all->chunk_bytes;
    all->header = lochi_map(RECORDER_HEADER_BYTES);
    all->ring = lochi_map(all->place_count * all->chunk_bytes);
    all->places = lochi_map(all->place_count * sizeof *all->places);
    all->names_list = lochi_map(CHUNK_NAMES_MAX * sizeof(void *));
    if (!all->header || !all->ring || !all->places || !all->names_list)
        return LOCH_FAIL(HOST_MEMORY, "no host memory for a ring of %s", LOCHI_SIZE(bytes));
    lochi_map_largely(all->ring, all->place_count * all->chunk_bytes); /* page faults cost more than records */
    return LOCH_OK;
}

static void chunk_fill_header(bool is_ring)
{
    recorder_header *header = lochi_recorder_all.header;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    header->version = 1;
    header->chunk_bytes = (uint32_t)lochi_recorder_all.chunk_bytes;
    header->started_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    header->process = (uint32_t)getpid();
    header->flags = RECORDER_HAS_ADDRESSES | (is_ring ? RECORDER_WAS_RING : 0);
    const ssize_t length = readlink("/proc/self/exe", header->program, sizeof header->program - 1);
    header->program[length > 0 ? length : 0] = 0;
    memcpy(header->magic, "lochrec1", sizeof header->magic);
}

loch_status lochi_recorder_open(const char *path, size_t ring_bytes)
{
    LOCHI_NOT_CANCELLED;
    lochi_recorder_all.chunk_bytes = path ? RECORDER_CHUNK_BYTES : RECORDER_RING_CHUNK_BYTES;
    LOCH_TRY_RETURN(path ? chunk_open_file(path) : chunk_open_ring(ring_bytes));
    chunk_fill_header(!path);
    return LOCH_OK;
}

/* --- closing --- */

/* Unmaps `count` chunks of the file. NULL does nothing. */
static void chunk_unmap(recorder_chunk *chunk, size_t count)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)chunk & ~(page - 1);
    if (chunk) (void)munmap((void *)start, (uintptr_t)chunk - start + count * lochi_recorder_all.chunk_bytes);
}

void lochi_recorder_close(void)
{
    LOCHI_NOT_CANCELLED;
    recorder_state *all = &lochi_recorder_all;
    if (all->header && all->file >= 0) {
        chunk_unmap(all->names, 1);
        all->names = NULL;
        lochi_recorder_clock_mark();
        all->header->lost = all->lost;
        all->header->flags |= RECORDER_WAS_ENDED;
        const int error = lochi_recorder_shrink();
        if (error) LOCHI_LOG(WARNING, "cutting %s to its length: %s", all->path, strerror(error));
    }
    lochi_recorder_drop();
}

void lochi_recorder_drop(void)
{
    recorder_state *all = &lochi_recorder_all;
    if (all->file >= 0) chunk_unmap(all->names, 1);
    for (size_t i = 0; i < all->names_count; i++)
        lochi_unmap(all->names_list[i], all->chunk_bytes);
    if (all->header) (void)munmap(all->header, RECORDER_HEADER_BYTES);
    lochi_unmap(all->ring, all->place_count * all->chunk_bytes);
    lochi_unmap(all->places, all->place_count * sizeof *all->places);
    lochi_unmap(all->names_list, CHUNK_NAMES_MAX * sizeof(void *));
    if (all->file >= 0) (void)close(all->file); /* the lock of the file belongs to the parent of a fork too */
    all->header = NULL;
    all->ring = NULL;
    all->places = NULL;
    all->names = NULL;
    all->names_list = NULL;
    all->names_count = 0;
    all->file = -1;
}

/* --- taking --- */

/* Stops taking chunks, because the file cannot grow. */
static void chunk_fail(int error)
{
    recorder_state *all = &lochi_recorder_all;
    all->full_error = error;
    atomic_store_explicit(&all->is_full, true, memory_order_relaxed);
    all->header->lost++; /* in case the process dies; the end writes the sum */
}

/* Makes the file long enough for `bytes`. */
static bool chunk_extend(uint64_t bytes)
{
    recorder_state *all = &lochi_recorder_all;
    if (bytes <= all->file_bytes) return true;
    uint64_t step = all->file_bytes / 2;
    step = step < CHUNK_STEP_FIRST ? CHUNK_STEP_FIRST : step > CHUNK_STEP_MAX ? CHUNK_STEP_MAX : step;
    uint64_t wanted = all->file_bytes + step > bytes ? all->file_bytes + step : bytes;
    struct rlimit limit; /* beyond the limit the system would send a signal */
    const bool is_limited = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    if (is_limited && wanted > limit.rlim_cur) wanted = bytes;
    int error = is_limited && wanted > limit.rlim_cur ? EFBIG : EINTR;
    while (error == EINTR)
        error = posix_fallocate(all->file, (off_t)all->file_bytes, (off_t)(wanted - all->file_bytes));
    if (error && wanted > bytes && error != EFBIG) { /* the last bit of the disk */
        wanted = bytes;
        error = posix_fallocate(all->file, (off_t)all->file_bytes, (off_t)(wanted - all->file_bytes));
    }
    if (error) {
        chunk_fail(error);
        return false;
    }
    all->file_bytes = wanted;
    return true;
}

/* Makes the system allocate the pages of a mapping for writing, so that records cause no page faults. */
static void chunk_touch(uint8_t *start, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)start & ~(page - 1);
    if (madvise((void *)first, (uintptr_t)start - first + bytes, MADV_POPULATE_WRITE) == 0) return;
    for (size_t at = 0; at < bytes; at += page)
        *(volatile uint8_t *)(start + at) = 0; /* nothing is there yet */
}

/* Maps `count` chunks of the file. */
static recorder_chunk *chunk_map(uint64_t index, size_t count)
{
    const recorder_state *all = &lochi_recorder_all;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = RECORDER_HEADER_BYTES + index * all->chunk_bytes;
    const uint64_t before = at % page;
    uint8_t *start = mmap(NULL, count * all->chunk_bytes + before, PROT_READ | PROT_WRITE, MAP_SHARED, all->file,
                          (off_t)(at - before));
    if (start == MAP_FAILED) return NULL;
    chunk_touch(start + before, count * all->chunk_bytes);
    return (recorder_chunk *)(start + before);
}

/* Takes the next `count` chunks of the file, to be mapped. Returns false if the file cannot be extended. */
static bool chunk_take_of_file(uint64_t *index, size_t count)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_assert_held(&all->lock);
    if (atomic_load_explicit(&all->is_full, memory_order_relaxed)) return false;
    if (!chunk_extend(RECORDER_HEADER_BYTES + (all->file_chunks + count) * all->chunk_bytes)) return false;
    *index = all->file_chunks;
    all->file_chunks += count;
    return true;
}

/* Takes a place of the ring that was never used, or the oldest that no thread writes. Returns false if there is
 * none. */
static bool chunk_take_of_ring(uint64_t *index, bool *is_new)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_assert_held(&all->lock);
    recorder_place *oldest = NULL;
    for (recorder_place *p = all->places; p < all->places + all->place_count; p++)
        if (!p->is_taken && (!oldest || p->sequence < oldest->sequence)) oldest = p;
    if (!oldest) return false;
    *is_new = !oldest->sequence;
    all->lost += oldest->events;
    *oldest = (recorder_place){.sequence = all->sequence + 1, .is_taken = true};
    *index = (uint64_t)(oldest - all->places);
    return true;
}

/* Clears a place of the ring that a thread has taken. Pages that were never touched are zero. */
static recorder_chunk *chunk_clear(uint64_t index, bool is_new)
{
    uint8_t *start = lochi_recorder_all.ring + index * lochi_recorder_all.chunk_bytes;
    if (is_new)
        chunk_touch(start, lochi_recorder_all.chunk_bytes);
    else
        memset(start, 0, lochi_recorder_all.chunk_bytes);
    return (recorder_chunk *)start;
}

static void chunk_begin(recorder_chunk *chunk, uint32_t kind, uint64_t sequence, uint64_t ticks, uint32_t thread)
{
    chunk->kind = kind;
    chunk->sequence = sequence;
    chunk->ticks = ticks;
    chunk->thread = thread;
    if (kind == RECORDER_EVENTS) (void)pthread_getname_np(pthread_self(), chunk->name, sizeof chunk->name);
    atomic_store_explicit(&chunk->magic, RECORDER_MAGIC, memory_order_release);
}

void lochi_recorder_abandon(recorder_thread *thread)
{
    chunk_unmap(thread->run, RECORDER_RUN);
    thread->chunk = thread->run = NULL;
    thread->further = 0;
    atomic_store_explicit(&thread->at, NULL, memory_order_relaxed);
    atomic_store_explicit(&thread->end, NULL, memory_order_relaxed);
}

/* Counts out the chunk of a thread. */
static void chunk_count_out(recorder_thread *thread)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_assert_held(&all->lock);
    if (thread->chunk && all->file < 0) {
        all->places[thread->place].is_taken = false;
        all->places[thread->place].events = thread->events;
    }
    all->lost += thread->lost;
    thread->lost = thread->events = 0;
}

void lochi_recorder_give_up(recorder_thread *thread)
{
    chunk_count_out(thread);
    lochi_recorder_abandon(thread);
}

/* Makes a chunk the present one of a thread. */
static void chunk_enter(recorder_thread *thread, recorder_chunk *chunk)
{
    thread->chunk = chunk;
    thread->address = 0;
    thread->context = 0;
    thread->now.has_stacks = lochi_recorder_all.depth != 0;
    atomic_store_explicit(&thread->at, (uint8_t *)chunk + RECORDER_CHUNK_HEADER, memory_order_relaxed);
}

static uint8_t *chunk_end(recorder_chunk *chunk)
{
    return (uint8_t *)chunk + lochi_recorder_all.chunk_bytes - RECORDER_RECORD_MAX;
}

/* Goes on to the next chunk of a run. Returns false if there is none, or the recording has stopped. */
static bool chunk_go_on(recorder_thread *thread, uint32_t number)
{
    uint8_t *end = atomic_load_explicit(&thread->end, memory_order_relaxed);
    if (!end || !thread->further) return false; /* without an end, the thread that stops the recording owns the rest */
    recorder_chunk *next = (recorder_chunk *)((uint8_t *)thread->chunk + lochi_recorder_all.chunk_bytes);
    chunk_begin(next, RECORDER_EVENTS, thread->chunk->sequence + 1, thread->ticks, number);
    thread->further--;
    chunk_enter(thread, next);
    /* Not a store: the thread that stops the recording may have written NULL. */
    return atomic_compare_exchange_strong_explicit(&thread->end, &end, chunk_end(next), memory_order_relaxed,
                                                   memory_order_relaxed);
}

/* Takes a new run of chunks for a thread, or a place of the ring. Pages are mapped or cleared without the lock; the
 * place is the thread's already. */
static bool chunk_change(recorder_thread *thread, uint32_t number)
{
    recorder_state *all = &lochi_recorder_all;
    uint64_t index = 0;
    bool is_new = false;
    lochi_lock_take(&all->lock);
    if (!all->is_on) { /* the thread that starts or stops a recording writes the other members without the lock */
        lochi_lock_drop(&all->lock);
        return false;
    }
    const bool is_file = all->file >= 0;
    chunk_count_out(thread);
    const bool is_taken = is_file ? chunk_take_of_file(&index, RECORDER_RUN) : chunk_take_of_ring(&index, &is_new);
    const uint64_t sequence = all->sequence + 1;
    if (is_taken) all->sequence += RECORDER_RUN;
    lochi_recorder_clock_mark();
    if (thread->ticks < all->header->ticks0) thread->ticks = all->header->ticks0;
    thread->chunk = NULL;
    lochi_lock_drop(&all->lock);
    chunk_unmap(thread->run, RECORDER_RUN);
    thread->run = NULL;
    recorder_chunk *chunk = !is_taken ? NULL : is_file ? chunk_map(index, RECORDER_RUN) : chunk_clear(index, is_new);
    const int error = errno;
    if (chunk) chunk_begin(chunk, RECORDER_EVENTS, sequence, thread->ticks, number);
    lochi_lock_take(&all->lock);
    if (chunk) {
        thread->place = (uint32_t)index;
        thread->run = is_file ? chunk : NULL;
        thread->further = is_file ? RECORDER_RUN - 1 : 0;
        chunk_enter(thread, chunk);
        /* If the recording has stopped meanwhile, the thread that stops it waits for this one. */
        if (all->is_on) atomic_store_explicit(&thread->end, chunk_end(chunk), memory_order_relaxed);
    } else {
        lochi_recorder_abandon(thread);
        thread->lost++;
        if (is_taken) chunk_fail(error);
    }
    lochi_lock_drop(&all->lock);
    return atomic_load_explicit(&thread->end, memory_order_relaxed) != NULL;
}

/* Takes a new chunk for the calling thread, which is busy. The old one is complete. Returns false if there is none: the
 * recording has stopped, or there is no room. */
static bool chunk_take(recorder_thread *thread)
{
    LOCHI_NOT_CANCELLED;
    const recorder_state *all = &lochi_recorder_all;
    const bool is_shared = thread == &lochi_recorder_threads[LOCHI_SLOT_SHARED];
    const uint32_t number = is_shared ? 0 : (uint32_t)lochi_thread_number();
    if (chunk_go_on(thread, number)) return true;
    /* Relaxed: a thread that stops the recording clears it before the heavy fence, and waits for this one. */
    if (!atomic_load_explicit(&all->is_full, memory_order_relaxed)) return chunk_change(thread, number);
    thread->lost++;
    return false;
}

bool lochi_recorder_take_names(void)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_assert_held(&all->lock);
    recorder_chunk *chunk = NULL;
    uint64_t index;
    if (all->file >= 0) {
        if (chunk_take_of_file(&index, 1)) chunk = chunk_map(index, 1);
        if (chunk) chunk_unmap(all->names, 1);
    } else if (all->names_count < CHUNK_NAMES_MAX) {
        chunk = lochi_map(all->chunk_bytes);
        if (chunk) all->names_list[all->names_count++] = chunk;
    }
    if (!chunk) return false;
    chunk_begin(chunk, RECORDER_NAMES, ++all->sequence, all->header->ticks0, 0);
    all->names = chunk;
    all->names_at = (uint8_t *)chunk + RECORDER_CHUNK_HEADER;
    return true;
}

/* Writes one line to the log if the file is full. The thread is not busy, because the log may call the program. */
static void chunk_say_full(void)
{
    recorder_state *all = &lochi_recorder_all;
    if (!atomic_load_explicit(&all->is_full, memory_order_relaxed)) return;
    if (atomic_load_explicit(&all->has_said_full, memory_order_relaxed)) return;
    if (atomic_exchange_explicit(&all->has_said_full, true, memory_order_relaxed)) return;
    LOCHI_LOG(ERROR, "the recording ends here, because its file cannot be extended");
}

recorder_thread *lochi_recorder_enter_slow(recorder_thread *thread)
{
    if (chunk_take(thread)) return thread;
    atomic_store_explicit(&thread->busy, false, memory_order_release);
    chunk_say_full();
    return NULL;
}
