/* SPDX-License-Identifier: MIT */
/* What the CPU driver reads of the system, from machines that the test lays out in a folder of its own. */
#include "device/cpu/system.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GIB ((size_t)1 << 30)

static char root[] = "/tmp/loch-cpu-XXXXXX";

static int make_root(void **state)
{
    (void)state;
    memcpy(root + strlen(root) - 6, "XXXXXX", 6);
    return mkdtemp(root) ? 0 : -1;
}

/* Removes what put() made: every test writes few files, by name. */
static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* Writes a file below the root, with its folders. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void put_machine(void)
{
    put("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree:        1048576 kB\nMemAvailable:   50331648 kB\n");
}

static void check_memory(int node, size_t total, size_t available)
{
    loch_memory_info info = {.size = sizeof info};
    lochi_cpu_read_memory(root, node, &info);
    assert_int_equal(info.total_bytes, total);
    assert_int_equal(info.free_bytes, available);
    assert_int_equal(lochi_cpu_read_total(root, node), total);
}

static void without_groups_memory_is_that_of_the_machine(void **state)
{
    (void)state;
    put_machine();
    check_memory(-1, 64 * GIB, 48 * GIB);
}

static void nothing_readable_is_zero(void **state)
{
    (void)state;
    check_memory(-1, 0, 0);
    assert_int_equal(lochi_cpu_mapping_limit(root), 0);
    assert_int_equal(lochi_cpu_last_node(root), -1);
    assert_int_equal(lochi_cpu_read_cache(root), 0);
    char model[16];
    lochi_cpu_read_model(root, model, sizeof model);
    assert_string_equal(model, "CPU");
}

static void numbers_that_no_machine_has_are_unknown(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal: 18446744073709551615 kB\nMemAvailable: 36028797018963968 kB\n");
    check_memory(-1, 0, 0);
    put("/sys/devices/system/node/online", "0-4294967295\n");
    assert_int_equal(lochi_cpu_last_node(root), -1);
    put("/sys/devices/system/node/online", "0-2147483648\n");
    assert_int_equal(lochi_cpu_last_node(root), -1);
}

static void a_group_of_version_2_limits(void **state)
{
    (void)state;
    put_machine();
    put("/proc/self/cgroup", "0::/pod/app\n");
    put("/sys/fs/cgroup/pod/app/memory.max", "8589934592\n");
    put("/sys/fs/cgroup/pod/app/memory.current", "3221225472\n");
    check_memory(-1, 8 * GIB, 5 * GIB);
}

static void file_pages_do_not_count_as_used(void **state)
{
    (void)state;
    put_machine();
    put("/proc/self/cgroup", "0::/app\n");
    put("/sys/fs/cgroup/app/memory.max", "8589934592\n");
    put("/sys/fs/cgroup/app/memory.current", "3221225472\n");
    put("/sys/fs/cgroup/app/memory.stat", "anon 1073741824\ninactive_file 1073741824\nactive_file 5\n");
    check_memory(-1, 8 * GIB, 6 * GIB);
}

static void a_parent_limits_too(void **state)
{
    (void)state;
    put_machine();
    put("/proc/self/cgroup", "0::/pod/app\n");
    put("/sys/fs/cgroup/pod/app/memory.max", "max\n");
    put("/sys/fs/cgroup/pod/memory.max", "4294967296\n");
    put("/sys/fs/cgroup/pod/memory.current", "1073741824\n");
    check_memory(-1, 4 * GIB, 3 * GIB);
}

static void used_above_the_limit_leaves_nothing(void **state)
{
    (void)state;
    put_machine();
    put("/proc/self/cgroup", "0::/app\n");
    put("/sys/fs/cgroup/app/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/app/memory.current", "2147483648\n");
    check_memory(-1, GIB, 0);
}

/* In a container the path is not visible: the group is mounted as the root. */
static void a_group_mounted_as_root_limits(void **state)
{
    (void)state;
    put_machine();
    put("/proc/self/cgroup", "0::/not/visible/here\n");
    put("/sys/fs/cgroup/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/memory.current", "0\n");
    check_memory(-1, 2 * GIB, 2 * GIB);
}

static void a_group_of_version_1_limits(void **state)
{
    (void)state;
    put_machine();
    put("/proc/self/cgroup", "9:cpu:/x\n4:memory:/box\n");
    put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "17179869184\n");
    put("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "2147483648\n");
    put("/sys/fs/cgroup/memory/box/memory.stat", "inactive_file 1\ntotal_inactive_file 1073741824\n");
    check_memory(-1, 16 * GIB, 15 * GIB);
}

/* Version 1 says "no limit" by a huge number. */
static void a_limit_above_the_machine_is_none(void **state)
{
    (void)state;
    put_machine();
    put("/proc/self/cgroup", "4:memory:/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
    check_memory(-1, 64 * GIB, 48 * GIB);
}

static void nodes_have_memory_of_their_own(void **state)
{
    (void)state;
    put_machine();
    put("/sys/devices/system/node/online", "0-1,3\n");
    put("/sys/devices/system/node/node3/meminfo",
        "Node 3 MemTotal:       16777216 kB\nNode 3 MemFree:        8388608 kB\nNode 3 MemUsed:  1 kB\n");
    check_memory(3, 16 * GIB, 8 * GIB);
    assert_int_equal(lochi_cpu_last_node(root), 3);
    assert_true(lochi_cpu_has_node(root, 3));
    assert_false(lochi_cpu_has_node(root, 2));
}

static void the_processor_is_named_and_its_caches_measured(void **state)
{
    (void)state;
    put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: A Fast One @ 3 GHz\nmodel name\t: Another\n");
    put("/sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n");
    put("/sys/devices/system/cpu/cpu0/cache/index1/size", "16384K\n");
    put("/proc/sys/vm/max_map_count", "65530\n");
    char model[64], cut[7];
    lochi_cpu_read_model(root, model, sizeof model);
    assert_string_equal(model, "A Fast One @ 3 GHz");
    lochi_cpu_read_model(root, cut, sizeof cut);
    assert_string_equal(cut, "A Fast");
    assert_int_equal(lochi_cpu_read_cache(root), 16u << 20);
    assert_int_equal(lochi_cpu_mapping_limit(root), 65530);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(without_groups_memory_is_that_of_the_machine),
        CASE(nothing_readable_is_zero),
        CASE(numbers_that_no_machine_has_are_unknown),
        CASE(a_group_of_version_2_limits),
        CASE(file_pages_do_not_count_as_used),
        CASE(a_parent_limits_too),
        CASE(used_above_the_limit_leaves_nothing),
        CASE(a_group_mounted_as_root_limits),
        CASE(a_group_of_version_1_limits),
        CASE(a_limit_above_the_machine_is_none),
        CASE(nodes_have_memory_of_their_own),
        CASE(the_processor_is_named_and_its_caches_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
