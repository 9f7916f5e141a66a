/* SPDX-License-Identifier: MIT */
/* A second process for the tests of hand-overs: the test program itself, run again, which takes what it is told to take
 * over one socket and gets its orders over another. */
#ifndef LOCH_TEST_HANDOVER_PARTNER_H
#define LOCH_TEST_HANDOVER_PARTNER_H

#include "test.h"
#include <dirent.h>
#include <fcntl.h>
#include <loch/comm.h>
#include <loch/handover.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PARTNER_SECONDS 60 /* a deadline for what takes microseconds */
#define PARTNER_SLOTS 8

typedef enum partner_verb {
    PARTNER_TAKE,    /* a hand-over, into a slot */
    PARTNER_COMPARE, /* all buffers of a slot with the pattern of its note: answers whether they are right */
    PARTNER_BREAK,   /* write another pattern into all buffers of a slot */
    PARTNER_GROW,    /* the first buffer of a slot to `value` bytes */
    PARTNER_DROP,    /* a slot */
    PARTNER_GIVE     /* hand `value` bytes over, mapped, with the seed of the slot */
} partner_verb;

typedef struct partner_command {
    partner_verb verb;
    size_t slot, value;
    loch_handover_way way;
    size_t max_bytes, limit_bytes; /* of copies; no limit: 0 */
    uint64_t timeout_ns;
} partner_command;

typedef struct partner_answer {
    loch_status status;
    loch_handover_way way;
    size_t count, bytes, pages, note_bytes;
    size_t copies; /* driver calls that copy, during the hand-over */
    bool is_right;
    char sentence[LOCH_ERROR_SENTENCE_MAX];
} partner_answer;

/* What the note of a test says: the seed of the contents of the first buffer; the next one has the next seed. */
typedef struct partner_note {
    uint64_t seed;
    uint64_t tokens;
} partner_note;

typedef struct partner {
    pid_t pid;
    int commands, wire;
} partner;

/* --- contents --- */

__attribute__((unused)) static loch_status partner_put(loch_buffer *buffer, size_t offset, size_t bytes, uint64_t seed)
{
    void *host = malloc(bytes + 1);
    test_pattern_write(host, bytes, seed);
    const loch_status status = loch_copy((char *)loch_buffer_get_address(buffer) + offset, host, bytes);
    free(host);
    return status;
}

__attribute__((unused)) static bool partner_is(loch_buffer *buffer, size_t offset, size_t bytes, uint64_t seed)
{
    void *host = malloc(bytes + 1);
    const loch_status status = loch_copy(host, (char *)loch_buffer_get_address(buffer) + offset, bytes);
    const bool is_right = status == LOCH_OK && test_pattern_differs(host, bytes, seed) == bytes;
    free(host);
    return is_right;
}

/* Compares what was taken with its note: page p of buffer b has the pattern seed + b + 1000 p. */
__attribute__((unused)) static bool partner_is_right(const loch_handover *taken)
{
    loch_handover_info info = {.size = sizeof info};
    partner_note note;
    if (loch_handover_get_info(taken, &info) != LOCH_OK || info.note_bytes != sizeof note) return false;
    memcpy(&note, info.note, sizeof note);
    for (size_t i = 0; i < info.count; i++) {
        const size_t bytes = loch_buffer_get_bytes(info.buffers[i]);
        if (!info.pages_count && bytes && !partner_is(info.buffers[i], 0, bytes, note.seed + i)) return false;
        for (size_t p = 0; p < info.pages_count; p++)
            if (!partner_is(info.buffers[i], info.page_offsets[p], info.page_bytes, note.seed + i + 1000 * p))
                return false;
    }
    return true;
}

/* --- the second process --- */

typedef struct partner_role {
    int commands, wire;
    loch_device *device;
    loch_allocator *pool;
    loch_handover *slots[PARTNER_SLOTS];
} partner_role;

static loch_status partner_take(partner_role *role, const partner_command *command, loch_handover **slot)
{
    const loch_handover_peer peer = {.size = sizeof peer, .socket = role->wire};
    loch_handover_receive_options options = {.size = sizeof options,
                                             .way = command->way,
                                             .max_bytes = command->max_bytes,
                                             .timeout_ns = command->timeout_ns};
    loch_allocator *limited = NULL;
    if (command->limit_bytes) {
        const loch_pool_options pool = {.size = sizeof pool, .limit_bytes = command->limit_bytes};
        const loch_status status = loch_pool_create(role->device, "limited", &pool, &limited);
        if (status != LOCH_OK) return status;
        options.allocator = limited;
    }
    const loch_status status = loch_handover_receive(&peer, role->device, NULL, &options, slot);
    loch_allocator_release(limited);
    return status;
}

static loch_status partner_give(partner_role *role, const partner_command *command)
{
    const loch_handover_peer peer = {.size = sizeof peer, .socket = role->wire};
    const partner_note note = {.seed = command->slot};
    const loch_handover_send_options options = {
        .size = sizeof options, .way = LOCH_HANDOVER_MAPPED, .note = &note, .note_bytes = sizeof note};
    const loch_pool_options shared = {.size = sizeof shared,
                                      .handle = {.size = sizeof shared.handle, .share = LOCH_SHARE_FD}};
    loch_buffer *buffer = NULL;
    loch_status status = role->pool ? LOCH_OK : loch_pool_create(role->device, "giver", &shared, &role->pool);
    if (status == LOCH_OK) status = loch_buffer_create(role->pool, command->value, NULL, &buffer);
    if (status == LOCH_OK) status = partner_put(buffer, 0, command->value, command->slot);
    if (status == LOCH_OK) status = loch_handover_send(&peer, &buffer, 1, NULL, &options, NULL);
    loch_buffer_release(buffer);
    return status;
}

static void partner_do(partner_role *role, const partner_command *command, partner_answer *answer)
{
    loch_handover **slot = &role->slots[command->slot % PARTNER_SLOTS];
    loch_handover_info info = {.size = sizeof info};
    const uint64_t copies = test_call_count(role->device, "copy");
    if (command->verb == PARTNER_TAKE) answer->status = partner_take(role, command, slot);
    answer->copies = (size_t)(test_call_count(role->device, "copy") - copies);
    if (command->verb == PARTNER_GIVE) answer->status = partner_give(role, command);
    if (answer->status != LOCH_OK || command->verb == PARTNER_GIVE) return;
    answer->status = loch_handover_get_info(*slot, &info);
    switch (command->verb) {
    case PARTNER_TAKE:
    case PARTNER_COMPARE: answer->is_right = partner_is_right(*slot); break;
    case PARTNER_BREAK:
        for (size_t i = 0; i < info.count && answer->status == LOCH_OK; i++)
            answer->status = partner_put(info.buffers[i], 0, loch_buffer_get_bytes(info.buffers[i]), command->value);
        break;
    case PARTNER_GROW:
        answer->status = loch_buffer_resize(info.buffers[0], command->value, LOCH_CONTENTS_KEEP, NULL);
        break;
    case PARTNER_DROP:
        loch_handover_destroy(*slot);
        *slot = NULL;
        return;
    case PARTNER_GIVE: return;
    }
    answer->way = info.way;
    answer->count = info.count;
    answer->bytes = info.bytes;
    answer->pages = info.pages_count;
    answer->note_bytes = info.note_bytes;
}

/* The exit code of the second process: 0 if it has given everything back. */
static int partner_run(int commands, int wire, const char *device)
{
    partner_role role = {.commands = commands, .wire = wire};
    partner_command command;
    if (loch_device_open(device, &role.device) != LOCH_OK) return 2;
    while (read(commands, &command, sizeof command) == (ssize_t)sizeof command) {
        partner_answer answer = {.status = LOCH_OK};
        partner_do(&role, &command, &answer);
        if (answer.status != LOCH_OK) memcpy(answer.sentence, loch_error_get()->sentence, sizeof answer.sentence);
        if (write(commands, &answer, sizeof answer) != (ssize_t)sizeof answer) return 3;
    }
    for (size_t i = 0; i < PARTNER_SLOTS; i++)
        loch_handover_destroy(role.slots[i]);
    loch_allocator_release(role.pool);
    loch_device_release(role.device);
    return 0;
}

/* Runs as the second process if the arguments say so: ends the program then. */
__attribute__((unused)) static void partner_main(int count, char **arguments)
{
    if (count < 5 || strcmp(arguments[1], "partner") != 0) return;
    exit(partner_run(atoi(arguments[2]), atoi(arguments[3]), arguments[4]));
}

/* --- the first process --- */

/* Starts this program again with a role and two sockets. */
__attribute__((unused)) static partner partner_start_as(const char *role, const char *device)
{
    int commands[2], wire[2];
    char texts[2][16];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, commands), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wire), 0);
    snprintf(texts[0], sizeof texts[0], "%d", commands[1]);
    snprintf(texts[1], sizeof texts[1], "%d", wire[1]);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        fcntl(commands[1], F_SETFD, 0);
        fcntl(wire[1], F_SETFD, 0);
        char *const arguments[] = {(char *)"/proc/self/exe", (char *)role, texts[0], texts[1], (char *)device, NULL};
        execv(arguments[0], arguments);
        _exit(127);
    }
    close(commands[1]);
    close(wire[1]);
    return (partner){pid, commands[0], wire[0]};
}

__attribute__((unused)) static partner partner_start(const char *device)
{
    return partner_start_as("partner", device);
}

__attribute__((unused)) static void partner_stop(partner *p)
{
    int status;
    close(p->commands);
    close(p->wire);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Ends the second process at once. */
__attribute__((unused)) static void partner_kill(partner *p)
{
    int status;
    assert_int_equal(kill(p->pid, SIGKILL), 0);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    assert_true(WIFSIGNALED(status));
    close(p->commands);
    close(p->wire);
}

__attribute__((unused)) static void partner_tell(partner *p, const partner_command *command)
{
    assert_int_equal(write(p->commands, command, sizeof *command), sizeof *command);
}

__attribute__((unused)) static partner_answer partner_hear(partner *p)
{
    partner_answer answer;
    assert_int_equal(read(p->commands, &answer, sizeof answer), sizeof answer);
    return answer;
}

__attribute__((unused)) static partner_answer partner_ask(partner *p, partner_verb verb, size_t slot, size_t value)
{
    const partner_command command = {.verb = verb, .slot = slot, .value = value};
    partner_tell(p, &command);
    const partner_answer answer = partner_hear(p);
    if (answer.status != LOCH_OK) fail_msg("the partner: %s", answer.sentence);
    return answer;
}

__attribute__((unused)) static loch_handover_peer partner_peer(const partner *p)
{
    return (loch_handover_peer){.size = sizeof(loch_handover_peer), .socket = p->wire};
}

__attribute__((unused)) static loch_allocator *partner_pool(loch_device *device, size_t handle_bytes, uint32_t share)
{
    const loch_pool_options options = {.size = sizeof options,
                                       .handle = {.size = sizeof options.handle, .share = share},
                                       .handle_bytes = handle_bytes};
    loch_allocator *pool = NULL;
    CHECK_OK(loch_pool_create(device, "caches", &options, &pool));
    return pool;
}

/* A buffer with the pattern of a seed. */
__attribute__((unused)) static loch_buffer *partner_buffer(loch_allocator *pool, size_t bytes, uint64_t seed)
{
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(pool, bytes, NULL, &buffer));
    if (bytes) CHECK_OK(partner_put(buffer, 0, bytes, seed));
    return buffer;
}

__attribute__((unused)) static size_t partner_used_bytes(loch_allocator *pool)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(pool, &stats));
    return stats.allocated_bytes;
}

__attribute__((unused)) static void partner_pause(void)
{
    const struct timespec pause = {.tv_nsec = 500000};
    nanosleep(&pause, NULL);
}

/* Waits until a pool has no live block, and ends it. */
__attribute__((unused)) static void partner_end_pool(loch_allocator *pool)
{
    const time_t end = time(NULL) + PARTNER_SECONDS;
    while (partner_used_bytes(pool) && time(NULL) < end)
        partner_pause();
    assert_int_equal(partner_used_bytes(pool), 0);
    loch_allocator_release(pool);
}

/* Waits until the receiver has let go. */
__attribute__((unused)) static void partner_await_held(const loch_handover *given, size_t held)
{
    loch_handover_info info = {.size = sizeof info};
    const time_t end = time(NULL) + PARTNER_SECONDS;
    do {
        CHECK_OK(loch_handover_get_info(given, &info));
        if (info.held == held) return;
        partner_pause();
    } while (time(NULL) < end);
    fail_msg("the receiver holds %zu buffers, not %zu", info.held, held);
}

/* Returns whether this process maps a file with a name in /dev/shm that could be Loch's: it would stay when the process
 * is killed. */
__attribute__((unused)) static bool partner_has_names(void)
{
    char line[512];
    bool has_names = false;
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file))
        has_names = has_names || (strstr(line, "/dev/shm/") && strstr(line, "loch"));
    if (file) fclose(file);
    return has_names || !file;
}

/* Number of entries in a folder. */
__attribute__((unused)) static size_t partner_count_entries(const char *path)
{
    size_t count = 0;
    DIR *folder = opendir(path);
    if (!folder) return 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

#endif
