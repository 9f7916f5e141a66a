/* SPDX-License-Identifier: MIT */
/* The socket of LOCH_TOP: which folder, which peers, what forks and exits do to it. Every case is a process of its own:
 * the option is read once. */
#include "base/sanitize.h"
#include "json_check.h"
#include "test.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHER_USER 65534

static char folder[32], own[48]; /* of XDG_RUNTIME_DIR, and of the sockets in it */
static char lines[2048];         /* the log */

static void note_line(loch_log_level level, const char *line, void *user)
{
    (void)level;
    (void)user;
    strncat(lines, line, sizeof lines - strlen(lines) - 1);
}

static void need(bool is_so, const char *what, int line)
{
    if (is_so) return;
    fprintf(stderr, "line %d: not so: %s (%s)\n", line, what, lines);
    _exit(1);
}

#define NEED(condition) need((condition), #condition, __LINE__)

/* Makes an allocator, which starts the server if the option says so. */
static loch_allocator *make(loch_device **device)
{
    loch_allocator *pool;
    void *block;
    NEED(loch_device_open("sim:16MiB", device) == LOCH_OK);
    NEED(loch_pool_create(*device, "looked at", NULL, &pool) == LOCH_OK);
    NEED(loch_alloc(pool, 1000, &block) == LOCH_OK);
    return pool;
}

static void socket_path(char *out, pid_t pid)
{
    snprintf(out, 108, "%s/%ld.sock", own, (long)pid);
}

static bool is_there(pid_t pid)
{
    char path[108];
    struct stat about;
    socket_path(path, pid);
    return lstat(path, &about) == 0 && S_ISSOCK(about.st_mode);
}

/* Connects and reads the answer, up to `room` bytes. Returns its length; -1 if there is no connection. */
static ssize_t ask(pid_t pid, char *text, size_t room)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socket_path(address.sun_path, pid);
    const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(file, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(file);
        return -1;
    }
    size_t used = 0;
    for (ssize_t count; used < room - 1 && (count = read(file, text + used, room - 1 - used)) > 0;)
        used += (size_t)count;
    text[used] = '\0';
    close(file);
    return (ssize_t)used;
}

/* Runs a case in a process of its own, with LOCH_TOP=on and a folder of its own. */
static void run(void (*body)(void))
{
    strcpy(folder, "/tmp/loch-top-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(own, sizeof own, "%s/loch", folder);
    const pid_t process = fork();
    assert_true(process >= 0);
    if (!process) {
        alarm(100);
        setenv("XDG_RUNTIME_DIR", folder, 1);
        setenv("LOCH_TOP", "on", 1);
        loch_log_set_hook(note_line, NULL, LOCH_LOG_WARNING);
        body();
        exit(0); /* with the handlers of the library */
    }
    int status;
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_false(is_there(process)); /* removed at exit */
    (void)rmdir(own);
    (void)unlink(own);
    assert_int_equal(rmdir(folder), 0);
}

/* --- cases --- */

static void body_answers(void)
{
    static char text[65536];
    loch_device *device;
    make(&device);
    NEED(is_there(getpid()));
    for (int i = 0; i < 3; i++) {
        NEED(ask(getpid(), text, sizeof text) > 0);
        NEED(json_is_valid(text));
        NEED(strstr(text, "\"name\": \"looked at\""));
        NEED(!strstr(text, "\"blocks\": ["));
    }
}

static void a_process_answers_until_it_ends(void **state)
{
    (void)state;
    run(body_answers);
}

static void body_folder_of_others(void)
{
    loch_device *device;
    NEED(mkdir(own, 0755) == 0 && chmod(own, 0755) == 0);
    make(&device);
    NEED(!is_there(getpid()));
    NEED(strstr(lines, "is not a folder of this user alone"));
}

static void body_link(void)
{
    loch_device *device;
    NEED(symlink("/tmp", own) == 0);
    make(&device);
    NEED(!is_there(getpid()));
    NEED(strstr(lines, "is not a folder of this user alone"));
}

static void a_folder_that_others_can_enter_is_not_used(void **state)
{
    (void)state;
    run(body_folder_of_others);
    run(body_link);
}

static void body_forks(void)
{
    static char text[65536];
    loch_device *device;
    loch_allocator *pool = make(&device);
    const pid_t parent = getpid(), child = fork();
    NEED(child >= 0);
    if (!child) {
        alarm(100);
        NEED(!is_there(getpid()));
        loch_device *second;
        make(&second); /* a device that was opened before the fork is of no use */
        NEED(is_there(getpid()));
        NEED(ask(getpid(), text, sizeof text) > 0);
        NEED(json_is_valid(text));
        exit(0);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child);
    NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    NEED(!is_there(child));
    NEED(is_there(parent)); /* the child's end did not remove it */
    NEED(ask(parent, text, sizeof text) > 0);
    (void)pool;
}

static void a_child_has_a_socket_of_its_own(void **state)
{
    (void)state;
    if (LOCHI_TSAN) { /* it does not let the child of a process with threads start one */
        print_message("ThreadSanitizer: a child cannot start a thread\n");
        skip();
    }
    run(body_forks);
}

static void body_other_user(void)
{
    loch_device *device;
    char path[108];
    make(&device);
    socket_path(path, getpid());
    const pid_t child = fork();
    NEED(child >= 0);
    if (!child) {
        char text[64];
        if (setgid(OTHER_USER) != 0 || setuid(OTHER_USER) != 0) _exit(3);
        _exit(ask(getppid(), text, sizeof text) == -1 ? 0 : 4);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* The user of the peer is checked even if the folder lets it in. */
    NEED(chmod(folder, 0755) == 0 && chmod(own, 0755) == 0 && chmod(path, 0666) == 0);
    const pid_t second = fork();
    NEED(second >= 0);
    if (!second) {
        char text[64];
        if (setgid(OTHER_USER) != 0 || setuid(OTHER_USER) != 0) _exit(3);
        _exit(ask(getppid(), text, sizeof text) == 0 ? 0 : 4);
    }
    NEED(waitpid(second, &status, 0) == second && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void another_user_gets_no_answer(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("not root: another user cannot be tried\n");
        skip();
    }
    run(body_other_user);
}

static void body_wrong_value(void)
{
    loch_device *device;
    loch_allocator *pool;
    setenv("LOCH_TOP", "maybe", 1);
    NEED(loch_device_open("sim:16MiB", &device) == LOCH_OK);
    NEED(loch_pool_create(device, "pool", NULL, &pool) == LOCH_E_INVALID);
    NEED(strstr(loch_error_get()->sentence, "LOCH_TOP is \"maybe\""));
    loch_device_release(device);
}

static void a_wrong_value_fails_the_first_allocator(void **state)
{
    (void)state;
    run(body_wrong_value);
}

/* A peer that connects and does not read holds no lock of the process. */
static void body_slow_peer(void)
{
    static char text[65536];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    loch_device *device;
    loch_allocator *pool = make(&device);
    void *block;
    socket_path(address.sun_path, getpid());
    const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    NEED(connect(file, (const struct sockaddr *)&address, sizeof address) == 0);
    for (int i = 0; i < 1000; i++) {
        NEED(loch_alloc(pool, 5000, &block) == LOCH_OK);
        NEED(loch_free(pool, block) == LOCH_OK);
    }
    NEED(ask(getpid(), text, sizeof text) > 0);
    close(file);
}

static void a_slow_peer_stops_nothing(void **state)
{
    (void)state;
    run(body_slow_peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_answers_until_it_ends),
        cmocka_unit_test(a_folder_that_others_can_enter_is_not_used),
        cmocka_unit_test(a_child_has_a_socket_of_its_own),
        cmocka_unit_test(another_user_gets_no_answer),
        cmocka_unit_test(a_wrong_value_fails_the_first_allocator),
        cmocka_unit_test(a_slow_peer_stops_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
