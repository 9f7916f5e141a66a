/* SPDX-License-Identifier: MIT */
/* Pinned memory of a real GPU: sizes, place, limits, forks. */
#include "cuda_fixture.h"
#include "double.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB TEST_MIB
#define GIB ((size_t)1 << 30)
#define NODE_OF_PAGE 3 /* MPOL_F_NODE | MPOL_F_ADDR of <linux/mempolicy.h> */

static loch_allocator *make_pool(void)
{
    const loch_pool_options options = {.size = sizeof options, .kind = LOCH_MEMORY_PINNED};
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(device, "pinned", &options, &pool));
    return pool;
}

static void a_pool_holds_what_was_requested(void **state)
{
    (void)state;
    const size_t largest = gpu_or_double(device, 4 * GIB, 64 * MIB);
    for (size_t bytes = MIB; bytes <= largest; bytes *= 4) {
        loch_allocator *pool = make_pool();
        loch_pool_info info = {.size = sizeof info};
        char *blocks[3];
        for (size_t i = 0; i < 3; i++) {
            CHECK_OK(loch_alloc(pool, bytes + 1, (void **)&blocks[i]));
            blocks[i][0] = blocks[i][bytes] = 1;
        }
        CHECK_OK(loch_pool_get_info(pool, &info));
        assert_true((double)info.reserved_bytes <= 1.02 * 3 * (double)(bytes + 1));
        for (size_t i = 0; i < 3; i++)
            CHECK_OK(loch_free(pool, blocks[i]));
        CHECK_OK(loch_allocator_trim(pool, 0, NULL));
        CHECK_OK(loch_pool_get_info(pool, &info));
        assert_int_equal(info.reserved_bytes, 0);
        loch_allocator_release(pool);
    }
}

static void contents_cross_the_bus(void **state)
{
    (void)state;
    const size_t bytes = 100 * MIB + 4097;
    char *first, *second;
    void *block;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, bytes, 0, (void **)&first));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, bytes, 0, (void **)&second));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, 0, &block));
    test_pattern_write(first, bytes, 11);
    CHECK_OK(loch_copy(block, first, bytes));
    CHECK_OK(loch_copy(second, block, bytes));
    assert_int_equal(test_pattern_differs(second, bytes, 11), bytes);
    CHECK_OK(loch_raw_free(first));
    CHECK_OK(loch_raw_free(second));
    CHECK_OK(loch_raw_free(block));
}

static void pages_lie_near_the_gpu(void **state)
{
    (void)state;
    if (properties.numa_node < 0) {
        print_message("the system does not report the node of the GPU\n");
        return;
    }
    char *block;
    size_t elsewhere = 0, pages = 0;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, 64 * MIB, 0, (void **)&block));
    for (size_t at = 0; at < 64 * MIB; at += MIB, pages++) {
        int node = -1;
        if (syscall(SYS_get_mempolicy, &node, NULL, 0, block + at, NODE_OF_PAGE) != 0) {
            print_message("the system does not report the node of a page: %s\n", strerror(errno));
            break;
        }
        elsewhere += node != properties.numa_node;
    }
    print_message("%zu of %zu pages lie on another node than node %d\n", elsewhere, pages, properties.numa_node);
    assert_true(elsewhere <= pages / 16); /* a node without free memory is passed over */
    CHECK_OK(loch_raw_free(block));
}

static void a_size_that_the_host_does_not_have_is_refused(void **state)
{
    (void)state;
    void *block = TEST_UNTOUCHED;
    for (unsigned shift = 44; shift < 63; shift++) {
        CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_PINNED, (size_t)1 << shift, 0, &block), HOST_MEMORY);
        assert_null(block);
    }
    loch_allocator *pool = make_pool();
    CHECK_FAILS(loch_alloc(pool, (size_t)1 << 45, &block), DEVICE_MEMORY);
    assert_non_null(strstr(loch_error_get()->sentence, "the host has "));
    assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_NONE); /* no host has so much: refused at once */
    loch_allocator_release(pool);
}

/* The driver pins memory on behalf of the process, whatever it may lock itself; where it does not, the failure is
 * clean. */
static void a_limit_of_locked_memory_is_survived(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    const struct rlimit none = {0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    char *block;
    const loch_status status = loch_raw_alloc(device, LOCH_MEMORY_PINNED, 8 * MIB, 0, (void **)&block);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    if (status == LOCH_OK) {
        memset(block, 1, 8 * MIB);
        CHECK_OK(loch_raw_free(block));
    } else {
        print_message("with nothing to lock: %s\n", loch_error_get()->sentence);
        CHECK_STATUS(status, LOCH_E_HOST_MEMORY);
    }
}

static void a_fork_leaves_the_pages_out(void **state)
{
    (void)state;
    char *block;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, 512 * MIB, 0, (void **)&block));
    memset(block, 1, 512 * MIB);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        unsigned char there;
        _exit(mincore(block, 1, &there) == 0 ? 1 : loch_raw_free(block) == LOCH_OK ? 0 : 2);
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 0);
    CHECK_OK(loch_raw_free(block));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_holds_what_was_requested),
        cmocka_unit_test(contents_cross_the_bus),
        cmocka_unit_test(pages_lie_near_the_gpu),
        cmocka_unit_test(a_size_that_the_host_does_not_have_is_refused),
        cmocka_unit_test(a_limit_of_locked_memory_is_survived),
        cmocka_unit_test(a_fork_leaves_the_pages_out),
    };
    return CUDA_RUN(tests);
}
