/* SPDX-License-Identifier: MIT */
/* Runs one kind of call many times, for scripts/count-instructions, which counts the instructions of `measured` under
 * callgrind: instructions WHAT CASE COUNT [BYTES]. WHAT is `loch` for a pool on the cpu, the name of another device for
 * a pool there, or `malloc` for the malloc that the program is linked with or that is preloaded. BYTES are of each
 * block (48). The first COUNT rounds fill caches and are not measured. */
#include <loch/loch.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 48
#define BYTES_NEAR 8  /* less: has the size class of BYTES in every allocator that is compared */
#define BYTES_FAR 952 /* more: has another size class */

typedef struct count_call {
    loch_allocator *pool; /* NULL: malloc */
    int which;
    size_t bytes;
} count_call;

enum { PAIR, PLAIN, ZEROED, SIZE, DESCRIBED, IN_PLACE, MOVING, CASES };
static const char *const names[CASES] = {"pair", "plain", "zeroed", "size", "described", "in_place", "moving"};

static int pool_once(const count_call *call)
{
    const loch_request request = {
        .size = sizeof request, .bytes = call->bytes, .flags = call->which == ZEROED ? LOCH_ALLOC_ZEROED : 0};
    void *block;
    loch_block found;
    if ((call->which == PLAIN ? loch_alloc(call->pool, call->bytes, &block)
                              : loch_allocator_alloc(call->pool, &request, &block)) != LOCH_OK)
        return 1;
    found.size = call->which == SIZE ? offsetof(loch_block, id) : sizeof found;
    if ((call->which == SIZE || call->which == DESCRIBED) && loch_allocator_find(call->pool, block, &found) != LOCH_OK)
        return 1;
    if (call->which >= IN_PLACE) {
        const size_t bytes = call->which == IN_PLACE ? call->bytes - BYTES_NEAR : call->bytes + BYTES_FAR;
        if (loch_allocator_realloc(call->pool, block, bytes, NULL, &block) != LOCH_OK) return 1;
    }
    return loch_free(call->pool, block) != LOCH_OK;
}

static int malloc_once(const count_call *call)
{
    void *volatile block = call->which == ZEROED ? calloc(1, call->bytes) : malloc(call->bytes);
    if (!block || ((call->which == SIZE || call->which == DESCRIBED) && malloc_usable_size(block) < call->bytes))
        return 1;
    void *const moved = call->which >= IN_PLACE ? realloc(block, call->which == IN_PLACE ? call->bytes - BYTES_NEAR
                                                                                         : call->bytes + BYTES_FAR)
                                                : block;
    free(moved ? moved : block);
    return !moved;
}

static int repeat(const count_call *call, long count)
{
    int bad = 0;
    for (long i = 0; i < count; i++)
        bad |= call->pool ? pool_once(call) : malloc_once(call);
    return bad;
}

static __attribute__((noinline)) int measured(const count_call *call, long count)
{
    return repeat(call, count);
}

int main(int argc, char **argv)
{
    loch_device *device = NULL;
    count_call call = {.which = CASES, .bytes = BYTES};
    for (int i = 0; argc >= 4 && i < CASES; i++)
        if (!strcmp(argv[2], names[i])) call.which = i;
    const long count = argc >= 4 ? strtol(argv[3], NULL, 10) : 0;
    if (argc == 5) call.bytes = strtoul(argv[4], NULL, 10);
    if (call.which == CASES || count <= 0 || call.bytes <= BYTES_NEAR || argc > 5) {
        fprintf(stderr, "usage: instructions loch|DEVICE|malloc pair|plain|zeroed|size|described|in_place|moving COUNT "
                        "[BYTES, more than 8]\n");
        return 2;
    }
    const char *name = strcmp(argv[1], "loch") ? argv[1] : "cpu";
    if (strcmp(name, "malloc") != 0 && (loch_device_open(name, &device) != LOCH_OK ||
                                        loch_pool_create(device, "counted", NULL, &call.pool) != LOCH_OK)) {
        fprintf(stderr, "instructions: %s\n", loch_error_get()->sentence);
        return 1;
    }
    const int bad = repeat(&call, count) | measured(&call, count);
    loch_allocator_release(call.pool);
    loch_device_release(device);
    return bad;
}
