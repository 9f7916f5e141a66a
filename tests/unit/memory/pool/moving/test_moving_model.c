/* SPDX-License-Identifier: MIT */
/* Everything that moves memory, together: random programs of allocations, frees, pins, compactions, freezes, children,
 * sessions and sleeps, beside a list of what every block has to hold. After every step contents are compared, addresses
 * that have to stay are looked at, figures are counted, the pools' invariants are walked; and simulated devices check
 * the order of streams. */
#include "memory/pool/heap/blocks.h"
#include "memory/pool/pool.h"
#include "unit/memory/pool/child_fixture.h"
#include "steps.h"
#include "tensor_fixture.h"

#define MIB TEST_MIB
#define KIB TEST_KIB
#define SLOTS 28
#define CHILDREN 3
#define STEPS 260

typedef struct ground {
    const char *device;
    size_t limit, handle, largest;
} ground;

static const ground grounds[] = {
    {"cpu", 48 * MIB, 0, 3 * MIB},
    {"sim:256MiB,backed", 48 * MIB, 0, 3 * MIB},
    {"sim:256MiB,backed,granule=64KiB", 6 * MIB, 0, 400 * KIB},
    {"sim:256MiB,backed,granule=64KiB,alias=off,clock=stepped,lag=2000", 6 * MIB, 0, 400 * KIB},
    {"sim:256MiB,backed,virtual=off", 16 * MIB, 4 * MIB, 700 * KIB},
};
#define GROUNDS (sizeof grounds / sizeof *grounds)

/* A block: a buffer, or a raw address. */
typedef struct slot {
    loch_buffer *buffer;
    void *raw;
    loch_allocator *from; /* that it goes back to */
    size_t bytes;
    uint32_t seed;
    loch_tag tag;
    size_t stream;
    void *pinned_at; /* NULL: not pinned */
    bool is_in_session, is_in_child;
} slot;

typedef struct world {
    const ground *on;
    test_random random;
    loch_device *device;
    loch_allocator *pool;
    loch_stream *streams[2];
    loch_tag tags[2];
    slot slots[SLOTS];
    loch_allocator *children[CHILDREN];
    loch_child_kind kinds[CHILDREN];
    loch_session *session;
    bool is_asleep;      /* all of the pool */
    loch_tag asleep_tag; /* or blocks of this */
    uint32_t step;
    size_t counts[16]; /* what succeeded, by operation */
} world;

static size_t below(world *w, size_t bound)
{
    return test_random_below(&w->random, bound);
}

static bool is_live(const slot *s)
{
    return s->buffer || s->raw;
}

/* Whether nothing may touch it now: it sleeps, or may. */
static bool is_away(const world *w, const slot *s)
{
    if (s->is_in_child) return false;
    return w->is_asleep || (w->asleep_tag && s->tag == w->asleep_tag);
}

/* --- contents --- */

static void *hold(const slot *s, loch_stream *stream)
{
    void *address = s->raw;
    if (s->buffer) CHECK_OK(loch_buffer_pin(s->buffer, stream, &address));
    return address;
}

static void let_go(const slot *s, loch_stream *stream)
{
    if (s->buffer) CHECK_OK(loch_buffer_unpin(s->buffer, stream));
}

static void put(world *w, slot *s)
{
    loch_stream *stream = w->streams[s->stream];
    if (s->buffer ? loch_buffer_get_access(s->buffer) == LOCH_READ_ONLY : lochi_pool_is_protected(s->from, s->raw))
        return;
    s->seed = w->step * 64 + 1 + (uint32_t)(s - w->slots);
    void *address = hold(s, stream);
    test_steps_write(stream, address, s->bytes, s->seed); /* goes on after the call */
    let_go(s, stream);
}

static void expect(const world *w, const slot *s)
{
    static uint32_t seen[(4 * TEST_MIB) / 4];
    loch_stream *stream = w->streams[s->stream];
    const void *address = hold(s, stream);
    const loch_copy_options copy = {.size = sizeof copy, .stream = stream, .wait = LOCH_WAIT_END};
    CHECK_OK(loch_copy_with(seen, address, s->bytes, &copy));
    let_go(s, stream);
    char when[32];
    snprintf(when, sizeof when, "step %u", w->step);
    test_steps_expect(seen, s->bytes, s->seed, when);
}

/* --- operations --- */

static void take(world *w, slot *s)
{
    const size_t child = below(w, CHILDREN + 3);
    const bool is_movable = below(w, 3) != 0, is_in_session = w->session && below(w, 3) == 0;
    loch_allocator *pool = child < CHILDREN && w->children[child] && !is_in_session ? w->children[child] : w->pool;
    const size_t largest = below(w, 3) ? w->on->largest : 20 * KIB;
    slot new = {.from = pool, .bytes = (4 + below(w, largest)) & ~(size_t)3, .stream = below(w, 2)};
    new.is_in_child = pool != w->pool;
    new.is_in_session = is_in_session;
    new.tag = below(w, 2) ? w->tags[below(w, 2)] : 0;
    loch_request request = {.size = sizeof request,
                            .bytes = new.bytes,
                            .stream = w->streams[new.stream],
                            .tag = new.tag,
                            .alignment = below(w, 8) ? 0 : (size_t)64 << below(w, 8)};
    loch_status status;
    if (is_in_session) CHECK_OK(loch_session_enter(w->session));
    if (is_movable) {
        request.flags = LOCH_ALLOC_MOVABLE;
        status = loch_buffer_create(pool, new.bytes, &request, &new.buffer);
    } else {
        status = loch_allocator_alloc(pool, &request, &new.raw);
    }
    if (is_in_session) CHECK_OK(loch_session_leave(w->session));
    if (w->is_asleep && pool == w->pool) {
        assert_int_equal(status, LOCH_E_BUSY);
        return;
    }
    if (status != LOCH_OK) { /* full, or in pieces that cannot be joined */
        assert_true(POOL_SHORT & 1u << status);
        return;
    }
    *s = new;
    put(w, s);
    w->counts[0]++;
}

static void drop(world *w, slot *s)
{
    if (s->pinned_at) CHECK_OK(loch_buffer_unpin(s->buffer, w->streams[s->stream]));
    if (s->buffer)
        loch_buffer_release(s->buffer);
    else
        CHECK_OK(loch_free(s->from, s->raw));
    *s = (slot){.bytes = 0};
    w->counts[1]++;
}

static void pin(world *w, slot *s)
{
    if (!s->buffer || is_away(w, s)) return;
    if (s->pinned_at) {
        CHECK_OK(loch_buffer_unpin(s->buffer, w->streams[s->stream]));
        s->pinned_at = NULL;
    } else {
        CHECK_OK(loch_buffer_pin(s->buffer, w->streams[s->stream], &s->pinned_at));
    }
    w->counts[2]++;
}

static void compact(world *w)
{
    const loch_compact_options options = {.size = sizeof options,
                                          .contiguous_bytes = below(w, 2) ? below(w, w->on->limit / 2) : 0,
                                          .budget_bytes = below(w, 3) ? 0 : w->on->limit / 8,
                                          .stream = below(w, 2) ? w->streams[below(w, 2)] : NULL};
    loch_compact_report plan = {.size = sizeof plan}, report = {.size = sizeof report};
    const bool is_quiet = below(w, 2); /* else streams free memory between the plan and the compaction */
    if (is_quiet) CHECK_OK(loch_device_sync(w->device));
    const loch_status planned = loch_pool_plan_compact(w->pool, &options, NULL, NULL, &plan);
    const loch_status status = loch_pool_compact(w->pool, &options, &report);
    if (w->is_asleep) {
        assert_int_equal(status, LOCH_E_BUSY);
        return;
    }
    assert_true(status == LOCH_OK || status == LOCH_E_FRAGMENTED);
    if (is_quiet) assert_int_equal(status, planned);
    if (is_quiet && status == LOCH_OK) assert_int_equal(report.moved_bytes, plan.moved_bytes);
    if (options.budget_bytes) assert_true(report.moved_bytes <= options.budget_bytes);
    if (report.moves) w->counts[3]++;
}

static void freeze(world *w)
{
    const loch_freeze_options options = {.size = sizeof options,
                                         .tag = below(w, 4) ? w->tags[below(w, 2)] : 0,
                                         .writes = below(w, 2) ? LOCH_FREEZE_PROTECTED : LOCH_FREEZE_WRITABLE,
                                         .stream = w->streams[below(w, 2)]};
    loch_freeze_report report = {.size = sizeof report};
    const loch_status status = loch_pool_freeze(w->pool, &options, &report);
    if (w->is_asleep || w->asleep_tag)
        assert_int_equal(status, LOCH_E_BUSY);
    else
        CHECK_OK(status);
    if (report.blocks) w->counts[4]++;
}

static void unfreeze(world *w)
{
    CHECK_OK(loch_pool_unfreeze(w->pool, below(w, 4) ? w->tags[below(w, 2)] : 0, NULL));
    w->counts[5]++;
}

static void raise_child(world *w)
{
    const size_t i = below(w, CHILDREN);
    if (w->children[i]) { /* its blocks stay */
        loch_allocator_release(w->children[i]);
        w->children[i] = NULL;
        for (size_t s = 0; s < SLOTS; s++) /* so that nothing is freed through an ended reference */
            if (w->slots[s].is_in_child && w->slots[s].raw) drop(w, &w->slots[s]);
        return;
    }
    w->kinds[i] = below(w, 2) ? LOCH_CHILD_RANGE : LOCH_CHILD_QUOTA;
    const size_t bytes = 16 * KIB + below(w, w->on->limit / 5);
    const size_t minimum = w->kinds[i] == LOCH_CHILD_QUOTA && below(w, 2) ? bytes / 2 : 0;
    const loch_status status =
        child_try(w->pool, w->kinds[i], minimum, bytes, w->streams[below(w, 2)], &w->children[i]);
    if (status == LOCH_OK) w->counts[6]++;
    if (w->is_asleep && w->kinds[i] == LOCH_CHILD_RANGE) assert_int_equal(status, LOCH_E_BUSY);
    if (status != LOCH_OK) assert_true((POOL_SHORT | TEST_SET(BUSY)) & 1u << status);
}

static void end_session(world *w)
{
    size_t expected = 0, bytes;
    for (size_t i = 0; i < SLOTS; i++) {
        slot *s = &w->slots[i];
        if (!s->is_in_session) continue;
        s->is_in_session = false;
        if (s->buffer && is_away(w, s)) {
            drop(w, s); /* cannot be pinned to learn where it is */
        } else if (s->buffer || below(w, 4) == 0) {
            loch_stream *stream = w->streams[s->stream];
            void *address = hold(s, stream);
            CHECK_OK(loch_session_promote(w->session, address));
            let_go(s, stream);
        } else {
            expected += s->bytes;
            *s = (slot){.bytes = 0};
        }
    }
    CHECK_OK(loch_session_end(w->session, NULL, &bytes));
    assert_int_equal(bytes, expected);
    w->session = NULL;
    w->counts[7]++;
}

static void session(world *w)
{
    if (w->session)
        end_session(w);
    else
        CHECK_OK(loch_session_begin(w->pool, "model", &w->session));
}

static bool has_range(const world *w)
{
    bool has = false;
    CHECK_OK(loch_device_sync(w->device));
    for (pool_block *block = NULL; (block = lochi_pool_next_block(lochi_pool_of(w->pool), block));)
        has |= lochi_pool_is_range(block);
    return has;
}

static void wake(world *w)
{
    const loch_status status = loch_pool_wake(w->pool, NULL);
    if (status != LOCH_OK) { /* what a tag left was taken by others meanwhile */
        assert_true(POOL_SHORT & 1u << status);
        return;
    }
    w->is_asleep = false;
    w->asleep_tag = 0;
    w->counts[8]++;
}

static void sleep_or_wake(world *w)
{
    if (w->is_asleep || w->asleep_tag) {
        wake(w);
        return;
    }
    const loch_sleep_options options = {.size = sizeof options,
                                        .contents = below(w, 2) ? LOCH_SLEEP_HOST : LOCH_SLEEP_FILE,
                                        .tag = below(w, 2) ? w->tags[below(w, 2)] : 0};
    const bool is_refused = !options.tag && has_range(w);
    const loch_status status = loch_pool_sleep(w->pool, &options, NULL);
    if (w->on == &grounds[GROUNDS - 1]) {
        assert_int_equal(status, LOCH_E_UNSUPPORTED);
    } else if (is_refused) {
        assert_int_equal(status, LOCH_E_BUSY);
    } else {
        CHECK_OK(status);
        w->is_asleep = !options.tag;
        w->asleep_tag = options.tag;
    }
}

/* --- what holds after every step --- */

static void check(const world *w)
{
    loch_allocator *pools[CHILDREN + 1];
    size_t blocks = 0;
    memcpy(pools, w->children, sizeof w->children);
    pools[CHILDREN] = w->pool;
    family_expect_whole(pools, CHILDREN + 1);
    for (size_t i = 0; i < SLOTS; i++) {
        const slot *s = &w->slots[i];
        if (!is_live(s)) continue;
        blocks += !s->is_in_child;
        if (s->pinned_at) assert_ptr_equal(loch_buffer_get_address(s->buffer), s->pinned_at);
        if (!is_away(w, s) && (s->stream == w->step % 2 || w->step % 8 == 0)) expect(w, s);
    }
    for (const pool_block *block = NULL; (block = lochi_pool_next_block(lochi_pool_of(w->pool), block));)
        blocks += lochi_pool_is_range(block);
    assert_int_equal(pool_stats(w->pool).blocks, blocks);
}

static void step(world *w)
{
    slot *s = &w->slots[below(w, SLOTS)];
    switch (below(w, 20)) {
    case 0:
    case 1: compact(w); break;
    case 2: freeze(w); break;
    case 3: unfreeze(w); break;
    case 4: raise_child(w); break;
    case 5: session(w); break;
    case 6:
    case 7: sleep_or_wake(w); break;
    case 8:
    case 9: pin(w, s); break;
    case 10:
        if (is_live(s) && !is_away(w, s)) put(w, s);
        break;
    default:
        if (is_live(s))
            drop(w, s);
        else
            take(w, s);
    }
    check(w);
}

static void finish(world *w)
{
    if (w->is_asleep || w->asleep_tag) wake(w);
    for (size_t i = 0; i < SLOTS; i++)
        if (is_live(&w->slots[i])) drop(w, &w->slots[i]);
    if (w->session) end_session(w);
    for (size_t i = 0; i < CHILDREN; i++)
        loch_allocator_release(w->children[i]);
    sim_expect_order(w->device);
    assert_int_equal(tensor_live_blocks(w->pool), 0);
    pool_expect_whole(w->pool);
    loch_stream_close(w->streams[0]);
    loch_stream_close(w->streams[1]);
    loch_allocator_release(w->pool);
    loch_device_release(w->device);
}

static void random_programs_of_all_that_moves_agree_with_the_model(void **state)
{
    (void)state;
    size_t counts[16] = {0};
    for (size_t g = 0; g < GROUNDS; g++) {
        world w = {.on = &grounds[g], .random = {test_seed(0x6d0de1 + g)}};
        const loch_pool_options options = {
            .size = sizeof options, .limit_bytes = grounds[g].limit, .handle_bytes = grounds[g].handle};
        w.device = sim_open(grounds[g].device);
        w.pool = pool_make(w.device, &options);
        for (size_t i = 0; i < 2; i++)
            w.streams[i] = sim_stream(w.device, LOCH_STREAM_INDEPENDENT);
        CHECK_OK(loch_tag_create("model red", &w.tags[0]));
        CHECK_OK(loch_tag_create("model blue", &w.tags[1]));
        for (w.step = 1; w.step <= STEPS; w.step++)
            step(&w);
        finish(&w);
        for (size_t i = 0; i < 9; i++)
            counts[i] += w.counts[i];
    }
    for (size_t i = 0; i < 9; i++) /* nothing was left out */
        assert_true(counts[i] > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TENSOR_TEST(random_programs_of_all_that_moves_agree_with_the_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
