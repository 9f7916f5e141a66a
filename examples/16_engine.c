/* SPDX-License-Identifier: MIT */
/* An engine: two devices opened together, each with a limit, a pool, worker threads and cached streams. Weights are
 * loaded on both at the same time, then frozen and checked. The lock of a seat protects data that threads share. */
#include <loch/engine.h>
#include <loch/loch.h>
#include <stdio.h>

#define MIB ((size_t)1 << 20)
#define WEIGHT_BYTES (24 * MIB)

typedef struct model {
    loch_tag tag;
    loch_buffer *weights[2]; /* one for each seat */
    unsigned tickets;        /* shared by all seats; changed with the lock of seat 0 held */
} model;

/* Runs on every seat at the same time, each on a worker of the seat. */
static loch_status load(loch_engine *engine, loch_seat seat, void *user)
{
    model *m = user;
    loch_stream *stream;
    loch_stream_pool *streams = loch_engine_get_streams(engine, seat);
    LOCH_RETURN(loch_stream_pool_acquire(streams, &stream));
    const loch_request request = {
        .size = sizeof request, .stream = stream, .tag = m->tag, .flags = LOCH_ALLOC_MOVABLE | LOCH_ALLOC_ZEROED};
    loch_status status =
        loch_buffer_create(loch_engine_get_allocator(engine, seat), WEIGHT_BYTES, &request, &m->weights[seat.number]);
    if (status == LOCH_OK) status = loch_stream_sync(stream);
    const loch_status given_back = loch_stream_pool_release(streams, stream);
    return status == LOCH_OK ? given_back : status;
}

/* Takes the lock of a seat. Any thread may take it. */
static loch_status take_ticket(loch_engine *engine, loch_seat seat, void *user)
{
    model *m = user;
    (void)seat;
    LOCH_RETURN(loch_engine_lock(engine, LOCH_SEAT(0)));
    m->tickets++;
    return loch_engine_unlock(engine, LOCH_SEAT(0));
}

/* Prints the memory of each seat, and which other seats it can access. Returns the bytes in use on all seats. */
static size_t show(loch_engine *engine)
{
    size_t used = 0;
    for (unsigned i = 0; i < loch_engine_count(engine); i++) {
        loch_engine_info info = {.size = sizeof info};
        LOCH_CHECK(loch_engine_get_info(engine, LOCH_SEAT(i), &info));
        printf("seat %u is %s: %zu of %zu MiB used, %zu worker%s", i,
               loch_device_get_name(loch_engine_get_device(engine, LOCH_SEAT(i))), info.used_bytes / MIB,
               info.limit_bytes / MIB, info.workers, info.workers == 1 ? "" : "s");
        for (unsigned other = 0; other < loch_engine_count(engine); other++)
            if (other != i && loch_engine_can_reach(engine, LOCH_SEAT(i), LOCH_SEAT(other)))
                printf(", reaches seat %u", other);
        puts("");
        used += info.used_bytes;
    }
    return used;
}

int main(void)
{
    const loch_engine_device devices[] = {
        {.size = sizeof devices[0], .name = "sim:256MiB,id=0", .limit_bytes = 128 * MIB},
        {.size = sizeof devices[0], .name = "sim:256MiB,id=1", .limit_fraction = 0.5, .workers = 2}};
    const loch_engine_options options = {
        .size = sizeof options, .name = "example", .devices = devices, .devices_count = 2};
    loch_engine_leaks leaks = {.size = sizeof leaks};
    loch_engine *engine;
    model m = {.tickets = 0};
    size_t frozen = 0, failed = 0;
    LOCH_CHECK(loch_tag_create("weights", &m.tag));
    LOCH_CHECK(loch_engine_open(&options, &engine));

    LOCH_CHECK(loch_engine_for_each(engine, load, &m, &failed));
    LOCH_CHECK(loch_engine_freeze(engine, m.tag, &frozen)); /* the weights do not move any more */
    printf("%zu MiB of weights are frozen\n", frozen / MIB);
    for (int i = 0; i < 10; i++)
        LOCH_CHECK(loch_engine_for_each(engine, take_ticket, &m, NULL));
    const size_t used = show(engine);

    for (size_t i = 0; i < 2; i++)
        loch_buffer_release(m.weights[i]);
    LOCH_CHECK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, &leaks));
    printf("%u tickets were taken; the engine has ended, %zu blocks were left\n", m.tickets, leaks.blocks);
    return failed == 0 && frozen == 2 * WEIGHT_BYTES && used >= frozen && m.tickets == 20 && leaks.blocks == 0 ? 0 : 1;
}
