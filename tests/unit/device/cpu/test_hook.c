/* SPDX-License-Identifier: MIT */
/* A process whose mremap was replaced: pages of the CPU still go where they have to. */
#include "device/virtual.h"
#include "test.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_hooked;
static size_t hook_calls;

/* Stands in for the hook that a communication library puts over mremap once it is initialised, after devices were
 * opened. As that of UCX 1.13 it has no fifth argument: pages go to other addresses. */
void *mremap(void *from, size_t bytes, size_t new_bytes, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(more, void *) : NULL;
    va_end(more);
    if (is_hooked) {
        hook_calls++;
        flags &= ~MREMAP_FIXED;
        to = NULL;
    }
    return (void *)syscall(SYS_mremap, from, bytes, new_bytes, flags, to); // NOLINT(performance-no-int-to-ptr)
}

static int hook_begin(void **state)
{
    loch_device *cpu;
    CHECK_OK(loch_device_open("cpu", &cpu));
    *state = cpu;
    is_hooked = true;
    return 0;
}

static int hook_end(void **state)
{
    is_hooked = false;
    loch_device_release(*state);
    return 0;
}

static void the_stand_in_loses_pages(void **state)
{
    (void)state;
    char *from = mmap(NULL, 2 * TEST_MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(from, MAP_FAILED);
    char *moved = mremap(from, TEST_MIB, TEST_MIB, MREMAP_MAYMOVE | MREMAP_FIXED, from + TEST_MIB);
    assert_ptr_not_equal(moved, from + TEST_MIB);
    assert_int_equal(munmap(moved, TEST_MIB), 0);
    assert_int_equal(munmap(from + TEST_MIB, TEST_MIB), 0);
    hook_calls = 0;
}

static void handles_keep_their_contents(void **state)
{
    loch_handle *handle;
    void *address;
    CHECK_OK(loch_virtual_reserve(*state, 6 * TEST_MIB, 0, &address));
    char *first = address, *second = first + 4 * TEST_MIB;
    CHECK_OK(loch_handle_create(*state, 2 * TEST_MIB, NULL, &handle));
    CHECK_OK(loch_virtual_map(first, handle, NULL, 0));
    test_pattern_write(first, 2 * TEST_MIB, 1);
    CHECK_OK(loch_virtual_unmap(first));
    CHECK_OK(loch_virtual_map(second, handle, NULL, 0));
    assert_int_equal(test_pattern_differs(second, 2 * TEST_MIB, 1), 2 * TEST_MIB);
    if (lochi_virtual_remap(second, first) != LOCH_OK) first = second; /* a kernel that cannot move pages copies them */
    assert_int_equal(test_pattern_differs(first, 2 * TEST_MIB, 1), 2 * TEST_MIB);
    CHECK_OK(loch_virtual_unmap(first));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(address));
    assert_int_equal(hook_calls, 0);
}

static void a_pool_gives_blocks_that_can_be_written(void **state)
{
    loch_allocator *pool;
    void *blocks[8];
    CHECK_OK(loch_pool_create(*state, "hooked", NULL, &pool));
    for (size_t size = 1; size < 8; size++) { /* larger ones out of the pieces of smaller ones */
        for (size_t i = 0; i < 8; i++) {
            CHECK_OK(loch_alloc(pool, size * TEST_MIB + 4096, &blocks[i]));
            test_pattern_write(blocks[i], size * TEST_MIB + 4096, i);
        }
        for (size_t i = 0; i < 8; i++) {
            assert_int_equal(test_pattern_differs(blocks[i], size * TEST_MIB + 4096, i), size * TEST_MIB + 4096);
            CHECK_OK(loch_free(pool, blocks[i]));
        }
    }
    loch_allocator_release(pool);
    assert_int_equal(hook_calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stand_in_loses_pages),
        cmocka_unit_test(handles_keep_their_contents),
        cmocka_unit_test(a_pool_gives_blocks_that_can_be_written),
    };
    return cmocka_run_group_tests(tests, hook_begin, hook_end);
}
