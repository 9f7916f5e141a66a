/* SPDX-License-Identifier: MIT */
/* The table of open devices: opening by name, reference counts and properties.
 *
 * The count of a device falls to zero only under the lock of the table, and opening looks names up under that lock
 * too. So a device that is found is alive. The driver's close runs after the device has left the table, outside the
 * lock. */
#include "device/device.h"
#include "kit/cancel.h"
#include "base/environment.h"
#include "base/fail.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/options.h"
#include "kit/sized.h"
#include <string.h>

static lochi_lock device_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_DEVICES);
static loch_device *device_list; /* under device_lock */

/* --- forks --- */

static void device_forked(void)
{
    for (loch_device *device = device_list; device; device = device->next)
        lochi_driver_tell_forked(device);
}

static lochi_fork_part device_part = {.child = device_forked};

/* --- opening --- */

/* Stores the first argument that a driver enumerates, and ends the walk. */
static loch_status device_take_first(const char *arguments, void *user)
{
    char *first = user;
    const size_t length = strlen(arguments);
    if (length < LOCH_DEVICE_NAME_MAX) memcpy(first, arguments, length + 1);
    return LOCH_E_EXISTS;
}

/* Finds the driver of "driver[:arguments]" and writes the full name. A driver name alone means its first device. */
static loch_status device_resolve(const char *name, char full[LOCH_DEVICE_NAME_MAX], const loch_driver **out)
{
    LOCHI_NOT_CANCELLED;
    if (!name || !*name || *name == ':')
        return LOCH_FAIL(INVALID, "a device needs a name, such as cpu, cuda:0 or sim:8GiB");
    const size_t length = strlen(name), prefix = strcspn(name, ":");
    if (length >= LOCH_DEVICE_NAME_MAX)
        return LOCH_FAIL(INVALID, "a device name of %zu characters is too long: at most %d", length,
                         LOCH_DEVICE_NAME_MAX - 1);
    memcpy(full, name, length + 1);
    full[prefix] = '\0';
    const loch_driver *driver = loch_driver_find(full);
    if (!driver)
        return LOCH_FAIL(NOT_FOUND, "there is no driver \"%.40s\": devices are named cpu, cuda:0, sim:8GiB, ...", full);
    if (name[prefix]) {
        full[prefix] = ':';
    } else {
        char first[LOCH_DEVICE_NAME_MAX] = "";
        const loch_status status = driver->enumerate(device_take_first, first);
        if (status == LOCH_E_EXISTS && *first && prefix + 1 + strlen(first) < LOCH_DEVICE_NAME_MAX) {
            full[prefix] = ':';
            memcpy(full + prefix + 1, first, strlen(first) + 1);
        }
    }
    *out = driver;
    return LOCH_OK;
}

static loch_status device_read_properties(loch_device *device)
{
    device->properties.size = sizeof device->properties;
    LOCH_TRY_RETURN(device->driver->get_properties(device->self, &device->properties));
    device->properties.size = sizeof device->properties;
    const size_t name_bytes = strlen(device->driver->name) + 1;
    memcpy(device->properties.driver, device->driver->name, name_bytes);
    const uint32_t claimed = device->properties.capabilities;
    if (claimed & ~lochi_driver_possible(device->driver))
        return LOCH_FAIL(DRIVER, "driver \"%s\" claims capabilities 0x%x but has no slots for them",
                         device->driver->name, claimed & ~lochi_driver_possible(device->driver));
    const size_t granule = device->properties.granule_bytes;
    if ((claimed & LOCH_CAN_VIRTUAL) && (!granule || (granule & (granule - 1))))
        return LOCH_FAIL(DRIVER, "driver \"%s\" has virtual memory, but its granule of %zu bytes is not a power of two",
                         device->driver->name, granule);
    return LOCH_OK;
}

/* Closes a device, whole or half-built, to which no other reference exists. */
static void device_destroy(loch_device *device)
{
    LOCHI_NOT_CANCELLED;
    if (device->is_open) {
        lochi_stream_close_all(device);
        device->driver->close(device->self);
    }
    lochi_lock_fini(&device->lock);
    lochi_free(device);
}

static loch_status device_create(const loch_driver *driver, const char *full, loch_device **out)
{
    LOCHI_NOT_CANCELLED;
    *out = NULL;
    loch_device *device = lochi_zalloc(sizeof *device);
    if (!device) return LOCH_FAIL(HOST_MEMORY, "no host memory for device \"%.80s\"", full);
    loch_status status;
    lochi_lock_init(&device->lock, LOCHI_RANK_DEVICE);
    device->driver = driver;
    memcpy(device->name, full, strlen(full) + 1);
    atomic_init(&device->references, 1);
    const char *colon = strchr(device->name, ':');
    LOCH_TRY(driver->open(colon ? colon + 1 : "", &device->self), fail);
    device->is_open = true;
    LOCH_TRY(device_read_properties(device), fail);
    lochi_stream_init_default(device);
    *out = device;
    return LOCH_OK;
fail:;
    const loch_error saved = lochi_error_save();
    device_destroy(device);
    lochi_error_restore(&saved);
    return status;
}

loch_status loch_device_open(const char *name, loch_device **out)
{
    if (!out) return LOCH_FAIL(INVALID, "loch_device_open needs an out pointer");
    *out = NULL;
    LOCH_TRY_RETURN(lochi_log_check());
    lochi_option_warn_unknown();
    char full[LOCH_DEVICE_NAME_MAX];
    const loch_driver *driver;
    LOCH_TRY_RETURN(device_resolve(name, full, &driver));

    loch_status status = LOCH_OK;
    lochi_fork_add(&device_part);
    lochi_lock_take(&device_lock);
    loch_device *device = device_list;
    /* A device of the parent process is not this process's. */
    while (device && (device->is_forked || strcmp(device->name, full) != 0))
        device = device->next;
    if (device) {
        loch_device_retain(device);
    } else {
        status = device_create(driver, full, &device);
        if (status == LOCH_OK) {
            device->next = device_list;
            device_list = device;
        }
    }
    lochi_lock_drop(&device_lock);
    *out = device;
    if (status == LOCH_OK) LOCHI_LOG(INFO, "opened %s: %s", device->name, device->properties.model);
    return status;
}

loch_device *loch_device_retain(loch_device *device)
{
    /* Relaxed: the caller has a reference already, so the object is visible to it. */
    if (device) atomic_fetch_add_explicit(&device->references, 1, memory_order_relaxed);
    return device;
}

void loch_device_release(loch_device *device)
{
    if (!device) return;
    size_t count = atomic_load_explicit(&device->references, memory_order_relaxed);
    while (count > 1) /* release: the work of this owner is ordered before the last one closes the device */
        if (atomic_compare_exchange_weak_explicit(&device->references, &count, count - 1, memory_order_release,
                                                  memory_order_relaxed))
            return;
    lochi_lock_take(&device_lock);
    const bool is_last = atomic_fetch_sub_explicit(&device->references, 1, memory_order_acq_rel) == 1;
    if (is_last) {
        loch_device **link = &device_list;
        while (*link != device)
            link = &(*link)->next;
        *link = device->next;
    }
    lochi_lock_drop(&device_lock);
    if (is_last) device_destroy(device);
}

/* --- looking around --- */

typedef struct device_walk {
    const loch_driver *driver;
    loch_device_visitor *visitor;
    void *user;
} device_walk;

static loch_status device_visit(const char *arguments, void *user)
{
    const device_walk *walk = user;
    char name[LOCH_DEVICE_NAME_MAX];
    const size_t prefix = strlen(walk->driver->name), rest = strlen(arguments);
    if (prefix + 1 + rest >= sizeof name) return LOCH_OK;
    memcpy(name, walk->driver->name, prefix + 1);
    if (rest) {
        name[prefix] = ':';
        memcpy(name + prefix + 1, arguments, rest + 1);
    }
    return walk->visitor(name, walk->user);
}

static loch_status device_walk_driver(const loch_driver *driver, void *user)
{
    device_walk *walk = user;
    walk->driver = driver;
    return driver->enumerate(device_visit, walk);
}

loch_status loch_device_walk(loch_device_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!visitor) return LOCH_FAIL(INVALID, "loch_device_walk needs a visitor");
    device_walk walk = {.visitor = visitor, .user = user};
    return loch_driver_walk(device_walk_driver, &walk);
}

bool lochi_device_any(bool (*visit)(loch_device *device, void *user), void *user)
{
    bool is_found = false;
    lochi_lock_take(&device_lock);
    for (loch_device *device = device_list; device && !is_found; device = device->next)
        is_found = visit(device, user);
    lochi_lock_drop(&device_lock);
    return is_found;
}

const char *loch_device_get_name(const loch_device *device)
{
    return device ? device->name : "";
}

loch_status loch_device_get_properties(const loch_device *device, loch_device_properties *out)
{
    if (!device || !lochi_sized_is_set(out))
        return LOCH_FAIL(INVALID, "loch_device_get_properties needs a device and a struct whose size is set");
    lochi_sized_write(out, &device->properties, sizeof device->properties);
    return LOCH_OK;
}

int loch_device_can(const loch_device *device, uint32_t capabilities)
{
    return device && (device->properties.capabilities & capabilities) == capabilities;
}

const loch_driver *loch_device_get_driver(const loch_device *device, void **self)
{
    if (self) *self = device ? device->self : NULL;
    return device ? device->driver : NULL;
}

loch_status loch_device_calculate_memory(loch_device *device, loch_memory_info *out)
{
    if (!device || !lochi_sized_is_set(out))
        return LOCH_FAIL(INVALID, "loch_device_calculate_memory needs a device and a struct whose size is set");
    loch_memory_info info = {.size = sizeof info};
    loch_status status;
    LOCHI_CALL(status, device, memory_info, (device->self, &info));
    if (status == LOCH_OK) lochi_sized_write(out, &info, sizeof info);
    return status;
}

loch_status loch_device_sync(loch_device *device)
{
    if (!device) return LOCH_FAIL(INVALID, "loch_device_sync needs a device");
    loch_status status;
    LOCHI_CALL(status, device, device_sync, (device->self));
    return status;
}

loch_status loch_device_enable_peer(loch_device *device, loch_device *peer)
{
    if (!device || !peer) return LOCH_FAIL(INVALID, "loch_device_enable_peer needs two devices");
    if (device == peer) return LOCH_OK;
    if (device->driver != peer->driver)
        return LOCH_FAIL(UNSUPPORTED, "%s and %s have different drivers and cannot be peers", device->name, peer->name);
    loch_status status;
    LOCHI_CALL(status, device, peer_enable, (device->self, peer->self));
    return status;
}
