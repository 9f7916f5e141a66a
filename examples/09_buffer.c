/* SPDX-License-Identifier: MIT */
/* Buffers own memory on any device; the last release frees it. Macros release a buffer at the end of its block. Memory
 * from outside gets a deleter. A buffer pool hands out the same scratch memory again and again. */
#include <loch/engine.h>
#include <loch/loch.h>
#include <loch/sim.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)

static void free_it(void *address, size_t bytes, void *user)
{
    printf("  the last reference has gone: %zu bytes are given back to malloc\n", bytes);
    ++*(int *)user;
    free(address);
}

static void count_it(void *address, size_t bytes, void *user)
{
    (void)address;
    printf("  first, who asked to hear of it: %zu bytes are about to go\n", bytes);
    ++*(int *)user;
}

/* A slice holds a reference to the whole buffer. Memory from malloc can be wrapped. */
static loch_status share(int *deleted)
{
    const loch_external external = {.size = sizeof external, .deleter = free_it, .user = deleted};
    LOCH_AUTO(buffer) part = NULL; /* released on every way out of this function */
    loch_buffer *whole = NULL;
    char *memory = malloc(100);
    loch_status status = memory ? loch_buffer_wrap(memory, 100, &external, &whole) : LOCH_E_HOST_MEMORY;
    if (status != LOCH_OK) {
        free(memory); /* the buffer was not created, so the memory is still ours */
        return status;
    }
    status = loch_buffer_add_deleter(whole, count_it, deleted); /* any number of deleters; the last added runs first */
    if (status == LOCH_OK) status = loch_buffer_slice(whole, 10, 5, &part);
    loch_buffer_release(whole);
    if (status != LOCH_OK) return status;
    printf("  the whole was released, its part is still there: %zu bytes\n", loch_buffer_get_bytes(part));
    return loch_buffer_fill(part, "x", 1, NULL);
}

/* Copies to a device and back on a stream. Both sides may be released as soon as a copy is queued: the memory stays
 * valid until the copy has ended. */
static loch_status there_and_back(loch_device *device, loch_stream *stream, char *text, size_t bytes)
{
    loch_status status;
    const loch_request on = {.size = sizeof on, .stream = stream};
    const loch_buffer_copy_options copy = {.size = sizeof copy, .stream = stream};
    LOCH_AUTO(buffer) here = NULL;
    LOCH_AUTO(buffer) back = NULL;
    if ((status = loch_buffer_wrap(text, bytes, NULL, &here)) != LOCH_OK) return status;
    if ((status = loch_buffer_create_for_device(NULL, bytes, NULL, &back)) != LOCH_OK) return status;
    LOCH_WITH (buffer, there, status = loch_buffer_create_for_device(device, bytes, &on, &there)) {
        status = loch_buffer_copy(there, here, &copy);
        if (status == LOCH_OK) status = loch_buffer_copy(back, there, &copy);
    } /* released here, although no copy has run yet */
    if (status == LOCH_OK) status = loch_stream_sync(stream);
    if (status == LOCH_OK) printf("  back from the device: %s\n", (char *)loch_buffer_get_address(back));
    return status;
}

/* Runs the steps of a program, each with scratch memory of a similar size. Every third step uses another stream. */
static loch_status scratch(loch_allocator *allocator, loch_stream *stream, loch_buffer_pool_stats *stats)
{
    loch_buffer_pool *pool;
    loch_status status = loch_buffer_pool_create(allocator, NULL, &pool);
    for (size_t step = 0; status == LOCH_OK && step < 30; step++) {
        loch_stream *use = step % 3 == 2 ? NULL : stream;
        loch_buffer *buffer;
        status = loch_buffer_pool_acquire(pool, MIB - step * 1000, use, &buffer);
        if (status != LOCH_OK) break;
        status = loch_buffer_fill(buffer, "s", 1, use); /* stands for work */
        const loch_status back = loch_buffer_pool_release(pool, buffer, use);
        if (status == LOCH_OK) status = back;
    }
    if (status == LOCH_OK) status = loch_buffer_pool_get_stats(pool, stats);
    if (status == LOCH_OK)
        printf("  %llu buffers handed out, %llu of them used before, %zu bytes kept\n",
               (unsigned long long)stats->acquired, (unsigned long long)stats->reused, stats->idle_bytes);
    loch_buffer_pool_destroy(pool);
    return status;
}

int main(void)
{
    int deleted = 0;
    char text[] = "hello from the device";
    loch_buffer_pool_stats stats = {.size = sizeof stats};
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(stream) stream = NULL;
    LOCH_AUTO(allocator) allocator = NULL;
    LOCH_CHECK(loch_device_open("sim:1GiB", &device));
    LOCH_CHECK(loch_stream_create(device, NULL, &stream));
    LOCH_CHECK(loch_pool_create(device, "scratch", NULL, &allocator));
    puts("sharing:");
    LOCH_CHECK(share(&deleted));
    puts("copying:");
    LOCH_CHECK(there_and_back(device, stream, text, sizeof text));
    puts("scratch:");
    LOCH_CHECK(scratch(allocator, stream, &stats));
    loch_sim_stats sim = {.size = sizeof sim,
                          .violations = 1}; /* the simulated device checks the order between the streams */
    LOCH_CHECK(loch_sim_get_stats(device, &sim));
    return deleted == 2 && stats.reused == 29 && sim.violations == 0 ? 0 : 1;
}
