/* SPDX-License-Identifier: MIT */
/* Virtual memory: a cache reserves addresses for its largest size, maps memory as it grows, maps memory at another
 * address without a copy, and shares memory by a file descriptor. An observer is called for every range of memory, as a
 * network card needs it. */
#include <loch/loch.h>
#include <loch/observer.h>
#include <loch/raw.h>
#include <loch/virtual.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct ranges {
    int taken, going;
} ranges;

static void observe(loch_range_event event, const loch_range *range, void *user)
{
    ranges *r = user;
    *(event == LOCH_RANGE_TAKEN ? &r->taken : &r->going) += 1;
    printf("  %s: %zu KiB of %s memory\n", event == LOCH_RANGE_TAKEN ? "taken" : "going", range->bytes / 1024,
           loch_memory_kind_name(range->kind));
}

/* Maps two granules side by side, then maps the second at another address; its contents stay. */
static int map_elsewhere(loch_device *device, size_t granule)
{
    loch_handle *low, *high;
    void *start;
    LOCH_CHECK(loch_virtual_reserve(device, 4 * granule, 0, &start));
    char *place = start, *elsewhere = place + 3 * granule;
    LOCH_CHECK(loch_handle_create(device, granule, NULL, &low));
    LOCH_CHECK(loch_handle_create(device, granule, NULL, &high));
    LOCH_CHECK(loch_virtual_map(place, low, NULL, 0));
    LOCH_CHECK(loch_virtual_map(place + granule, high, NULL, 0));
    memset(place, 'x', loch_handle_get_bytes(low) + loch_handle_get_bytes(high)); /* in one call */
    LOCH_CHECK(loch_virtual_unmap(place + granule));
    LOCH_CHECK(loch_virtual_map(elsewhere, high, NULL, 0));
    const int kept = elsewhere[granule - 1] == 'x';
    printf("remapped: the contents are %s\n", kept ? "still there" : "gone");
    loch_handle_destroy(low); /* the handles are freed when no mapping uses them */
    loch_handle_destroy(high);
    LOCH_CHECK(loch_virtual_unmap(place));
    LOCH_CHECK(loch_virtual_unmap(elsewhere));
    LOCH_CHECK(loch_virtual_unreserve(start));
    return kept;
}

/* Exports a handle and imports it, as another process would; here both are this process. */
static int share(loch_device *device, size_t granule)
{
    const loch_handle_options shareable = {.size = sizeof shareable, .share = LOCH_SHARE_FD};
    const char text[] = "written here";
    char seen[sizeof text] = "";
    loch_handle *handle, *imported;
    void *here, *there;
    int descriptor;
    LOCH_CHECK(loch_handle_create(device, granule, &shareable, &handle));
    LOCH_CHECK(loch_handle_export(handle, LOCH_SHARE_FD, sizeof descriptor, &descriptor));
    LOCH_CHECK(loch_handle_import(device, LOCH_SHARE_FD, &descriptor, granule, &imported));
    close(descriptor);
    LOCH_CHECK(loch_virtual_reserve(device, granule, 0, &here));
    LOCH_CHECK(loch_virtual_reserve(device, granule, 0, &there));
    LOCH_CHECK(loch_virtual_map(here, handle, NULL, 0));
    LOCH_CHECK(loch_virtual_map(there, imported, NULL, 0));
    LOCH_CHECK(loch_copy(here, text, sizeof text));
    LOCH_CHECK(loch_copy(seen, there, sizeof seen));
    printf("shared: \"%s\" is read at the other address\n", seen);
    loch_handle_destroy(handle);
    loch_handle_destroy(imported);
    LOCH_CHECK(loch_virtual_unmap(here));
    LOCH_CHECK(loch_virtual_unmap(there));
    LOCH_CHECK(loch_virtual_unreserve(here));
    LOCH_CHECK(loch_virtual_unreserve(there));
    return !strcmp(seen, text);
}

int main(void)
{
    loch_device_properties cpu_properties = {.size = sizeof cpu_properties};
    loch_device_properties sim_properties = {.size = sizeof sim_properties};
    LOCH_AUTO(device) cpu = NULL;
    LOCH_AUTO(device) sim = NULL;
    ranges seen = {0, 0};
    int right = 0;
    LOCH_CHECK(loch_device_open("cpu", &cpu));
    LOCH_CHECK(loch_device_get_properties(cpu, &cpu_properties));
    LOCH_CHECK(loch_device_open("sim:64MiB", &sim));
    LOCH_CHECK(loch_device_get_properties(sim, &sim_properties));
    LOCH_CHECK(loch_observer_add(cpu, observe, &seen));
    right += map_elsewhere(cpu, cpu_properties.granule_bytes);
    LOCH_CHECK(loch_observer_remove(cpu, observe, &seen));
    right += share(sim, sim_properties.granule_bytes); /* the simulated device shares like CUDA */
    return right == 2 && seen.taken >= 2 && seen.taken == seen.going ? 0 : 1;
}
