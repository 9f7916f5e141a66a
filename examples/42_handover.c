/* SPDX-License-Identifier: MIT */
/* Prefill here, decode there: one process fills the cache of a request, another one continues it. On one machine the
 * memory is mapped, and no byte is copied. The decoder takes one request as it is, and one into memory of its own that
 * grows with the tokens to come.
 *
 *   42_handover [DEVICE]                  the program runs itself again as the decoder; cpu, cuda:0 (default: cpu)
 *   mpirun -n 2 42_handover [DEVICE]      rank 0 fills, rank 1 decodes */
#include <loch/comm.h>
#include <loch/handover.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOKEN_BYTES ((size_t)4 << 10)
#define TOKENS 700
#define TOKENS_MAX 4096

/* What the two agree on: which request this is, and how far it has come. */
typedef struct request_note {
    int request, tokens;
} request_note;

/* --- prefill --- */

static void prefill(const loch_handover_peer *peer, loch_allocator *pool, int request)
{
    loch_handover *given;
    loch_handover_info info = {.size = sizeof info};
    void *block;
    loch_buffer *cache;
    /* A growable block: addresses for all tokens that may come, memory for those that are there. */
    LOCH_CHECK(loch_pool_alloc_growable(pool, TOKENS_MAX * TOKEN_BYTES, NULL, &block));
    LOCH_CHECK(loch_pool_resize_growable(pool, block, TOKENS * TOKEN_BYTES));
    LOCH_CHECK(loch_buffer_adopt(pool, block, &cache));
    const unsigned char byte = (unsigned char)(request + 1);
    LOCH_CHECK(loch_buffer_fill(cache, &byte, 1, NULL));

    const request_note note = {.request = request, .tokens = TOKENS};
    const loch_handover_send_options options = {.size = sizeof options, .note = &note, .note_bytes = sizeof note};
    LOCH_CHECK(loch_handover_send(peer, &cache, 1, NULL, &options, &given));
    loch_buffer_release(cache); /* the receiver keeps the memory */
    LOCH_CHECK(loch_handover_get_info(given, &info));
    printf("prefill: request %d with %zu KiB was %s\n", request, info.bytes / 1024,
           info.way == LOCH_HANDOVER_MAPPED ? "mapped" : "copied");
    loch_handover_destroy(given);
}

/* --- decode --- */

static int decode(const loch_handover_peer *peer, loch_device *device, loch_handover_way way)
{
    const loch_handover_receive_options options = {
        .size = sizeof options, .way = way, .max_bytes = TOKENS_MAX * TOKEN_BYTES};
    loch_handover *taken;
    loch_handover_info info = {.size = sizeof info};
    request_note note;
    unsigned char last;
    LOCH_CHECK(loch_handover_receive(peer, device, NULL, &options, &taken));
    LOCH_CHECK(loch_handover_get_info(taken, &info));
    memcpy(&note, info.note, sizeof note);
    loch_buffer *cache = info.buffers[0];
    if (info.way == LOCH_HANDOVER_COPIED) /* its own memory: the next token goes behind the others */
        LOCH_CHECK(loch_buffer_resize(cache, (size_t)(note.tokens + 1) * TOKEN_BYTES, LOCH_CONTENTS_KEEP, NULL));
    const char *address = loch_buffer_get_address(cache);
    LOCH_CHECK(loch_copy(&last, address + (size_t)note.tokens * TOKEN_BYTES - 1, 1));
    printf("decode: request %d has %d tokens, room for %zu, and its last byte is %d\n", note.request, note.tokens,
           loch_buffer_get_bytes(cache) / TOKEN_BYTES, last);
    loch_handover_destroy(taken); /* the memory goes back to its pool */
    return last == note.request + 1;
}

static int run_decoder(const loch_handover_peer *peer, const char *name)
{
    loch_device *device;
    LOCH_CHECK(loch_device_open(name, &device));
    const int right = decode(peer, device, LOCH_HANDOVER_AUTO) + decode(peer, device, LOCH_HANDOVER_COPIED);
    loch_device_release(device);
    return right == 2 ? 0 : 1;
}

static int run_prefill(const loch_handover_peer *peer, const char *name)
{
    const loch_pool_options options = {.size = sizeof options,
                                       .handle = {.size = sizeof options.handle, .share = LOCH_SHARE_FD}};
    loch_device *device;
    loch_allocator *pool;
    LOCH_CHECK(loch_device_open(name, &device));
    LOCH_CHECK(loch_pool_create(device, "caches", &options, &pool));
    for (int request = 0; request < 2; request++)
        prefill(peer, pool, request);
    loch_allocator_release(pool);
    loch_device_release(device);
    return 0;
}

/* --- two processes --- */

/* The ranks of a job that a launcher started. */
static int run_ranks(const char *name)
{
    loch_comm *comm;
    loch_comm_info info = {.size = sizeof info};
    LOCH_CHECK(loch_comm_create(NULL, &comm));
    LOCH_CHECK(loch_comm_get_info(comm, &info));
    const loch_handover_peer peer = {.size = sizeof peer, .comm = comm, .rank = 1 - info.rank};
    const int code = info.rank > 1 ? 0 : info.rank == 0 ? run_prefill(&peer, name) : run_decoder(&peer, name);
    loch_comm_destroy(comm);
    return code;
}

/* Starts the decoder before a device is opened, because CUDA does not survive a fork. */
static int run_alone(const char *name)
{
    int sockets[2], code = 0;
    char number[16];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 1;
    snprintf(number, sizeof number, "%d", sockets[1]);
    const pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "42_handover", name, number, (char *)NULL);
        _exit(127);
    }
    close(sockets[1]);
    const loch_handover_peer peer = {.size = sizeof peer, .socket = sockets[0]};
    run_prefill(&peer, name);
    waitpid(child, &code, 0);
    close(sockets[0]);
    return code != 0;
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "cpu";
    loch_comm_place place = {.size = sizeof place};
    setvbuf(stdout, NULL, _IOLBF, 0); /* two processes print */
    if (count > 2) {
        const loch_handover_peer peer = {.size = sizeof peer, .socket = atoi(arguments[2])};
        return run_decoder(&peer, name);
    }
    LOCH_CHECK(loch_comm_get_place(&place));
    return place.ranks > 1 ? run_ranks(name) : run_alone(name);
}
