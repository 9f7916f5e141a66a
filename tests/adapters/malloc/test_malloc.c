/* SPDX-License-Identifier: MIT */
/* malloc's family with libloch_malloc.so preloaded: the contracts of every function, threads, forks with threads, sizes
 * that no memory has, limits of the process. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE_BYTES ((size_t)PTRDIFF_MAX + 1)

/* Functions under test, through pointers that compilers and analyzers do not see through: they remove pairs of calls
 * and refuse wrong ones. */
static void *(*volatile call_malloc)(size_t) = malloc;
static void *(*volatile call_calloc)(size_t, size_t) = calloc;
static void *(*volatile call_realloc)(void *, size_t) = realloc;
static void *(*volatile call_reallocarray)(void *, size_t, size_t) = reallocarray;
static void (*volatile call_free)(void *) = free;

static size_t volatile hidden_bytes; /* sizes that the compiler must not see */

static size_t hide(size_t bytes)
{
    hidden_bytes = bytes;
    return hidden_bytes;
}

static bool is_zero(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i]) return false;
    return true;
}

/* --- the library --- */

static void malloc_is_that_of_the_library(void **state)
{
    (void)state;
    static const char *const names[] = {
        "malloc",   "free",           "calloc", "realloc", "reallocarray",      "aligned_alloc",
        "memalign", "posix_memalign", "valloc", "pvalloc", "malloc_usable_size"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Dl_info info;
        void *found = dlsym(RTLD_DEFAULT, names[i]);
        assert_non_null(found);
        assert_int_not_equal(dladdr(found, &info), 0);
        assert_non_null(strstr(info.dli_fname, "libloch_malloc"));
    }
    assert_true(mallinfo2().arena > 0);
}

static void no_name_of_loch_is_visible(void **state)
{
    (void)state;
    assert_null(dlsym(RTLD_DEFAULT, "loch_alloc"));
    assert_null(dlsym(RTLD_DEFAULT, "loch_pool_create"));
}

/* --- sizes and alignments --- */

static void every_size_is_aligned_and_usable(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 300000; bytes += bytes < 2100 ? 1 : bytes / 23) {
        char *block = call_malloc(bytes);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 16, 0);
        assert_true(malloc_usable_size(block) >= bytes);
        memset(block, 0x5a, malloc_usable_size(block));
        call_free(block);
    }
}

static void blocks_of_one_size_do_not_overlap(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static unsigned char *blocks[COUNT];
    static const size_t sizes[] = {1, 16, 24, 100, 513, 1024, 1025, 5000, 20000, 40000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t i = 0; i < COUNT; i++) {
            blocks[i] = call_malloc(sizes[s]);
            assert_non_null(blocks[i]);
            memset(blocks[i], (int)(i % 251), sizes[s]);
        }
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(blocks[i][0], i % 251);
            assert_int_equal(blocks[i][sizes[s] - 1], i % 251);
            call_free(blocks[i]);
        }
    }
}

static void zero_bytes_have_an_address_of_their_own(void **state)
{
    (void)state;
    void *first = call_malloc(0), *second = call_malloc(0), *third = call_calloc(0, 5), *fourth = call_calloc(5, 0);
    assert_true(first && second && third && fourth);
    assert_ptr_not_equal(first, second);
    assert_ptr_not_equal(third, fourth);
    call_free(first);
    call_free(second);
    call_free(third);
    call_free(fourth);
    call_free(NULL);
}

static void every_alignment_is_kept(void **state)
{
    (void)state;
    for (size_t alignment = 1; alignment <= (size_t)16 << 20; alignment *= 2)
        for (size_t bytes = 0; bytes < 200000; bytes = bytes * 3 + 1) {
            void *block = memalign(alignment, bytes), *second = aligned_alloc(alignment, bytes), *third = NULL;
            assert_true(block && second);
            assert_int_equal((uintptr_t)block % alignment, 0);
            assert_int_equal((uintptr_t)second % alignment, 0);
            assert_true(malloc_usable_size(block) >= bytes);
            memset(block, 1, bytes);
            memset(second, 2, bytes);
            if (alignment >= sizeof(void *)) {
                assert_int_equal(posix_memalign(&third, alignment, bytes), 0);
                assert_int_equal((uintptr_t)third % alignment, 0);
            }
            call_free(block);
            call_free(second);
            call_free(third);
        }
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *block = valloc(10), *whole = pvalloc(page + 1);
    assert_int_equal((uintptr_t)block % page, 0);
    assert_int_equal((uintptr_t)whole % page, 0);
    assert_true(malloc_usable_size(whole) >= 2 * page);
    call_free(block);
    call_free(whole);
}

static void wrong_alignments_are_refused(void **state)
{
    (void)state;
    void *block = &block;
    errno = 0;
    assert_int_equal(posix_memalign(&block, 24, 10), EINVAL);
    assert_int_equal(posix_memalign(&block, 0, 10), EINVAL);
    assert_int_equal(posix_memalign(&block, sizeof(void *) / 2, 10), EINVAL);
    assert_int_equal(errno, 0);
    assert_ptr_equal(block, &block);
    assert_null(aligned_alloc(hide(24), 48));
    assert_int_equal(errno, EINVAL);
    void *rounded = memalign(24, 10);
    assert_int_equal((uintptr_t)rounded % 32, 0);
    call_free(rounded);
    errno = 0;
    assert_null(memalign(hide(SIZE_MAX / 2 + 2), 10));
    assert_int_equal(errno, EINVAL);
}

/* --- errors --- */

static void sizes_without_memory_set_errno(void **state)
{
    (void)state;
    const size_t sizes[] = {HUGE_BYTES, SIZE_MAX, SIZE_MAX - 4095, (size_t)PTRDIFF_MAX, (size_t)1 << 50};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t bytes = hide(sizes[i]);
        void *kept = call_malloc(100), *large = call_malloc(100000), *out = kept;
        memset(kept, 7, 100);
        errno = 0;
        assert_null(call_malloc(bytes));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(call_calloc(1, bytes));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(call_realloc(kept, bytes));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(call_realloc(large, bytes));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(aligned_alloc(64, bytes));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(pvalloc(bytes));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_int_equal(posix_memalign(&out, 64, bytes), ENOMEM);
        assert_int_equal(errno, 0);
        assert_ptr_equal(out, kept);
        assert_int_equal(((char *)kept)[99], 7);
        call_free(kept);
        call_free(large);
    }
}

static void products_that_overflow_set_errno(void **state)
{
    (void)state;
    errno = 0;
    assert_null(call_calloc(hide(SIZE_MAX / 2 + 1), 2));
    assert_int_equal(errno, ENOMEM);
    char *kept = call_malloc(10);
    kept[9] = 'x';
    errno = 0;
    assert_null(call_reallocarray(kept, hide(SIZE_MAX / 4), 5));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(kept[9], 'x');
    char *block = call_reallocarray(kept, 100, 50);
    assert_non_null(block);
    assert_int_equal(block[9], 'x');
    call_free(block);
}

static void free_and_successful_calls_keep_errno(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    static void *blocks[COUNT];
    errno = 77;
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = call_malloc(i * 97);
        assert_int_equal(errno, 77);
    }
    for (size_t i = 0; i < COUNT; i++) {
        call_free(blocks[i]);
        assert_int_equal(errno, 77);
    }
}

/* --- calloc and realloc --- */

static void calloc_gives_zeros_after_frees(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 40, 1000, 5000, 33000, 1 << 20, (1 << 20) + 12345, 9 << 20};
    for (size_t round = 0; round < 3; round++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            char *dirty[4];
            for (size_t i = 0; i < 4; i++) {
                dirty[i] = call_malloc(sizes[s]);
                memset(dirty[i], 0xff, malloc_usable_size(dirty[i]));
            }
            for (size_t i = 0; i < 4; i++)
                call_free(dirty[i]);
            for (size_t i = 0; i < 4; i++) {
                dirty[i] = call_calloc(sizes[s], 1);
                assert_true(is_zero(dirty[i], sizes[s]));
                memset(dirty[i], 0xff, sizes[s]);
            }
            for (size_t i = 0; i < 4; i++)
                call_free(dirty[i]);
        }
}

static void realloc_keeps_contents_in_every_step(void **state)
{
    (void)state;
    size_t bytes = 1;
    unsigned char *block = call_realloc(NULL, bytes);
    unsigned seed = 1;
    block[0] = 0;
    for (unsigned step = 0; step < 3000; step++) {
        seed = seed * 1103515245 + 12345;
        const size_t next = (seed >> 8) % (step % 50 ? 70000 : 5000000) + 1;
        block = call_realloc(block, next);
        assert_non_null(block);
        for (size_t i = 0; i < bytes && i < next; i += 1 + i / 7)
            assert_int_equal(block[i], i % 253);
        for (size_t i = 0; i < next; i++)
            block[i] = (unsigned char)(i % 253);
        bytes = next;
    }
    assert_null(call_realloc(block, hide(0)));
}

static void other_names_of_free_free(void **state)
{
    (void)state;
    static const char *const names[] = {"free_sized", "free_aligned_sized", "cfree"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        void (*function)(void *, size_t, size_t);
        void *found = dlsym(RTLD_DEFAULT, names[n]);
        assert_non_null(found);
        memcpy(&function, &found, sizeof function);
        void *block = aligned_alloc(64, 640);
        function(block, n ? 64 : 640, 640);
        void *again = aligned_alloc(64, 640); /* the block that the thread freed last */
        assert_ptr_equal(again, block);
        call_free(again);
    }
}

static void settings_are_accepted_and_memory_is_trimmed(void **state)
{
    (void)state;
    assert_int_equal(mallopt(M_TRIM_THRESHOLD, 1 << 20), 1);
    char *block = call_malloc(64 << 20);
    memset(block, 1, 64 << 20);
    const size_t used = mallinfo2().uordblks;
    assert_true(used >= (size_t)64 << 20);
    call_free(block);
    assert_true(mallinfo2().uordblks < used);
    assert_int_equal(malloc_trim(0), 1);
    assert_true(mallinfo2().arena < (size_t)64 << 20);
}

/* --- blocks of other allocators --- */

static void blocks_of_the_c_library_are_recognised(void **state)
{
    (void)state;
    void *(*beneath)(size_t);
    void *found = dlsym(RTLD_NEXT, "__libc_malloc");
    assert_non_null(found);
    memcpy(&beneath, &found, sizeof beneath);
    for (size_t bytes = 1; bytes < 2000000; bytes = bytes * 5 + 1) {
        char *block = beneath(bytes);
        assert_true(malloc_usable_size(block) >= bytes);
        block[bytes - 1] = 'x';
        block = call_realloc(block, bytes * 2);
        assert_int_equal(block[bytes - 1], 'x');
        call_free(block);
    }
}

/* --- threads --- */

enum { THREADS = 4, SLOTS = 2000, STEPS = 60000 };

static unsigned char *_Atomic slots[SLOTS];

/* Exchanges blocks between threads: every block is freed by the thread that finds it. */
static void *exchange_blocks(void *seed_pointer)
{
    unsigned seed = *(unsigned *)seed_pointer;
    for (unsigned step = 0; step < STEPS; step++) {
        seed = seed * 1103515245 + 12345;
        const size_t bytes = (seed >> 10) % (step % 500 ? 700 : 200000) + 2;
        unsigned char *block = call_malloc(bytes);
        if (!block) return block;
        block[0] = (unsigned char)bytes;
        block[bytes - 1] = (unsigned char)bytes;
        memcpy(seed_pointer, &seed, sizeof seed);
        unsigned char *other = atomic_exchange(&slots[(seed >> 4) % SLOTS], block);
        if (other && malloc_usable_size(other) < 2) return block;
        call_free(other);
    }
    return seed_pointer;
}

static void threads_free_blocks_of_each_other(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        pthread_t threads[THREADS];
        unsigned seeds[THREADS];
        for (unsigned i = 0; i < THREADS; i++) {
            seeds[i] = round * THREADS + i + 1;
            assert_int_equal(pthread_create(&threads[i], NULL, exchange_blocks, &seeds[i]), 0);
        }
        for (unsigned i = 0; i < THREADS; i++) {
            void *result;
            assert_int_equal(pthread_join(threads[i], &result), 0);
            assert_ptr_equal(result, &seeds[i]);
        }
    }
    for (unsigned i = 0; i < SLOTS; i++)
        call_free(atomic_exchange(&slots[i], NULL));
}

static void *keep_some_blocks(void *unused)
{
    (void)unused;
    void *blocks[200];
    for (size_t i = 0; i < 200; i++)
        blocks[i] = call_malloc(i * 40);
    for (size_t i = 0; i < 200; i++)
        call_free(blocks[i]);
    return call_malloc(48);
}

static void memory_of_ended_threads_is_used_again(void **state)
{
    (void)state;
    size_t after_few = 0;
    for (unsigned i = 0; i < 1200; i++) {
        pthread_t thread;
        void *block;
        assert_int_equal(pthread_create(&thread, NULL, keep_some_blocks, NULL), 0);
        assert_int_equal(pthread_join(thread, &block), 0);
        call_free(block);
        if (i == 200) after_few = mallinfo2().uordblks;
    }
    assert_true(mallinfo2().uordblks <= after_few + ((size_t)1 << 20)); /* a cache that is lost has 200 KiB */
}

/* --- forks --- */

static atomic_bool is_over;

static void *allocate_until_over(void *unused)
{
    (void)unused;
    for (unsigned i = 0; !atomic_load(&is_over); i++) {
        void *small = call_malloc(i % 3000), *large = call_malloc(40000 + i % 300000);
        call_free(small);
        call_free(large);
    }
    return NULL;
}

static void a_child_of_a_program_with_threads_allocates(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    atomic_store(&is_over, false);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_until_over, NULL), 0);
    for (unsigned round = 0; round < 25; round++) {
        char *before = call_malloc(500), *large = call_malloc(1 << 20);
        strcpy(before, "before");
        strcpy(large, "large");
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            bool is_right = !strcmp(before, "before") && !strcmp(large, "large");
            for (unsigned i = 0; i < 300; i++) {
                char *block = call_malloc(i * 331);
                if (!block) _exit(1);
                memset(block, 1, i * 331);
                call_free(block);
            }
            call_free(before);
            call_free(large);
            pthread_t thread;
            void *block = NULL;
            if (pthread_create(&thread, NULL, keep_some_blocks, NULL) || pthread_join(thread, &block) || !block)
                _exit(2);
            call_free(block);
            _exit(is_right ? 0 : 3);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        call_free(before);
        call_free(large);
    }
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* --- limits --- */

/* Runs in a child: allocates until nothing is left, and again after everything was freed. Requests that go on after the
 * first refusal do not make it last. */
static int fill_memory(size_t block_bytes)
{
    enum { MOST = 400000 };
    static void *blocks[MOST];
    size_t first = 0;
    for (unsigned round = 0; round < 2; round++) {
        size_t count = 0;
        errno = 0;
        while (count < MOST && (blocks[count] = call_malloc(block_bytes)))
            memset(blocks[count++], 1, block_bytes < 4096 ? block_bytes : 4096);
        if (count == MOST || errno != ENOMEM) return 1;
        for (unsigned i = 0; i < 600; i++)
            if (call_malloc(block_bytes)) return 4;
        if (round == 0) first = count;
        if (count < first / 4 * 3) return 2;
        for (size_t i = 0; i < count; i++)
            call_free(blocks[i]);
    }
    void *block = call_malloc(100);
    call_free(block);
    return first && block ? 0 : 3;
}

static void a_limit_of_the_process_ends_in_enomem(void **state)
{
    (void)state;
    static const size_t sizes[] = {1000, 10000, 300000, 20 << 20};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            /* Limits the memory that may be written. A limit of addresses would count what the pool reserved. */
            const struct rlimit limit = {(rlim_t)300 << 20, (rlim_t)300 << 20};
            if (setrlimit(RLIMIT_DATA, &limit)) _exit(9);
            _exit(fill_memory(sizes[s]));
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malloc_is_that_of_the_library),
        cmocka_unit_test(no_name_of_loch_is_visible),
        cmocka_unit_test(every_size_is_aligned_and_usable),
        cmocka_unit_test(blocks_of_one_size_do_not_overlap),
        cmocka_unit_test(zero_bytes_have_an_address_of_their_own),
        cmocka_unit_test(every_alignment_is_kept),
        cmocka_unit_test(wrong_alignments_are_refused),
        cmocka_unit_test(sizes_without_memory_set_errno),
        cmocka_unit_test(products_that_overflow_set_errno),
        cmocka_unit_test(free_and_successful_calls_keep_errno),
        cmocka_unit_test(calloc_gives_zeros_after_frees),
        cmocka_unit_test(realloc_keeps_contents_in_every_step),
        cmocka_unit_test(other_names_of_free_free),
        cmocka_unit_test(settings_are_accepted_and_memory_is_trimmed),
        cmocka_unit_test(blocks_of_the_c_library_are_recognised),
        cmocka_unit_test(threads_free_blocks_of_each_other),
        cmocka_unit_test(memory_of_ended_threads_is_used_again),
        cmocka_unit_test(a_child_of_a_program_with_threads_allocates),
        cmocka_unit_test(a_limit_of_the_process_ends_in_enomem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
