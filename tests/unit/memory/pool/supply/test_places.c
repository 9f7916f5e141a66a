/* SPDX-License-Identifier: MIT */
/* Where pools with a source place blocks: processes that make equal requests find equal places (number of the segment
 * and offset in it), although their sources return segments at different addresses. Collectives rely on it. */
#include "pool_fixture.h"

#include <pthread.h>
#include <sys/mman.h>

#define MIB TEST_MIB
#define SOURCE_STEP (2 * MIB)
#define SOURCE_STEPS ((size_t)4096)
#define RANKS 8
#define STEPS 1000
#define LIVE 48

/* One rank: its source returns segments at random addresses of a reservation. */
typedef struct rank {
    loch_device *device;
    loch_allocator *source, *pool;
    char *base;
    bool is_taken[SOURCE_STEPS];
    uint64_t addresses; /* state of the generator of addresses, another one for each rank */
    uint64_t seed;      /* of the requests, the same for all ranks */
    loch_pool_preset preset;
    size_t segments;
    uint64_t hashes[STEPS]; /* of the places after each step */
} rank;

static uint64_t rank_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static bool rank_is_free(const rank *it, size_t at, size_t steps)
{
    for (size_t i = at; i < at + steps; i++)
        if (i >= SOURCE_STEPS || it->is_taken[i]) return false;
    return true;
}

static loch_status rank_alloc(void *self, const loch_request *request, void **out)
{
    rank *it = self;
    const size_t steps = (request->bytes + SOURCE_STEP - 1) / SOURCE_STEP;
    for (int tries = 0; tries < 10000; tries++) {
        const size_t at = rank_random(&it->addresses) % SOURCE_STEPS;
        if (!rank_is_free(it, at, steps)) continue;
        memset(it->is_taken + at, 1, steps);
        it->segments++;
        *out = it->base + at * SOURCE_STEP;
        return LOCH_OK;
    }
    return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "the source is full");
}

static loch_status rank_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    (void)stream;
    rank *it = self;
    memset(it->is_taken + ((char *)address - it->base) / SOURCE_STEP, 0, (bytes + SOURCE_STEP - 1) / SOURCE_STEP);
    return LOCH_OK;
}

static void rank_open(rank *it, uint64_t addresses, uint64_t seed, loch_pool_preset preset)
{
    static const loch_allocator_ops ops = {.size = sizeof ops,
                                           .kind = "random",
                                           .traits = LOCH_TRAIT_THREAD_SAFE | LOCH_TRAIT_TRACKS_SIZES,
                                           .alloc = rank_alloc,
                                           .free = rank_free};
    *it = (rank){.addresses = addresses, .seed = seed, .preset = preset};
    CHECK_OK(loch_device_open("cpu", &it->device));
    char *raw = mmap(NULL, (SOURCE_STEPS + 1) * SOURCE_STEP, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(raw != MAP_FAILED);
    it->base = raw + (-(uintptr_t)raw & (SOURCE_STEP - 1));
    const size_t before = (size_t)(it->base - raw);
    if (before) assert_int_equal(munmap(raw, before), 0);
    assert_int_equal(munmap(it->base + SOURCE_STEPS * SOURCE_STEP, SOURCE_STEP - before), 0);
    CHECK_OK(loch_allocator_create(it->device, "random", &ops, it, &it->source));
    const loch_pool_options options = {.size = sizeof options, .source = it->source, .preset = preset};
    CHECK_OK(loch_pool_create(it->device, "rank", &options, &it->pool));
}

static void rank_close(rank *it)
{
    loch_allocator_release(it->pool);
    loch_allocator_release(it->source);
    loch_device_release(it->device);
    assert_int_equal(munmap(it->base, SOURCE_STEPS * SOURCE_STEP), 0);
}

/* Adds a live block to a hash that does not depend on the order of the visits. */
static loch_status rank_visit(const loch_memory_piece *piece, void *user)
{
    if (piece->state != LOCH_PIECE_USED) return LOCH_OK;
    uint64_t state = piece->range_number * 1000003 + piece->requested_bytes;
    state = (state << 20) + (uint64_t)((char *)piece->address - (char *)piece->range_address);
    *(uint64_t *)user += rank_random(&state) * rank_random(&state);
    return LOCH_OK;
}

static size_t rank_size(uint64_t *seed)
{
    static const size_t sizes[] = {100, 5000, 70000, MIB, 4 * MIB, 8 * MIB, 16 * MIB, 20 * MIB, 32 * MIB};
    const uint64_t kind = rank_random(seed) % 12;
    return kind < 9 ? sizes[kind] : 1 + rank_random(seed) % (12 * MIB);
}

static void *rank_run(void *user)
{
    rank *it = user;
    void *live[LIVE] = {NULL};
    for (size_t i = 0; i < STEPS; i++) {
        const size_t slot = rank_random(&it->seed) % LIVE, bytes = rank_size(&it->seed);
        size_t given;
        if (live[slot]) {
            LOCH_CHECK(loch_free(it->pool, live[slot]));
            live[slot] = NULL;
        } else {
            LOCH_CHECK(loch_alloc(it->pool, bytes, &live[slot]));
        }
        if (i % 300 == 299) LOCH_CHECK(loch_allocator_trim(it->pool, 64 * MIB, &given));
        if (i % 10 == 9) LOCH_CHECK(loch_pool_walk_memory(it->pool, rank_visit, &it->hashes[i]));
    }
    for (size_t slot = 0; slot < LIVE; slot++)
        LOCH_CHECK(loch_free(it->pool, live[slot]));
    return NULL;
}

static void ranks_agree(uint64_t seed, loch_pool_preset preset)
{
    static rank ranks[RANKS];
    pthread_t threads[RANKS];
    for (size_t r = 0; r < RANKS; r++)
        rank_open(&ranks[r], seed * RANKS + r, seed, preset);
    for (size_t r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, rank_run, &ranks[r]), 0);
    for (size_t r = 0; r < RANKS; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    for (size_t r = 1; r < RANKS; r++) {
        assert_int_equal(ranks[r].segments, ranks[0].segments);
        assert_memory_equal(ranks[r].hashes, ranks[0].hashes, sizeof ranks[0].hashes);
    }
    assert_true(ranks[0].hashes[STEPS - 1] != 0);
    for (size_t r = 0; r < RANKS; r++)
        rank_close(&ranks[r]);
}

#define SEEDS (TEST_HAS_FEW_ADDRESSES ? 10 : 100) /* sanitizers are slow, too */

static void equal_requests_get_equal_places(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        ranks_agree(seed, 0);
}

static void equal_requests_get_equal_segments(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        ranks_agree(seed, LOCH_POOL_NO_SPLIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(equal_requests_get_equal_places),
        POOL_TEST(equal_requests_get_equal_segments),
    };
    return cmocka_run_group_tests_name("places on ranks", tests, NULL, NULL);
}
