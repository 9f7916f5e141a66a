/* SPDX-License-Identifier: MIT */
/* Files that are not what they should be: garbage, cut short, of another version, of another user, damaged while they
 * are in use. Each gives one clear error, and nothing crashes. Also names, the folder of the user, and looking. */
#include "budget_fixture.h"
#include "layout.h"
#include "process.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const loch_budget_options join = {.size = sizeof join, .total_bytes = 64 * TEST_MIB};

static void put_file(const void *data, size_t bytes, mode_t mode)
{
    const int fd = open(budget_path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), bytes);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* A good file without processes. */
static void good_file(unsigned char *bytes)
{
    budget_head head = {.version = BUDGET_VERSION,
                        .slot_bytes = sizeof(budget_slot),
                        .total = 64 * TEST_MIB,
                        .chunk = TEST_MIB,
                        .state = BUDGET_FILE_LIVE};
    memcpy(head.magic, BUDGET_MAGIC, sizeof head.magic);
    memset(bytes, 0, BUDGET_FILE_BYTES);
    memcpy(bytes, &head, sizeof head);
}

/* The file must be refused with this status and a sentence that contains `text`, and must still be there. */
static void expect_refused(unsigned set, const char *text)
{
    loch_budget *budget = TEST_UNTOUCHED;
    CHECK_FAILS_SET(loch_budget_open(budget_path, &join, &budget), set);
    assert_null(budget);
    if (!strstr(loch_error_get()->sentence, text)) fail_msg("no \"%s\" in: %s", text, loch_error_get()->sentence);
    assert_non_null(strstr(loch_error_get()->sentence, budget_path));
    struct stat found;
    assert_int_equal(lstat(budget_path, &found), 0);
}

static void files_that_are_no_budgets(void **state)
{
    (void)state;
    static unsigned char bytes[BUDGET_FILE_BYTES + 1];
    put_file("", 0, 0600);
    expect_refused(TEST_SET(CORRUPT), "is not a budget");
    put_file("hello", 5, 0600);
    expect_refused(TEST_SET(CORRUPT), "is not a budget");
    memset(bytes, 0xa5, sizeof bytes);
    put_file(bytes, BUDGET_FILE_BYTES, 0600);
    expect_refused(TEST_SET(CORRUPT), "is not a budget");
    good_file(bytes);
    put_file(bytes, BUDGET_FILE_BYTES - 1, 0600);
    expect_refused(TEST_SET(CORRUPT), "is damaged");
    put_file(bytes, 256, 0600);
    expect_refused(TEST_SET(CORRUPT), "is damaged");
    put_file(bytes, 100, 0600);
    expect_refused(TEST_SET(CORRUPT), "is damaged");
    ((budget_head *)bytes)->high = BUDGET_SLOTS + 1;
    put_file(bytes, BUDGET_FILE_BYTES, 0600);
    expect_refused(TEST_SET(CORRUPT), "is damaged");
    good_file(bytes);
    ((budget_head *)bytes)->version = 7;
    put_file(bytes, BUDGET_FILE_BYTES, 0600);
    expect_refused(TEST_SET(UNSUPPORTED), "format 7, not 1");
    put_file(bytes, 999, 0600); /* other versions have other sizes */
    expect_refused(TEST_SET(UNSUPPORTED), "format 7, not 1");
    assert_int_equal(unlink(budget_path), 0);
    assert_int_equal(mkdir(budget_path, 0700), 0);
    expect_refused(TEST_SET(IO) | TEST_SET(CORRUPT), "");
    assert_int_equal(rmdir(budget_path), 0);
    assert_int_equal(mkfifo(budget_path, 0600), 0);
    expect_refused(TEST_SET(CORRUPT), "is not a file");
    assert_int_equal(unlink(budget_path), 0);
    assert_int_equal(symlink("/dev/zero", budget_path), 0);
    expect_refused(TEST_SET(IO), "");
    assert_int_equal(unlink(budget_path), 0);
}

static void files_of_others(void **state)
{
    (void)state;
    static unsigned char bytes[BUDGET_FILE_BYTES];
    good_file(bytes);
    put_file(bytes, sizeof bytes, 0644);
    expect_refused(TEST_SET(INVALID), "is open to other users (mode 644)");
    put_file(bytes, sizeof bytes, 0600);
    if (chown(budget_path, 54321, (gid_t)-1) == 0) /* needs root */
        expect_refused(TEST_SET(INVALID), "belongs to the user 54321");
    assert_int_equal(unlink(budget_path), 0);
}

static void a_good_file_without_processes_is_taken(void **state)
{
    (void)state;
    static unsigned char bytes[BUDGET_FILE_BYTES];
    good_file(bytes);
    budget_head *head = (budget_head *)bytes;
    budget_slot *slots = (budget_slot *)(bytes + sizeof *head);
    const budget_process self = lochi_budget_process_self();
    head->high = 5;
    slots[0] = (budget_slot){.kind = BUDGET_SLOT_MEMBER, .pid = 1, .start = 77, .space = self.space, .granted = 5};
    slots[1] = (budget_slot){
        .kind = BUDGET_SLOT_MEMBER, .pid = self.pid, .start = self.start + 1, .space = self.space, .granted = 9};
    slots[4] = (budget_slot){.kind = BUDGET_SLOT_SEAT, .pid = self.pid, .start = self.start, .space = self.space};
    slots[2] = (budget_slot){.kind = 99, .pid = -5, .start = 1, .space = self.space}; /* no such kind */
    slots[3] = (budget_slot){.kind = BUDGET_SLOT_SEAT, .pid = self.pid, .start = self.start, .space = self.space + 1};
    put_file(bytes, sizeof bytes, 0600);
    loch_budget *budget = budget_open(64 * TEST_MIB, 0);
    const loch_budget_info info = budget_info(budget);
    assert_int_equal(info.members, 0); /* pids of others now, a program before this one, another namespace */
    assert_int_equal(info.processes, 1);
    loch_budget_close(budget);
    assert_false(budget_is_there());
    head->state = BUDGET_FILE_REMOVED; /* its last process died between two calls */
    put_file(bytes, sizeof bytes, 0600);
    budget = budget_open(32 * TEST_MIB, 0);
    assert_int_equal(budget_info(budget).total_bytes, 32 * TEST_MIB);
    loch_budget_close(budget);
    assert_false(budget_is_there());
}

static void another_total_is_refused(void **state)
{
    (void)state;
    loch_budget *one = budget_open(64 * TEST_MIB, 0), *two;
    const loch_budget_options other = {.size = sizeof other, .total_bytes = 32 * TEST_MIB};
    CHECK_FAILS(loch_budget_open(budget_path, &other, &two), EXISTS);
    assert_non_null(strstr(loch_error_get()->sentence, "has 64 MiB, not 32 MiB"));
    CHECK_OK(loch_budget_open(budget_path, NULL, &two)); /* none is given */
    loch_budget_close(two);
    loch_budget_close(one);
    CHECK_FAILS(loch_budget_open(budget_path, NULL, &two), NOT_FOUND);
    assert_null(two);
    CHECK_FAILS(loch_budget_open("/no/such/folder/x", &join, &two), NOT_FOUND);
}

static void looking_changes_nothing(void **state)
{
    (void)state;
    const loch_budget_options look = {.size = sizeof look, .total_bytes = TEST_MIB, .access = LOCH_BUDGET_LOOK};
    const loch_budget_options look_any = {.size = sizeof look_any, .access = LOCH_BUDGET_LOOK};
    loch_budget *eye;
    loch_budget_member *member;
    CHECK_FAILS(loch_budget_open(budget_path, &look, &eye), NOT_FOUND);
    assert_false(budget_is_there());
    loch_budget *budget = budget_open(64 * TEST_MIB, 0);
    party p = party_begin(budget_device, budget, "seen", 8 * TEST_MIB, 0);
    CHECK_OK(loch_budget_open(budget_path, &look_any, &eye));
    assert_string_equal(loch_budget_get_path(eye), budget_path);
    assert_int_equal(budget_info(eye).processes, 1);
    assert_int_equal(budget_info(eye).members, 1);
    assert_int_equal(budget_info(eye).promised_bytes, 8 * TEST_MIB);
    CHECK_FAILS(loch_budget_member_create(eye, p.pool, NULL, NULL, &member), UNSUPPORTED);
    party_end(&p);
    loch_budget_close(budget);
    assert_false(budget_is_there()); /* a process that looks keeps nothing alive */
    (void)budget_info(eye);
    loch_budget_close(eye);
}

/* --- damage while the file is in use --- */

static int other_opening(void)
{
    const int fd = open(budget_path, O_RDWR);
    assert_true(fd >= 0);
    return fd;
}

/* Uses the budget in every way. Calls may fail; statuses must be from the list, and memory must come back. */
static void use(loch_budget *budget, const party *p)
{
    loch_budget_info info = {.size = sizeof info};
    loch_budget_member_info member = {.size = sizeof member};
    loch_budget_member *second;
    void *block;
    loch_status status = loch_alloc(p->pool, 40 * TEST_MIB, &block);
    assert_true(status == LOCH_OK || status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED);
    if (status == LOCH_OK) CHECK_OK(loch_free(p->pool, block));
    status = loch_budget_get_info(budget, &info);
    assert_true(status == LOCH_OK || status == LOCH_E_CORRUPT || status == LOCH_E_UNSUPPORTED);
    status = loch_budget_member_get_info(p->member, &member);
    assert_true(status == LOCH_OK || status == LOCH_E_CORRUPT || status == LOCH_E_UNSUPPORTED);
    LOCH_IGNORE(loch_budget_member_prepare(p->member, TEST_MIB));
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(budget_device, "second", NULL, &pool));
    if (loch_budget_member_create(budget, pool, NULL, NULL, &second) == LOCH_OK) loch_budget_member_destroy(second);
    loch_allocator_release(pool);
}

static void a_file_that_is_cut_short_gives_errors(void **state)
{
    (void)state;
    static const off_t lengths[] = {BUDGET_FILE_BYTES - 1, 300, 256, 100, 0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        loch_budget *budget = budget_open(64 * TEST_MIB, 5);
        party p = party_begin(budget_device, budget, "cut", 0, 0);
        const int fd = other_opening();
        assert_int_equal(ftruncate(fd, lengths[i]), 0);
        use(budget, &p);
        close(fd);
        party_end(&p);
        loch_budget_close(budget);
        (void)unlink(budget_path);
    }
}

static void a_file_that_is_overwritten_gives_errors(void **state)
{
    (void)state;
    test_random random = {test_seed(53)};
    static unsigned char noise[BUDGET_FILE_BYTES];
    for (size_t round = 0; round < 60; round++) {
        loch_budget *budget = budget_open(64 * TEST_MIB, 1);
        party p = party_begin(budget_device, budget, "struck", 0, 0);
        const int fd = other_opening();
        const size_t place = round % 3 ? test_random_below(&random, 1024) : 256 + test_random_below(&random, 512);
        const size_t bytes = 1 + test_random_below(&random, round % 2 ? 16 : 2048);
        for (size_t i = 0; i < bytes; i++)
            noise[i] = (unsigned char)test_random_next(&random);
        assert_int_equal(pwrite(fd, noise, bytes, (off_t)place), bytes);
        use(budget, &p);
        close(fd);
        party_end(&p);
        loch_budget_close(budget);
        (void)unlink(budget_path);
    }
}

static void a_lock_that_is_not_given_back_is_named(void **state)
{
    (void)state;
    int told[2];
    char letter;
    loch_budget *budget = budget_open(64 * TEST_MIB, 0), *second;
    assert_int_equal(pipe(told), 0);
    const pid_t child = fork();
    if (!child) {
        const int fd = open(budget_path, O_RDWR);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
        if (fd < 0 || fcntl(fd, F_OFD_SETLK, &lock) != 0 || write(told[1], "x", 1) != 1) _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(told[0], &letter, 1), 1);
    CHECK_FAILS(loch_budget_open(budget_path, NULL, &second), BUSY);
    assert_non_null(strstr(loch_error_get()->sentence, "is locked by another process"));
    const loch_budget_options look = {.size = sizeof look, .access = LOCH_BUDGET_LOOK};
    CHECK_FAILS(loch_budget_open(budget_path, &look, &second), BUSY);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(budget_info(budget).processes, 1); /* the system has dropped the lock */
    loch_budget_close(budget);
    close(told[0]);
    close(told[1]);
}

/* --- the folder of the user --- */

static loch_status find_path(const char *path, void *user)
{
    const char **wanted = user;
    if (*wanted && !strcmp(path, *wanted)) *wanted = NULL;
    return LOCH_OK;
}

/* Writes the path of a budget of this user: where the first folder has it, or in the second one. */
static void find_file(const char *name, char *out, size_t bytes)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    if (run)
        snprintf(out, bytes, "%s/loch/%s.budget", run, name);
    else
        snprintf(out, bytes, "/run/user/%ld/loch/%s.budget", (long)geteuid(), name);
    if (access(out, F_OK) != 0) snprintf(out, bytes, "/dev/shm/loch-%ld/%s.budget", (long)geteuid(), name);
}

static void names_lie_in_the_folder_of_the_user(void **state)
{
    (void)state;
    char name[48], path[96];
    loch_budget *budget;
    snprintf(name, sizeof name, "test-%ld", (long)getpid());
    CHECK_OK(loch_budget_open(name, &join, &budget));
    snprintf(path, sizeof path, "%s", loch_budget_get_path(budget));
    assert_non_null(strstr(path, name));
    assert_string_equal(budget_info(budget).name, name);
    struct stat found;
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0600);
    const char *wanted = path;
    CHECK_OK(loch_budget_walk(find_path, &wanted));
    assert_null(wanted);
    loch_budget_close(budget);
    assert_int_equal(access(path, F_OK), -1);
}

/* Makes a folder for XDG_RUNTIME_DIR, and sets the variable. */
static void runtime_begin(char *folder, size_t bytes, mode_t mode)
{
    snprintf(folder, bytes, "/tmp/loch-runtime-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chmod(folder, mode), 0);
    assert_int_equal(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
}

static void runtime_end(const char *folder)
{
    char inside[96];
    snprintf(inside, sizeof inside, "%s/loch", folder);
    (void)rmdir(inside);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
}

/* A budget is made in the folder of the session, if only this user can enter that. */
static void the_folder_of_the_session_comes_first(void **state)
{
    (void)state;
    char name[48], folder[64];
    loch_budget *budget, *again;
    snprintf(name, sizeof name, "run-%ld", (long)getpid());
    runtime_begin(folder, sizeof folder, 0700);
    CHECK_OK(loch_budget_open(name, &join, &budget));
    assert_int_equal(strncmp(loch_budget_get_path(budget), folder, strlen(folder)), 0);
    CHECK_OK(loch_budget_open(name, NULL, &again));
    assert_string_equal(loch_budget_get_path(budget), loch_budget_get_path(again));
    assert_int_equal(budget_info(again).processes, 2);
    loch_budget_close(again);
    char path[512];
    snprintf(path, sizeof path, "%s", loch_budget_get_path(budget));
    const char *wanted = path;
    CHECK_OK(loch_budget_walk(find_path, &wanted));
    assert_null(wanted);
    loch_budget_close(budget);
    assert_int_equal(access(path, F_OK), -1);
    CHECK_FAILS(loch_budget_open(name, NULL, &again), NOT_FOUND);
    runtime_end(folder);
    runtime_begin(folder, sizeof folder, 0755); /* others can enter it */
    CHECK_OK(loch_budget_open(name, &join, &budget));
    assert_int_not_equal(strncmp(loch_budget_get_path(budget), folder, strlen(folder)), 0);
    loch_budget_close(budget);
    runtime_end(folder);
}

/* A process that was started without the variable has made the budget: one with it finds the same. */
static void both_folders_are_looked_in(void **state)
{
    (void)state;
    char name[48], folder[64];
    loch_budget *before, *budget;
    snprintf(name, sizeof name, "both-%ld", (long)getpid());
    assert_int_equal(setenv("XDG_RUNTIME_DIR", "/no/such/folder", 1), 0);
    CHECK_OK(loch_budget_open(name, &join, &before));
    runtime_begin(folder, sizeof folder, 0700);
    CHECK_OK(loch_budget_open(name, &join, &budget));
    assert_string_equal(loch_budget_get_path(before), loch_budget_get_path(budget));
    assert_int_equal(budget_info(budget).processes, 2);
    loch_budget_close(budget);
    loch_budget_close(before);
    runtime_end(folder);
}

/* Root has made the folder of another user in /dev/shm. It is refused by name, with its owner and what helps; in a
 * session with a folder of its own it does not matter. */
static void a_folder_of_another_user_does_not_block(void **state)
{
    (void)state;
    char name[48], folder[64], shared[64];
    loch_budget *budget;
    const uid_t other = 60000 + (uid_t)(getpid() % 5000); /* no other test is this user */
    if (geteuid() != 0) skip();                           /* only root can be another user */
    snprintf(name, sizeof name, "foreign-%ld", (long)getpid());
    snprintf(shared, sizeof shared, "/dev/shm/loch-%ld", (long)other);
    assert_int_equal(mkdir(shared, 0700), 0);
    const pid_t child = fork();
    if (!child) {
        if (setgid(other) != 0 || setuid(other) != 0) _exit(1);
        assert_int_equal(setenv("XDG_RUNTIME_DIR", "/no/such/folder", 1), 0);
        CHECK_FAILS(loch_budget_open(name, &join, &budget), INVALID);
        assert_non_null(strstr(loch_error_get()->sentence, shared));
        assert_non_null(strstr(loch_error_get()->sentence, "it belongs to user 0"));
        assert_non_null(strstr(loch_error_get()->sentence, "set XDG_RUNTIME_DIR"));
        CHECK_FAILS(loch_budget_open(name, NULL, &budget), INVALID);
        runtime_begin(folder, sizeof folder, 0700);
        CHECK_OK(loch_budget_open(name, &join, &budget));
        assert_int_equal(strncmp(loch_budget_get_path(budget), folder, strlen(folder)), 0);
        loch_budget_close(budget);
        runtime_end(folder);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(rmdir(shared), 0);
    assert_int_equal(status, 0);
}

/* Files of processes that have all died go when a process opens a budget of another name, or lists them. */
static void files_of_the_dead_are_swept(void **state)
{
    (void)state;
    char name[48], other[48], path[96];
    for (int is_walked = 0; is_walked < 2; is_walked++) {
        snprintf(name, sizeof name, "dead-%ld", (long)getpid());
        snprintf(other, sizeof other, "live-%ld", (long)getpid());
        const pid_t child = fork();
        if (!child) {
            loch_budget *left;
            _exit(loch_budget_open(name, &join, &left) != LOCH_OK); /* without closing it */
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        find_file(name, path, sizeof path);
        if (access(path, F_OK) != 0) continue; /* a test that runs at the same time has swept it */
        const char *wanted = path;
        loch_budget *live = NULL;
        if (is_walked)
            CHECK_OK(loch_budget_walk(find_path, &wanted));
        else
            CHECK_OK(loch_budget_open(other, &join, &live));
        assert_non_null(wanted); /* it was not shown */
        assert_int_equal(access(path, F_OK), -1);
        loch_budget_close(live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_are_no_budgets),
        cmocka_unit_test(files_of_others),
        cmocka_unit_test(a_good_file_without_processes_is_taken),
        cmocka_unit_test(another_total_is_refused),
        cmocka_unit_test(looking_changes_nothing),
        cmocka_unit_test(a_file_that_is_cut_short_gives_errors),
        cmocka_unit_test(a_file_that_is_overwritten_gives_errors),
        cmocka_unit_test(a_lock_that_is_not_given_back_is_named),
        cmocka_unit_test(names_lie_in_the_folder_of_the_user),
        cmocka_unit_test(the_folder_of_the_session_comes_first),
        cmocka_unit_test(both_folders_are_looked_in),
        cmocka_unit_test(a_folder_of_another_user_does_not_block),
        cmocka_unit_test(files_of_the_dead_are_swept),
    };
    return cmocka_run_group_tests(tests, budget_begin, budget_end);
}
