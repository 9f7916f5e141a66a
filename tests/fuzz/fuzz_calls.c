/* SPDX-License-Identifier: MIT */
/* Fuzz target: programs of calls. The input says which device and pool there are, and then which calls are made, on
 * pools, children, wrappers, direct allocators and sessions; any of them may meet a failing driver call or a failing
 * piece of bookkeeping. A plain model knows which blocks are out and what is in them. In the end all memory has gone
 * back, and nothing was used without order. */
#include "memory/pool/report/check.h"
#include "memory/pool/front/gate.h"
#include "calls_model.h"

typedef struct calls_device {
    const char *name;
    bool has_data;
} calls_device;

static const calls_device calls_devices[] = {
    {"cpu", true},
    {"sim:96MiB,granule=64KiB,backed", true},
    {"sim:96MiB,granule=2MiB,backed", true},
    {"sim:96MiB,granule=64KiB,backed,clock=stepped", true},
    {"sim:96MiB,backed,virtual=off", true},
    {"sim:96MiB,granule=64KiB,backed,alias=off", true},
    {"sim:96MiB,granule=64KiB,backed,async=off", true},
    {"sim:96MiB,granule=64KiB", false},
};

/* --- what the input says --- */

/* From 1 byte to 16 MiB; small ones are as likely as large ones. */
static size_t calls_bytes(calls *c)
{
    const uint8_t shape = fuzz_byte(&c->input), low = fuzz_byte(&c->input);
    const unsigned shift = shape % 17;
    const size_t bytes = (((size_t)low + 1) << shift) - (shape & 128 ? 1 : 0) + (shape & 64 ? 1 : 0);
    return bytes ? bytes : 1;
}

static calls_block *calls_choose(calls *c)
{
    return c->count ? &c->blocks[fuzz_below(&c->input, c->count)] : NULL;
}

static int calls_choose_stream(calls *c)
{
    return c->is_sim ? (int)fuzz_below(&c->input, CALLS_STREAMS) : 0;
}

/* --- allocators --- */

static bool calls_is_around_pool(int kind)
{
    return kind == CALLS_POOL || kind == CALLS_LIMIT || kind == CALLS_TRACKING || kind == CALLS_GUARD ||
           kind == CALLS_FAULT;
}

static loch_allocator *calls_get(calls *c, int kind);

static loch_status calls_make(calls *c, int kind, loch_allocator **out)
{
    const loch_child_options quota = {.size = sizeof quota, .limit_bytes = TEST_MIB << fuzz_byte(&c->input) % 6},
                             range = {.size = sizeof range,
                                      .kind = LOCH_CHILD_RANGE,
                                      .limit_bytes = 64 * TEST_KIB << fuzz_byte(&c->input) % 8};
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = calls_bytes(c)};
    const loch_fault_options fault = {.size = sizeof fault, .one_in = 3, .seed = fuzz_byte(&c->input)};
    const loch_direct_options deferred = {.size = sizeof deferred, .when = LOCH_DIRECT_FREE_DEFERRED};
    loch_allocator *pool = c->allocators[CALLS_POOL];
    switch (kind) {
    case CALLS_QUOTA: return loch_pool_create_child(pool, "quota", &quota, out);
    case CALLS_RANGE: return loch_pool_create_child(pool, "range", &range, out);
    case CALLS_LIMIT: return loch_limit_create(pool, NULL, &limit, out);
    case CALLS_TRACKING: return loch_tracking_create(pool, NULL, NULL, out);
    case CALLS_GUARD: return loch_redzone_create(pool, NULL, NULL, out);
    case CALLS_FAULT: return loch_fault_create(pool, NULL, &fault, out);
    case CALLS_DIRECT: return loch_direct_create(c->device, NULL, NULL, out);
    case CALLS_DIRECT_GUARD: return loch_redzone_create(calls_get(c, CALLS_DIRECT), NULL, NULL, out);
    case CALLS_DEFERRED: return loch_direct_create(c->device, NULL, &deferred, out);
    default: return loch_locked_create(calls_get(c, CALLS_QUOTA), NULL, out);
    }
}

/* The allocator, made if need be; NULL when it cannot be. */
static loch_allocator *calls_get(calls *c, int kind)
{
    loch_status status;
    if (c->allocators[kind]) return c->allocators[kind];
    if (kind == CALLS_DIRECT_GUARD && !calls_get(c, CALLS_DIRECT)) return NULL;
    if (kind == CALLS_CHILD_LOCKED && !calls_get(c, CALLS_QUOTA)) return NULL;
    CALLS_TRY(c, status, CALLS_SHORT | TEST_SET(UNSUPPORTED), calls_make(c, kind, &c->allocators[kind]));
    FUZZ_EXPECT((status == LOCH_OK) == (c->allocators[kind] != NULL));
    return c->allocators[kind];
}

/* Through which allocator a block goes back. */
static loch_allocator *calls_owner(calls *c, const calls_block *block)
{
    return c->allocators[block->kind];
}

/* --- blocks --- */

static void calls_expect_apart(const calls *c, const calls_block *block)
{
    for (size_t i = 0; i < c->count; i++) {
        const calls_block *other = &c->blocks[i];
        if (other != block && other->address < block->address + block->requested &&
            block->address < other->address + other->requested)
            fuzz_fail("blocks of %zu and %zu bytes overlap", other->requested, block->requested);
    }
}

/* A block that is out now, and whose contents are new. */
static void calls_renew(calls *c, calls_block *block)
{
    calls_expect_apart(c, block);
    calls_use(c, block, block->stream, true);
    if (c->is_sim) CHECK_OK(loch_stream_sync(c->streams[block->stream])); /* fills and copies come before the host */
    block->seed = c->seed += 0x632be59bd9b4e019u;
    calls_put(c, block);
}

static void calls_forget(calls *c, calls_block *block)
{
    *block = c->blocks[--c->count];
}

static void calls_alloc(calls *c)
{
    const int kind = (int)fuzz_below(&c->input, CALLS_KINDS), session = (int)fuzz_below(&c->input, 8);
    const uint8_t flags = fuzz_byte(&c->input);
    calls_block *block = &c->blocks[c->count];
    *block = (calls_block){.kind = kind, .requested = calls_bytes(c), .stream = calls_choose_stream(c), .session = -1};
    const loch_request request = {.size = sizeof request,
                                  .bytes = block->requested,
                                  .alignment = flags & 15 ? 0 : (size_t)1 << (flags >> 4),
                                  .stream = calls_stream(c, block->stream),
                                  .flags = flags & 16 ? LOCH_ALLOC_ZEROED : 0};
    const unsigned due = c->faults;
    c->faults = 0;
    loch_allocator *allocator = calls_get(c, kind);
    c->faults = due;
    if (!allocator || c->count == CALLS_BLOCKS) return;
    if (calls_is_around_pool(kind) && c->depth) block->session = c->entered[c->depth - 1];
    if (kind == CALLS_POOL && session < CALLS_SESSIONS && c->sessions[session]) {
        allocator = loch_session_get_allocator(c->sessions[session]);
        block->session = session; /* the handle comes before the thread */
    }
    void *address = TEST_UNTOUCHED;
    loch_status status;
    CALLS_TRY(c, status, CALLS_SHORT, loch_allocator_alloc(allocator, &request, &address));
    FUZZ_EXPECT((status == LOCH_OK) == (address != NULL));
    if (status != LOCH_OK) return;
    if (request.alignment) FUZZ_EXPECT(((uintptr_t)address & (request.alignment - 1)) == 0);
    block->address = address;
    c->count++;
    if (flags & 16 && c->has_data) {
        if (c->is_sim) CHECK_OK(loch_stream_sync(c->streams[block->stream]));
        for (size_t at = 0; at < block->requested; at += at % 4096 == 63 ? 4033 : 1)
            FUZZ_EXPECT(block->address[at] == 0);
    }
    calls_renew(c, block);
}

static void calls_alloc_growable(calls *c)
{
    calls_block *block = &c->blocks[c->count];
    if (c->count == CALLS_BLOCKS) return;
    *block = (calls_block){.requested = calls_bytes(c), .stream = calls_choose_stream(c), .session = -1};
    block->max_bytes = block->requested + calls_bytes(c);
    if (c->depth) block->session = c->entered[c->depth - 1];
    const loch_request request = {
        .size = sizeof request, .bytes = block->requested, .stream = calls_stream(c, block->stream)};
    void *address = TEST_UNTOUCHED;
    loch_status status;
    CALLS_TRY(c, status, CALLS_SHORT | (c->is_virtual ? 0 : TEST_SET(UNSUPPORTED)),
              loch_pool_alloc_growable(c->allocators[CALLS_POOL], block->max_bytes, &request, &address));
    FUZZ_EXPECT((status == LOCH_OK) == (address != NULL));
    if (status != LOCH_OK) return;
    block->address = address;
    c->count++;
    calls_renew(c, block);
}

static void calls_resize(calls *c, calls_block *block)
{
    const size_t bytes = calls_bytes(c), before = block->requested;
    loch_status status;
    CALLS_TRY(c, status, CALLS_SHORT | TEST_SET(OUT_OF_RANGE),
              loch_pool_resize_growable(c->allocators[CALLS_POOL], block->address, bytes));
    if (bytes <= block->max_bytes) FUZZ_EXPECT(status != LOCH_E_OUT_OF_RANGE);
    if (status != LOCH_OK) {
        calls_expect(c, block);
        return;
    }
    if (c->has_data) calls_front(block->address, bytes < before ? bytes : before, block->seed, false);
    block->requested = bytes;
    calls_renew(c, block);
}

static void calls_realloc(calls *c)
{
    calls_block *block = calls_choose(c);
    if (!block) return;
    calls_expect(c, block);
    if (block->max_bytes) {
        calls_resize(c, block);
        return;
    }
    const size_t bytes = calls_bytes(c), before = block->requested;
    void *moved = TEST_UNTOUCHED;
    loch_status status;
    CALLS_TRY(
        c, status, CALLS_SHORT,
        loch_allocator_realloc(calls_owner(c, block), block->address, bytes, calls_stream(c, block->stream), &moved));
    FUZZ_EXPECT((status == LOCH_OK) == (moved != NULL));
    if (status != LOCH_OK) {
        calls_expect(c, block);
        return;
    }
    if (c->is_sim) CHECK_OK(loch_stream_sync(c->streams[block->stream])); /* contents are copied in its order */
    block->address = moved;
    if (c->has_data) calls_front(block->address, bytes < before ? bytes : before, block->seed, false);
    block->requested = bytes;
    calls_renew(c, block);
}

/* Frees a block; one that a fault kept from going goes at the second try. */
static void calls_free_block(calls *c, calls_block *block, unsigned how)
{
    const int stream = calls_choose_stream(c);
    loch_allocator *owner = calls_owner(c, block);
    loch_status status = LOCH_E_DRIVER;
    calls_expect(c, block);
    if (how == 1) calls_order(c, block->stream, stream);
    for (int i = 0; status != LOCH_OK && i < 2; i++) {
        if (how == 1)
            CALLS_TRY(c, status, 0, loch_allocator_free_on(owner, block->address, calls_stream(c, stream)));
        else if (how == 2)
            CALLS_TRY(c, status, 0, loch_allocator_free_sized(owner, block->address, block->requested));
        else
            CALLS_TRY(c, status, 0, loch_free(owner, block->address));
    }
    calls_forget(c, block);
}

static void calls_free(calls *c)
{
    calls_block *block = calls_choose(c);
    const uint8_t how = fuzz_byte(&c->input);
    if (!block) return;
    char *address = block->address;
    loch_allocator *owner = calls_owner(c, block);
    calls_free_block(c, block, how % 3);
    if (how & 128)
        CHECK_FAILS_SET(loch_free(owner, address), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN) | TEST_SET(INTERIOR));
}

/* Calls that are wrong change nothing. */
static void calls_misuse(calls *c)
{
    const calls_block *block = calls_choose(c);
    const size_t offset = fuzz_below(&c->input, 4096);
    loch_block found = {.size = sizeof found};
    void *address;
    loch_allocator *pool = c->allocators[CALLS_POOL];
    const loch_request huge = {.size = sizeof huge, .bytes = SIZE_MAX - fuzz_byte(&c->input)},
                       crooked = {.size = sizeof crooked, .bytes = 100, .alignment = 3 + 2 * offset},
                       none = {.size = fuzz_byte(&c->input) % 8, .bytes = 1};
    const unsigned foreign = TEST_SET(FOREIGN) | TEST_SET(INTERIOR) | TEST_SET(DOUBLE_FREE);
    CHECK_FAILS_SET(loch_allocator_alloc(pool, &huge, &address), CALLS_SHORT | TEST_SET(OVERFLOW));
    CHECK_FAILS_SET(loch_allocator_alloc(pool, &crooked, &address), TEST_SET(INVALID));
    CHECK_FAILS_SET(loch_allocator_alloc(pool, &none, &address), TEST_SET(INVALID));
    CHECK_FAILS_SET(loch_free(pool, &found), foreign);
    if (!block || !block->requested) return;
    CHECK_FAILS_SET(loch_allocator_free_sized(calls_owner(c, block), block->address, block->requested + 1),
                    TEST_SET(INVALID));
    if (offset && offset < block->requested)
        CHECK_FAILS_SET(loch_free(calls_owner(c, block), block->address + offset), foreign);
    calls_expect(c, block);
}

static void calls_record(calls *c)
{
    const calls_block *block = calls_choose(c);
    const int stream = calls_choose_stream(c);
    loch_status status;
    if (!block) return;
    CALLS_TRY(c, status, 0, loch_allocator_record_use(calls_owner(c, block), block->address, calls_stream(c, stream)));
    if (status != LOCH_OK) return;
    calls_order(c, block->stream, stream);
    calls_use(c, block, stream, false);
    calls_order(c, stream, block->stream);
}

/* The front of one block into another, on a stream behind both. */
static void calls_copy(calls *c)
{
    const calls_block *from = calls_choose(c);
    calls_block *to = calls_choose(c);
    loch_status status;
    if (!from || from == to) return;
    const size_t bytes = from->requested < to->requested ? from->requested : to->requested;
    calls_order(c, from->stream, to->stream);
    if (!bytes) return;
    CALLS_TRY(c, status, 0, loch_copy_on(to->address, from->address, bytes, calls_stream(c, to->stream)));
    if (status == LOCH_OK && c->is_sim) CHECK_OK(loch_stream_sync(c->streams[to->stream]));
    if (c->is_sim) calls_order(c, to->stream, from->stream);
    for (size_t i = 0; status == LOCH_OK && c->has_data && bytes >= 16 && i < 16;
         i++) /* calls_front has written those */
        FUZZ_EXPECT((unsigned char)to->address[i] == calls_content(from->seed, i));
    calls_renew(c, to);
}

static void calls_find(calls *c)
{
    const calls_block *block = calls_choose(c);
    loch_block found = {.size = sizeof found};
    if (!block) return;
    CHECK_OK(loch_allocator_find(calls_owner(c, block), block->address, &found));
    FUZZ_EXPECT(found.address == block->address && found.requested_bytes == block->requested);
    FUZZ_EXPECT(found.allocated_bytes >= block->requested);
}

/* --- sessions, on the pool --- */

static void calls_session(calls *c)
{
    const int number = (int)fuzz_below(&c->input, CALLS_SESSIONS);
    const uint8_t what = fuzz_byte(&c->input) % 4;
    loch_session **session = &c->sessions[number];
    loch_status status;
    if (!*session) {
        CALLS_TRY(c, status, 0, loch_session_begin(c->allocators[CALLS_POOL], NULL, session));
        FUZZ_EXPECT((status == LOCH_OK) == (*session != NULL));
    } else if (what == 0 && c->depth < CALLS_ENTERED) {
        CALLS_TRY(c, status, 0, loch_session_enter(*session));
        if (status == LOCH_OK) c->entered[c->depth++] = number;
    } else if (what == 1) {
        const bool is_top = c->depth && c->entered[c->depth - 1] == number;
        CALLS_TRY(c, status, is_top ? 0 : TEST_SET(INVALID), loch_session_leave(*session));
        FUZZ_EXPECT(is_top == (status == LOCH_OK));
        c->depth -= is_top;
    } else if (what == 2 && c->count) {
        calls_block *block = calls_choose(c);
        CALLS_TRY(c, status, block->session == number ? 0 : TEST_SET(FOREIGN),
                  loch_session_promote(*session, block->address));
        if (status == LOCH_OK) block->session = -1;
    }
}

static bool calls_is_entered(const calls *c, int session)
{
    for (int i = 0; i < c->depth; i++)
        if (c->entered[i] == session) return true;
    return false;
}

/* Ends a session: what belongs to it has gone, and as many bytes as the model knows. */
static void calls_session_end(calls *c, int number)
{
    loch_session **session = &c->sessions[number];
    loch_session_stats stats = {.size = sizeof stats};
    size_t bytes = 0, blocks = 0, freed = 0, part = 0;
    loch_status status = LOCH_E_DRIVER;
    if (!*session) return;
    for (size_t i = 0; i < c->count; i++) {
        if (c->blocks[i].session != number) continue;
        calls_expect(c, &c->blocks[i]);
        bytes += c->blocks[i].requested;
        blocks++;
    }
    CHECK_OK(loch_session_get_stats(*session, &stats));
    FUZZ_EXPECT(stats.blocks == blocks && stats.bytes == bytes);
    if (calls_is_entered(c, number)) {
        CHECK_FAILS(loch_session_end(*session, NULL, &part), BUSY);
        return;
    }
    for (int i = 0; status != LOCH_OK && i < 3; i++) {
        CALLS_TRY(c, status, 0, loch_session_end(*session, NULL, &part));
        freed += part;
    }
    FUZZ_EXPECT(status == LOCH_OK && freed == bytes);
    *session = NULL;
    for (size_t i = c->count; i-- > 0;)
        if (c->blocks[i].session == number) calls_forget(c, &c->blocks[i]);
}

/* --- buffers that may move --- */

static void calls_buffer_expect(calls *c, calls_buffer *b)
{
    void *address;
    CHECK_OK(loch_buffer_pin(b->buffer, calls_stream(c, 0), &address));
    if (c->is_sim) CHECK_OK(loch_stream_sync(c->streams[0]));
    if (c->has_data) calls_each(address, b->bytes, b->seed, false);
    CHECK_OK(loch_buffer_unpin(b->buffer, calls_stream(c, 0)));
}

static void calls_buffer_make(calls *c, calls_buffer *b)
{
    const loch_request request = {.size = sizeof request, .flags = LOCH_ALLOC_MOVABLE, .stream = calls_stream(c, 0)};
    loch_status status;
    void *address;
    const int depth = c->depth;
    if (depth) return; /* it would be the session's */
    b->bytes = calls_bytes(c);
    CALLS_TRY(c, status, CALLS_SHORT | TEST_SET(UNSUPPORTED),
              loch_buffer_create(c->allocators[CALLS_POOL], b->bytes, &request, &b->buffer));
    FUZZ_EXPECT((status == LOCH_OK) == (b->buffer != NULL));
    if (status != LOCH_OK) return;
    b->seed = c->seed += 0x632be59bd9b4e019u;
    CHECK_OK(loch_buffer_pin(b->buffer, calls_stream(c, 0), &address));
    if (c->is_sim) CHECK_OK(loch_stream_sync(c->streams[0]));
    if (c->has_data) calls_each(address, b->bytes, b->seed, true);
    CHECK_OK(loch_buffer_unpin(b->buffer, calls_stream(c, 0)));
}

static void calls_buffer_step(calls *c)
{
    calls_buffer *b = &c->buffers[fuzz_below(&c->input, CALLS_BUFFERS)];
    const uint8_t what = fuzz_byte(&c->input) % 4;
    void *address;
    loch_status status;
    if (!b->buffer) {
        calls_buffer_make(c, b);
        return;
    }
    calls_buffer_expect(c, b);
    if (what == 0) {
        CALLS_TRY(c, status, 0, loch_buffer_pin(b->buffer, calls_stream(c, 0), &address));
        b->pins += status == LOCH_OK;
    } else if (what == 1 && b->pins) {
        CALLS_TRY(c, status, 0, loch_buffer_unpin(b->buffer, calls_stream(c, 0)));
        b->pins -= status == LOCH_OK;
    } else if (what == 2) {
        while (b->pins) {
            CHECK_OK(loch_buffer_unpin(b->buffer, calls_stream(c, 0)));
            b->pins--;
        }
        loch_buffer_clear(&b->buffer);
    }
}

/* --- the pool as a whole --- */

static void calls_expect_all(calls *c)
{
    for (size_t i = 0; i < c->count; i++)
        calls_expect(c, &c->blocks[i]);
    for (size_t i = 0; i < CALLS_BUFFERS; i++)
        if (c->buffers[i].buffer) calls_buffer_expect(c, &c->buffers[i]);
}

static void calls_check_pool(loch_allocator *allocator)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    lochi_lock_take(&pool->lock);
    lochi_pool_stop(pool);
    const char *wrong = lochi_pool_check(pool);
    lochi_pool_go(pool);
    lochi_lock_drop(&pool->lock);
    if (wrong) fuzz_fail("the pool is broken: %s", wrong);
}

static void calls_check(calls *c)
{
    loch_sim_violation found;
    size_t count = 0;
    calls_check_pool(c->allocators[CALLS_POOL]);
    if (c->allocators[CALLS_QUOTA]) calls_check_pool(c->allocators[CALLS_QUOTA]);
    if (c->allocators[CALLS_RANGE]) calls_check_pool(c->allocators[CALLS_RANGE]);
    if (c->is_sim) CHECK_OK(test_sim_violations(c->device, &found, 1, &count));
    if (count) fuzz_fail("%s", found.text);
}

/* Sleeps, frees a block meanwhile, and wakes: all contents are back. */
static void calls_sleep(calls *c)
{
    const uint8_t how = fuzz_byte(&c->input);
    loch_allocator *pool = c->allocators[CALLS_POOL];
    const loch_sleep_options options = {.size = sizeof options,
                                        .contents = how & 1 ? LOCH_SLEEP_HOST : LOCH_SLEEP_PINNED};
    void *address;
    loch_status status;
    calls_expect_all(c);
    CALLS_TRY(c, status, CALLS_SHORT | TEST_SET(UNSUPPORTED) | TEST_SET(BUSY), loch_pool_sleep(pool, &options, NULL));
    if (status == LOCH_OK) {
        CHECK_FAILS(loch_alloc(pool, 100, &address), BUSY);
        calls_check_pool(pool);
        calls_block *block = how & 2 ? calls_choose(c) : NULL;
        if (block && block->kind == CALLS_POOL) {
            CHECK_OK(loch_free(calls_owner(c, block), block->address));
            calls_forget(c, block);
        }
        status = LOCH_E_DRIVER;
        for (int i = 0; status != LOCH_OK && i < 2; i++) {
            c->faults = i == 0 ? how >> 2 & 3 : 0;
            CALLS_TRY(c, status, i == 0 ? CALLS_SHORT : 0, loch_pool_wake(pool, NULL));
            if (status != LOCH_OK) CHECK_OK(loch_pool_set_limit(pool, 0)); /* it was lowered below what is out */
        }
    }
    calls_expect_all(c);
}

static void calls_compact(calls *c)
{
    const loch_compact_options options = {.size = sizeof options,
                                          .contiguous_bytes = fuzz_byte(&c->input) & 1 ? calls_bytes(c) : 0,
                                          .stream = calls_stream(c, calls_choose_stream(c))};
    loch_status status;
    CALLS_TRY(c, status, TEST_SET(FRAGMENTED) | TEST_SET(BUSY) | TEST_SET(UNSUPPORTED) | TEST_SET(MOVING_FORBIDDEN),
              loch_pool_compact(c->allocators[CALLS_POOL], &options, NULL));
    calls_expect_all(c);
}

static void calls_whole(calls *c)
{
    loch_allocator *pool = c->allocators[CALLS_POOL];
    loch_status status;
    size_t released;
    switch (fuzz_byte(&c->input) % 8) {
    case 0: CALLS_TRY(c, status, 0, loch_allocator_trim(pool, calls_bytes(c), &released)); break;
    case 1: CALLS_TRY(c, status, TEST_SET(LIMIT), loch_pool_set_limit(pool, 2 * calls_bytes(c))); break;
    case 2: CALLS_TRY(c, status, TEST_SET(LIMIT), loch_pool_set_limit(pool, 0)); break;
    case 3: CALLS_TRY(c, status, 0, loch_pool_set_idle(pool, fuzz_byte(&c->input) & 1 ? calls_bytes(c) : 0)); break;
    case 4: CALLS_TRY(c, status, TEST_SET(BUSY), loch_pool_freeze(pool, NULL, NULL)); break;
    case 5: CALLS_TRY(c, status, 0, loch_pool_unfreeze(pool, 0, NULL)); break;
    case 6: calls_compact(c); break;
    default: calls_sleep(c);
    }
    calls_check(c);
}

/* --- a program --- */

static void calls_step(calls *c)
{
    switch (fuzz_byte(&c->input) % 24) {
    case 0: c->faults = 1; break;
    case 1: c->faults = 2; break;
    case 2: calls_misuse(c); break;
    case 3: calls_record(c); break;
    case 4: calls_copy(c); break;
    case 5: calls_find(c); break;
    case 6: calls_alloc_growable(c); break;
    case 7:
    case 8: calls_session(c); break;
    case 9: calls_session_end(c, (int)fuzz_below(&c->input, CALLS_SESSIONS)); break;
    case 10:
    case 11: calls_buffer_step(c); break;
    case 12: calls_whole(c); break;
    case 13:
        if (c->is_sim) CHECK_OK(loch_sim_advance(c->device, fuzz_number(&c->input, 2)));
        break;
    case 14:
    case 15:
    case 16: calls_realloc(c); break;
    case 17:
    case 18:
    case 19: calls_free(c); break;
    default: calls_alloc(c);
    }
}

static void calls_begin(calls *c)
{
    const calls_device *device = &calls_devices[fuzz_below(&c->input, sizeof calls_devices / sizeof *calls_devices)];
    const uint8_t how = fuzz_byte(&c->input);
    const loch_pool_options options = {.size = sizeof options,
                                       .preset = how & 1 ? LOCH_POOL_WHOLE_BLOCKS : LOCH_POOL_STANDARD,
                                       .limit_bytes = how & 2 ? 24 * TEST_MIB : 0,
                                       .idle_bytes = how & 4 ? 2 * TEST_MIB : 0,
                                       .handle_bytes = how & 8 ? 4 * TEST_MIB : 0,
                                       .round_bytes = how & 16 ? 1000 : 0};
    c->has_data = device->has_data;
    CHECK_OK(loch_device_open(device->name, &c->device));
    c->is_sim = strncmp(device->name, "sim", 3) == 0;
    c->is_virtual = loch_device_can(c->device, LOCH_CAN_VIRTUAL);
    c->streams[0] = loch_stream_get_default(c->device);
    const loch_stream_options independent = {.size = sizeof independent, .order = LOCH_STREAM_INDEPENDENT};
    for (int i = 1; i < CALLS_STREAMS && c->is_sim; i++)
        CHECK_OK(loch_stream_create(c->device, &independent, &c->streams[i]));
    CHECK_OK(loch_pool_create(c->device, "pool", &options, &c->allocators[CALLS_POOL]));
}

/* Nothing of the pool is out any more; all its memory has gone back. */
static void calls_expect_empty(calls *c)
{
    loch_pool_info info = {.size = sizeof info};
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_trim(c->allocators[CALLS_POOL], 0, NULL));
    calls_check(c);
    CHECK_OK(loch_pool_get_info(c->allocators[CALLS_POOL], &info));
    CHECK_OK(loch_allocator_get_stats(c->allocators[CALLS_POOL], &stats));
    FUZZ_EXPECT(!stats.blocks && !stats.requested_bytes && stats.allocs == stats.frees);
    FUZZ_EXPECT(!info.used_bytes && !info.reserved_bytes && !info.handles);
}

static void calls_end(calls *c)
{
    c->faults = 0;
    CHECK_OK(loch_pool_unfreeze(c->allocators[CALLS_POOL], 0, NULL));
    while (c->depth)
        CHECK_OK(loch_session_leave(c->sessions[c->entered[--c->depth]]));
    for (int i = 0; i < CALLS_SESSIONS; i++)
        calls_session_end(c, i);
    while (c->count)
        calls_free_block(c, &c->blocks[c->count - 1], 0);
    for (size_t i = 0; i < CALLS_BUFFERS; i++) {
        while (c->buffers[i].buffer && c->buffers[i].pins-- > 0)
            CHECK_OK(loch_buffer_unpin(c->buffers[i].buffer, calls_stream(c, 0)));
        loch_buffer_clear(&c->buffers[i].buffer);
    }
    for (int i = CALLS_KINDS; i-- > 1;)
        loch_allocator_release(c->allocators[i]);
    memset(c->allocators + 1, 0, sizeof c->allocators - sizeof *c->allocators);
    calls_expect_empty(c);
    loch_allocator_release(c->allocators[CALLS_POOL]);
    for (int i = 1; i < CALLS_STREAMS && c->is_sim; i++)
        loch_stream_close(c->streams[i]);
    loch_device_release(c->device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    calls c = {.input = {data, bytes}};
    fuzz_begin();
    calls_begin(&c);
    while (c.input.bytes)
        calls_step(&c);
    calls_end(&c);
    fuzz_end();
    return 0;
}
