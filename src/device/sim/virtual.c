/* SPDX-License-Identifier: MIT */
/* Virtual memory of simulated devices: reservations, handles, mappings, and handles shared by file descriptor.
 *
 * A driver's handle is the address of an object. The first export creates a small file whose identity stands for the
 * object. Its descriptor can be duplicated and passed on like CUDA's, and importing looks the identity up. So
 * sharing works between the simulated devices of one process, not between processes. */
#include "device/sim/virtual.h"
#include "base/checked.h"
#include "base/heap.h"
#include "kit/text.h"
#include "device/sim/backing.h"
#include "device/sim/call.h"
#include "device/sim/fail.h"
#include "device/sim/memory.h"
#include "device/sim/object.h"
#include "device/sim/span.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- reservations --- */

static lochi_sim_reservation *virtual_find_reservation(const lochi_sim *sim, uintptr_t address)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_tree_node *node = lochi_tree_at_or_below(&sim->reservations, address);
    if (!node) return NULL;
    lochi_sim_reservation *reservation = LOCHI_CONTAINER(node, lochi_sim_reservation, node);
    return address - node->key < reservation->bytes ? reservation : NULL;
}

static loch_status virtual_reserve(lochi_sim *sim, size_t bytes, size_t alignment, void **out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    LOCH_TRY_RETURN(lochi_sim_need(sim, LOCH_CAN_VIRTUAL, "virtual memory"));
    if (alignment < sim->granule) alignment = sim->granule;
    lochi_sim_reservation *reservation = lochi_zalloc(sizeof *reservation);
    if (!reservation) return SIM_FAIL(HOST_MEMORY, "no host memory to record a reservation");
    reservation->bytes = bytes;
    loch_status status = LOCH_OK;
    if (sim->is_backed) {
        reservation->node.key = (uintptr_t)lochi_sim_host_reserve(bytes, alignment);
        if (!reservation->node.key)
            status = SIM_FAIL_CODE(DEVICE_MEMORY, errno, "the system cannot reserve %s of addresses: reserve less",
                                   LOCHI_SIZE(bytes));
    } else {
        status = lochi_sim_space_take(&sim->space, bytes, alignment, &reservation->extent);
        if (status == LOCH_OK) reservation->node.key = reservation->extent->by_address.key;
    }
    if (status != LOCH_OK) {
        lochi_free(reservation);
        return status;
    }
    lochi_tree_insert(&sim->reservations, &reservation->node);
    sim->reserved += bytes;
    *out = (void *)reservation->node.key;
    return LOCH_OK;
}

loch_status lochi_sim_reserve(void *self, size_t bytes, size_t alignment, void **out)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_reserve, bytes));
    return lochi_sim_end(virtual_reserve(self, bytes, alignment, out));
}

static void virtual_drop_reservation(lochi_sim *sim, lochi_sim_reservation *reservation)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_tree_remove(&sim->reservations, &reservation->node);
    sim->reserved -= reservation->bytes;
    if (reservation->extent)
        lochi_sim_space_give(&sim->space, reservation->extent);
    else
        munmap((void *)reservation->node.key, reservation->bytes);
    lochi_free(reservation);
}

static loch_status virtual_unreserve(lochi_sim *sim, const void *address, size_t bytes)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_reservation *reservation = virtual_find_reservation(sim, (uintptr_t)address);
    if (!reservation || reservation->node.key != (uintptr_t)address || reservation->bytes != bytes)
        return SIM_FAIL(INVALID, "there is no reservation of %zu bytes at %p", bytes, address);
    if (reservation->mappings)
        return SIM_FAIL(BUSY, "%zu handles are still mapped in the reservation at %p", reservation->mappings, address);
    virtual_drop_reservation(sim, reservation);
    return LOCH_OK;
}

loch_status lochi_sim_unreserve(void *self, void *address, size_t bytes)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_unreserve, bytes));
    return lochi_sim_end(virtual_unreserve(self, address, bytes));
}

/* --- handles --- */

static lochi_sim_object *virtual_object(loch_driver_handle handle)
{
    return (lochi_sim_object *)(uintptr_t)handle;
}

static loch_status virtual_create(lochi_sim *sim, size_t bytes, const loch_handle_options *options,
                                  loch_driver_handle *out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    LOCH_TRY_RETURN(lochi_sim_need(sim, LOCH_CAN_VIRTUAL, "virtual memory"));
    if (options->share & ~(uint32_t)LOCH_SHARE_FD)
        return SIM_FAIL(UNSUPPORTED, "handles of a simulated device can be shared by file descriptor only");
    lochi_sim_object *object;
    LOCH_TRY_RETURN(lochi_sim_object_create(sim, bytes, bytes, &object));
    object->share = options->share;
    sim->handles++;
    *out = (loch_driver_handle)(uintptr_t)object;
    return LOCH_OK;
}

loch_status lochi_sim_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                    loch_driver_handle *out)
{
    static const loch_handle_options defaults = {.size = sizeof defaults};
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_handle_create, bytes));
    return lochi_sim_end(virtual_create(self, bytes, options ? options : &defaults, out));
}

loch_status lochi_sim_handle_release(void *self, loch_driver_handle handle, size_t bytes)
{
    lochi_sim *sim = self;
    LOCH_TRY_RETURN(lochi_sim_begin(sim, LOCH_CALL_handle_release, bytes));
    sim->handles--;
    lochi_sim_object_release(virtual_object(handle));
    return lochi_sim_end(LOCH_OK);
}

static loch_status virtual_export(lochi_sim_object *object, loch_share share, int *out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (share != LOCH_SHARE_FD || !(object->share & LOCH_SHARE_FD))
        return SIM_FAIL(INVALID, "the handle was not created to be shared that way");
    if (object->token < 0) object->token = memfd_create("loch-sim-handle", MFD_CLOEXEC);
    const int copy = object->token < 0 ? -1 : fcntl(object->token, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return SIM_FAIL_CODE(DRIVER, errno, "the system cannot create a file descriptor for a handle: %s",
                             strerror(errno));
    *out = copy;
    return LOCH_OK;
}

loch_status lochi_sim_handle_export(void *self, loch_driver_handle handle, loch_share share, void *out)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_handle_export, 0));
    int fd = -1;
    const loch_status status = virtual_export(virtual_object(handle), share, &fd);
    if (status == LOCH_OK) memcpy(out, &fd, sizeof fd);
    return lochi_sim_end(status);
}

/* Returns the object that a descriptor stands for. */
static lochi_sim_object *virtual_find_token(int fd)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    struct stat wanted, have;
    if (fstat(fd, &wanted) != 0) return NULL;
    for (lochi_sim *sim = lochi_sim_all.devices; sim; sim = sim->next)
        for (lochi_sim_object *object = sim->objects; object; object = object->next)
            if (object->token >= 0 && fstat(object->token, &have) == 0 && have.st_dev == wanted.st_dev &&
                have.st_ino == wanted.st_ino)
                return object;
    return NULL;
}

static loch_status virtual_import(lochi_sim *sim, loch_share share, const void *shared, size_t bytes,
                                  loch_driver_handle *out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    LOCH_TRY_RETURN(lochi_sim_need(sim, LOCH_CAN_SHARE_FD, "shared handles"));
    if (share != LOCH_SHARE_FD)
        return SIM_FAIL(UNSUPPORTED, "handles of a simulated device can be shared by file descriptor only");
    int fd;
    memcpy(&fd, shared, sizeof fd);
    lochi_sim_object *object = virtual_find_token(fd);
    if (!object)
        return SIM_FAIL(INVALID, "descriptor %d was not exported by a simulated device that is open in this process",
                        fd);
    if (object->bytes != bytes) return SIM_FAIL(INVALID, "the handle has %zu bytes, not %zu", object->bytes, bytes);
    if (sim->is_backed != object->is_backed)
        return SIM_FAIL(INVALID, "a backed and an unbacked device cannot share a handle");
    object->references++;
    sim->handles++;
    *out = (loch_driver_handle)(uintptr_t)object;
    return LOCH_OK;
}

loch_status lochi_sim_handle_import(void *self, loch_share share, const void *shared, size_t bytes,
                                    loch_driver_handle *out)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_handle_import, bytes));
    return lochi_sim_end(virtual_import(self, share, shared, bytes, out));
}

/* --- mappings --- */

static loch_status virtual_check_place(const lochi_sim *sim, const void *address, const lochi_sim_object *object,
                                       lochi_sim_reservation **out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const uintptr_t start = (uintptr_t)address;
    const size_t bytes = object->bytes;
    if (!lochi_is_multiple(start, sim->granule))
        return SIM_FAIL(INVALID, "%p is not a multiple of the granule of %s", address, LOCHI_SIZE(sim->granule));
    lochi_sim_reservation *reservation = virtual_find_reservation(sim, start);
    if (!reservation || bytes > reservation->bytes - (start - reservation->node.key))
        return SIM_FAIL(OUT_OF_RANGE, "%s at %p do not lie in one reservation", LOCHI_SIZE(bytes), address);
    const lochi_tree_node *above = lochi_tree_at_or_above(&sim->spans, start);
    if (lochi_sim_span_find(sim, start) || (above && above->key - start < bytes))
        return SIM_FAIL(EXISTS, "memory is already mapped in the %s at %p", LOCHI_SIZE(bytes), address);
    /* Without aliases every handle may be at one address only. An imported handle counts separately. */
    const size_t handles = object->references - object->mappings;
    if (object->mappings >= handles && !(sim->capabilities & LOCH_CAN_ALIAS))
        return SIM_FAIL(BUSY, "the handle is already mapped, and this device cannot map a handle twice");
    *out = reservation;
    return LOCH_OK;
}

static loch_status virtual_map(lochi_sim *sim, void *address, lochi_sim_object *object, void *const *peers,
                               size_t peers_count)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_reservation *reservation = NULL;
    const size_t bytes = object->bytes;
    LOCH_TRY_RETURN(lochi_sim_need(sim, LOCH_CAN_VIRTUAL, "virtual memory"));
    LOCH_TRY_RETURN(virtual_check_place(sim, address, object, &reservation));
    for (size_t i = 0; i <= peers_count; i++)
        LOCH_TRY_RETURN(lochi_sim_count(sim, LOCH_CALL_access, bytes));
    size_t span_bytes;
    lochi_sim_span *span = NULL;
    if (lochi_mul(peers_count, sizeof(uint64_t), &span_bytes) && lochi_add(span_bytes, sizeof *span, &span_bytes))
        span = lochi_zalloc(span_bytes);
    if (!span) return SIM_FAIL(HOST_MEMORY, "no host memory to record a mapping");
    *span = (lochi_sim_span){.node.key = (uintptr_t)address,
                             .bytes = bytes,
                             .is_real = sim->is_backed,
                             .object = object,
                             .reservation = reservation,
                             .peers_count = peers_count};
    for (size_t i = 0; i < peers_count; i++)
        span->peers[i] = ((lochi_sim *)peers[i])->serial;
    const loch_status status = sim->is_touched ? lochi_sim_host_map(span) : LOCH_OK;
    if (status != LOCH_OK) {
        lochi_free(span);
        return status;
    }
    object->references++;
    object->mappings++;
    reservation->mappings++;
    sim->mappings++;
    lochi_tree_insert(&sim->spans, &span->node);
    return LOCH_OK;
}

loch_status lochi_sim_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                          size_t peers_count)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_map, bytes));
    if (virtual_object(handle)->bytes != bytes)
        return lochi_sim_end(SIM_FAIL(INVALID, "a handle of %zu bytes is mapped as a whole, not %zu bytes of it",
                                      virtual_object(handle)->bytes, bytes));
    return lochi_sim_end(virtual_map(self, address, virtual_object(handle), peers, peers_count));
}

static void virtual_drop_mapping(lochi_sim *sim, lochi_sim_span *span)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    void *address = (void *)span->node.key;
    const size_t bytes = span->bytes;
    const bool is_mapped = span->is_mapped;
    sim->mappings--;
    lochi_sim_span_remove(sim, span, "unmapped");
    /* A failure leaves pages there that the device no longer uses; the next mapping replaces them. */
    if (is_mapped)
        (void)mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

loch_status lochi_sim_unmap(void *self, void *address, size_t bytes, loch_driver_handle handle)
{
    lochi_sim *sim = self;
    LOCH_TRY_RETURN(lochi_sim_begin(sim, LOCH_CALL_unmap, bytes));
    lochi_sim_span *span = lochi_sim_span_find(sim, (uintptr_t)address);
    if (!span || !span->reservation || span->node.key != (uintptr_t)address || span->bytes != bytes ||
        span->object != virtual_object(handle))
        return lochi_sim_end(SIM_FAIL(INVALID, "no whole handle of %zu bytes is mapped at %p", bytes, address));
    const loch_status status = lochi_sim_span_refuse(sim, span, "unmapped");
    if (status == LOCH_OK) virtual_drop_mapping(sim, span);
    return lochi_sim_end(status);
}

void lochi_sim_virtual_close(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    for (;;) { /* mappings first, because reservations count them */
        lochi_tree_node *node = lochi_tree_at_or_above(&sim->spans, 0);
        while (node && !LOCHI_CONTAINER(node, lochi_sim_span, node)->reservation)
            node = lochi_tree_at_or_above(&sim->spans, node->key + 1);
        if (!node) break;
        virtual_drop_mapping(sim, LOCHI_CONTAINER(node, lochi_sim_span, node));
    }
    while (sim->reservations.root)
        virtual_drop_reservation(sim, LOCHI_CONTAINER(sim->reservations.root, lochi_sim_reservation, node));
}
