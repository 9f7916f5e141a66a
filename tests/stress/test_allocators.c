/* SPDX-License-Identifier: MIT */
/* Eight threads use one allocator at the same time, over every stack that is thread safe: they take blocks of all
 * sizes, keep contents in them, hand them to each other, ask questions, wait for memory, and free. Contents are
 * checked before every free, so two owners of one piece of memory are found; wrong frees are made on purpose. At the
 * end nothing may be left. What each thread does follows from the seed; how the threads mix does not. */
#include "allocators.h"
#include "worker.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 8
#define STEPS 500
#define PIECES 10
#define MAILBOXES 16
#define BYTES_MAX (24 * TEST_KIB)

/* One block and what is in it. */
typedef struct piece {
    char *address;
    size_t bytes;
    uint64_t seed, id;
    loch_tag tag;
} piece;

typedef struct mailbox {
    pthread_mutex_t mutex;
    piece piece; /* address NULL: empty */
} mailbox;

typedef struct arena {
    const test_bed *bed;
    const char *stack;
    loch_allocator *allocator;
    mailbox boxes[MAILBOXES];
} arena;

typedef struct worker {
    arena *arena;
    test_random random;
    size_t number;
    uint64_t stamp;
    loch_tag tag;
    loch_stream *stream;
    piece pieces[PIECES];
    char *host;
    uint64_t allocs, frees;
    char failure[400]; /* empty when all is well */
} worker;

/* --- steps: each is small, and leaves the worker as whole as it found it --- */

static void step_check(worker *w, const piece *p)
{
    if (!p->address || !w->arena->bed->has_data) return;
    TRY(loch_copy(w->host, p->address, p->bytes));
    EXPECT(test_pattern_differs(w->host, p->bytes, p->seed) == p->bytes);
}

static void step_free(worker *w, piece *p)
{
    loch_allocator *allocator = w->arena->allocator;
    step_check(w, p);
    if (w->failure[0]) return;
    switch (test_random_below(&w->random, 4)) {
    case 0: TRY(loch_allocator_free_sized(allocator, p->address, p->bytes)); break;
    case 1: TRY(loch_allocator_free_on(allocator, p->address, NULL)); break;
    case 2:
        EXPECT(loch_allocator_free_sized(allocator, p->address, p->bytes + 1) == LOCH_E_INVALID);
        EXPECT(p->bytes < 2 || loch_free(allocator, p->address + 1) == LOCH_E_INTERIOR);
        TRY(loch_free(allocator, p->address));
        break;
    default: TRY(loch_free(allocator, p->address));
    }
    w->frees++;
    p->address = NULL;
}

static void step_alloc(worker *w, piece *p)
{
    static const size_t alignments[] = {0, 0, 0, 1, 16, 64, 256};
    const bool is_zeroed = test_random_below(&w->random, 8) == 0;
    const loch_request request = {
        .size = sizeof request,
        .bytes = 1 + test_random_below(&w->random, test_random_below(&w->random, 6) ? 600 : BYTES_MAX),
        .alignment = alignments[test_random_below(&w->random, sizeof alignments / sizeof *alignments)],
        .stream = test_random_below(&w->random, 2) ? w->stream : NULL,
        .tag = test_random_below(&w->random, 2) ? w->tag : 0,
        .flags = is_zeroed ? LOCH_ALLOC_ZEROED : 0,
        .timeout_ns = (uint64_t)60 * 1000000000,
    };
    loch_block block = {.size = sizeof block};
    void *address = NULL;
    TRY(loch_allocator_alloc(w->arena->allocator, &request, &address));
    w->allocs++;
    EXPECT(address != NULL && (!request.alignment || (uintptr_t)address % request.alignment == 0));
    TRY(loch_allocator_find(w->arena->allocator, address, &block));
    EXPECT(block.address == address && block.requested_bytes == request.bytes && block.tag == request.tag && block.id);
    *p = (piece){.address = address, .bytes = request.bytes, .seed = ++w->stamp, .id = block.id, .tag = request.tag};
    if (request.stream) TRY(loch_stream_sync(request.stream)); /* zeros and poison come first */
    test_pattern_write(w->host, p->bytes, p->seed);
    TRY(loch_copy(p->address, w->host, p->bytes));
}

/* Changes a block with what is in a box: either may be empty. */
static void step_swap(worker *w, piece *p)
{
    mailbox *box = &w->arena->boxes[test_random_below(&w->random, MAILBOXES)];
    pthread_mutex_lock(&box->mutex);
    const piece other = box->piece;
    box->piece = *p;
    *p = other;
    pthread_mutex_unlock(&box->mutex);
}

static loch_status step_count(const loch_block *block, void *user)
{
    *(size_t *)user += block->requested_bytes != 0;
    return LOCH_OK;
}

static void step_ask(worker *w, const piece *p)
{
    loch_allocator *allocator = w->arena->allocator;
    loch_stats stats = {.size = sizeof stats};
    size_t count = 0;
    loch_block block = {.size = sizeof block};
    switch (test_random_below(&w->random, 8)) {
    case 0:
        TRY(loch_allocator_get_stats(allocator, &stats));
        EXPECT(stats.requested_bytes <= stats.allocated_bytes && stats.blocks <= THREADS * PIECES + MAILBOXES);
        EXPECT(stats.peak_requested_bytes >= stats.requested_bytes);
        break;
    case 1:
        TRY(loch_allocator_walk(allocator, step_count, &count));
        EXPECT(count <= 2 * (THREADS * PIECES + MAILBOXES)); /* blocks made meanwhile may be seen */
        break;
    case 2: TRY(loch_allocator_trim(allocator, 0, NULL)); break;
    case 3: EXPECT(loch_free(allocator, w) == LOCH_E_FOREIGN); break;
    case 4: TRY(loch_allocator_get_tag_stats(allocator, w->tag, &stats)); break;
    default:
        if (!p->address) break;
        TRY(loch_allocator_record_use(allocator, p->address, w->stream));
        TRY(loch_allocator_find(allocator, p->address, &block));
        EXPECT(block.requested_bytes == p->bytes && block.id == p->id && block.tag == p->tag);
    }
}

static void *worker_run(void *user)
{
    worker *w = user;
    for (size_t step = 0; step < STEPS && !w->failure[0]; step++) {
        piece *p = &w->pieces[test_random_below(&w->random, PIECES)];
        const size_t kind = test_random_below(&w->random, 10);
        if (kind < 2)
            step_swap(w, p);
        else if (kind < 4)
            step_ask(w, p);
        else if (p->address)
            step_free(w, p);
        else
            step_alloc(w, p);
        if (w->failure[0]) {
            char text[sizeof w->failure];
            memcpy(text, w->failure, sizeof text);
            snprintf(w->failure, sizeof w->failure, "step %zu: %.380s", step, text);
        }
    }
    for (size_t i = 0; i < PIECES && !w->failure[0]; i++)
        if (w->pieces[i].address) step_free(w, &w->pieces[i]);
    return NULL;
}

static void empty_boxes(arena *a, worker *w)
{
    for (size_t i = 0; i < MAILBOXES; i++) {
        if (a->boxes[i].piece.address && !w->failure[0]) step_free(w, &a->boxes[i].piece);
        pthread_mutex_destroy(&a->boxes[i].mutex);
    }
}

static uint64_t seed;

/* One stack on one device: true when it could be had. */
static bool stress(const test_bed *bed, const char *stack)
{
    static worker workers[THREADS];
    arena a = {.bed = bed, .stack = stack};
    pthread_t threads[THREADS];
    const uint64_t wrong = test_user_wrong();
    const loch_status status = test_stack_create(bed->device, stack, &a.allocator);
    if (status == LOCH_E_UNSUPPORTED) return false;
    CHECK_OK(status);
    if (!(loch_allocator_get_traits(a.allocator) & LOCH_TRAIT_THREAD_SAFE)) {
        loch_allocator_release(a.allocator);
        return false;
    }
    for (size_t i = 0; i < MAILBOXES; i++)
        pthread_mutex_init(&a.boxes[i].mutex, NULL);
    for (size_t t = 0; t < THREADS; t++) {
        char name[32];
        workers[t] = (worker){.arena = &a, .number = t, .stamp = t << 40, .random.state = seed * 1000 + t};
        snprintf(name, sizeof name, "stress %zu", t);
        CHECK_OK(loch_tag_create(name, &workers[t].tag));
        CHECK_OK(loch_stream_create(bed->device, NULL, &workers[t].stream));
        workers[t].host = malloc(BYTES_MAX + 1);
        assert_non_null(workers[t].host);
    }
    for (size_t t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, worker_run, &workers[t]), 0);
    for (size_t t = 0; t < THREADS; t++)
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    empty_boxes(&a, &workers[0]);
    uint64_t allocs = 0, frees = 0;
    for (size_t t = 0; t < THREADS; t++) {
        if (workers[t].failure[0])
            fail_msg("%s, seed %llu, thread %zu, %s", stack, (unsigned long long)seed, t, workers[t].failure);
        allocs += workers[t].allocs;
        frees += workers[t].frees;
        loch_stream_close(workers[t].stream);
        free(workers[t].host);
    }
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(a.allocator, &stats));
    assert_int_equal(stats.allocs, allocs);
    assert_int_equal(stats.frees, frees);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.requested_bytes, 0);
    loch_allocator_release(a.allocator);
    assert_int_equal(test_user_wrong(), wrong);
    return true;
}

static void threads_over_every_stack_keep_blocks_apart(void **state)
{
    const test_bed *bed = *state;
    size_t run = 0;
    for (size_t i = 0; i < test_stacks_count; i++)
        run += stress(bed, test_stacks[i]);
    assert_true(run > test_stacks_count / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_over_every_stack_keep_blocks_apart)};
    seed = test_seed(20260301);
    return TEST_BED_RUN(tests);
}
