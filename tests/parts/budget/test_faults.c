/* SPDX-License-Identifier: MIT */
/* Every system call and every allocation of the library fails in turn. Each call of the public interface then succeeds,
 * or fails with a status and a sentence; no descriptor and no memory is lost, and the next attempt succeeds. The calls
 * are counted by wrappers that the linker puts around them. */
#include "budget_fixture.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PLACES_MAX 5000

/* --- faults --- */

static _Thread_local bool is_counted; /* calls of this thread */
static _Atomic bool is_any_thread;    /* calls of all threads, at random */
static _Atomic long fault_left = -1;  /* calls before the one that fails; -1: none fails */
static _Atomic uint64_t fault_random;
static _Atomic size_t faults;
static const char *fault_call;

static bool fails(const char *call)
{
    if (atomic_load(&is_any_thread)) {
        const uint64_t number = atomic_fetch_add(&fault_random, 0x9e3779b97f4a7c15u);
        if ((number ^ number >> 29) % 61) return false;
        atomic_fetch_add(&faults, 1);
        return true;
    }
    if (!is_counted || atomic_load(&fault_left) < 0 || atomic_fetch_sub(&fault_left, 1) != 0) return false;
    fault_call = call;
    atomic_fetch_add(&faults, 1);
    return true;
}

#define WRAP(type, name, parameters, arguments, failure, error)                                                        \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        if (!fails(#name)) return __real_##name arguments;                                                             \
        errno = (error);                                                                                               \
        return failure;                                                                                                \
    }

WRAP(void *, malloc, (size_t bytes), (bytes), NULL, ENOMEM)
WRAP(void *, calloc, (size_t count, size_t bytes), (count, bytes), NULL, ENOMEM)
WRAP(int, open, (const char *path, int flags, mode_t mode), (path, flags, mode), -1, EMFILE)
WRAP(int, fstat, (int fd, struct stat *out), (fd, out), -1, EIO)
WRAP(int, lstat, (const char *path, struct stat *out), (path, out), -1, EIO)
WRAP(int, ftruncate, (int fd, off_t bytes), (fd, bytes), -1, ENOSPC)
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode), -1, EPERM)
WRAP(int, fcntl, (int fd, int command, void *argument), (fd, command, argument), -1, ENOLCK)
WRAP(int, linkat, (int a, const char *b, int c, const char *d, int e), (a, b, c, d, e), -1, ENOSPC)
WRAP(int, unlink, (const char *path), (path), -1, EIO)
WRAP(ssize_t, read, (int fd, void *data, size_t bytes), (fd, data, bytes), -1, EIO)
WRAP(ssize_t, pread, (int fd, void *data, size_t bytes, off_t place), (fd, data, bytes, place), -1, EIO)
WRAP(ssize_t, pwrite, (int fd, const void *data, size_t bytes, off_t place), (fd, data, bytes, place), -1, ENOSPC)
WRAP(void *, mmap, (void *a, size_t b, int c, int d, int e, off_t f), (a, b, c, d, e, f), MAP_FAILED, ENOMEM)
WRAP(int, pthread_create, (pthread_t * a, const pthread_attr_t *b, void *(*c)(void *), void *d), (a, b, c, d), EAGAIN,
     EAGAIN)

/* --- a program --- */

static size_t count_files(void)
{
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static const char *wrong; /* a promise that was broken */

/* Notes the answer of a call. Returns whether it succeeded. */
static bool note(loch_status status, bool may_fail)
{
    if (status == LOCH_OK) return true;
    if (!may_fail) wrong = loch_status_name(status);
    if (loch_error_get()->status != status || !loch_error_get()->sentence[0]) wrong = "no record of a failure";
    loch_error_clear();
    return false;
}

static loch_status visit(const loch_budget_member_info *info, void *user)
{
    (void)user;
    return info->granted_bytes <= info->limit_bytes ? LOCH_OK : LOCH_E_CORRUPT;
}

/* Uses everything. With `may_fail`, calls may fail. */
static void program(bool may_fail)
{
    const loch_budget_options options = {.size = sizeof options, .total_bytes = 64 * TEST_MIB, .wait_ns = 1000000};
    const loch_budget_member_options mine = {.size = sizeof mine, .minimum_bytes = 4 * TEST_MIB};
    loch_budget *budget = NULL;
    loch_budget_member *member = NULL;
    loch_budget_info info = {.size = sizeof info};
    loch_budget_member_info member_info = {.size = sizeof member_info};
    loch_allocator *pool = NULL;
    void *block = NULL;
    if (note(loch_pool_create(budget_device, "pool", NULL, &pool), may_fail) &&
        note(loch_budget_open(budget_path, &options, &budget), may_fail) &&
        note(loch_budget_member_create(budget, pool, NULL, &mine, &member), may_fail)) {
        (void)note(loch_alloc(pool, 40 * TEST_MIB, &block), may_fail);
        void *none = NULL;
        if (loch_alloc(pool, 80 * TEST_MIB, &none) == LOCH_OK) wrong = "more than the budget was served";
        (void)note(loch_budget_member_prepare(member, 8 * TEST_MIB), may_fail);
        (void)note(loch_budget_get_info(budget, &info), may_fail);
        (void)note(loch_budget_member_get_info(member, &member_info), may_fail);
        (void)note(loch_budget_walk_members(budget, visit, NULL), may_fail);
        if (loch_free(pool, block) != LOCH_OK) wrong = "a block was not taken back";
    }
    loch_budget_member_destroy(member);
    loch_budget_close(budget);
    loch_allocator_release(pool);
}

static void every_call_fails_in_turn(void **state)
{
    (void)state;
    program(false);
    const size_t files = count_files();
    long place = 0;
    for (;; place++) {
        assert_true(place < PLACES_MAX);
        fault_call = NULL;
        wrong = NULL;
        atomic_store(&fault_left, place);
        is_counted = true;
        program(true);
        is_counted = false;
        const bool is_met = atomic_exchange(&fault_left, -1) < 0;
        if (wrong) fail_msg("place %ld (%s): %s", place, fault_call ? fault_call : "none", wrong);
        assert_int_equal(count_files(), files);
        (void)unlink(budget_path); /* a slot that could not be freed is this process's until it ends */
        program(false);
        if (wrong) fail_msg("after place %ld: %s", place, wrong);
        assert_false(budget_is_there());
        if (!is_met) break;
    }
    print_message("%ld places\n", place);
    assert_true(place > 80);
}

static void calls_of_all_threads_fail_at_random(void **state)
{
    (void)state;
    atomic_store(&fault_random, test_seed(61));
    const size_t files = count_files(), before = atomic_load(&faults);
    for (size_t round = 0; round < 400; round++) {
        wrong = NULL;
        atomic_store(&is_any_thread, true);
        program(true);
        atomic_store(&is_any_thread, false);
        if (wrong) fail_msg("round %zu: %s", round, wrong);
        assert_int_equal(count_files(), files);
        (void)unlink(budget_path);
    }
    assert_true(atomic_load(&faults) - before > 200);
    program(false);
    if (wrong) fail_msg("%s", wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_in_turn),
        cmocka_unit_test(calls_of_all_threads_fail_at_random),
    };
    return cmocka_run_group_tests(tests, budget_begin, budget_end);
}
