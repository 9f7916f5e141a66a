/* SPDX-License-Identifier: MIT */
/* A hostile process for the tests of shared buffers. It sends a token that it made up, with a connection of its own,
 * and answers as it likes. It stands for an attacker that speaks the protocol and has seen everything in a token except
 * the secret. */
#ifndef LOCH_TEST_HOSTILE_H
#define LOCH_TEST_HOSTILE_H

#include "link.h"
#include "message.h"
#include "second_process.h"
#include <sys/mman.h>

#define HOSTILE_USER 65533
#define HOSTILE_SEED 666
#define HOSTILE_SECONDS 8 /* how long it goes on: more than a test waits for a call with a short timeout */
#define HOSTILE_SAW_SECRET 9

typedef enum hostile_kind {
    HOSTILE_SERVES,         /* answers with memory of its own */
    HOSTILE_WRONG_SEQUENCE, /* sends replies to requests that were not made, without a pause */
    HOSTILE_NEVER_READY,    /* its work never ends */
    HOSTILE_SLOW            /* sends one handle at a time, slowly */
} hostile_kind;

typedef struct hostile {
    hostile_kind kind;
    bool is_other_user;
    share_token token; /* what it sends */
    share_key sought;  /* the secret of another process's parcel */
} hostile;

static void hostile_pause(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static uint32_t hostile_handles(const hostile *h)
{
    return h->kind == HOSTILE_SLOW ? 1000 : 1;
}

/* Makes memory that a device of the CPU takes as a handle, with a pattern in the buffer. */
static int hostile_memory(const hostile *h)
{
    const share_token *token = &h->token;
    const size_t bytes = token->span_bytes / hostile_handles(h);
    const int file = memfd_create("hostile", MFD_ALLOW_SEALING);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) _exit(2);
    if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) _exit(3);
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (start == MAP_FAILED) _exit(4);
    test_pattern_write(start + token->offset, token->bytes, HOSTILE_SEED);
    return file;
}

static void hostile_answer(const hostile *h, int link, int memory, const share_request *request)
{
    const share_token *token = &h->token;
    const uint32_t handles = hostile_handles(h);
    share_reply reply = {.magic = SHARE_MAGIC,
                         .version = SHARE_VERSION,
                         .sequence = request->sequence,
                         .span = token->span,
                         .span_bytes = token->span_bytes,
                         .offset = token->offset,
                         .bytes = token->bytes,
                         .handles = handles,
                         .first = request->first,
                         .count = request->wants || request->kind == SHARE_FETCH,
                         .share = LOCH_SHARE_FD,
                         .access = token->access,
                         .is_ready = h->kind != HOSTILE_NEVER_READY,
                         .handle_bytes = {token->span_bytes / handles}};
    if (h->kind == HOSTILE_SLOW) hostile_pause(100);
    const uint64_t end = lochi_share_deadline(h->kind == HOSTILE_WRONG_SEQUENCE ? HOSTILE_SECONDS * 1000000000ull : 0);
    if (h->kind == HOSTILE_WRONG_SEQUENCE) reply.sequence += 1000;
    do
        if (lochi_share_link_send(link, &reply, SHARE_REPLY_BYTES, &memory, reply.count, 0) != 0) _exit(0);
    while (!lochi_share_deadline_is_over(end));
}

/* Lives in the hostile process. Ends when the victim closes the connection, or after some seconds. */
static void hostile_run(const hostile *h, int socket)
{
    int ends[2];
    uint8_t message[1 + LOCH_PARCEL_TOKEN_MAX], bytes[sizeof(share_request)];
    bool has_seen = false;
    if (h->is_other_user && (setgid(HOSTILE_USER) != 0 || setuid(HOSTILE_USER) != 0)) _exit(5);
    if (!lochi_share_link_pair(ends)) _exit(6);
    const int memory = hostile_memory(h);
    const size_t length = lochi_share_token_write(&h->token, message + 1);
    message[0] = (uint8_t)length;
    if (lochi_share_link_send(socket, message, 1 + length, &ends[1], 1, 0) != 0) _exit(7);
    close(ends[1]);
    const uint64_t deadline = lochi_share_deadline(HOSTILE_SECONDS * 1000000000ull);
    for (;;) {
        int none[SHARE_CHUNK];
        size_t got, count;
        share_request request;
        const int error = lochi_share_link_receive(ends[0], bytes, sizeof bytes, deadline, &got, none, &count);
        if (error || !got || lochi_share_deadline_is_over(deadline)) _exit(has_seen ? HOSTILE_SAW_SECRET : 0);
        if (!lochi_share_request_is_sound(bytes, got, &request)) _exit(8);
        has_seen |= lochi_share_key_is(&request.secret, &h->sought);
        if (request.kind != SHARE_RELEASE) hostile_answer(h, ends[0], memory, &request);
    }
}

/* Starts a hostile process, which sends its parcel over `socket`. */
static pid_t hostile_start(const hostile *h, int socket)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) hostile_run(h, socket);
    return pid;
}

/* Waits for the end of a hostile process. Returns its exit code. */
__attribute__((unused)) static int hostile_end(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Has the partner offer a buffer, and reads its token without the connection that comes with it. */
static size_t hostile_read_offer(const partner *p, size_t slot, size_t bytes, uint8_t token[LOCH_PARCEL_TOKEN_MAX])
{
    uint8_t length;
    partner_do_it(p, PARTNER_OFFER, slot, bytes);
    assert_int_equal(read(p->parcels, &length, 1), 1);
    assert_int_equal(read(p->parcels, token, length), length);
    return length;
}

#endif
