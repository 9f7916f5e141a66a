/* SPDX-License-Identifier: MIT */
/* Pools on the CPU in processes that are short of addresses or of mappings: RLIMIT_AS, vm.max_map_count. Each case runs
 * in a process of its own, because such limits cannot be taken back. */
#include "base/sanitize.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB TEST_MIB

#if LOCHI_ASAN || LOCHI_TSAN
#define IS_SANITIZED 1 /* they need terabytes of addresses for themselves */
#else
#define IS_SANITIZED 0
#endif

/* In a child: says what is wrong, and ends it. */
#define EXPECT(condition) ((condition) ? (void)0 : child_fail(#condition, __LINE__))
#define EXPECT_OK(call) ((call) == LOCH_OK ? (void)0 : child_fail(#call, __LINE__))

static void child_fail(const char *what, int line)
{
    fprintf(stderr, "line %d: %s: %s\n", line, what, loch_error_get()->sentence);
    _exit(1);
}

/* Runs a case in a process of its own; the exit code. */
static int child_run(void (*run)(size_t), size_t argument)
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        run(argument);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

/* --- RLIMIT_AS --- */

#define POOLS 4
#define BLOCKS 6

/* Fills blocks of a pool and finds them as they were. */
static void serve(loch_allocator *pool, size_t large, uint64_t seed)
{
    const size_t sizes[BLOCKS] = {100, 5000, 100000, MIB, large, large / 2};
    void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        EXPECT_OK(loch_alloc(pool, sizes[i], &blocks[i]));
        test_pattern_write(blocks[i], sizes[i], seed + i);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        EXPECT(test_pattern_differs(blocks[i], sizes[i], seed + i) == sizes[i]);
        EXPECT_OK(loch_free(pool, blocks[i]));
    }
}

static void pools_with_little_room(size_t limit)
{
    const struct rlimit as = {limit, limit};
    EXPECT(setrlimit(RLIMIT_AS, &as) == 0);
    loch_device *device;
    loch_allocator *pools[POOLS];
    EXPECT_OK(loch_device_open("cpu", &device));
    for (size_t i = 0; i < POOLS; i++) {
        EXPECT_OK(loch_pool_create(device, "pool", NULL, &pools[i]));
        serve(pools[i], limit / 64, i);
    }
    for (size_t i = 0; i < POOLS; i++)
        serve(pools[i], limit / 32, 100 + i);
    void *block = NULL; /* what no addresses are there for is a status */
    EXPECT(loch_alloc(pools[0], limit, &block) == LOCH_E_DEVICE_MEMORY && !block);
    EXPECT(strlen(loch_error_get()->sentence) > 0);
    void *other = malloc(limit / 16); /* and the rest of the process has some, too */
    EXPECT(other != NULL);
    free(other);
    for (size_t i = 0; i < POOLS; i++) {
        size_t released;
        serve(pools[i], limit / 64, 200 + i);
        EXPECT_OK(loch_allocator_trim(pools[i], 0, &released));
        EXPECT(released > 0);
        loch_allocator_release(pools[i]);
    }
    EXPECT_OK(loch_pool_create(device, "again", NULL, &pools[0])); /* the addresses have come back */
    serve(pools[0], limit / 16, 300);
    loch_allocator_release(pools[0]);
    loch_device_release(device);
}

static void pools_work_in_limited_address_spaces(void **state)
{
    (void)state;
    if (IS_SANITIZED) skip();
    static const size_t limits[] = {512, 1024, 2048, 4096, 8192};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (child_run(pools_with_little_room, limits[i] * MIB)) fail_msg("with RLIMIT_AS at %zu MiB", limits[i]);
}

/* The default allocators are pools, too. */
static void default_with_little_room(size_t limit)
{
    const struct rlimit as = {limit, limit};
    EXPECT(setrlimit(RLIMIT_AS, &as) == 0);
    loch_device *device;
    loch_allocator *allocator;
    EXPECT_OK(loch_device_open("cpu", &device));
    EXPECT_OK(loch_device_acquire_allocator(device, (loch_attributes){0}, LOCH_FALLBACK_NONE, &allocator));
    serve(allocator, limit / 32, 1);
    loch_allocator_release(allocator);
    loch_device_release(device);
}

static void the_default_pool_works_in_a_limited_address_space(void **state)
{
    (void)state;
    if (IS_SANITIZED) skip();
    assert_int_equal(child_run(default_with_little_room, 512 * MIB), 0);
}

/* --- vm.max_map_count --- */

#define MAPS_SKIPPED 77

static size_t maps_most(void)
{
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    unsigned long most = 0;
    if (file && fscanf(file, "%lu", &most) != 1) most = 0;
    if (file) fclose(file);
    return most;
}

/* Takes mappings until the process has `spare` left: pages that cannot become one mapping with their neighbours. */
static char *maps_fill(size_t most, size_t spare, size_t *bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *bytes = (most + 1000) * page;
    char *start = mmap(NULL, *bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return NULL;
    size_t i = 1;
    while (i < most + 999 && mprotect(start + i * page, page, PROT_READ) == 0)
        i += 2;
    if (i >= most + 999) { /* no limit is kept here */
        munmap(start, *bytes);
        return NULL;
    }
    /* each page that goes back to what it was joins three mappings */
    for (size_t back = 0; back < spare && i > 2; back += 2, i -= 2)
        if (mprotect(start + (i - 2) * page, page, PROT_NONE) != 0) break;
    return start;
}

#define MAP_BLOCKS 64

static void hear_loss(loch_log_level level, const char *line, void *user)
{
    (void)level, (void)user;
    fprintf(stderr, "%s\n", line);
    _exit(2);
}

static void pools_without_mappings(size_t spare)
{
    loch_device *device;
    loch_allocator *pool;
    void *blocks[MAP_BLOCKS], *before;
    size_t bytes, released, served = 0;
    const loch_pool_options options = {.size = sizeof options, .handle_bytes = 2 * MIB};
    EXPECT_OK(loch_device_open("cpu", &device));
    EXPECT_OK(loch_pool_create(device, "pool", &options, &pool));
    EXPECT_OK(loch_alloc(pool, 5 * MIB, &before));
    test_pattern_write(before, 5 * MIB, 1);
    char *filler = maps_fill(maps_most(), spare, &bytes);
    if (!filler) _exit(MAPS_SKIPPED);
    loch_log_set_hook(hear_loss, NULL, LOCH_LOG_ERROR);
    loch_allocator *second = TEST_UNTOUCHED; /* needs mappings of its own */
    const loch_status made = loch_pool_create(device, "second", NULL, &second);
    EXPECT(made == LOCH_OK || made == LOCH_E_DEVICE_MEMORY || made == LOCH_E_HOST_MEMORY);
    EXPECT((made == LOCH_OK) == (second != NULL));
    loch_allocator_release(second);
    for (size_t round = 0; round < 8; round++) {
        for (size_t i = 0; i < MAP_BLOCKS; i++) {
            const loch_status status = loch_alloc(pool, (i % 5 + 1) * MIB + i % 3 * 100000, &blocks[i]);
            if (status != LOCH_OK) {
                blocks[i] = NULL;
                EXPECT(status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_HOST_MEMORY || status == LOCH_E_FRAGMENTED);
                EXPECT(strlen(loch_error_get()->sentence) > 0);
                continue;
            }
            served++;
            memset(blocks[i], (int)i, MIB);
        }
        for (size_t i = round % 2; i < MAP_BLOCKS; i++) /* every second one first */
            if (i % 2 == round % 2 && blocks[i]) EXPECT_OK(loch_free(pool, blocks[i]));
        EXPECT_OK(loch_allocator_trim(pool, 0, &released));
        for (size_t i = 0; i < MAP_BLOCKS; i++)
            if (i % 2 != round % 2 && blocks[i]) {
                EXPECT(((unsigned char *)blocks[i])[MIB - 1] == (unsigned char)i);
                EXPECT_OK(loch_free(pool, blocks[i]));
            }
        EXPECT_OK(loch_allocator_trim(pool, 0, &released));
    }
    EXPECT(served > 0); /* next to what is open no mapping is needed */
    EXPECT(munmap(filler, bytes) == 0);
    EXPECT(test_pattern_differs(before, 5 * MIB, 1) == 5 * MIB);
    for (size_t i = 0; i < MAP_BLOCKS; i++) { /* all is as before */
        EXPECT_OK(loch_alloc(pool, 3 * MIB, &blocks[i]));
        test_pattern_write(blocks[i], 3 * MIB, i);
    }
    for (size_t i = 0; i < MAP_BLOCKS; i++) {
        EXPECT(test_pattern_differs(blocks[i], 3 * MIB, i) == 3 * MIB);
        EXPECT_OK(loch_free(pool, blocks[i]));
    }
    EXPECT_OK(loch_free(pool, before));
    EXPECT_OK(loch_pool_create(device, "second", NULL, &second));
    serve(second, 8 * MIB, 5);
    loch_allocator_release(second);
    EXPECT_OK(loch_allocator_trim(pool, 0, &released));
    loch_pool_info info = {.size = sizeof info};
    EXPECT_OK(loch_pool_get_info(pool, &info));
    EXPECT(info.reserved_bytes == 0);
    loch_allocator_release(pool);
    loch_device_release(device);
}

static void pools_fail_cleanly_when_mappings_are_used_up(void **state)
{
    (void)state;
    const size_t most = maps_most();
    if (IS_SANITIZED || !most || most > 4000000) {
        print_message("skipped: vm.max_map_count is unknown, too large to fill, or a sanitizer needs the mappings\n");
        skip();
    }
    static const size_t spare[] = {0, 4, 30};
    for (size_t i = 0; i < sizeof spare / sizeof *spare; i++) {
        const int code = child_run(pools_without_mappings, spare[i]);
        if (code == MAPS_SKIPPED) {
            print_message("skipped: this kernel keeps no count of mappings\n");
            skip();
        }
        if (code) fail_msg("with %zu mappings to spare: exit code %d", spare[i], code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_work_in_limited_address_spaces),
        cmocka_unit_test(the_default_pool_works_in_a_limited_address_space),
        cmocka_unit_test(pools_fail_cleanly_when_mappings_are_used_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
