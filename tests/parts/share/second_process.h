/* SPDX-License-Identifier: MIT */
/* A second process for the tests of shared buffers: the test program itself, run again, which does what it is told over
 * a socket. Commands are one struct and are answered by one struct; a parcel goes over a socket of its own. */
#ifndef LOCH_TEST_SECOND_PROCESS_H
#define LOCH_TEST_SECOND_PROCESS_H

#include "faulty_driver.h"
#include "test.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <loch/share.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PARTNER_SECONDS 60 /* a deadline for what takes microseconds */
#define PARTNER_SLOTS 32

typedef enum partner_verb {
    PARTNER_RECEIVE,  /* the buffer of a slot, by loch_parcel_receive */
    PARTNER_IMPORT,   /* by a token */
    PARTNER_RELEASE,  /* the buffer of a slot */
    PARTNER_WRITE,    /* a pattern of the seed `value` */
    PARTNER_COMPARE,  /* with a pattern: answers the place of the first difference */
    PARTNER_ADDRESS,  /* of a slot */
    PARTNER_ACCESS,   /* of a slot */
    PARTNER_IMPORTED, /* number of handles that the device has imported */
    PARTNER_FILES,    /* number of open descriptors */
    PARTNER_LIMIT,    /* allow `value` descriptors more than are open now; 0 for no limit */
    PARTNER_USER,     /* become the user `value` */
    PARTNER_FORK,     /* start a child that sleeps until it is killed; answers its pid */
    PARTNER_COPY,     /* as PARTNER_FORK, without the handlers of forks */
    PARTNER_OFFER,    /* allocate a buffer of `value` bytes, and send it as a parcel */
    PARTNER_DESTROY,  /* the parcel of a slot */
    PARTNER_COUNT,    /* imports of the parcel of a slot */
    PARTNER_FILL,     /* queue fills, the last one with the byte `value`, and release the slot without waiting */
    PARTNER_BYTE,     /* number of bytes of a slot that are `value` */
    PARTNER_FAULT,    /* the driver call behind `value` others fails; for devices faulty:NAME */
    PARTNER_HOLDS,    /* pieces of bookkeeping that the process holds */
    PARTNER_PING
} partner_verb;

typedef struct partner_command {
    partner_verb verb;
    size_t slot, value;
    size_t token_bytes;
    uint8_t token[LOCH_PARCEL_TOKEN_MAX];
    loch_parcel_users users;
    uint64_t timeout_ns;
} partner_command;

typedef struct partner_answer {
    loch_status status;
    size_t value;
    char sentence[LOCH_ERROR_SENTENCE_MAX];
} partner_answer;

typedef struct partner {
    pid_t pid;
    int commands, parcels;
} partner;

/* Write and compare the contents of a buffer, on any device. */
__attribute__((unused)) static loch_status partner_put(loch_buffer *buffer, uint64_t seed)
{
    const size_t bytes = loch_buffer_get_bytes(buffer);
    void *host = malloc(bytes);
    test_pattern_write(host, bytes, seed);
    const loch_status status = loch_copy(loch_buffer_get_address(buffer), host, bytes);
    free(host);
    return status;
}

__attribute__((unused)) static loch_status partner_differs(loch_buffer *buffer, uint64_t seed, size_t *out)
{
    const size_t bytes = loch_buffer_get_bytes(buffer);
    void *host = malloc(bytes);
    const loch_status status = loch_copy(host, loch_buffer_get_address(buffer), bytes);
    *out = test_pattern_differs(host, bytes, seed);
    free(host);
    return status;
}

/* --- the second process --- */

typedef struct partner_role {
    int commands, parcels;
    const char *device_name;
    loch_device *device;
    loch_allocator *pool;
    loch_buffer *buffers[PARTNER_SLOTS];
    loch_parcel *offered[PARTNER_SLOTS];
    struct rlimit limit;
} partner_role;

__attribute__((unused)) static size_t partner_count_files(void)
{
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static loch_allocator *partner_pool(loch_device *device, size_t handle_bytes)
{
    const loch_pool_options options = {.size = sizeof options,
                                       .handle = {.size = sizeof options.handle, .share = LOCH_SHARE_FD},
                                       .handle_bytes = handle_bytes};
    loch_allocator *pool = NULL;
    CHECK_OK(loch_pool_create(device, "shared", &options, &pool));
    return pool;
}

static loch_status partner_limit(partner_role *role, size_t more)
{
    struct rlimit limit = role->limit;
    if (more) {
        const int next = dup(0); /* descriptors are handed out from the lowest one */
        limit.rlim_cur = (rlim_t)next + more - 1;
        close(next);
    }
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? LOCH_OK : LOCH_E_IO;
}

static loch_status partner_offer(partner_role *role, const partner_command *command)
{
    if (!role->pool) role->pool = partner_pool(role->device, 0);
    loch_buffer **buffer = &role->buffers[command->slot];
    loch_status status = loch_buffer_create(role->pool, command->value, NULL, buffer);
    if (status == LOCH_OK) status = loch_parcel_create(*buffer, NULL, &role->offered[command->slot]);
    if (status == LOCH_OK) status = loch_parcel_send(role->offered[command->slot], role->parcels);
    return status;
}

static size_t partner_fork(void)
{
    const pid_t child = fork();
    if (child) return (size_t)child;
    for (;;)
        pause();
}

static size_t partner_copy(void)
{
    const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child) return (size_t)child;
    for (;;)
        pause();
}

/* Queues work that takes a while, and releases the buffer behind it. */
static loch_status partner_fill(loch_device *device, loch_buffer **buffer, size_t value)
{
    loch_stream *stream;
    loch_status status = loch_stream_create(device, NULL, &stream);
    if (status != LOCH_OK) return status;
    for (size_t i = 0; i <= 200 && status == LOCH_OK; i++) {
        const unsigned char byte = (unsigned char)(value + 200 - i);
        status = loch_buffer_fill(*buffer, &byte, 1, stream);
    }
    loch_buffer_clear(buffer);
    loch_stream_release(stream);
    return status;
}

static loch_status partner_byte(loch_buffer *buffer, size_t value, size_t *out)
{
    const size_t bytes = loch_buffer_get_bytes(buffer);
    unsigned char *host = malloc(bytes);
    const loch_status status = loch_copy(host, loch_buffer_get_address(buffer), bytes);
    for (size_t i = 0; i < bytes; i++)
        *out += host[i] == (unsigned char)value;
    free(host);
    return status;
}

static void partner_do(partner_role *role, const partner_command *command, partner_answer *answer)
{
    loch_buffer **buffer = &role->buffers[command->slot];
    loch_parcel_info info = {.size = sizeof info};
    loch_host_usage usage = {.size = sizeof usage};
    const loch_parcel_import_options options = {
        .size = sizeof options, .users = command->users, .timeout_ns = command->timeout_ns};
    switch (command->verb) {
    case PARTNER_RECEIVE: answer->status = loch_parcel_receive(role->device, role->parcels, &options, buffer); break;
    case PARTNER_IMPORT:
        answer->status = loch_parcel_import(role->device, command->token, command->token_bytes, &options, buffer);
        break;
    case PARTNER_RELEASE: loch_buffer_clear(buffer); break;
    case PARTNER_WRITE: answer->status = partner_put(*buffer, command->value); break;
    case PARTNER_COMPARE: answer->status = partner_differs(*buffer, command->value, &answer->value); break;
    case PARTNER_FILL: answer->status = partner_fill(role->device, buffer, command->value); break;
    case PARTNER_BYTE: answer->status = partner_byte(*buffer, command->value, &answer->value); break;
    case PARTNER_ADDRESS: answer->value = (size_t)loch_buffer_get_address(*buffer); break;
    case PARTNER_ACCESS: answer->value = (size_t)loch_buffer_get_access(*buffer); break;
    case PARTNER_IMPORTED: answer->value = test_call_count(role->device, "handle_import"); break;
    case PARTNER_FILES: answer->value = partner_count_files(); break;
    case PARTNER_LIMIT: answer->status = partner_limit(role, command->value); break;
    case PARTNER_USER: answer->status = setuid((uid_t)command->value) == 0 ? LOCH_OK : LOCH_E_IO; break;
    case PARTNER_FORK: answer->value = partner_fork(); break;
    case PARTNER_COPY: answer->value = partner_copy(); break;
    case PARTNER_OFFER: answer->status = partner_offer(role, command); break;
    case PARTNER_DESTROY:
        loch_parcel_destroy(role->offered[command->slot]);
        role->offered[command->slot] = NULL;
        break;
    case PARTNER_COUNT:
        answer->status = loch_parcel_get_info(role->offered[command->slot], &info);
        answer->value = info.imports;
        break;
    case PARTNER_FAULT: test_faulty_set(TEST_FAILING_ONCE, command->value); break;
    case PARTNER_HOLDS:
        answer->status = loch_host_get_usage(&usage);
        answer->value = usage.blocks;
        break;
    case PARTNER_PING: break;
    }
}

/* The exit code of the second process: 0 if it has given everything back. */
static int partner_run(int commands, int parcels, const char *device)
{
    partner_role role = {.commands = commands, .parcels = parcels, .device_name = device};
    if (loch_device_open(device, &role.device) != LOCH_OK) return 2;
    getrlimit(RLIMIT_NOFILE, &role.limit);
    partner_command command;
    while (read(commands, &command, sizeof command) == (ssize_t)sizeof command) {
        partner_answer answer = {.status = LOCH_OK};
        partner_do(&role, &command, &answer);
        if (answer.status != LOCH_OK) memcpy(answer.sentence, loch_error_get()->sentence, sizeof answer.sentence);
        if (write(commands, &answer, sizeof answer) != (ssize_t)sizeof answer) return 3;
    }
    for (size_t i = 0; i < PARTNER_SLOTS; i++) {
        loch_parcel_destroy(role.offered[i]);
        loch_buffer_release(role.buffers[i]);
    }
    loch_allocator_release(role.pool);
    loch_device_release(role.device);
    return 0;
}

/* Runs as the second process if the arguments say so: ends the program then. */
__attribute__((unused)) static void partner_main(int count, char **arguments)
{
    if (count < 5 || strcmp(arguments[1], "partner") != 0) return;
    const int code = partner_run(atoi(arguments[2]), atoi(arguments[3]), arguments[4]);
    exit(code);
}

/* --- the first process --- */

__attribute__((unused)) static partner partner_start(const char *device)
{
    int commands[2], parcels[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, commands), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, parcels), 0);
    char first[16], second[16];
    snprintf(first, sizeof first, "%d", commands[1]);
    snprintf(second, sizeof second, "%d", parcels[1]);
    char *const arguments[] = {(char *)"/proc/self/exe", (char *)"partner", first, second, (char *)device, NULL};
    posix_spawn_file_actions_t actions; /* a descriptor that is duplicated to itself is not closed */
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, commands[1], commands[1]);
    posix_spawn_file_actions_adddup2(&actions, parcels[1], parcels[1]);
    assert_int_equal(posix_spawn(&pid, arguments[0], &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(commands[1]);
    close(parcels[1]);
    return (partner){.pid = pid, .commands = commands[0], .parcels = parcels[0]};
}

static partner_answer partner_tell(const partner *p, const partner_command *command)
{
    partner_answer answer = {.status = LOCH_E_IO};
    assert_int_equal(write(p->commands, command, sizeof *command), sizeof *command);
    assert_int_equal(read(p->commands, &answer, sizeof answer), sizeof answer);
    return answer;
}

/* Tells the partner something that succeeds, and returns the value of its answer. */
__attribute__((unused)) static size_t partner_do_it(const partner *p, partner_verb verb, size_t slot, size_t value)
{
    const partner_command command = {.verb = verb, .slot = slot, .value = value};
    const partner_answer answer = partner_tell(p, &command);
    if (answer.status != LOCH_OK) fail_msg("verb %d: %s", (int)verb, answer.sentence);
    return answer.value;
}

__attribute__((unused)) static partner_answer partner_import_bytes(const partner *p, size_t slot, const void *token,
                                                                   size_t bytes)
{
    partner_command command = {.verb = PARTNER_IMPORT, .slot = slot, .token_bytes = bytes};
    memcpy(command.token, token, bytes);
    return partner_tell(p, &command);
}

__attribute__((unused)) static partner_answer partner_try_import(const partner *p, size_t slot,
                                                                 const loch_parcel *parcel)
{
    size_t bytes;
    const void *token = loch_parcel_get_token(parcel, &bytes);
    return partner_import_bytes(p, slot, token, bytes);
}

__attribute__((unused)) static void partner_import(const partner *p, size_t slot, const loch_parcel *parcel)
{
    const partner_answer answer = partner_try_import(p, slot, parcel);
    if (answer.status != LOCH_OK) fail_msg("import: %s", answer.sentence);
}

/* Ends the partner, which must have given everything back. */
__attribute__((unused)) static void partner_stop(partner *p)
{
    int status;
    close(p->commands);
    close(p->parcels);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

__attribute__((unused)) static void partner_kill(partner *p)
{
    int status;
    assert_int_equal(kill(p->pid, SIGKILL), 0);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    close(p->commands);
    close(p->parcels);
}

__attribute__((unused)) static void partner_pause(void)
{
    const struct timespec pause = {.tv_nsec = 200000};
    nanosleep(&pause, NULL);
}

/* Waits until a parcel has that many imports; fails the test at the deadline. */
__attribute__((unused)) static void partner_await_imports(const loch_parcel *parcel, size_t imports)
{
    loch_parcel_info info = {.size = sizeof info};
    const time_t end = time(NULL) + PARTNER_SECONDS;
    do {
        CHECK_OK(loch_parcel_get_info(parcel, &info));
        if (info.imports == imports) return;
        partner_pause();
    } while (time(NULL) < end);
    fail_msg("%zu imports, not %zu", info.imports, imports);
}

static size_t partner_used_bytes(loch_allocator *pool)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(pool, &stats));
    return stats.allocated_bytes;
}

/* Waits until a pool has no live block. */
__attribute__((unused)) static void partner_await_empty(loch_allocator *pool)
{
    const time_t end = time(NULL) + PARTNER_SECONDS;
    while (partner_used_bytes(pool) && time(NULL) < end)
        partner_pause();
    assert_int_equal(partner_used_bytes(pool), 0);
}

#endif
