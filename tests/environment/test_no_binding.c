/* SPDX-License-Identifier: MIT */
/* A process that may not bind memory to NUMA nodes, as in containers: devices of nodes are refused when they are opened
 * and are not listed, and the CPU as a whole works. Skipped where a process cannot forbid itself system calls. */
#include "test.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void nodes_are_refused(void **state)
{
    (void)state;
    loch_device *device = TEST_UNTOUCHED;
    CHECK_FAILS_SET(loch_device_open("cpu:numa0", &device), TEST_SET(UNSUPPORTED) | TEST_SET(NOT_FOUND));
    assert_null(device);
    if (loch_error_get()->status == LOCH_E_UNSUPPORTED) {
        assert_non_null(strstr(loch_error_get()->sentence, "node 0"));
        assert_int_equal(loch_error_get()->driver_code, EPERM);
    }
}

static loch_status see_no_node(const char *name, void *user)
{
    (void)user;
    assert_true(strncmp(name, "cpu:", 4) != 0);
    return LOCH_OK;
}

static void nodes_are_not_listed(void **state)
{
    (void)state;
    CHECK_OK(loch_device_walk(see_no_node, NULL));
}

static void the_rest_works(void **state)
{
    (void)state;
    loch_device *device;
    loch_allocator *pool;
    void *block;
    CHECK_OK(loch_device_open("cpu", &device));
    assert_false(loch_device_can(device, LOCH_CAN_NUMA));
    CHECK_OK(loch_pool_create(device, NULL, NULL, &pool));
    CHECK_OK(loch_alloc(pool, 10 * TEST_MIB, &block));
    memset(block, 1, 10 * TEST_MIB);
    CHECK_OK(loch_free(pool, block));
    loch_allocator_release(pool);
    loch_device_release(device);
}

/* Makes mbind fail for the rest of the process. */
static bool forbid_binding(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int main(void)
{
    if (!forbid_binding()) {
        printf("skipped: this process cannot forbid itself system calls: %s\n", strerror(errno));
        return TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_refused),
        cmocka_unit_test(nodes_are_not_listed),
        cmocka_unit_test(the_rest_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
