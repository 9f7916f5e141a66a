/* SPDX-License-Identifier: MIT */
/* Numbers and names. Names are records in chunks of their own, written with the lock held. Numbers of streams and call
 * stacks are in hash tables of the recording. Each thread remembers the last ones, so it seldom needs the lock. */
#include "memory/recorder/names.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/hint.h"
#include "memory/recorder/chunk.h"
#include "memory/recorder/stack.h"
#include <loch/tag.h>
#include <string.h>

#define NAMES_STREAM_ROOM ((size_t)1 << 17) /* twice as many as there are numbers */
#define NAMES_STACK_ROOM ((size_t)1 << 20)
#define NAMES_SEEN_ROOM 1024u

enum { NAMES_TAG = 1, NAMES_ALLOCATOR, NAMES_DEVICE, NAMES_CALL, NAMES_STACK, NAMES_MODULE };

typedef struct recorder_stream {
    uint64_t id; /* 0: empty */
    uint16_t number;
} recorder_stream;

typedef struct recorder_stack {
    uint64_t hash; /* 0: empty */
    uint32_t number_plus_one;
} recorder_stack;

typedef struct recorder_seen {
    uint64_t hash;
    uint32_t number_plus_one;
} recorder_seen;

loch_status lochi_recorder_names_open(void)
{
    recorder_state *all = &lochi_recorder_all;
    all->stream_table = lochi_map(NAMES_STREAM_ROOM * sizeof *all->stream_table);
    if (all->depth) all->stack_table = lochi_map(NAMES_STACK_ROOM * sizeof *all->stack_table);
    if (!all->stream_table || (all->depth && !all->stack_table))
        return LOCH_FAIL(HOST_MEMORY, "no host memory for the names of a recording");
    all->streams = 1; /* 0 is every default stream */
    lochi_recorder_stack_open();
    return LOCH_OK;
}

void lochi_recorder_names_close(void)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_unmap(all->stream_table, NAMES_STREAM_ROOM * sizeof *all->stream_table);
    lochi_unmap(all->stack_table, NAMES_STACK_ROOM * sizeof *all->stack_table);
    all->stream_table = NULL;
    all->stack_table = NULL;
    all->allocators = all->devices = all->streams = all->stacks = 0;
    atomic_store_explicit(&all->modules, 0, memory_order_relaxed);
    for (size_t i = 0; i < sizeof all->tags / sizeof *all->tags; i++)
        atomic_store_explicit(&all->tags[i], 0, memory_order_relaxed);
    for (size_t i = 0; i < sizeof all->calls / sizeof *all->calls; i++)
        atomic_store_explicit(&all->calls[i], 0, memory_order_relaxed);
    for (recorder_thread *thread = lochi_recorder_threads; thread < lochi_recorder_threads + LOCHI_SLOT_COUNT;
         thread++) {
        lochi_unmap(thread->seen, NAMES_SEEN_ROOM * sizeof *thread->seen);
        thread->seen = NULL;
    }
}

/* --- writing --- */

static uint8_t *names_put_number(uint8_t *at, uint64_t number)
{
    for (; number > 127; number >>= 7)
        *at++ = (uint8_t)(number | 128);
    *at++ = (uint8_t)number;
    return at;
}

/* Begins a name of `bytes`: returns where its contents go; NULL if there is no room. Ends with names_end. */
static uint8_t *names_begin(uint64_t number, size_t bytes)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_assert_held(&all->lock);
    const size_t most = bytes + 32;
    const bool has_room = all->names && all->names_at + most <= (uint8_t *)all->names + all->chunk_bytes;
    if (!has_room && !lochi_recorder_take_names()) return NULL;
    return names_put_number(names_put_number(all->names_at + 1, number), bytes);
}

/* Ends a name: its first byte is written last. */
static void names_end(uint8_t type, uint8_t *end)
{
    recorder_state *all = &lochi_recorder_all;
    atomic_store_explicit((_Atomic uint8_t *)all->names_at, type, memory_order_release);
    all->names_at = end;
}

static void names_write(uint8_t type, uint64_t number, const char *text)
{
    const size_t bytes = strlen(text);
    uint8_t *at = names_begin(number, bytes);
    if (!at) return;
    memcpy(at, text, bytes);
    names_end(type, at + bytes);
}

/* --- allocators, devices, tags, calls --- */

uint32_t lochi_recorder_name_device(const loch_device *device)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_assert_held(&all->lock);
    uint32_t number = 0;
    while (number < all->devices && strcmp(all->device_names[number], device->name) != 0)
        number++;
    if (number < all->devices) return number;
    if (number == RECORDER_DEVICES) return RECORDER_DEVICES - 1;
    memcpy(all->device_names[number], device->name, sizeof all->device_names[number]);
    all->devices++;
    names_write(NAMES_DEVICE, number, device->name);
    return number;
}

uint32_t lochi_recorder_find_device(const loch_device *device)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_take(&all->lock);
    const uint32_t number = all->is_on ? lochi_recorder_name_device(device) : 0;
    lochi_lock_drop(&all->lock);
    return number;
}

uint32_t lochi_recorder_name_allocator(const loch_allocator *allocator)
{
    recorder_state *all = &lochi_recorder_all;
    const uint32_t device = lochi_recorder_name_device(allocator->device), number = all->allocators++;
    const size_t name = strlen(allocator->name) + 1, kind = strlen(allocator->ops.kind);
    uint8_t *at = names_begin(number, 2 + name + kind);
    if (!at) return number;
    at[0] = (uint8_t)device;
    at[1] = (uint8_t)(device >> 8);
    memcpy(at + 2, allocator->name, name);
    memcpy(at + 2 + name, allocator->ops.kind, kind);
    names_end(NAMES_ALLOCATOR, at + 2 + name + kind);
    return number;
}

/* Writes the name of `number`, unless its bit is set. */
static LOCHI_RARE void names_add(_Atomic uint64_t *bits, uint8_t type, unsigned number, const char *name)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_take(&all->lock);
    const uint64_t bit = (uint64_t)1 << (number % 64),
                   seen = atomic_load_explicit(&bits[number / 64], memory_order_relaxed);
    if (all->is_on && !(seen & bit)) {
        names_write(type, number, name);
        atomic_store_explicit(&bits[number / 64], seen | bit, memory_order_relaxed);
    }
    lochi_lock_drop(&all->lock);
}

void lochi_recorder_name_tag(loch_tag tag)
{
    recorder_state *all = &lochi_recorder_all;
    if (atomic_load_explicit(&all->tags[tag / 64], memory_order_relaxed) >> (tag % 64) & 1) return;
    names_add(all->tags, NAMES_TAG, tag, loch_tag_name(tag));
}

void lochi_recorder_name_call(loch_driver_call call)
{
    recorder_state *all = &lochi_recorder_all;
    const unsigned number = call;
    if (atomic_load_explicit(&all->calls[number / 64], memory_order_relaxed) >> (number % 64) & 1) return;
    names_add(all->calls, NAMES_CALL, number, loch_driver_call_name(call));
}

/* --- streams --- */

static uint16_t names_number_stream(uint64_t id)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_assert_held(&all->lock);
    size_t at = (size_t)(id * 0x9e3779b97f4a7c15u >> 47);
    recorder_stream *table = all->stream_table;
    while (table[at].id && table[at].id != id)
        at = (at + 1) % NAMES_STREAM_ROOM;
    if (!table[at].id && all->streams <= RECORDER_NUMBER_MAX)
        table[at] = (recorder_stream){id, (uint16_t)all->streams++};
    return table[at].id ? table[at].number : RECORDER_NUMBER_MAX;
}

uint16_t lochi_recorder_find_stream(recorder_thread *thread, uint64_t id)
{
    recorder_state *all = &lochi_recorder_all;
    const size_t at = id % RECORDER_STREAMS;
    if (thread->streams[at].id == id) return thread->streams[at].number;
    lochi_lock_take(&all->lock);
    thread->streams[at].number = all->is_on ? names_number_stream(id) : 0;
    lochi_lock_drop(&all->lock);
    thread->streams[at].id = id;
    return thread->streams[at].number;
}

/* --- call stacks --- */

/* Writes the module records of a list (stack.h). */
static void names_write_modules(const recorder_modules *modules)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_assert_held(&all->lock);
    for (size_t i = 0; i < modules->count; i++) {
        const recorder_module *module = &modules->list[i];
        const size_t path = strlen(module->path);
        uint8_t *at = names_begin(i, 25 + module->id_bytes + path);
        if (!at) return;
        memcpy(at, &module->start, 8);
        memcpy(at + 8, &module->end, 8);
        memcpy(at + 16, &module->offset, 8);
        at[24] = module->id_bytes;
        memcpy(at + 25, module->id, module->id_bytes);
        memcpy(at + 25 + module->id_bytes, module->path, path);
        names_end(NAMES_MODULE, at + 25 + module->id_bytes + path);
    }
    atomic_store_explicit(&all->modules, modules->changes, memory_order_relaxed);
}

static uint32_t names_number_stack(uint64_t hash, const uintptr_t *frames, size_t count)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_assert_held(&all->lock);
    recorder_stack *table = all->stack_table;
    size_t at = (size_t)(hash >> 44);
    while (table[at].hash && table[at].hash != hash)
        at = (at + 1) % NAMES_STACK_ROOM;
    if (table[at].hash) return table[at].number_plus_one;
    if (all->stacks >= NAMES_STACK_ROOM / 4 * 3) return 0;
    uint8_t *to = names_begin(all->stacks, count * 8);
    if (!to) return 0;
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * 8, &(uint64_t){frames[i]}, 8);
    names_end(NAMES_STACK, to + count * 8);
    table[at] = (recorder_stack){hash, ++all->stacks};
    return all->stacks;
}

/* Numbers a call stack that the thread does not remember. Modules are named again after the process has loaded one;
 * they are listed without the lock, because the loader has locks of its own. */
static LOCHI_RARE uint32_t names_add_stack(uint64_t hash, const uintptr_t *frames, size_t count)
{
    recorder_state *all = &lochi_recorder_all;
    recorder_modules *modules = lochi_recorder_list_modules(atomic_load_explicit(&all->modules, memory_order_relaxed));
    lochi_lock_take(&all->lock);
    uint32_t number_plus_one = 0;
    if (all->is_on) {
        if (modules && modules->changes != atomic_load_explicit(&all->modules, memory_order_relaxed))
            names_write_modules(modules);
        number_plus_one = names_number_stack(hash, frames, count);
    }
    lochi_lock_drop(&all->lock);
    lochi_recorder_free_modules(modules);
    return number_plus_one;
}

uint32_t lochi_recorder_find_stack(recorder_thread *thread)
{
    uintptr_t frames[LOCH_RECORDER_STACK_MAX];
    const size_t count = lochi_recorder_capture(frames, lochi_recorder_all.depth);
    if (!thread->seen) thread->seen = lochi_map(NAMES_SEEN_ROOM * sizeof *thread->seen);
    if (!count || !thread->seen) return 0;
    uint64_t hash = count;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ frames[i]) * 0x9e3779b97f4a7c15u, hash ^= hash >> 32;
    hash |= 1; /* 0 is an empty entry */
    recorder_seen *seen = &thread->seen[hash >> 7 & (NAMES_SEEN_ROOM - 1)];
    if (seen->hash != hash) *seen = (recorder_seen){hash, names_add_stack(hash, frames, count)};
    return seen->number_plus_one;
}
