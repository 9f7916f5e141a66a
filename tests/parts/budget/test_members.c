/* SPDX-License-Identifier: MIT */
/* Members of one process: minimum, limit, borrowing, pressure, and what a pool promises under a budget. */
#include "budget_fixture.h"
#include <pthread.h>

static void a_member_grows_as_its_pool_does(void **state)
{
    (void)state;
    loch_budget *budget = budget_open(256 * TEST_MIB, 0);
    party p = party_begin(budget_device, budget, "grower", 0, 0);
    void *blocks[6];
    for (size_t i = 0; i < 6; i++) {
        CHECK_OK(loch_alloc(p.pool, 32 * TEST_MIB, &blocks[i]));
        const loch_pool_info pool = party_pool_info(&p);
        const loch_budget_member_info info = party_info(&p);
        assert_true(pool.reserved_bytes >= (i + 1) * 32 * TEST_MIB);
        assert_true(info.granted_bytes >= pool.reserved_bytes);
        assert_true(info.granted_bytes <= 256 * TEST_MIB);
    }
    const loch_budget_info sums = budget_info(budget);
    assert_string_equal(sums.name, "test");
    assert_int_equal(sums.total_bytes, 256 * TEST_MIB);
    assert_int_equal(sums.members, 1);
    assert_int_equal(sums.processes, 1);
    assert_int_equal(sums.granted_bytes + sums.free_bytes, sums.total_bytes);
    for (size_t i = 0; i < 6; i++)
        CHECK_OK(loch_free(p.pool, blocks[i]));
    CHECK_OK(loch_allocator_trim(p.pool, 0, NULL));
    BUDGET_AWAIT(party_info(&p).granted_bytes <= 3 * sums.chunk_bytes); /* what is not used goes back */
    party_end(&p);
    loch_budget_close(budget);
    assert_false(budget_is_there());
}

static void the_sentence_says_who_has_what(void **state)
{
    (void)state;
    char pid[32];
    void *held, *block = TEST_UNTOUCHED;
    loch_budget *budget = budget_open(128 * TEST_MIB, 30);
    party a = party_begin(budget_device, budget, "holder", 0, 0),
          b = party_begin(budget_device, budget, "hungry", 0, 0);
    CHECK_OK(loch_alloc(a.pool, 100 * TEST_MIB, &held));
    CHECK_FAILS(loch_alloc(b.pool, 64 * TEST_MIB, &block), LIMIT);
    assert_null(block);
    const char *sentence = loch_error_get()->sentence;
    snprintf(pid, sizeof pid, "(pid %ld)", (long)getpid());
    assert_non_null(strstr(sentence, "budget \"test\" of 128 MiB"));
    assert_non_null(strstr(sentence, "\"holder\" (pid "));
    assert_non_null(strstr(sentence, "\"hungry\""));
    assert_non_null(strstr(sentence, pid));
    BUDGET_AWAIT(loch_alloc(b.pool, 16 * TEST_MIB, &block) == LOCH_OK); /* the rest is still there */
    CHECK_OK(loch_free(b.pool, block));
    CHECK_OK(loch_free(a.pool, held));
    BUDGET_AWAIT(loch_alloc(b.pool, 64 * TEST_MIB, &block) == LOCH_OK); /* free memory of the other pool goes back */
    CHECK_OK(loch_free(b.pool, block));
    party_end(&a);
    party_end(&b);
    loch_budget_close(budget);
}

/* A member would wait longer for the others than the request may, or less: the request waits for its own time. The
 * sentence still names the members and what they hold. */
static void a_request_waits_for_its_own_time(void **state)
{
    (void)state;
    static const uint64_t wait_ms[] = {60000, 10}, most_ms[] = {30000, 60000};
    for (size_t i = 0; i < 2; i++) {
        void *held, *block = TEST_UNTOUCHED;
        loch_budget *budget = budget_open(128 * TEST_MIB, wait_ms[i]);
        party a = party_begin(budget_device, budget, "holder", 0, 0),
              b = party_begin(budget_device, budget, "hungry", 0, 0);
        const loch_request request = {.size = sizeof request, .bytes = 64 * TEST_MIB, .timeout_ns = 300000000};
        CHECK_OK(loch_alloc(a.pool, 100 * TEST_MIB, &held));
        const uint64_t start_ns = loch_host_now_ns();
        CHECK_FAILS(loch_allocator_alloc(b.pool, &request, &block), LIMIT);
        const uint64_t taken_ns = loch_host_now_ns() - start_ns;
        const char *sentence = loch_error_get()->sentence;
        assert_in_range(taken_ns, request.timeout_ns, most_ms[i] * 1000000);
        assert_non_null(strstr(sentence, "budget \"test\" of 128 MiB"));
        assert_non_null(strstr(sentence, "\"holder\" (pid "));
        assert_non_null(strstr(sentence, "; waited "));
        assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_FREE);
        CHECK_OK(loch_free(a.pool, held));
        party_end(&a);
        party_end(&b);
        loch_budget_close(budget);
    }
}

typedef struct giver {
    loch_allocator *pool;
    void *block;
    loch_status status;
} giver;

static void *giver_run(void *user)
{
    giver *it = user;
    (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    it->status = loch_free(it->pool, it->block);
    if (it->status == LOCH_OK) it->status = loch_allocator_trim(it->pool, 0, NULL);
    return NULL;
}

static void a_request_waits_until_another_member_frees(void **state)
{
    (void)state;
    loch_budget *budget = budget_open(128 * TEST_MIB, 10);
    party a = party_begin(budget_device, budget, "holder", 0, 0),
          b = party_begin(budget_device, budget, "hungry", 0, 0);
    const loch_request request = {
        .size = sizeof request, .bytes = 64 * TEST_MIB, .timeout_ns = BUDGET_SECONDS * (uint64_t)1000000000};
    giver other = {.pool = a.pool};
    pthread_t thread;
    void *block = NULL;
    CHECK_OK(loch_alloc(a.pool, 100 * TEST_MIB, &other.block));
    assert_int_equal(pthread_create(&thread, NULL, giver_run, &other), 0);
    const loch_status status = loch_allocator_alloc(b.pool, &request, &block);
    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK_OK(other.status);
    CHECK_OK(status);
    CHECK_OK(loch_free(b.pool, block));
    party_end(&a);
    party_end(&b);
    loch_budget_close(budget);
}

static void a_minimum_is_never_lent(void **state)
{
    (void)state;
    void *all, *block;
    loch_budget *budget = budget_open(128 * TEST_MIB, 20);
    party a = party_begin(budget_device, budget, "guarded", 64 * TEST_MIB, 0),
          b = party_begin(budget_device, budget, "other", 0, 0);
    CHECK_FAILS(loch_alloc(b.pool, 80 * TEST_MIB, &all), LIMIT);
    BUDGET_AWAIT(loch_alloc(b.pool, 56 * TEST_MIB, &all) == LOCH_OK);
    const loch_request once = {.size = sizeof once, .bytes = 60 * TEST_MIB, .flags = LOCH_ALLOC_NO_RETRY};
    CHECK_OK(loch_allocator_alloc(a.pool, &once, &block)); /* without asking others */
    assert_int_equal(party_info(&a).borrowed_bytes, 0);
    CHECK_OK(loch_free(a.pool, block));
    CHECK_OK(loch_free(b.pool, all));
    party_end(&a);
    party_end(&b);
    loch_budget_close(budget);
}

static void borrowers_give_back_for_a_minimum(void **state)
{
    (void)state;
    void *blocks[4];
    loch_budget *budget = budget_open(128 * TEST_MIB, 30000);
    party a = party_begin(budget_device, budget, "borrower", 0, 0);
    for (size_t i = 0; i < 4; i++)
        CHECK_OK(loch_alloc(a.pool, 28 * TEST_MIB, &blocks[i]));
    for (size_t i = 1; i < 4; i++)
        CHECK_OK(loch_free(a.pool, blocks[i]));
    assert_true(party_pool_info(&a).reserved_bytes >= 112 * TEST_MIB); /* free, but the pool keeps it */
    party b = party_begin(budget_device, budget, "newcomer", 80 * TEST_MIB, 0);
    void *block;
    CHECK_OK(loch_alloc(b.pool, 76 * TEST_MIB, &block));
    assert_true(party_pool_info(&a).reserved_bytes <= 48 * TEST_MIB);
    assert_true(party_info(&a).granted_bytes >= 28 * TEST_MIB);
    CHECK_OK(loch_free(b.pool, block));
    CHECK_OK(loch_free(a.pool, blocks[0]));
    party_end(&a);
    party_end(&b);
    loch_budget_close(budget);
}

static void free_memory_goes_back_for_a_fair_share_and_no_further(void **state)
{
    (void)state;
    void *mine[8], *block;
    loch_budget *budget = budget_open(128 * TEST_MIB, 100);
    party a = party_begin(budget_device, budget, "first", 0, 0);
    for (size_t i = 0; i < 7; i++)
        CHECK_OK(loch_alloc(a.pool, 16 * TEST_MIB, &mine[i]));
    for (size_t i = 0; i < 7; i++)
        CHECK_OK(loch_free(a.pool, mine[i]));
    party b = party_begin(budget_device, budget, "second", 0, 0);
    BUDGET_AWAIT(loch_alloc(b.pool, 56 * TEST_MIB, &block) == LOCH_OK); /* its fair share is half */
    const size_t kept = party_pool_info(&a).reserved_bytes;
    assert_true(kept > 0 && kept <= 72 * TEST_MIB);
    void *more;
    CHECK_FAILS(loch_alloc(b.pool, 40 * TEST_MIB, &more), LIMIT); /* beyond it: memory that a pool keeps is its own */
    assert_true(party_pool_info(&a).reserved_bytes >= 40 * TEST_MIB);
    CHECK_OK(loch_allocator_trim(a.pool, 0, NULL));
    BUDGET_AWAIT(loch_alloc(b.pool, 40 * TEST_MIB, &more) == LOCH_OK); /* grants without memory are taken back */
    CHECK_OK(loch_free(b.pool, more));
    CHECK_OK(loch_free(b.pool, block));
    party_end(&a);
    party_end(&b);
    loch_budget_close(budget);
}

static void limits_and_weights(void **state)
{
    (void)state;
    void *block;
    loch_budget *budget = budget_open(128 * TEST_MIB, 20);
    party a = party_begin(budget_device, budget, "small", 0, 32 * TEST_MIB);
    CHECK_FAILS(loch_alloc(a.pool, 40 * TEST_MIB, &block), LIMIT);
    assert_non_null(strstr(loch_error_get()->sentence, "can never fit: the limit of pool"));
    const loch_budget_member_options heavy = {
        .size = sizeof heavy, .weight = 3, .minimum_bytes = 16 * TEST_MIB, .limit_bytes = 1000 * TEST_MIB};
    loch_budget_member *member;
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(budget_device, "heavy", NULL, &pool));
    CHECK_OK(loch_budget_member_create(budget, pool, "weighs", &heavy, &member));
    loch_budget_member_info info = {.size = sizeof info};
    CHECK_OK(loch_budget_member_get_info(member, &info));
    assert_string_equal(info.name, "weighs");
    assert_int_equal(info.share_bytes, 16 * TEST_MIB + 112 * TEST_MIB * 3 / 4);
    assert_int_equal(info.limit_bytes, 128 * TEST_MIB);
    assert_int_equal(info.weight, 3);
    assert_int_equal(info.pid, getpid());
    assert_int_equal(party_info(&a).share_bytes, 112 * TEST_MIB / 4);
    loch_budget_member_destroy(member);
    loch_allocator_release(pool);
    party_end(&a);
    loch_budget_close(budget);
}

static void prepared_bytes_need_no_retry(void **state)
{
    (void)state;
    void *block;
    loch_budget *budget = budget_open(256 * TEST_MIB, 20);
    party a = party_begin(budget_device, budget, "ready", 0, 0);
    const loch_request once = {.size = sizeof once, .bytes = 128 * TEST_MIB, .flags = LOCH_ALLOC_NO_RETRY};
    CHECK_FAILS(loch_allocator_alloc(a.pool, &once, &block), LIMIT);
    CHECK_OK(loch_budget_member_prepare(a.member, 132 * TEST_MIB));
    for (size_t i = 0; i < 30; i++) { /* longer than grants for requests are kept; the thread looks at it meanwhile */
        budget_nap();
        budget_nap();
        CHECK_OK(loch_allocator_trim(a.pool, 0, NULL));
        assert_true(party_info(&a).granted_bytes >= 132 * TEST_MIB);
    }
    CHECK_OK(loch_allocator_alloc(a.pool, &once, &block));
    CHECK_FAILS(loch_budget_member_prepare(a.member, 200 * TEST_MIB), LIMIT);
    CHECK_FAILS(loch_budget_member_prepare(a.member, SIZE_MAX), OVERFLOW);
    CHECK_OK(loch_free(a.pool, block));
    party_end(&a);
    loch_budget_close(budget);
}

static void a_pool_gets_its_limit_back(void **state)
{
    (void)state;
    loch_allocator *pool, *outer;
    loch_budget_member *member;
    void *block;
    const loch_pool_options limited = {.size = sizeof limited, .limit_bytes = 48 * TEST_MIB};
    loch_pool_info info = {.size = sizeof info};
    loch_budget *budget = budget_open(256 * TEST_MIB, 20);
    CHECK_OK(loch_pool_create(budget_device, "limited", &limited, &pool));
    CHECK_OK(loch_tracking_create(pool, NULL, NULL, &outer));
    CHECK_OK(loch_alloc(outer, 8 * TEST_MIB, &block)); /* holds memory before it joins */
    CHECK_OK(loch_budget_member_create(budget, outer, NULL, NULL, &member));
    void *more;
    CHECK_OK(loch_alloc(outer, 32 * TEST_MIB, &more)); /* the request comes through a wrapper */
    CHECK_OK(loch_free(outer, more));
    loch_budget_close(budget); /* members keep it */
    CHECK_FAILS(loch_alloc(outer, 64 * TEST_MIB, &more), LIMIT);
    assert_non_null(strstr(loch_error_get()->sentence, "the limit of pool \"limited\" is 48 MiB"));
    assert_true(budget_is_there());
    loch_budget_member_destroy(member);
    assert_false(budget_is_there());
    CHECK_OK(loch_pool_get_info(pool, &info));
    assert_int_equal(info.limit_bytes, 48 * TEST_MIB);
    CHECK_OK(loch_free(outer, block));
    loch_allocator_release(outer);
    loch_allocator_release(pool);
}

/* A member that never got a grant leaves its pool as it was. */
static void a_pool_without_a_grant_gets_its_limit_back(void **state)
{
    (void)state;
    void *block;
    loch_budget *budget = budget_open(64 * TEST_MIB, 1);
    party a = party_begin(budget_device, budget, "all", 64 * TEST_MIB, 0),
          b = party_begin(budget_device, budget, "none", 0, 0);
    assert_int_equal(party_info(&b).granted_bytes, 0);
    CHECK_FAILS(loch_alloc(b.pool, TEST_MIB, &block), LIMIT);
    loch_budget_member_destroy(b.member);
    assert_int_equal(party_pool_info(&b).limit_bytes, 0);
    CHECK_OK(loch_alloc(b.pool, TEST_MIB, &block));
    CHECK_OK(loch_free(b.pool, block));
    loch_allocator_release(b.pool);
    party_end(&a);
    loch_budget_close(budget);
}

static void wrong_arguments(void **state)
{
    (void)state;
    loch_budget *budget = budget_open(64 * TEST_MIB, 20), *none = TEST_UNTOUCHED;
    loch_budget_member *member = TEST_UNTOUCHED;
    loch_allocator *pool, *direct;
    loch_budget_info info = {.size = 0};
    loch_budget_member_info member_info = {.size = 0};
    CHECK_OK(loch_pool_create(budget_device, "pool", NULL, &pool));
    CHECK_OK(loch_direct_create(budget_device, NULL, NULL, &direct));
    CHECK_FAILS(loch_budget_open(NULL, NULL, &none), INVALID);
    assert_null(none);
    CHECK_FAILS(loch_budget_open("", NULL, &none), INVALID);
    CHECK_FAILS(loch_budget_open("a b", NULL, &none), INVALID);
    CHECK_FAILS(loch_budget_open("..", NULL, &none), INVALID);
    CHECK_FAILS(loch_budget_open("a/", NULL, &none), INVALID);
    CHECK_FAILS(loch_budget_open("0123456789012345678901234567890123456789012345678", NULL, &none), INVALID);
    CHECK_FAILS(loch_budget_open(budget_path, NULL, NULL), INVALID);
    const loch_budget_options unsized = {.size = 0}, odd = {.size = sizeof odd, .access = (loch_budget_access)7};
    CHECK_FAILS(loch_budget_open(budget_path, &unsized, &none), INVALID);
    CHECK_FAILS(loch_budget_open(budget_path, &odd, &none), INVALID);
    CHECK_FAILS(loch_budget_member_create(NULL, pool, NULL, NULL, &member), INVALID);
    assert_null(member);
    CHECK_FAILS(loch_budget_member_create(budget, NULL, NULL, NULL, &member), INVALID);
    CHECK_FAILS(loch_budget_member_create(budget, direct, NULL, NULL, &member), INVALID);
    CHECK_FAILS(loch_budget_member_create(budget, pool, NULL, NULL, NULL), INVALID);
    const loch_budget_member_options much = {.size = sizeof much, .minimum_bytes = 65 * TEST_MIB},
                                     crossed = {.size = sizeof crossed, .minimum_bytes = 2, .limit_bytes = 1},
                                     weighty = {.size = sizeof weighty, .weight = 2000000}, no_size = {.size = 0};
    CHECK_FAILS(loch_budget_member_create(budget, pool, NULL, &much, &member), INVALID);
    CHECK_FAILS(loch_budget_member_create(budget, pool, NULL, &crossed, &member), INVALID);
    CHECK_FAILS(loch_budget_member_create(budget, pool, NULL, &weighty, &member), INVALID);
    CHECK_FAILS(loch_budget_member_create(budget, pool, NULL, &no_size, &member), INVALID);
    assert_null(member);
    CHECK_FAILS(loch_budget_member_prepare(NULL, 1), INVALID);
    CHECK_FAILS(loch_budget_get_info(budget, &info), INVALID);
    CHECK_FAILS(loch_budget_get_info(NULL, &info), INVALID);
    CHECK_FAILS(loch_budget_member_get_info(NULL, &member_info), INVALID);
    CHECK_FAILS(loch_budget_walk_members(budget, NULL, NULL), INVALID);
    CHECK_FAILS(loch_budget_walk(NULL, NULL), INVALID);
    assert_string_equal(loch_budget_get_path(NULL), "");
    loch_budget_close(NULL);
    loch_budget_member_destroy(NULL);
    assert_int_equal(budget_info(budget).members, 0);
    loch_allocator_release(direct);
    loch_allocator_release(pool);
    loch_budget_close(budget);
}

static void minima_must_fit(void **state)
{
    (void)state;
    loch_budget *budget = budget_open(128 * TEST_MIB, 20);
    party a = party_begin(budget_device, budget, "one", 100 * TEST_MIB, 0);
    loch_allocator *pool;
    loch_budget_member *member;
    const loch_budget_member_options wants = {.size = sizeof wants, .minimum_bytes = 30 * TEST_MIB};
    CHECK_OK(loch_pool_create(budget_device, "two", NULL, &pool));
    CHECK_FAILS(loch_budget_member_create(budget, pool, NULL, &wants, &member), LIMIT);
    assert_non_null(strstr(loch_error_get()->sentence, "promised 100 MiB"));
    assert_int_equal(budget_info(budget).members, 1);
    void *block;
    CHECK_OK(loch_alloc(pool, 40 * TEST_MIB, &block));
    CHECK_FAILS(loch_budget_member_create(budget, pool, NULL, NULL, &member), LIMIT); /* it holds too much */
    assert_int_equal(budget_info(budget).members, 1);
    CHECK_OK(loch_free(pool, block));
    loch_allocator_release(pool);
    party_end(&a);
    loch_budget_close(budget);
}

static void all_seats_can_be_taken(void **state)
{
    (void)state;
    loch_budget *all[128], *one_more;
    for (size_t i = 0; i < 128; i++)
        all[i] = budget_open(TEST_MIB, 0);
    CHECK_FAILS(loch_budget_open(budget_path, NULL, &one_more), LIMIT);
    assert_int_equal(budget_info(all[3]).processes, 128);
    loch_budget_close(all[77]);
    CHECK_OK(loch_budget_open(budget_path, NULL, &all[77]));
    for (size_t i = 0; i < 128; i++)
        loch_budget_close(all[i]);
    assert_false(budget_is_there());
}

/* --- at random --- */

#define RANDOM_PARTIES 6
#define RANDOM_BLOCKS 8
#define RANDOM_STEPS 1500
#define RANDOM_TOTAL (192 * TEST_MIB)

typedef struct sums {
    uint64_t granted, kept;
    size_t members;
} sums;

static loch_status add_member(const loch_budget_member_info *info, void *user)
{
    sums *s = user;
    s->granted += info->granted_bytes;
    s->kept += info->granted_bytes > info->minimum_bytes ? info->granted_bytes : info->minimum_bytes;
    s->members++;
    if (info->granted_bytes > info->limit_bytes) return LOCH_E_CORRUPT;
    return info->borrowed_bytes <= info->granted_bytes ? LOCH_OK : LOCH_E_CORRUPT;
}

static void random_members_keep_the_promises(void **state)
{
    (void)state;
    test_random random = {test_seed(31)};
    loch_budget *budget = budget_open(RANDOM_TOTAL, 5);
    party parties[RANDOM_PARTIES] = {{NULL, NULL}};
    size_t minima[RANDOM_PARTIES] = {0}, promised = 0, joined = 0, served = 0, refused = 0;
    void *blocks[RANDOM_PARTIES][RANDOM_BLOCKS] = {{NULL}};
    for (size_t step = 0; step < RANDOM_STEPS; step++) {
        const size_t i = test_random_below(&random, RANDOM_PARTIES), k = test_random_below(&random, RANDOM_BLOCKS);
        party *p = &parties[i];
        if (!p->pool) {
            minima[i] = test_random_below(&random, 4) * 8 * TEST_MIB;
            *p = party_begin(budget_device, budget, "random", minima[i], 0);
            promised += minima[i];
            joined++;
        } else if (test_random_below(&random, 60) == 0) {
            for (size_t j = 0; j < RANDOM_BLOCKS; j++) {
                CHECK_OK(loch_free(p->pool, blocks[i][j]));
                blocks[i][j] = NULL;
            }
            party_end(p);
            promised -= minima[i];
            joined--;
        } else if (blocks[i][k]) {
            CHECK_OK(loch_free(p->pool, blocks[i][k]));
            blocks[i][k] = NULL;
        } else {
            const size_t bytes = 1 + test_random_below(&random, 24 * TEST_MIB);
            const loch_status status = loch_alloc(p->pool, bytes, &blocks[i][k]);
            served += status == LOCH_OK;
            const bool is_short = status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED;
            refused += is_short;
            if (status != LOCH_OK && (!is_short || loch_error_get()->status != status))
                fail_msg("step %zu: %zu bytes: %s: %s", step, bytes, loch_status_name(status),
                         loch_error_get()->sentence);
            /* A block within the minimum is served, unless the member joined when others had borrowed it and use it. */
            sums s = {0, 0, 0};
            CHECK_OK(loch_budget_walk_members(budget, add_member, &s));
            if (status != LOCH_OK && s.kept <= RANDOM_TOTAL &&
                party_pool_info(p).used_bytes + bytes + 4 * TEST_MIB < minima[i])
                fail_msg("step %zu: %zu bytes below a minimum of %zu were refused: %s", step, bytes, minima[i],
                         loch_error_get()->sentence);
        }
        sums s = {0, 0, 0};
        CHECK_OK(loch_budget_walk_members(budget, add_member, &s));
        assert_int_equal(s.members, joined);
        assert_true(s.granted <= RANDOM_TOTAL);
        assert_int_equal(budget_info(budget).promised_bytes, promised);
        size_t held = 0;
        for (size_t j = 0; j < RANDOM_PARTIES; j++)
            if (parties[j].pool) held += party_pool_info(&parties[j]).reserved_bytes;
        assert_true(held <= RANDOM_TOTAL); /* what the device really gave */
    }
    print_message("%zu requests served, %zu refused\n", served, refused);
    assert_true(served > 100 && refused > 5);
    for (size_t i = 0; i < RANDOM_PARTIES; i++) {
        for (size_t j = 0; j < RANDOM_BLOCKS; j++)
            if (blocks[i][j]) CHECK_OK(loch_free(parties[i].pool, blocks[i][j]));
        party_end(&parties[i]);
    }
    loch_budget_close(budget);
    assert_false(budget_is_there());
}

/* --- threads --- */

typedef struct churner {
    loch_allocator *pool;
    uint64_t seed;
    size_t wrong, served;
    char why[LOCH_ERROR_SENTENCE_MAX]; /* the last request was refused */
} churner;

static void *churn(void *user)
{
    churner *c = user;
    test_random random = {c->seed};
    void *blocks[4] = {NULL};
    for (size_t i = 0; i < 150; i++) {
        void **block = &blocks[test_random_below(&random, 4)];
        if (*block) c->wrong += loch_free(c->pool, *block) != LOCH_OK;
        *block = NULL;
        const loch_status status = loch_alloc(c->pool, 1 + test_random_below(&random, 12 * TEST_MIB), block);
        c->served += status == LOCH_OK;
        if (status != LOCH_OK) memcpy(c->why, loch_error_get()->sentence, sizeof c->why);
        c->wrong += status != LOCH_OK && status != LOCH_E_LIMIT && status != LOCH_E_FRAGMENTED;
    }
    for (size_t i = 0; i < 4; i++)
        c->wrong += loch_free(c->pool, blocks[i]) != LOCH_OK;
    return NULL;
}

static void threads_of_several_members(void **state)
{
    (void)state;
    loch_budget *budget = budget_open(128 * TEST_MIB, 5);
    party parties[3];
    churner churners[6];
    for (size_t i = 0; i < 3; i++)
        parties[i] = party_begin(budget_device, budget, "threaded", i * 8 * TEST_MIB, 0);
    for (size_t i = 0; i < 6; i++)
        churners[i] = (churner){.pool = parties[i % 3].pool, .seed = i + 1};
    TEST_THREADS_RUN(churn, churners);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(churners[i].wrong, 0);
        assert_true(churners[i].served > 0);
    }
    assert_true(budget_info(budget).granted_bytes <= 128 * TEST_MIB);
    assert_int_equal(budget_info(budget).waiting, 0);
    for (size_t i = 0; i < 3; i++)
        party_end(&parties[i]);
    loch_budget_close(budget);
}

/* A request that another thread's request outran is tried again: it does not fail while the budget has room. */
static void threads_of_one_member_do_not_fail_each_other(void **state)
{
    (void)state;
    loch_budget *budget = budget_open(512 * TEST_MIB, 30000);
    for (size_t round = 0; round < 20; round++) {
        party p = party_begin(budget_device, budget, "shared", 0, 0);
        churner churners[4];
        for (size_t i = 0; i < 4; i++)
            churners[i] = (churner){.pool = p.pool, .seed = round * 4 + i + 1};
        TEST_THREADS_RUN(churn, churners); /* 4 * 4 * 12 MiB fit */
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(churners[i].wrong, 0);
            if (churners[i].served != 150) fail_msg("round %zu: %s", round, churners[i].why);
        }
        party_end(&p);
    }
    loch_budget_close(budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_grows_as_its_pool_does),
        cmocka_unit_test(the_sentence_says_who_has_what),
        cmocka_unit_test(a_request_waits_for_its_own_time),
        cmocka_unit_test(a_request_waits_until_another_member_frees),
        cmocka_unit_test(a_minimum_is_never_lent),
        cmocka_unit_test(borrowers_give_back_for_a_minimum),
        cmocka_unit_test(free_memory_goes_back_for_a_fair_share_and_no_further),
        cmocka_unit_test(limits_and_weights),
        cmocka_unit_test(prepared_bytes_need_no_retry),
        cmocka_unit_test(a_pool_gets_its_limit_back),
        cmocka_unit_test(a_pool_without_a_grant_gets_its_limit_back),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(minima_must_fit),
        cmocka_unit_test(all_seats_can_be_taken),
        cmocka_unit_test(random_members_keep_the_promises),
        cmocka_unit_test(threads_of_several_members),
        cmocka_unit_test(threads_of_one_member_do_not_fail_each_other),
    };
    return cmocka_run_group_tests(tests, budget_begin, budget_end);
}
