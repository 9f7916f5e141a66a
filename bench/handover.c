/* SPDX-License-Identifier: MIT */
/* How long a hand-over of a cache takes, by mapping and by copy:
 *
 *   handover [DEVICE] [MIB]                   the program runs itself again as the receiver; cpu, 64 (defaults)
 *   mpirun -n 2 handover [DEVICE] [MIB]       the same over a communicator
 *
 * The giver measures from its call until the receiver has the memory. The ways take turns; the median counts.
 * Both sides have used their memory before. The receiver reads nothing: mapped and copied memory are read alike. */
#include <loch/comm.h>
#include <loch/handover.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 41
#define WARM_ROUNDS 4
#define MIB ((size_t)1 << 20)

/* A way to measure: what the receiver wants, and whether the giver's memory is shareable. */
typedef struct handover_case {
    const char *name;
    loch_handover_way send_way, receive_way;
    size_t pages; /* number of scattered pages; 0 for one buffer */
} handover_case;

static const handover_case cases[] = {
    {"mapped", LOCH_HANDOVER_MAPPED, LOCH_HANDOVER_MAPPED, 0},
    {"mapped, as 256 pages", LOCH_HANDOVER_MAPPED, LOCH_HANDOVER_MAPPED, 256},
    {"mapped and copied by the receiver", LOCH_HANDOVER_AUTO, LOCH_HANDOVER_COPIED, 0},
    {"sent", LOCH_HANDOVER_COPIED, LOCH_HANDOVER_AUTO, 0},
    {"sent, as 256 pages", LOCH_HANDOVER_COPIED, LOCH_HANDOVER_AUTO, 256},
};
#define CASES (sizeof cases / sizeof *cases)

static int compare(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* --- the giver --- */

static uint64_t give(const loch_handover_peer *peer, loch_buffer *cache, const handover_case *one)
{
    size_t pages[256];
    const size_t bytes = loch_buffer_get_bytes(cache);
    loch_handover_send_options options = {.size = sizeof options, .way = one->send_way};
    for (size_t i = 0; i < one->pages; i++)
        pages[i] = i * 77 % one->pages; /* no two neighbours behind each other */
    if (one->pages) {
        options.pages = pages;
        options.pages_count = one->pages;
        options.page_bytes = bytes / one->pages;
    }
    const uint64_t start = loch_host_now_ns();
    LOCH_CHECK(loch_handover_send(peer, &cache, 1, NULL, &options, NULL));
    return loch_host_now_ns() - start;
}

static void run_giver(const loch_handover_peer *peer, loch_device *device, size_t bytes)
{
    const loch_pool_options options = {.size = sizeof options,
                                       .handle = {.size = sizeof options.handle, .share = LOCH_SHARE_FD},
                                       .handle_bytes = bytes};
    uint64_t times[CASES][ROUNDS];
    loch_allocator *pool;
    loch_buffer *cache;
    const unsigned char byte = 7;
    LOCH_CHECK(loch_pool_create(device, "caches", &options, &pool));
    LOCH_CHECK(loch_buffer_create(pool, bytes, NULL, &cache));
    LOCH_CHECK(loch_buffer_fill(cache, &byte, 1, NULL));
    for (size_t round = 0; round < WARM_ROUNDS + ROUNDS; round++)
        for (size_t i = 0; i < CASES; i++) {
            const uint64_t ns = give(peer, cache, &cases[i]);
            if (round >= WARM_ROUNDS) times[i][round - WARM_ROUNDS] = ns;
        }
    printf("%zu MiB on %s, %s, median of %d\n", bytes / MIB, loch_device_get_name(device),
           peer->comm ? "over a communicator" : "over a socket", ROUNDS);
    for (size_t i = 0; i < CASES; i++) {
        qsort(times[i], ROUNDS, sizeof times[i][0], compare);
        const uint64_t median = times[i][ROUNDS / 2];
        printf("%-36s %10.1f us   least %10.1f us\n", cases[i].name, (double)median / 1e3, (double)times[i][0] / 1e3);
    }
    loch_buffer_release(cache);
    loch_allocator_release(pool);
}

/* --- the receiver --- */

static void run_receiver(const loch_handover_peer *peer, loch_device *device)
{
    loch_allocator *pool;
    LOCH_CHECK(loch_pool_create(device, "copies", NULL, &pool));
    for (size_t round = 0; round < WARM_ROUNDS + ROUNDS; round++)
        for (size_t i = 0; i < CASES; i++) {
            const loch_handover_receive_options options = {
                .size = sizeof options, .way = cases[i].receive_way, .allocator = pool};
            loch_handover *taken;
            LOCH_CHECK(loch_handover_receive(peer, device, NULL, &options, &taken));
            loch_handover_destroy(taken);
        }
    loch_allocator_release(pool);
}

/* --- two processes --- */

static void run_ranks(const char *name, size_t bytes)
{
    loch_device *device;
    loch_comm *comm;
    loch_comm_info info = {.size = sizeof info};
    LOCH_CHECK(loch_device_open(name, &device));
    LOCH_CHECK(loch_comm_create(&(loch_comm_options){.size = sizeof(loch_comm_options), .device = device}, &comm));
    LOCH_CHECK(loch_comm_get_info(comm, &info));
    const loch_handover_peer peer = {.size = sizeof peer, .comm = comm, .rank = 1 - info.rank};
    if (info.rank == 0) run_giver(&peer, device, bytes);
    if (info.rank == 1) run_receiver(&peer, device);
    loch_comm_destroy(comm);
    loch_device_release(device);
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "cpu";
    const size_t bytes = (count > 2 ? (size_t)atoi(arguments[2]) : 64) * MIB;
    loch_comm_place place = {.size = sizeof place};
    loch_device *device;
    int sockets[2], code = 0;
    LOCH_CHECK(loch_comm_get_place(&place));
    if (place.ranks > 1) {
        run_ranks(name, bytes);
        return 0;
    }
    if (!bytes || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 1;
    const pid_t child = fork(); /* before a device is opened: CUDA does not survive a fork */
    const loch_handover_peer peer = {.size = sizeof peer, .socket = sockets[child != 0]};
    close(sockets[child == 0]);
    LOCH_CHECK(loch_device_open(name, &device));
    if (child == 0)
        run_receiver(&peer, device);
    else
        run_giver(&peer, device, bytes);
    loch_device_release(device);
    if (child == 0) return 0;
    waitpid(child, &code, 0);
    return code != 0;
}
