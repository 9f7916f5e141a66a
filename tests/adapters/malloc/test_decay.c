/* SPDX-License-Identifier: MIT */
/* Free memory of libloch_malloc.so goes back by time. Runs with the library preloaded and LOCH_MALLOC_DECAY=1; a part
 * of it runs the program again with another setting. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define COUNT 300
#define PATIENCE_S 60 /* on a machine with other work */

static void *(*volatile call_malloc)(size_t) = malloc;
static void (*volatile call_free)(void *) = free;
static const char *own_path;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void rest_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static size_t held_bytes(void)
{
    return mallinfo2().arena;
}

/* Returns the resident memory of the process in bytes. */
static size_t resident_bytes(void)
{
    size_t whole = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%zu %zu", &whole, &resident) != 2) abort();
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static unsigned count_threads(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* Allocates, touches and frees `COUNT` blocks of a MiB. */
static void use_and_free(void)
{
    static void *blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = call_malloc(MIB);
        if (!blocks[i]) abort();
        memset(blocks[i], 1, MIB);
    }
    for (unsigned i = 0; i < COUNT; i++)
        call_free(blocks[i]);
}

/* Waits until `read` returns at most `most`. Returns whether it does. */
static bool falls_to(size_t (*read)(void), size_t most)
{
    for (const double start = now_s(); now_s() < start + PATIENCE_S; rest_ms(50))
        if (read() <= most) return true;
    return false;
}

static size_t threads_beside_main(void)
{
    return count_threads() - 1;
}

/* --- tests --- */

static void a_small_program_has_no_thread(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 100; i++)
        call_free(call_malloc(MIB));
    assert_int_equal(count_threads(), 1);
}

static void free_memory_goes_back_after_a_while_and_the_thread_ends(void **state)
{
    (void)state;
    const double start = now_s();
    use_and_free();
    const size_t after = held_bytes();
    if (now_s() < start + 0.9) assert_true(after >= COUNT * MIB);
    assert_int_equal(count_threads(), 2);
    assert_true(falls_to(held_bytes, 40 * MIB));
    assert_true(falls_to(resident_bytes, 60 * MIB));
    assert_true(falls_to(threads_beside_main, 0));
    use_and_free(); /* starts another one */
    assert_int_equal(count_threads(), 2);
}

static long count_faults(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_minflt;
}

static void memory_that_is_needed_again_stays(void **state)
{
    (void)state;
    use_and_free();
    const long before = count_faults();
    double slowest = 0, last = now_s();
    for (const double start = last; now_s() < start + 4;) {
        use_and_free();
        rest_ms(20);
        const double now = now_s();
        if (now - last > slowest) slowest = now - last;
        last = now;
    }
    const long pages = (long)(COUNT * MIB) / sysconf(_SC_PAGESIZE);
    if (slowest < 0.5) assert_true(count_faults() - before < pages); /* less than once in all rounds */
    assert_true(falls_to(held_bytes, 40 * MIB));
}

static void holes_between_live_blocks_go_back(void **state)
{
    (void)state;
    enum { BLOCKS = 2000000, BYTES = 100 };
    char **blocks = call_malloc(BLOCKS * sizeof *blocks);
    assert_true(falls_to(held_bytes, 60 * MIB));
    const size_t before = resident_bytes();
    for (size_t i = 0; i < BLOCKS; i++)
        memset(blocks[i] = call_malloc(BYTES), 1, BYTES);
    const size_t full = resident_bytes();
    assert_true(full > before + BLOCKS * (size_t)BYTES);
    for (size_t i = 0; i < BLOCKS; i++)
        if (i % 20000) call_free(blocks[i]); /* each MiB or so keeps a block */
    assert_true(falls_to(resident_bytes, before + (full - before) / 8));
    assert_true(held_bytes() > (full - before) / 2); /* nearly every handle has a live block */
    for (size_t i = 0; i < BLOCKS; i += 20000) {
        assert_int_equal(blocks[i][BYTES - 1], 1);
        call_free(blocks[i]);
    }
    call_free(blocks);
}

static void a_child_of_a_fork_gives_back_too(void **state)
{
    (void)state;
    use_and_free();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        use_and_free();
        _exit(falls_to(held_bytes, 40 * MIB) ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(falls_to(held_bytes, 40 * MIB));
}

/* Takes the place of the C library's function, for the library too. */
static bool is_refusing_threads;

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *settings,
                                                          void *(*run)(void *), void *argument)
{
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (is_refusing_threads) return EAGAIN;
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    return next(thread, settings, run, argument);
}

static void without_a_thread_memory_goes_back_at_once(void **state)
{
    (void)state;
    assert_true(falls_to(threads_beside_main, 0));
    is_refusing_threads = true;
    use_and_free();
    is_refusing_threads = false;
    assert_int_equal(count_threads(), 1);
    assert_in_range(held_bytes(), 200 * MIB, 290 * MIB);
    use_and_free();
    assert_int_equal(count_threads(), 2);
}

/* --- other settings --- */

/* Runs with LOCH_MALLOC_DECAY=0. */
static int run_without_thread(void)
{
    use_and_free();
    if (count_threads() != 1) return 1;
    return held_bytes() <= 290 * MIB && held_bytes() >= 200 * MIB ? 0 : 2;
}

/* Runs with a setting that is not a number: the usual time counts. */
static int run_with_default(void)
{
    use_and_free();
    rest_ms(1500);
    return count_threads() == 2 && held_bytes() >= COUNT * MIB ? 0 : 1;
}

static int run_again(const char *part, const char *decay)
{
    const pid_t child = fork();
    if (child == 0) {
        setenv("LOCH_MALLOC_DECAY", decay, 1);
        execl(own_path, own_path, part, (char *)NULL);
        _exit(99);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void settings_of_the_time_are_obeyed(void **state)
{
    (void)state;
    assert_int_equal(run_again("without thread", "0"), 0);
    assert_int_equal(run_again("default", "soon"), 0);
    assert_int_equal(run_again("default", "-1"), 0);
    assert_int_equal(run_again("default", "1000000000"), 0);
}

int main(int count, char **arguments)
{
    own_path = "/proc/self/exe";
    if (count > 1) return strcmp(arguments[1], "default") == 0 ? run_with_default() : run_without_thread();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_program_has_no_thread),
        cmocka_unit_test(free_memory_goes_back_after_a_while_and_the_thread_ends),
        cmocka_unit_test(memory_that_is_needed_again_stays),
        cmocka_unit_test(a_child_of_a_fork_gives_back_too),
        cmocka_unit_test(without_a_thread_memory_goes_back_at_once),
        cmocka_unit_test(holes_between_live_blocks_go_back), /* last: blocks in its cache lie in nearly every handle */
        cmocka_unit_test(settings_of_the_time_are_obeyed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
