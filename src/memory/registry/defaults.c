/* SPDX-License-Identifier: MIT */
/* Default allocators of each device: which memory serves which attributes, and how the library creates its own.
 *
 * The library creates two allocators for a device: one for the device's own memory (attributes 0), and one for
 * pinned host memory (on-host and GPU-compatible). The many possible attributes are first mapped to one of these
 * two, so that equal requests share an allocator. Plain host memory is the default of the device "cpu". An allocator
 * with a scope id wraps the one without in a tracking wrapper, so that scopes share the device's limits and have
 * statistics of their own. */
#include "base/fail.h"
#include "base/heap.h"
#include "base/options.h"
#include "device/device.h"
#include "memory/allocator.h"
#include "memory/registry/own.h"
#include "memory/registry/registry.h"
#include <loch/direct.h>
#include <loch/pool.h>
#include <loch/wrapper.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_PINNED (LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE)
#define DEFAULT_KNOWN                                                                                                  \
    (LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_NIC_COMPATIBLE | LOCH_ATTRIBUTE_GPU_COMPATIBLE |                          \
     LOCH_ATTRIBUTE_TRACK_SIZES | LOCH_ATTRIBUTES_OF_DEVICE)

/* --- scopes --- */

typedef struct default_scope {
    loch_allocator *wrapped; /* borrowed; the allocator around this struct retains it */
    int32_t scope;
} default_scope;

static void default_scope_destroy(void *self)
{
    lochi_free(self);
}

static loch_attributes default_scope_get_attributes(void *self)
{
    const default_scope *scope = self;
    return (loch_attributes){loch_allocator_get_attributes(scope->wrapped).bits, scope->scope};
}

static const loch_allocator_ops default_scope_ops = {
    .size = sizeof default_scope_ops,
    .kind = "scope",
    .destroy = default_scope_destroy,
    .get_attributes = default_scope_get_attributes,
};

/* Wraps an allocator to give it a scope. */
static loch_status default_scope_create(loch_allocator *wrapped, const char *name, int32_t scope, loch_allocator **out)
{
    default_scope *self = lochi_zalloc(sizeof *self);
    if (!self) return LOCH_FAIL(HOST_MEMORY, "no host memory for allocator \"%s\"", name);
    self->wrapped = wrapped;
    self->scope = scope;
    const loch_status status = lochi_wrapper_create(wrapped, name, &default_scope_ops, self, LOCHI_ACCOUNT_BELOW, out);
    if (status != LOCH_OK) lochi_free(self);
    return status;
}

/* --- making --- */

static loch_allocator_factory default_make;

static loch_status default_make_scoped(loch_device *device, loch_attributes attributes, const char *name,
                                       loch_allocator **out)
{
    loch_allocator *shared = NULL, *tracking = NULL;
    loch_status status = lochi_registry_get_own(device, (loch_attributes){attributes.bits, 0}, default_make, &shared);
    if (status == LOCH_OK) status = loch_tracking_create(shared, name, NULL, &tracking);
    if (status == LOCH_OK) status = default_scope_create(tracking, name, attributes.scope, out);
    loch_allocator_release(tracking);
    loch_allocator_release(shared);
    return status;
}

/* Creates an allocator without a cache: every block is a raw block of the driver. */
static loch_status default_make_direct(loch_device *device, loch_memory_kind kind, const char *name, size_t limit,
                                       loch_allocator **out)
{
    const loch_direct_options options = {.size = sizeof options, .kind = kind, .limit_bytes = limit};
    return loch_direct_create(device, name, &options, out);
}

static loch_status default_make_pool(loch_device *device, loch_memory_kind kind, const char *name, size_t limit,
                                     loch_allocator **out)
{
    loch_pool_options options = {.size = sizeof options, .kind = kind, .limit_bytes = limit};
    LOCH_TRY_RETURN(lochi_option_bytes("pool_idle", &options.idle_bytes));
    return loch_pool_create(device, name, &options, out);
}

static loch_status default_make(loch_device *device, loch_attributes attributes, void *user, loch_allocator **out)
{
    (void)user;
    const bool is_pinned = attributes.bits == DEFAULT_PINNED;
    const char *kind = is_pinned ? "pinned" : "default";
    char name[LOCHI_ALLOCATOR_NAME_MAX];
    if (attributes.scope) {
        snprintf(name, sizeof name, "%.40s %s %d", device->name, kind, (int)attributes.scope);
        return default_make_scoped(device, attributes, name, out);
    }
    snprintf(name, sizeof name, "%.40s %s", device->name, kind);
    const loch_memory_kind memory = is_pinned ? LOCH_MEMORY_PINNED : LOCH_MEMORY_DEVICE;
    size_t limit = 0;
    char wish[LOCH_OPTION_VALUE_MAX];
    LOCH_TRY_RETURN(lochi_option_text("default_allocator", wish));
    const bool is_direct = strcmp(wish, "direct") == 0;
    if (is_pinned || !is_direct) LOCH_TRY_RETURN(lochi_option_bytes(is_pinned ? "pinned_limit" : "pool_limit", &limit));
    return (is_direct ? default_make_direct : default_make_pool)(device, memory, name, limit, out);
}

/* --- choosing --- */

/* Returns an allocator of plain host memory: the default of "cpu". */
static loch_status default_get_host(int32_t scope, loch_allocator **out)
{
    loch_device *cpu;
    LOCH_TRY_RETURN(loch_device_open("cpu", &cpu));
    const loch_status status =
        loch_device_acquire_allocator(cpu, (loch_attributes){LOCH_ATTRIBUTE_ON_HOST, scope}, LOCH_FALLBACK_NONE, out);
    loch_device_release(cpu);
    return status;
}

static loch_status default_get_pinned(loch_device *device, int32_t scope, loch_fallback fallback, loch_allocator **out)
{
    const bool is_there = loch_device_can(device, LOCH_CAN_PINNED);
    bool is_on;
    LOCH_TRY_RETURN(lochi_option_switch("pinned", &is_on));
    if (is_there && is_on)
        return lochi_registry_get_own(device, (loch_attributes){DEFAULT_PINNED, scope}, default_make, out);
    if (fallback == LOCH_FALLBACK_PAGEABLE && loch_device_can(device, LOCH_CAN_HOST_ACCESS))
        return lochi_registry_get_own(device, (loch_attributes){0, scope}, default_make, out);
    if (fallback == LOCH_FALLBACK_PAGEABLE) return default_get_host(scope, out);
    if (is_there) return LOCH_FAIL(UNSUPPORTED, "pinned memory is switched off by the option `pinned`");
    return LOCH_FAIL(UNSUPPORTED, "%s has no pinned memory: use another device, or LOCH_FALLBACK_PAGEABLE",
                     device->name);
}

/* Returns the library's own allocator for the attributes. */
static loch_status default_get_own(loch_device *device, loch_attributes attributes, loch_fallback fallback,
                                   loch_allocator **out)
{
    const uint32_t bits = attributes.bits;
    const bool is_host = loch_device_can(device, LOCH_CAN_HOST_ACCESS),
               is_on_host = is_host || bits & LOCH_ATTRIBUTE_ON_HOST;
    if (bits & LOCH_ATTRIBUTES_OF_DEVICE)
        return LOCH_FAIL(UNSUPPORTED, "no allocator of %s serves the device's own attributes 0x%x", device->name,
                         (unsigned)(bits & LOCH_ATTRIBUTES_OF_DEVICE));
    if (is_on_host && bits & (LOCH_ATTRIBUTE_GPU_COMPATIBLE | LOCH_ATTRIBUTE_NIC_COMPATIBLE))
        return default_get_pinned(device, attributes.scope, fallback, out);
    if (bits & LOCH_ATTRIBUTE_NIC_COMPATIBLE)
        return LOCH_FAIL(UNSUPPORTED,
                         "network cards cannot use raw memory of %s: create handles with LOCH_RDMA_ON, or "
                         "use memory on the host",
                         device->name);
    if (is_on_host && !is_host) return default_get_host(attributes.scope, out);
    return lochi_registry_get_own(device, (loch_attributes){0, attributes.scope}, default_make, out);
}

loch_status loch_device_acquire_allocator(loch_device *device, loch_attributes attributes, loch_fallback fallback,
                                          loch_allocator **out)
{
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "acquiring an allocator needs a device and an out pointer");
    if (attributes.bits & ~DEFAULT_KNOWN || (unsigned)fallback > LOCH_FALLBACK_PAGEABLE)
        return LOCH_FAIL(INVALID, "attributes 0x%x or fallback %d are not known", (unsigned)attributes.bits,
                         (int)fallback);
    *out = lochi_registry_get_set(device, attributes);
    if (*out) return LOCH_OK;
    const loch_status status = lochi_registry_find_best(device, attributes, out);
    if (*out || (status != LOCH_OK && status != LOCH_E_NOT_FOUND && status != LOCH_E_UNSUPPORTED)) return status;
    return default_get_own(device, attributes, fallback, out);
}

loch_status loch_device_acquire_default(loch_device *device, loch_allocator **out)
{
    return loch_device_acquire_allocator(device, (loch_attributes){0}, LOCH_FALLBACK_NONE, out);
}

loch_status loch_device_set_allocator(loch_device *device, loch_allocator *allocator)
{
    if (!device) return LOCH_FAIL(INVALID, "there is no device to set an allocator for");
    if (allocator && allocator->device != device)
        return LOCH_FAIL(INVALID, "allocator \"%s\" belongs to %.80s, not to %.80s", allocator->name,
                         allocator->device->name, device->name);
    return lochi_registry_set(device, allocator);
}
