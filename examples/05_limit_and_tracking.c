/* SPDX-License-Identifier: MIT */
/* Wrappers: a limit around a device's allocator, tracking around the limit. A cache frees memory when the limit is
 * reached. Live blocks at the end are listed by tag. The weights are freed by their address: loch_address_free finds
 * the outermost of the three allocators.
 *
 *   05_limit_and_tracking [DEVICE]     cpu, cuda:0, sim:1GiB (default: sim:1GiB) */
#include <loch/engine.h>
#include <loch/loch.h>
#include <stdio.h>

#define MIB ((size_t)1 << 20)

/* A cache of blocks that can be dropped at any time. */
typedef struct cache {
    loch_allocator *allocator;
    void *blocks[4];
} cache;

/* A pressure function: called when an allocation fails because memory is short. If it frees something, the allocation
 * is tried again. */
static size_t cache_shrink(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator;
    cache *c = user;
    size_t given = 0;
    for (int i = 0; i < 4 && given < bytes; i++) {
        if (!c->blocks[i] || loch_free(c->allocator, c->blocks[i]) != LOCH_OK) continue;
        c->blocks[i] = NULL;
        given += 2 * MIB;
    }
    if (given) printf("the cache gave %zu MiB back\n", given / MIB);
    return given;
}

static loch_status take(loch_allocator *allocator, size_t bytes, const char *tag, void **out)
{
    loch_request request = {.size = sizeof request, .bytes = bytes};
    LOCH_RETURN(loch_tag_create(tag, &request.tag));
    return loch_allocator_alloc(allocator, &request, out);
}

/* Returns whether the limit was kept. */
static int run(loch_allocator *allocator)
{
    cache c = {.allocator = allocator};
    void *weights, *more;
    loch_census *census;
    char text[2048];
    LOCH_CHECK(loch_allocator_add_pressure(allocator, cache_shrink, &c));
    for (int i = 0; i < 4; i++)
        LOCH_CHECK(take(allocator, 2 * MIB, "cache", &c.blocks[i]));
    LOCH_CHECK(take(allocator, 5 * MIB, "weights", &weights)); /* 13 MiB of 10 MiB: the cache shrinks */
    const loch_status full = take(allocator, 6 * MIB, "more", &more);
    printf("and then: %s\n", loch_error_get()->sentence);

    LOCH_CHECK(loch_census_create(allocator, &census));
    LOCH_CHECK(loch_census_print(census, NULL, LOCH_FORMAT_TEXT, text, sizeof text, NULL));
    printf("still live: %s", text);
    loch_census_destroy(census);
    LOCH_CHECK(loch_address_free(weights));
    cache_shrink(allocator, 8 * MIB, &c);
    LOCH_CHECK(loch_allocator_remove_pressure(allocator, cache_shrink, &c));
    return full == LOCH_E_LIMIT;
}

int main(int count, char **arguments)
{
    loch_device *device;
    loch_allocator *direct, *limit, *tracking;
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = 10 * MIB};
    loch_stats stats = {.size = sizeof stats};

    LOCH_CHECK(loch_device_open(count > 1 ? arguments[1] : "sim:1GiB", &device));
    LOCH_CHECK(loch_direct_create(device, NULL, NULL, &direct));
    LOCH_CHECK(loch_limit_create(direct, "10 MiB", &options, &limit));
    LOCH_CHECK(loch_tracking_create(limit, "tracked", NULL, &tracking));
    const int held = run(tracking);
    LOCH_CHECK(loch_allocator_get_stats(tracking, &stats));
    printf("%llu allocations, at most %llu bytes in use\n", (unsigned long long)stats.allocs,
           (unsigned long long)stats.peak_requested_bytes);
    loch_allocator_release(tracking); /* each wrapper holds the allocator that it wraps */
    loch_allocator_release(limit);
    loch_allocator_release(direct);
    loch_device_release(device);
    return held && stats.blocks == 0 && stats.peak_requested_bytes <= 10 * MIB ? 0 : 1;
}
