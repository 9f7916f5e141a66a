/* SPDX-License-Identifier: MIT */
/* The front of libloch_malloc.so beside the C library's malloc, so that sanitizers see it. */
#include "support/test.h"

#include "front.h"
#include "pages.h"
#include "shelf.h"
#include "source.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t used_bytes(void)
{
    loch_stats stats = {.size = sizeof stats};
    assert_int_equal(loch_allocator_get_stats(atomic_load(&front_pool), &stats), LOCH_OK);
    return stats.requested_bytes;
}

static int start(void **state)
{
    (void)state;
    void *before = front_alloc(100); /* by the allocator beneath */
    assert_int_equal(front_pages_class(before), FRONT_FOREIGN);
    front_start();
    assert_non_null(atomic_load(&front_pool));
    front_free(before);
    return 0;
}

/* --- classes --- */

static void classes_rise_and_waste_little(void **state)
{
    (void)state;
    assert_int_equal(front_classes[FRONT_CLASS_COUNT].bytes, FRONT_SMALL_MAX);
    for (unsigned class = 1; class <= FRONT_CLASS_COUNT; class ++) {
        const front_class *of = &front_classes[class];
        assert_int_equal(of->bytes % 16, 0);
        assert_int_equal(of->slab_bytes % FRONT_PAGE, 0);
        assert_true(of->slab_bytes / FRONT_PAGE < 256);
        assert_true(of->capacity >= 8 && (size_t)of->capacity * of->bytes <= of->slab_bytes);
        assert_true(of->batch >= 2 && of->batch <= of->capacity * 2);
        if (class > 1) assert_true(of->bytes > of[-1].bytes);
    }
    for (size_t bytes = 0; bytes <= FRONT_SMALL_MAX; bytes++) {
        const unsigned class = front_class_of(bytes);
        assert_true(class >= 1 && class <= FRONT_CLASS_COUNT);
        assert_true(front_classes[class].bytes >= bytes);
        if (class > 1) assert_true(front_classes[class - 1].bytes < bytes);
    }
}

/* --- blocks --- */

static void a_small_block_comes_back_to_its_thread(void **state)
{
    (void)state;
    void *block = front_alloc(100);
    assert_int_equal(front_usable(block), 112);
    front_free(block);
    assert_ptr_equal(front_alloc(101), block);
    front_free(block);
}

static void empty_slabs_return_to_the_pool(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static void *blocks[COUNT];
    front_trim(0);
    const size_t before = used_bytes();
    for (unsigned i = 0; i < COUNT; i++)
        blocks[i] = front_alloc(200);
    assert_true(used_bytes() >= before + COUNT * (size_t)200);
    assert_true(front_shelf_read(front_class_of(200)).slabs >= COUNT * (size_t)208 / (16 << 10));
    for (unsigned i = 0; i < COUNT; i++)
        front_free(blocks[i * 7919u % COUNT]);
    front_trim(0);
    assert_true(used_bytes() <= before + (64 << 10)); /* one slab of the class may stay */
    assert_true(front_shelf_read(front_class_of(200)).slabs <= 1);
    assert_int_equal(front_shelf_read(front_class_of(200)).chains, 0);
}

static void a_shelf_keeps_few_chains(void **state)
{
    (void)state;
    enum { COUNT = 60000 };
    static void *blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++)
        blocks[i] = front_alloc(64);
    for (unsigned i = 0; i < COUNT; i++)
        front_free(blocks[i]);
    const front_shelf_figures figures = front_shelf_read(front_class_of(64));
    assert_true(figures.chains > 0);
    assert_true(figures.chains * front_classes[front_class_of(64)].batch * 64 <= (size_t)512 << 10);
}

static void a_slab_over_the_end_of_a_leaf_has_one_record(void **state)
{
    (void)state;
    const uintptr_t edge = (uintptr_t)3 << FRONT_ROOT_SHIFT; /* addresses that are never touched */
    char *base = (char *)(edge - 2 * FRONT_PAGE);
    front_slab *slab = front_pages_enter(base, 5, 9);
    assert_non_null(slab);
    for (unsigned page = 0; page < 5; page++) {
        assert_int_equal(front_pages_class(base + page * FRONT_PAGE + 100), 9);
        assert_ptr_equal(front_pages_slab(base + page * FRONT_PAGE + 100), slab);
    }
    assert_int_equal(front_pages_class(base - 1), FRONT_FOREIGN);
    assert_int_equal(front_pages_class(base + 5 * FRONT_PAGE), FRONT_FOREIGN);
    front_pages_remove(base, 5);
    assert_int_equal(front_pages_class(base + 3 * FRONT_PAGE), FRONT_FOREIGN);
    assert_int_equal(front_pages_class((void *)UINTPTR_MAX), FRONT_FOREIGN);
    assert_null(front_pages_enter((void *)(UINTPTR_MAX - FRONT_PAGE), 1, 9));
}

static void large_blocks_are_blocks_of_the_pool(void **state)
{
    (void)state;
    const size_t before = used_bytes();
    char *block = front_alloc(100000);
    assert_int_equal(front_pages_class(block), FRONT_LARGE);
    assert_true(front_usable(block) >= 100000 && front_usable(block) < 120000);
    assert_true(used_bytes() >= before + 100000);
    memset(block, 3, 100000);
    block = front_realloc(block, 5000000);
    assert_true(front_usable(block) >= 5000000);
    assert_int_equal(block[99999], 3);
    block = front_realloc(block, 70000);
    assert_true(front_usable(block) < 100000);
    assert_int_equal(block[69999], 3);
    block = front_realloc(block, 100);
    assert_int_equal(front_usable(block), 112);
    assert_int_equal(block[99], 3);
    front_free(block);
    front_trim(0);
    assert_true(used_bytes() <= before + (64 << 10));
}

static void a_large_block_comes_back_to_its_thread(void **state)
{
    (void)state;
    void *block = front_alloc(100000), *other = front_alloc(100000);
    front_free(block);
    assert_ptr_not_equal(front_alloc_aligned(1 << 16, 100000), NULL);
    void *larger = front_alloc(110000);
    assert_ptr_not_equal(larger, block);
    assert_ptr_equal(front_alloc(99999), block); /* the same pages */
    front_free(block);
    assert_ptr_equal(front_alloc_aligned(64, 100000), block);
    front_free(block);
    front_free(other);
    assert_ptr_equal(front_alloc(100000), other);
    assert_ptr_equal(front_alloc(100000), block);
    front_free(block);
    front_free(other);
    front_free(larger);
}

static void a_thread_keeps_few_large_blocks(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    void *blocks[COUNT];
    front_trim(0);
    const size_t before = used_bytes();
    for (unsigned i = 0; i < COUNT; i++)
        blocks[i] = front_alloc(33000 + i * (size_t)20011); /* up to 4 MiB: more sizes than lists */
    for (unsigned i = 0; i < COUNT; i++)
        front_free(blocks[i]);
    assert_true(used_bytes() > before + (1 << 20));
    assert_true(used_bytes() <= before + ((size_t)4 << 20) + (64 << 10));
    blocks[0] = front_alloc((size_t)5 << 20);
    front_free(blocks[0]); /* too large to be kept */
    assert_true(used_bytes() <= before + ((size_t)4 << 20) + (64 << 10));
    front_trim(0);
    assert_true(used_bytes() <= before + (64 << 10));
}

static void *use_large_blocks(void *unused)
{
    (void)unused;
    front_free(front_alloc(100000));
    front_free(front_alloc((size_t)1 << 20));
    return NULL;
}

static void large_blocks_of_a_thread_that_ends_go_back(void **state)
{
    (void)state;
    const size_t before = used_bytes();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use_large_blocks, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(used_bytes() <= before + (64 << 10));
}

static void zeroed_blocks_are_zero(void **state)
{
    (void)state;
    static const size_t sizes[] = {10, 5000, 70000, 3 << 20};
    for (unsigned i = 0; i < 4; i++) {
        char *block = front_alloc(sizes[i]);
        memset(block, 0xff, front_usable(block));
        front_free(block);
        block = front_alloc_zeroed(sizes[i]);
        for (size_t at = 0; at < sizes[i]; at++)
            assert_int_equal(block[at], 0);
        front_free(block);
    }
}

static size_t page_faults(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (size_t)usage.ru_minflt;
}

static bool is_zero(const char *block, size_t bytes)
{
    return !block[0] && memcmp(block, block + 1, bytes - 1) == 0;
}

/* Recycled pages are cleared: dropping them would cost a page fault for each when they are touched again. */
static void zeroed_blocks_keep_their_pages(void **state)
{
    (void)state;
    enum { ROUNDS = 20, BYTES = (3 << 19) + 100 };
    const size_t pages = BYTES / (size_t)sysconf(_SC_PAGESIZE);
    size_t faults = 0;
    for (unsigned round = 0; round <= ROUNDS; round++) {
        if (round == 1) faults = page_faults(); /* the first round gets the memory */
        char *block = front_alloc_zeroed(BYTES);
        assert_true(is_zero(block, BYTES));
        memset(block, 0xa5, BYTES);
        front_free(block);
    }
    faults = page_faults() - faults;
    if (faults >= ROUNDS * pages / 4) fail_msg("%zu faults for %d blocks of %zu pages", faults, ROUNDS, pages);
}

/* Pages that the kernel has not backed yet are zero and stay without memory, below and above the size of drops. */
static void zeroed_blocks_touch_no_fresh_pages(void **state)
{
    (void)state;
    static const size_t sizes[] = {(size_t)24 << 20, (size_t)40 << 20};
    for (unsigned i = 0; i < 2; i++) {
        front_trim(0);
        const size_t faults = page_faults();
        char *block = front_alloc_zeroed(sizes[i]);
        const size_t taken = page_faults() - faults;
        if (taken >= sizes[i] / (size_t)sysconf(_SC_PAGESIZE) / 4) fail_msg("%zu faults", taken);
        assert_true(is_zero(block, sizes[i]));
        memset(block, 0xa5, sizes[i] / 2); /* half of the pages are used, the rest is the kernel's zero page */
        front_free(block);
        block = front_alloc_zeroed(sizes[i]);
        assert_true(is_zero(block, sizes[i]));
        front_free(block);
    }
}

/* --- inside Loch --- */

static void calls_inside_loch_use_the_allocator_beneath(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static void *blocks[COUNT];
    char *large = front_alloc(100000);
    for (unsigned i = 0; i < COUNT; i++)
        blocks[i] = front_alloc(3000);
    const size_t before = used_bytes();
    front_source_enter();
    front_source_enter();
    assert_true(front_source_is_inside());
    char *inside = front_alloc(100000), *aligned = front_alloc_aligned(64, 3000);
    assert_int_equal(front_pages_class(inside), FRONT_FOREIGN);
    assert_int_equal(front_pages_class(aligned), FRONT_FOREIGN);
    for (unsigned i = 0; i < COUNT; i++)
        front_free(blocks[i]);
    large = front_realloc(large, 200000); /* moves to the allocator beneath */
    assert_int_equal(front_pages_class(large), FRONT_FOREIGN);
    front_source_leave();
    assert_true(front_source_is_inside());
    assert_int_equal(used_bytes(), before);
    errno = 55;
    front_source_leave();
    assert_false(front_source_is_inside());
    assert_true(used_bytes() + 100000 <= before); /* what was freed inside is free now */
    front_free(inside);
    front_free(aligned);
    front_free(large);
}

static void leaving_restores_errno(void **state)
{
    (void)state;
    errno = 11;
    front_source_enter();
    errno = 22;
    front_source_leave();
    assert_int_equal(errno, 11);
}

/* --- threads --- */

enum { THREADS = 4, SLOTS = 500, STEPS = 20000 };

static void *_Atomic slots[SLOTS];

static void *exchange_blocks(void *seed_pointer)
{
    unsigned seed = *(unsigned *)seed_pointer;
    for (unsigned step = 0; step < STEPS; step++) {
        seed = seed * 1103515245 + 12345;
        const size_t bytes = (seed >> 10) % (step % 400 ? 900 : 100000) + 1;
        char *block = step % 5 ? front_alloc(bytes) : front_alloc_aligned(64, bytes);
        if (!block) return block;
        block[0] = block[bytes - 1] = (char)bytes;
        char *other = atomic_exchange(&slots[(seed >> 4) % SLOTS], block);
        if (other && step % 3 == 0) other = front_realloc(other, bytes);
        front_free(other);
    }
    return seed_pointer;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, exchange_blocks, &seeds[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &seeds[i]);
    }
}

static void threads_exchange_blocks_and_leave_nothing(void **state)
{
    (void)state;
    front_trim(0);
    const size_t before = used_bytes();
    run_threads();
    for (unsigned i = 0; i < SLOTS; i++)
        front_free(atomic_exchange(&slots[i], NULL));
    front_trim(0);
    /* One slab of each class may stay. */
    size_t most = before;
    for (unsigned class = 1; class <= FRONT_CLASS_COUNT; class ++)
        most += front_classes[class].slab_bytes;
    assert_true(used_bytes() <= most);
}

static pthread_key_t late_key;

/* Runs after the cache of the thread has ended: in a later round of destructors. */
static void allocate_late(void *round)
{
    for (size_t bytes = 1; bytes < 100000; bytes = bytes * 3 + 1) {
        char *block = front_alloc(bytes);
        assert_non_null(block);
        block[bytes - 1] = 1;
        front_free(block);
    }
    if ((uintptr_t)round < 3) pthread_setspecific(late_key, (void *)((uintptr_t)round + 1));
}

static void *set_late_key(void *unused)
{
    front_free(front_alloc(10));
    pthread_setspecific(late_key, (void *)1);
    return unused;
}

static void destructors_of_threads_allocate(void **state)
{
    (void)state;
    assert_int_equal(pthread_key_create(&late_key, allocate_late), 0);
    front_trim(0);
    size_t after_few = 0;
    for (unsigned i = 0; i < 300; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, set_late_key, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (i == 50) after_few = used_bytes();
    }
    assert_int_equal(used_bytes(), after_few);
    pthread_key_delete(late_key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_rise_and_waste_little),
        cmocka_unit_test(a_small_block_comes_back_to_its_thread),
        cmocka_unit_test(empty_slabs_return_to_the_pool),
        cmocka_unit_test(a_shelf_keeps_few_chains),
        cmocka_unit_test(a_slab_over_the_end_of_a_leaf_has_one_record),
        cmocka_unit_test(large_blocks_are_blocks_of_the_pool),
        cmocka_unit_test(a_large_block_comes_back_to_its_thread),
        cmocka_unit_test(a_thread_keeps_few_large_blocks),
        cmocka_unit_test(large_blocks_of_a_thread_that_ends_go_back),
        cmocka_unit_test(zeroed_blocks_are_zero),
        cmocka_unit_test(zeroed_blocks_keep_their_pages),
        cmocka_unit_test(zeroed_blocks_touch_no_fresh_pages),
        cmocka_unit_test(calls_inside_loch_use_the_allocator_beneath),
        cmocka_unit_test(leaving_restores_errno),
        cmocka_unit_test(threads_exchange_blocks_and_leave_nothing),
        cmocka_unit_test(destructors_of_threads_allocate),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
