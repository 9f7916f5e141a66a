/* SPDX-License-Identifier: MIT */
/* Random programs over a family of pools: blocks are allocated and freed, children are created, lose their last
 * reference and end, limits change. After every step all pools pass their checks, no two blocks share a byte, contents
 * are as written, and no pool holds more than its limits allow. */
#include "child_fixture.h"

#define MIB TEST_MIB
#define KIB TEST_KIB
#define POOLS 8
#define BLOCKS 64
#define ROOT_LIMIT (48 * MIB)
#if LOCHI_TSAN
#define STEPS 400 /* it has one thread */
#else
#define STEPS 4000
#endif

typedef struct member {
    loch_allocator *pool; /* NULL: no longer, or not yet */
    size_t limit, minimum;
    bool is_range;
} member;

typedef struct model {
    loch_device *device;
    test_random random;
    member members[POOLS];
    struct {
        void *address;
        loch_allocator *pool;
        size_t bytes;
        uint64_t seed;
    } blocks[BLOCKS];
    uint64_t steps, made, served, refused;
} model;

static size_t below(model *m, size_t limit)
{
    return test_random_below(&m->random, limit);
}

/* A failure of the call just made, with its record. */
static void expect_short(loch_status status)
{
    test_check_fails(status, POOL_SHORT, "the call", __FILE__, __LINE__);
}

static member *pick(model *m)
{
    for (size_t tries = 0; tries < 32; tries++) {
        member *found = &m->members[below(m, POOLS)];
        if (found->pool) return found;
    }
    return NULL;
}

static void take(model *m)
{
    static const size_t sizes[] = {300, 9 * KIB, 200 * KIB, 2 * MIB, 9 * MIB};
    const size_t i = below(m, BLOCKS), bytes = 1 + below(m, sizes[below(m, 5)]);
    const member *from = pick(m);
    if (!from || m->blocks[i].address) return;
    void *address = TEST_UNTOUCHED;
    const loch_status status = pool_try_alloc(from->pool, bytes, 0, NULL, &address);
    if (status != LOCH_OK) {
        expect_short(status);
        assert_null(address);
        m->refused++;
        return;
    }
    m->blocks[i].address = address;
    m->blocks[i].pool = from->pool;
    m->blocks[i].bytes = bytes;
    m->blocks[i].seed = m->steps;
    test_pattern_write(address, bytes, m->steps);
    m->served++;
}

static void give(model *m, size_t i)
{
    if (!m->blocks[i].address) return;
    family_free(m->blocks[i].pool, m->blocks[i].address, m->blocks[i].bytes, m->blocks[i].seed);
    m->blocks[i].address = NULL;
}

static void make(model *m)
{
    const size_t i = 1 + below(m, POOLS - 1);
    member *made = &m->members[i];
    const member *parent = pick(m);
    if (!parent || made->pool) return;
    made->is_range = below(m, 2);
    made->minimum = made->is_range ? 0 : below(m, 4 * MIB);
    made->limit = made->is_range ? 16 * KIB + below(m, 6 * MIB) : below(m, 2) ? 0 : made->minimum + below(m, 8 * MIB);
    loch_allocator *child = TEST_UNTOUCHED;
    const loch_status status = child_try(parent->pool, made->is_range ? LOCH_CHILD_RANGE : LOCH_CHILD_QUOTA,
                                         made->minimum, made->limit, NULL, &child);
    if (status == LOCH_OK) {
        made->pool = child;
        m->made++;
        return;
    }
    assert_null(child);
    if (!parent->is_range || made->is_range) expect_short(status);
}

static void lose(model *m)
{
    member *lost = pick(m);
    if (!lost || lost == &m->members[0]) return;
    loch_allocator_release(lost->pool); /* its blocks are freed later, by themselves */
    lost->pool = NULL;
}

static void meddle(model *m)
{
    const member *at = pick(m);
    if (!at) return;
    if (below(m, 2)) {
        (void)pool_trim(at->pool, below(m, 4 * MIB));
    } else if (at == &m->members[0]) {
        const loch_status status = loch_pool_set_limit(at->pool, 16 * MIB + below(m, ROOT_LIMIT - 16 * MIB));
        if (status != LOCH_OK) expect_short(status);
        CHECK_OK(loch_pool_set_limit(at->pool, ROOT_LIMIT));
    }
}

static void look(model *m)
{
    loch_allocator *pools[POOLS];
    size_t held = 0;
    for (size_t i = 0; i < POOLS; i++) {
        const member *at = &m->members[i];
        pools[i] = at->pool;
        if (!at->pool) continue;
        const loch_pool_info info = pool_info(at->pool);
        if (at->limit) assert_true(info.reserved_bytes <= at->limit);
        if (!at->is_range) held += info.reserved_bytes;
    }
    assert_true(held <= ROOT_LIMIT);
    family_expect_whole(pools, POOLS);
}

static void run(const char *name, uint64_t seed, size_t steps)
{
    model m = {.device = sim_open(name), .random = {seed}};
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = ROOT_LIMIT};
    m.members[0] = (member){.pool = pool_make(m.device, &options), .limit = ROOT_LIMIT};
    for (m.steps = 0; m.steps < steps; m.steps++) {
        const size_t what = below(&m, 20);
        if (what < 9)
            take(&m);
        else if (what < 15)
            give(&m, below(&m, BLOCKS));
        else if (what < 17)
            make(&m);
        else if (what < 18)
            lose(&m);
        else
            meddle(&m);
        look(&m);
    }
    loch_allocator *root = m.members[0].pool;
    for (size_t i = 1; i < POOLS; i++)
        loch_allocator_release(m.members[i].pool);
    for (size_t i = 0; i < BLOCKS; i++)
        give(&m, i);
    print_message("%s: %llu children, %llu blocks, %llu refused\n", name, (unsigned long long)m.made,
                  (unsigned long long)m.served, (unsigned long long)m.refused);
    assert_true(m.made > steps / 100 && m.served > steps / 10 && m.refused > 0);
    pool_end(root, m.device);
}

static void random_families_agree_with_a_model(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(62);
    run("sim:1GiB,granule=64KiB,backed", seed, STEPS);
    run("sim:1GiB,backed", seed + 1, STEPS / 2);
    run("sim:1GiB,virtual=off,backed", seed + 2, STEPS / 2);
    run("sim:1GiB,granule=64KiB,backed,alias=off", seed + 3, STEPS / 2);
    run("cpu", seed + 4, STEPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {POOL_TEST(random_families_agree_with_a_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
