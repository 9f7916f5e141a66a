/* SPDX-License-Identifier: MIT */
/* The front of libloch_malloc.so in children: of a program with threads, and with a limit of its own. */
#include "support/test.h"

#include "front.h"
#include "source.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_bool is_over;

static void *allocate_until_over(void *unused)
{
    for (unsigned i = 0; !atomic_load(&is_over); i++) {
        void *small = front_alloc(i % 3000), *large = front_alloc(40000 + i % 90000);
        front_free(small);
        front_free(large);
    }
    return unused;
}

static void a_forked_child_allocates(void **state)
{
    (void)state;
    pthread_t thread;
    atomic_store(&is_over, false);
    assert_int_equal(pthread_create(&thread, NULL, allocate_until_over, NULL), 0);
    for (unsigned round = 0; round < 20; round++) {
        char *before = front_alloc(3000);
        strcpy(before, "before");
        const pid_t child = fork();
        if (child == 0) {
            const bool is_right = !strcmp(before, "before") && !front_source_is_inside();
            front_free(before);
            for (size_t bytes = 1; bytes < 300000; bytes += bytes / 3 + 1)
                front_free(front_alloc(bytes));
            _exit(is_right ? 0 : 1);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        front_free(before);
    }
    atomic_store(&is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* --- without memory --- */

static void a_pool_without_memory_is_asked_seldom(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        loch_stats stats = {.size = sizeof stats};
        if (loch_pool_set_limit(atomic_load(&front_pool), TEST_MIB) != LOCH_OK) _exit(4);
        unsigned refused = 0;
        for (unsigned i = 0; i < 100 * COUNT && refused < COUNT; i++)
            refused += front_source_alloc(4 * FRONT_PAGE, FRONT_PAGE) == NULL;
        if (refused < COUNT) _exit(1);
        if (loch_allocator_get_stats(atomic_load(&front_pool), &stats) != LOCH_OK) _exit(2);
        _exit(stats.failures > 0 && stats.failures < COUNT / 100 ? 0 : 3);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_allocates),
        cmocka_unit_test(a_pool_without_memory_is_asked_seldom),
    };
    front_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
