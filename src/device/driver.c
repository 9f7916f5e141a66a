/* SPDX-License-Identifier: MIT */
/* The table of drivers. A driver is checked and copied once, and its empty slots are filled, so that no caller tests
 * a slot later. Entries never move and are never removed. The built-in drivers are entered at first use: no code
 * runs before main. */
#include "kit/cancel.h"
#include "base/clock.h"
#include "device/driver.h"
#include "base/fail.h"
#include "device/at_once.h"
#include "device/calls.h"
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "device/forked.h"
#include "device/sim/sim.h"
#include <loch/host.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define DRIVER_COUNT_MAX 32
#define DRIVER_NAME_MAX 15

typedef struct driver_entry {
    loch_driver driver; /* first member, so that the entry is found from its driver */
    uint32_t possible;
} driver_entry;

static driver_entry driver_table[DRIVER_COUNT_MAX]; /* entries below driver_count are constant */
static size_t driver_count;                         /* under driver_lock */
static lochi_lock driver_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_DRIVERS);
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static loch_status driver_cannot(const char *what)
{
    return LOCH_FAIL(UNSUPPORTED, "this device has no %s", what);
}

/* --- fillers of empty slots --- */

static loch_status no_enumerate(loch_device_visitor *visitor, void *user)
{
    (void)visitor, (void)user;
    return LOCH_OK;
}

static loch_status no_pinned_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    (void)self, (void)bytes, (void)alignment, (void)out;
    return driver_cannot("pinned memory");
}

static loch_status no_managed_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    (void)self, (void)bytes, (void)alignment, (void)out;
    return driver_cannot("managed memory");
}

static loch_status no_free(void *self, void *address, size_t bytes)
{
    (void)self, (void)address, (void)bytes;
    return driver_cannot("memory of that kind");
}

static loch_status no_register(void *self, void *address, size_t bytes)
{
    (void)self, (void)address, (void)bytes;
    return driver_cannot("registration of host memory");
}

static loch_status no_ordered_alloc(void *self, size_t bytes, void *stream, void **out)
{
    (void)self, (void)bytes, (void)stream, (void)out;
    return driver_cannot("stream-ordered allocator");
}

static loch_status no_ordered_free(void *self, void *address, size_t bytes, void *stream)
{
    (void)self, (void)address, (void)bytes, (void)stream;
    return driver_cannot("stream-ordered allocator");
}

static loch_status no_reserve(void *self, size_t bytes, size_t alignment, void **out)
{
    (void)self, (void)bytes, (void)alignment, (void)out;
    return driver_cannot("virtual memory");
}

static loch_status no_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                    loch_driver_handle *out)
{
    (void)self, (void)bytes, (void)options, (void)out;
    return driver_cannot("virtual memory");
}

static loch_status no_handle_release(void *self, loch_driver_handle handle, size_t bytes)
{
    (void)self, (void)handle, (void)bytes;
    return driver_cannot("virtual memory");
}

static loch_status no_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                          size_t peers_count)
{
    (void)self, (void)address, (void)bytes, (void)handle, (void)peers, (void)peers_count;
    return driver_cannot("virtual memory");
}

static loch_status no_unmap(void *self, void *address, size_t bytes, loch_driver_handle handle)
{
    (void)self, (void)address, (void)bytes, (void)handle;
    return driver_cannot("virtual memory");
}

static loch_status no_remap(void *self, void *from, void *to, size_t bytes, loch_driver_handle handle)
{
    (void)self, (void)from, (void)to, (void)bytes, (void)handle;
    return driver_cannot("way of moving a mapping");
}

static loch_status no_export(void *self, loch_driver_handle handle, loch_share share, void *out)
{
    (void)self, (void)handle, (void)share, (void)out;
    return driver_cannot("shareable handles");
}

static loch_status no_import(void *self, loch_share share, const void *shared, size_t bytes, loch_driver_handle *out)
{
    (void)self, (void)share, (void)shared, (void)bytes, (void)out;
    return driver_cannot("shareable handles");
}

static loch_status no_peer_enable(void *self, void *peer)
{
    (void)self, (void)peer;
    return driver_cannot("peers");
}

static loch_status no_address_query(void *self, const void *address, loch_address_info *out)
{
    (void)self, (void)address, (void)out;
    return LOCH_E_NOT_FOUND;
}

static loch_status no_capture(void *self, void *stream, loch_capture_info *out)
{
    (void)self, (void)stream;
    *out = (loch_capture_info){0};
    return LOCH_OK;
}

static void no_call_costs(void *self, uint64_t ns[LOCH_CALL_COUNT])
{
    (void)self, (void)ns;
}

static uint64_t no_now_ns(void *self)
{
    (void)self;
    return loch_host_now_ns();
}

static void *no_stream_native(void *self, void *stream)
{
    (void)self;
    return stream;
}

static void no_stream_unwrap(void *self, void *stream)
{
    (void)self, (void)stream;
}

static loch_status no_copy_pitched(void *self, loch_direction direction, void *to, const void *from,
                                   const loch_pitched *shape, void *peer, void *stream)
{
    (void)self, (void)direction, (void)to, (void)from, (void)shape, (void)peer, (void)stream;
    return driver_cannot("way of copying rows in one call");
}

/* The usual answer of a device without kernels, before the host does the work: no sentence. */
static loch_status no_strided(void *self, const loch_strided *work, void *stream)
{
    (void)self, (void)work, (void)stream;
    return LOCH_E_UNSUPPORTED;
}

static loch_status no_protect(void *self, void *address, size_t bytes, loch_access access)
{
    (void)self, (void)address, (void)bytes, (void)access;
    return driver_cannot("way of protecting memory");
}

static loch_status no_discard(void *self, void *address, size_t bytes)
{
    (void)self, (void)address, (void)bytes;
    return driver_cannot("way of discarding pages");
}

size_t lochi_device_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static loch_status no_forked(void *self)
{
    (void)self;
    return LOCH_E_FORKED; /* called in the child of a fork: the user of the device writes the sentence */
}

void lochi_driver_tell_forked(loch_device *device)
{
    if (device->is_forked) return; /* refused after an earlier fork */
    const loch_error saved = lochi_error_save();
    device->is_forked = device->driver->forked(device->self) != LOCH_OK;
    lochi_error_restore(&saved);
    if (device->driver->forked != no_forked) return;
    device->driver = &lochi_forked_driver;
    device->self = device;
}

bool lochi_device_protects(const loch_device *device)
{
    return device->driver->protect != no_protect;
}

loch_status lochi_device_protect(loch_device *device, void *address, size_t bytes, loch_access access)
{
    loch_status status;
    LOCHI_CALL(status, device, protect, (device->self, address, bytes, access));
    return status;
}

bool lochi_device_discards(const loch_device *device)
{
    return device->driver->discard != no_discard;
}

loch_status lochi_device_discard(loch_device *device, void *address, size_t bytes)
{
    loch_status status;
    LOCHI_CALL(status, device, discard, (device->self, address, bytes));
    return status;
}

static loch_status no_enter(void *self, void **before)
{
    (void)self;
    *before = NULL;
    return LOCH_OK;
}

static loch_status no_leave(void *self, void *before)
{
    (void)self, (void)before;
    return LOCH_OK;
}

bool lochi_device_enters(const loch_device *device)
{
    return device->driver->enter != no_enter;
}

bool lochi_device_copies_rows(const loch_device *device)
{
    return device->driver->copy_pitched != no_copy_pitched;
}

bool lochi_device_knows_addresses(const loch_device *device)
{
    return device->driver->address_query != no_address_query;
}

uint64_t lochi_device_now_ns(const loch_device *device)
{
    return device->driver->now_ns(device->self);
}

uint64_t lochi_device_age_ns(const loch_device *device)
{
    return device->driver->now_ns == no_now_ns ? lochi_clock_age_ns() : device->driver->now_ns(device->self);
}

size_t lochi_device_count_room(const loch_device *device)
{
    return device->driver->open == lochi_cpu_driver.open ? lochi_cpu_count_room(device->self) : SIZE_MAX;
}

size_t lochi_device_read_total(const loch_device *device, loch_memory_kind kind)
{
    if (kind == LOCH_MEMORY_PINNED) return lochi_cpu_read_total("", -1);
    return kind == LOCH_MEMORY_DEVICE ? device->properties.total_bytes : 0;
}

/* --- checking and filling --- */

/* Returns whether a driver fills the stream group. The group is all or nothing: a half-filled one could not keep its
 * promises. */
static bool driver_has_streams(const loch_driver *d, bool *partly)
{
    const bool all = d->stream_create && d->stream_destroy && d->stream_thread_default && d->stream_wrap &&
                     d->stream_query && d->stream_sync && d->stream_wait && d->stream_call && d->event_create &&
                     d->event_destroy && d->event_record && d->event_query && d->event_sync && d->event_elapsed &&
                     d->device_sync;
    *partly = !all &&
              (d->stream_create || d->stream_destroy || d->stream_thread_default || d->stream_wrap || d->stream_query ||
               d->stream_sync || d->stream_wait || d->stream_call || d->event_create || d->event_destroy ||
               d->event_record || d->event_query || d->event_sync || d->event_elapsed || d->device_sync);
    return all;
}

static uint32_t driver_slots_allow(const loch_driver *d, bool has_streams)
{
    uint32_t possible = LOCH_CAN_HOST_ACCESS | LOCH_CAN_TIMING | LOCH_CAN_HUGE_PAGES | LOCH_CAN_NUMA;
    if (d->pinned_alloc && d->pinned_free) possible |= LOCH_CAN_PINNED;
    if (d->managed_alloc && d->managed_free) possible |= LOCH_CAN_MANAGED;
    if (d->host_register && d->host_unregister) possible |= LOCH_CAN_REGISTER;
    if (d->ordered_alloc && d->ordered_free) possible |= LOCH_CAN_ORDERED;
    if (has_streams) possible |= LOCH_CAN_ASYNC;
    if (has_streams && d->stream_capture) possible |= LOCH_CAN_CAPTURE;
    if (d->peer_enable) possible |= LOCH_CAN_PEER;
    if (d->reserve && d->unreserve && d->handle_create && d->handle_release && d->map && d->unmap) {
        possible |= LOCH_CAN_VIRTUAL | LOCH_CAN_ALIAS | LOCH_CAN_RDMA;
        if (d->remap) possible |= LOCH_CAN_REMAP;
        if (d->handle_export && d->handle_import) possible |= LOCH_CAN_SHARE_FD | LOCH_CAN_SHARE_FABRIC;
    }
    return possible;
}

#define DRIVER_FILL(slot, fallback)                                                                                    \
    do {                                                                                                               \
        if (!d->slot) d->slot = fallback;                                                                              \
    } while (0)

static void driver_fill(loch_driver *d, bool has_streams)
{
    DRIVER_FILL(enumerate, no_enumerate);
    DRIVER_FILL(pinned_alloc, no_pinned_alloc);
    DRIVER_FILL(pinned_free, no_free);
    DRIVER_FILL(managed_alloc, no_managed_alloc);
    DRIVER_FILL(managed_free, no_free);
    DRIVER_FILL(host_register, no_register);
    DRIVER_FILL(host_unregister, no_register);
    DRIVER_FILL(ordered_alloc, no_ordered_alloc);
    DRIVER_FILL(ordered_free, no_ordered_free);
    DRIVER_FILL(reserve, no_reserve);
    DRIVER_FILL(unreserve, no_free);
    DRIVER_FILL(handle_create, no_handle_create);
    DRIVER_FILL(handle_release, no_handle_release);
    DRIVER_FILL(map, no_map);
    DRIVER_FILL(unmap, no_unmap);
    DRIVER_FILL(remap, no_remap);
    DRIVER_FILL(handle_export, no_export);
    DRIVER_FILL(handle_import, no_import);
    DRIVER_FILL(stream_capture, no_capture);
    DRIVER_FILL(peer_enable, no_peer_enable);
    DRIVER_FILL(address_query, no_address_query);
    DRIVER_FILL(call_costs, no_call_costs);
    DRIVER_FILL(copy_pitched, no_copy_pitched);
    DRIVER_FILL(protect, no_protect);
    DRIVER_FILL(enter, no_enter);
    DRIVER_FILL(leave, no_leave);
    DRIVER_FILL(forked, no_forked);
    DRIVER_FILL(now_ns, no_now_ns);
    DRIVER_FILL(stream_native, no_stream_native);
    DRIVER_FILL(stream_unwrap, no_stream_unwrap);
    DRIVER_FILL(copy_strided, no_strided);
    DRIVER_FILL(fill_strided, no_strided);
    DRIVER_FILL(discard, no_discard);
    if (!has_streams) lochi_at_once_fill(d);
}

static bool driver_name_is_good(const char *name)
{
    const size_t length = name ? strlen(name) : 0;
    if (!length || length > DRIVER_NAME_MAX) return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == length;
}

static driver_entry *driver_lookup(const char *name)
{
    lochi_lock_assert_held(&driver_lock);
    for (size_t i = 0; i < driver_count; i++)
        if (!strcmp(driver_table[i].driver.name, name)) return &driver_table[i];
    return NULL;
}

static loch_status driver_enter(const loch_driver *given)
{
    const size_t needed = offsetof(loch_driver, fill) + sizeof given->fill;
    if (given->size < needed)
        return LOCH_FAIL(INVALID, "the size member of a driver table must be at least %zu bytes", needed);
    driver_entry entry = {.driver = {.size = 0}};
    memcpy(&entry.driver, given, given->size < sizeof entry.driver ? given->size : sizeof entry.driver);
    entry.driver.size = sizeof entry.driver;
    loch_driver *d = &entry.driver;
    if (!driver_name_is_good(d->name))
        return LOCH_FAIL(INVALID, "a driver's name is 1 to %d letters, digits or underscores", DRIVER_NAME_MAX);
    if (!d->open || !d->close || !d->get_properties || !d->memory_info || !d->raw_alloc || !d->raw_free || !d->copy ||
        !d->fill)
        return LOCH_FAIL(INVALID,
                         "driver \"%s\" lacks a slot that every driver needs: open, close, get_properties, "
                         "memory_info, raw_alloc, raw_free, copy, fill",
                         d->name);
    if (!d->summary) d->summary = "";
    bool partly;
    const bool has_streams = driver_has_streams(d, &partly);
    if (partly) return LOCH_FAIL(INVALID, "driver \"%s\" fills only part of the stream and event slots", d->name);
    if (!d->enter != !d->leave)
        return LOCH_FAIL(INVALID, "driver \"%s\" fills only one of the slots enter and leave", d->name);
    entry.possible = driver_slots_allow(d, has_streams);
    driver_fill(d, has_streams);

    loch_status status = LOCH_OK;
    lochi_lock_take(&driver_lock);
    if (driver_lookup(d->name)) {
        status = LOCH_FAIL(EXISTS, "driver \"%s\" is already registered", d->name);
    } else if (driver_count == DRIVER_COUNT_MAX) {
        status = LOCH_FAIL(LIMIT, "%d drivers are registered, which is the limit", DRIVER_COUNT_MAX);
    } else {
        driver_table[driver_count++] = entry;
    }
    lochi_lock_drop(&driver_lock);
    return status;
}

static void driver_enter_built_in(void)
{
    static const loch_driver *const built_in[] = {&lochi_cpu_driver, &lochi_cuda_driver, &lochi_sim_driver};
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++) {
        const loch_status status = driver_enter(built_in[i]);
        (void)status; /* the tables are valid by construction; test_driver finds all three */
    }
}

loch_status loch_driver_register(const loch_driver *driver)
{
    pthread_once(&driver_once, driver_enter_built_in);
    if (!driver) return LOCH_FAIL(INVALID, "loch_driver_register needs a driver table");
    return driver_enter(driver);
}

const loch_driver *loch_driver_find(const char *name)
{
    pthread_once(&driver_once, driver_enter_built_in);
    if (!name) return NULL;
    lochi_lock_take(&driver_lock);
    driver_entry *entry = driver_lookup(name);
    lochi_lock_drop(&driver_lock);
    return entry ? &entry->driver : NULL;
}

static const loch_driver *driver_at(size_t index)
{
    pthread_once(&driver_once, driver_enter_built_in);
    lochi_lock_take(&driver_lock);
    const loch_driver *driver = index < driver_count ? &driver_table[index].driver : NULL;
    lochi_lock_drop(&driver_lock);
    return driver;
}

loch_status loch_driver_walk(loch_driver_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!visitor) return LOCH_FAIL(INVALID, "loch_driver_walk needs a visitor");
    const loch_driver *driver;
    for (size_t i = 0; (driver = driver_at(i)); i++)
        LOCH_TRY_RETURN(visitor(driver, user));
    return LOCH_OK;
}

uint32_t lochi_driver_possible(const loch_driver *driver)
{
    return ((const driver_entry *)(const void *)driver)->possible;
}
