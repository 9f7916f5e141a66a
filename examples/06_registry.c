/* SPDX-License-Identifier: MIT */
/* The registry: independent parts of a program share an allocator. The highest priority wins. A factory creates its
 * allocator when it is first needed on a device, and may wrap the allocator that would be found without it.
 *
 * 06_registry [DEVICE]     cuda:0, sim:1GiB (default: sim:1GiB) */
#include <loch/loch.h>
#include <stdio.h>
#include <string.h>

/* Puts tracking around the allocator that the device would have without this factory. */
static loch_status make_tracked(loch_device *device, loch_attributes attributes, void *user, loch_allocator **out)
{
    (void)user;
    loch_allocator *inner;
    LOCH_RETURN(loch_device_acquire_allocator(device, attributes, LOCH_FALLBACK_NONE, &inner));
    const loch_status status = loch_tracking_create(inner, "tracked", NULL, out);
    loch_allocator_release(inner);
    return status;
}

/* Asks the device for its allocator, as any part of a program does. Returns the name of the allocator. */
static const char *show_winner(loch_device *device, uint32_t bits, const char *what, char name[64])
{
    loch_allocator *allocator;
    const loch_attributes attributes = {.bits = bits};
    const loch_status status = loch_device_acquire_allocator(device, attributes, LOCH_FALLBACK_NONE, &allocator);
    snprintf(name, 64, "%s", status == LOCH_OK ? loch_allocator_get_name(allocator) : loch_status_name(status));
    printf("%-20s %s\n", what, name);
    if (status == LOCH_OK) loch_allocator_release(allocator);
    return name;
}

static loch_status show_entry(const loch_registry_entry *entry, void *count)
{
    printf("  %3d  %s%s\n", entry->priority, entry->name, entry->allocator ? "" : " (a factory)");
    ++*(size_t *)count;
    return LOCH_OK;
}

/* Replaces the default allocator of a device without the registry, for all later requests. */
static int replace_default(loch_device *device, loch_allocator *mine)
{
    loch_allocator *found;
    LOCH_CHECK(loch_device_set_allocator(device, mine));
    LOCH_CHECK(loch_device_acquire_default(device, &found));
    const int replaced = found == mine;
    loch_allocator_release(found);
    LOCH_CHECK(loch_device_set_allocator(device, NULL)); /* back to the library's own allocator */
    return replaced;
}

/* Two parts of a program need memory that serves both: on the host, and accessible to a GPU. */
static loch_attributes both(void)
{
    const loch_attributes host = {.bits = LOCH_ATTRIBUTE_ON_HOST, .scope = 7};
    const loch_attributes gpu = {.bits = LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    loch_attributes merged;
    LOCH_CHECK(loch_attributes_merge(host, gpu, &merged)); /* E_INVALID if both have a scope and the scopes differ */
    return merged;
}

static loch_status show_leak(loch_allocator *allocator, const loch_block *block, void *user)
{
    (void)user;
    printf("still live: block %llu of %zu bytes in \"%s\"\n", (unsigned long long)block->id, block->requested_bytes,
           loch_allocator_get_name(allocator));
    return LOCH_OK;
}

int main(int count, char **arguments)
{
    loch_device *device = NULL;
    loch_allocator *session = NULL;
    void *forgotten = NULL;
    char name[64];
    int right = 0;
    size_t leaks = 0, entries = 0;

    LOCH_CHECK(loch_device_open(count > 1 ? arguments[1] : "sim:1GiB", &device));
    right += strstr(show_winner(device, 0, "nothing registered:", name), "default") != NULL;
    right += strstr(show_winner(device, both().bits, "pinned:", name), "pinned") != NULL;
    right += !strcmp(show_winner(device, LOCH_ATTRIBUTE_NIC_COMPATIBLE, "for network cards:", name), "E_UNSUPPORTED");

    LOCH_CHECK(loch_direct_create(device, "mine", NULL, &session));
    right += replace_default(device, session);
    LOCH_CHECK(loch_registry_add(session, "requests", 10)); /* the name of the entry */
    right += !strcmp(show_winner(device, 0, "priority 10:", name), "mine");
    LOCH_CHECK(loch_registry_add_factory("tracking everywhere", 20, make_tracked, NULL));
    right += !strcmp(show_winner(device, 0, "priority 20:", name), "tracked");
    puts("the registry:");
    LOCH_CHECK(loch_registry_walk(show_entry, &entries));
    LOCH_CHECK(loch_registry_remove("tracking everywhere", 20));
    right += !strcmp(show_winner(device, 0, "and without it:", name), "mine");

    loch_allocator *best = NULL; /* the best of all devices */
    LOCH_CHECK(loch_registry_acquire_best(NULL, (loch_attributes){0}, &best));
    printf("%-20s %s\n", "of any device:", loch_allocator_get_name(best));
    right += best == session;
    loch_allocator_release(best);

    LOCH_CHECK(loch_alloc(session, 12345, &forgotten));
    LOCH_CHECK(loch_registry_clear(show_leak, NULL, &leaks));
    LOCH_CHECK(loch_free(session, forgotten)); /* blocks stay valid after the registry was cleared */
    loch_allocator_release(session);
    loch_device_release(device);
    return right == 8 && entries == 2 && leaks == 1 ? 0 : 1;
}
