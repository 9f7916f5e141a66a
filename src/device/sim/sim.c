/* SPDX-License-Identifier: MIT */
/* Simulated devices: options, opening and closing, and the table of slots. state.h describes the objects and how
 * they are connected. */
#include "device/sim/sim.h"
#include "base/checked.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/options.h"
#include "kit/parse.h"
#include "base/room.h"
#include "kit/text.h"
#include "device/sim/backing.h"
#include "device/sim/call.h"
#include "device/sim/clock.h"
#include "device/sim/event.h"
#include "device/sim/fail.h"
#include "device/sim/memory.h"
#include "device/sim/object.h"
#include "device/sim/order.h"
#include "device/sim/stream.h"
#include "device/sim/stream_calls.h"
#include "device/sim/strided.h"
#include "device/sim/virtual.h"
#include "device/sim/work.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SIM_GRANULE_MIN ((size_t)4096)
#define SIM_GRANULE_MAX ((size_t)1 << 30)
#define SIM_CAPABILITIES                                                                                               \
    (LOCH_CAN_PINNED | LOCH_CAN_REGISTER | LOCH_CAN_MANAGED | LOCH_CAN_VIRTUAL | LOCH_CAN_ALIAS | LOCH_CAN_ORDERED |   \
     LOCH_CAN_ASYNC | LOCH_CAN_TIMING | LOCH_CAN_CAPTURE | LOCH_CAN_PEER | LOCH_CAN_RDMA | LOCH_CAN_SHARE_FD)

/* Properties of an H200, whose driver calls the default costs are from. */
#define SIM_COMPUTE_MAJOR 9
#define SIM_MULTIPROCESSORS 132
#define SIM_L2_BYTES ((size_t)60 << 20)
#define SIM_SHARED_BYTES ((size_t)228 << 10)

#define SIM_WINDOWS 1024 /* largest number of unbacked devices open at once */

/* --- options --- */

/* Returns whether `piece` is "name=...", and finds the text after the sign. */
static bool sim_is_option(const char *piece, const char *name, const char **value)
{
    const size_t length = strlen(name);
    if (strncmp(piece, name, length) != 0 || piece[length] != '=') return false;
    *value = piece + length + 1;
    return true;
}

static loch_status sim_bad_value(const char *piece)
{
    return SIM_FAIL(INVALID, "the value in \"%.80s\" cannot be read; see loch/sim.h for a simulated device's options",
                    piece);
}

static loch_status sim_read_switch(lochi_sim *sim, const char *piece, const char *value, uint32_t capabilities)
{
    bool is_on;
    if (!lochi_parse_switch(value, &is_on)) return sim_bad_value(piece);
    if (!is_on) sim->capabilities &= ~capabilities;
    return LOCH_OK;
}

/* Reads the switch of a capability, and of the capabilities that depend on it. */
static loch_status sim_read_capability(lochi_sim *sim, const char *piece, bool *is_known)
{
    const char *value;
    *is_known = true;
    if (sim_is_option(piece, "virtual", &value))
        return sim_read_switch(sim, piece, value,
                               LOCH_CAN_VIRTUAL | LOCH_CAN_ALIAS | LOCH_CAN_RDMA | LOCH_CAN_SHARE_FD);
    if (sim_is_option(piece, "alias", &value)) return sim_read_switch(sim, piece, value, LOCH_CAN_ALIAS);
    if (sim_is_option(piece, "async", &value))
        return sim_read_switch(sim, piece, value, LOCH_CAN_ASYNC | LOCH_CAN_ORDERED | LOCH_CAN_CAPTURE);
    if (sim_is_option(piece, "capture", &value)) return sim_read_switch(sim, piece, value, LOCH_CAN_CAPTURE);
    *is_known = false;
    return LOCH_OK;
}

static loch_status sim_read_granule(lochi_sim *sim, const char *piece, const char *value)
{
    if (!lochi_parse_bytes(value, &sim->granule)) return sim_bad_value(piece);
    if (lochi_is_power_of_two(sim->granule) && sim->granule >= SIM_GRANULE_MIN && sim->granule <= SIM_GRANULE_MAX)
        return LOCH_OK;
    return SIM_FAIL(INVALID, "a granule must be a power of two from 4 KiB to 1 GiB, not %zu bytes", sim->granule);
}

/* Reads whether the checker is on, off or strict. Returns false for another value. */
static bool sim_read_check(lochi_sim *sim, const char *value)
{
    if (strcmp(value, "strict") != 0) return lochi_parse_switch(value, &sim->is_checked);
    sim->is_checked = sim->is_strict = true;
    return true;
}

static loch_status sim_read_option(lochi_sim *sim, const char *piece, const char **costs)
{
    const char *value;
    bool is_known, is_good = true;
    uint64_t number;
    LOCH_TRY_RETURN(sim_read_capability(sim, piece, &is_known));
    if (is_known) return LOCH_OK;
    if (!strcmp(piece, "backed"))
        sim->is_backed = sim->is_touched = true;
    else if (!strcmp(piece, "unbacked"))
        sim->is_backed = sim->is_touched = false;
    else if (!strcmp(piece, "clock=stepped"))
        sim->is_stepped = true;
    else if (!strcmp(piece, "clock=seeded"))
        sim->is_stepped = false;
    else if (sim_is_option(piece, "seed", &value))
        is_good = lochi_parse_number(value, &sim->random);
    else if (sim_is_option(piece, "event_lag", &value))
        is_good = lochi_parse_number(value, &sim->event_lag_ns);
    else if (sim_is_option(piece, "lag", &value))
        is_good = lochi_parse_number(value, &sim->lag_ns);
    else if (sim_is_option(piece, "check", &value))
        is_good = sim_read_check(sim, value);
    else if (sim_is_option(piece, "granule", &value))
        return sim_read_granule(sim, piece, value);
    else if (sim_is_option(piece, "costs", costs))
        is_good = **costs != '\0';
    else if (sim_is_option(piece, "id", &value)) {
        is_good = lochi_parse_number(value, &number) && number <= INT32_MAX;
        if (is_good) sim->index = (int)number;
    } else if (sim_is_option(piece, "clock", &value)) {
        return SIM_FAIL(INVALID, "a simulated device's clock is seeded or stepped, not \"%.80s\"", value);
    } else {
        return SIM_FAIL(INVALID, "a simulated device has no option \"%.80s\"; see loch/sim.h", piece);
    }
    return is_good ? LOCH_OK : sim_bad_value(piece);
}

/* Reads "SIZE[,OPTION...]". */
static loch_status sim_read_arguments(lochi_sim *sim, const char *arguments)
{
    char piece[LOCH_DEVICE_NAME_MAX], path[LOCH_OPTION_VALUE_MAX];
    const char *rest = lochi_parse_piece(arguments, piece, sizeof piece);
    if (!lochi_parse_bytes(piece, &sim->capacity) || !sim->capacity)
        return SIM_FAIL(INVALID, "a simulated device needs its size first, such as sim:80GiB, not \"%.80s\"", piece);
    if (sim->capacity > (size_t)1 << (LOCHI_SIM_WINDOW_BITS - 1))
        return SIM_FAIL(INVALID, "a simulated device has at most %s",
                        LOCHI_SIZE((size_t)1 << (LOCHI_SIM_WINDOW_BITS - 1)));
    LOCH_TRY_RETURN(lochi_option_text("sim_costs", path));
    while (rest) {
        const char *costs = NULL;
        rest = lochi_parse_piece(rest, piece, sizeof piece);
        LOCH_TRY_RETURN(sim_read_option(sim, piece, &costs));
        if (costs) snprintf(path, sizeof path, "%s", costs);
    }
    lochi_sim_costs_default(&sim->costs);
    return *path ? lochi_sim_costs_read(&sim->costs, path) : LOCH_OK;
}

/* --- forks --- */

/* Detaches all simulated devices in the child of a fork. A simulated device models one that does not survive a fork,
 * so that a mistake that fails on a GPU fails here too. Its memory is a file that is mapped shared, because one
 * object may be at several addresses. The child unmaps it at once, because it would write into the parent's memory.
 * Devices that were opened by drivers outside the library are in the list too. */
static void sim_forked_all(void)
{
    pthread_cond_init(&lochi_sim_all.settled, NULL); /* threads that waited on it do not exist in the child */
    for (lochi_sim *sim = lochi_sim_all.devices; sim; sim = sim->next) {
        sim->is_forked = sim->is_lost = true;
        lochi_sim_clock_forked(sim);
        lochi_sim_objects_forked(sim);
    }
    lochi_sim_file_forked();
}

static lochi_fork_part sim_part = {.child = sim_forked_all};

/* --- opening and closing --- */

/* Takes the lowest window of addresses that no other open device uses. */
static loch_status sim_take_window(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    for (sim->window = 0; sim->window < SIM_WINDOWS; sim->window++) {
        const lochi_sim *other = lochi_sim_all.devices;
        while (other && (other->is_backed || other->window != sim->window))
            other = other->next;
        if (other) continue;
        return lochi_sim_space_init(&sim->space, LOCHI_SIM_WINDOW_BASE + (sim->window << LOCHI_SIM_WINDOW_BITS),
                                    (size_t)1 << LOCHI_SIM_WINDOW_BITS);
    }
    return SIM_FAIL(LIMIT, "%d unbacked simulated devices are open, which is the limit", SIM_WINDOWS);
}

/* Frees everything that a device holds, whole or half-built. The device is in no list. */
static void sim_destroy(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_virtual_close(sim);
    lochi_sim_memory_close(sim);
    lochi_sim_stream_close(sim);
    if (!lochi_sim_all.devices) lochi_sim_vector_fini(&lochi_sim_all.host);
    lochi_free(sim);
}

static loch_status sim_build(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (sim->is_backed && !lochi_is_multiple(sim->granule, (size_t)sysconf(_SC_PAGESIZE)))
        return SIM_FAIL(INVALID, "the granule of a backed device must be a multiple of the system's page size");
    if (!lochi_sim_all.host.epochs) LOCH_TRY_RETURN(lochi_sim_vector_init(&lochi_sim_all.host));
    if (!sim->is_backed) LOCH_TRY_RETURN(sim_take_window(sim));
    LOCH_TRY_RETURN(lochi_sim_vector_init(&sim->gone));
    LOCH_TRY_RETURN(lochi_sim_vector_init(&sim->gone_blocking));
    return lochi_sim_stream_init(sim, &sim->default_stream);
}

static loch_status sim_open(const char *arguments, void **self)
{
    *self = NULL;
    lochi_fork_add(&sim_part);
    lochi_sim *sim = lochi_zalloc(sizeof *sim);
    if (!sim) return SIM_FAIL(HOST_MEMORY, "no host memory for a simulated device");
    sim->granule = LOCHI_SIM_RAW_LARGE;
    sim->capabilities = SIM_CAPABILITIES;
    sim->is_backed = sim->is_checked = true;
    sim->lag_ns = 2000;
    sim->random = 1;
    sim->next_ns = UINT64_MAX;
    loch_status status = lochi_option_switch("sim_strict", &sim->is_strict);
    if (status == LOCH_OK) status = sim_read_arguments(sim, arguments);
    if (status != LOCH_OK) {
        lochi_free(sim);
        return status;
    }
    lochi_lock_take(&lochi_sim_all.lock);
    const loch_status built = sim_build(sim);
    if (built != LOCH_OK) {
        sim_destroy(sim);
        return lochi_sim_end(built);
    }
    sim->serial = ++lochi_sim_all.last_serial;
    sim->next = lochi_sim_all.devices;
    lochi_sim_all.devices = sim;
    *self = sim;
    return lochi_sim_end(LOCH_OK);
}

/* Ends the waits of other devices for a device that has run all its work. */
static void sim_forget(const lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    for (lochi_sim *other = lochi_sim_all.devices; other; other = other->next)
        for (lochi_sim_stream *stream = &other->default_stream; stream; stream = stream->next)
            for (lochi_sim_op *op = stream->first; op; op = op->next)
                if (op->awaited == sim) op->awaited = NULL;
}

static void sim_close(void *self)
{
    lochi_sim *sim = self;
    lochi_lock_take(&lochi_sim_all.lock);
    const loch_status status = lochi_sim_wait(sim, sim->last);
    (void)status; /* fails only inside a queued function, which must not close devices */
    lochi_sim_vector_join(&lochi_sim_all.host, &sim->gone);
    for (lochi_sim_stream *stream = &sim->default_stream; stream; stream = stream->next)
        lochi_sim_vector_join(&lochi_sim_all.host, &stream->seen);
    sim_forget(sim);
    lochi_sim **link = &lochi_sim_all.devices;
    while (*link && *link != sim)
        link = &(*link)->next;
    if (*link) *link = sim->next;
    sim_destroy(sim);
    lochi_lock_drop(&lochi_sim_all.lock);
}

static loch_status sim_get_properties(void *self, loch_device_properties *out)
{
    const lochi_sim *sim = self; /* constant after open */
    snprintf(out->model, sizeof out->model, "simulated H200%s", sim->is_backed ? "" : ", unbacked");
    out->capabilities = sim->capabilities;
    out->index = sim->index;
    out->numa_node = -1;
    out->total_bytes = sim->capacity;
    out->granule_bytes = sim->capabilities & LOCH_CAN_VIRTUAL ? sim->granule : 0;
    out->alignment_bytes = LOCHI_SIM_RAW_UNIT;
    out->compute_major = SIM_COMPUTE_MAJOR;
    out->multiprocessors = SIM_MULTIPROCESSORS;
    out->l2_bytes = SIM_L2_BYTES;
    out->shared_bytes = SIM_SHARED_BYTES;
    snprintf(out->driver_version, sizeof out->driver_version, "%s", LOCH_VERSION_STRING);
    return LOCH_OK;
}

static loch_status sim_forked(void *self)
{
    (void)self;
    return LOCH_E_FORKED; /* all devices were detached already */
}

static void sim_call_costs(void *self, uint64_t ns[LOCH_CALL_COUNT])
{
    const lochi_sim *sim = self;
    lochi_lock_take(&lochi_sim_all.lock);
    memcpy(ns, sim->call_ns, sizeof sim->call_ns);
    lochi_lock_drop(&lochi_sim_all.lock);
}

static uint64_t sim_now_ns(void *self)
{
    const lochi_sim *sim = self;
    lochi_lock_take(&lochi_sim_all.lock);
    const uint64_t now_ns = lochi_sim_add_ns(sim->now_ns, sim->modelled_ns); /* costs do not move the clock */
    lochi_lock_drop(&lochi_sim_all.lock);
    return now_ns;
}

/* --- current in a thread --- */

uint64_t lochi_sim_get_current(void)
{
    return lochi_room_own ? lochi_room_own->sim_current : 0;
}

void lochi_sim_set_current(uint64_t serial)
{
    lochi_room *room = lochi_room_get();
    if (room) room->sim_current = serial;
}

/* Takes no time on the device. A lost device can be current, as with CUDA, so that its memory can be given back. */
static loch_status sim_enter(void *self, void **before)
{
    lochi_sim *sim = self;
    lochi_lock_take(&lochi_sim_all.lock);
    LOCH_TRY_RETURN(lochi_sim_end(lochi_sim_count(sim, LOCH_CALL_enter, 0)));
    *before = (void *)(uintptr_t)lochi_sim_get_current();
    lochi_sim_set_current(sim->serial);
    return LOCH_OK;
}

static loch_status sim_leave(void *self, void *before)
{
    lochi_lock_take(&lochi_sim_all.lock);
    const loch_status status = lochi_sim_count(self, LOCH_CALL_leave, 0);
    (void)status; /* a call that gives back cannot fail */
    lochi_sim_set_current((uint64_t)(uintptr_t)before);
    return lochi_sim_end(LOCH_OK);
}

const loch_driver lochi_sim_driver = {
    .size = sizeof lochi_sim_driver,
    .name = "sim",
    .summary = "simulated devices of any size, for development and tests without a GPU",
    .open = sim_open,
    .close = sim_close,
    .get_properties = sim_get_properties,
    .memory_info = lochi_sim_memory_info,
    .raw_alloc = lochi_sim_raw_alloc,
    .raw_free = lochi_sim_raw_free,
    .pinned_alloc = lochi_sim_pinned_alloc,
    .pinned_free = lochi_sim_pinned_free,
    .managed_alloc = lochi_sim_managed_alloc,
    .managed_free = lochi_sim_managed_free,
    .host_register = lochi_sim_host_register,
    .host_unregister = lochi_sim_host_unregister,
    .ordered_alloc = lochi_sim_ordered_alloc,
    .ordered_free = lochi_sim_ordered_free,
    .reserve = lochi_sim_reserve,
    .unreserve = lochi_sim_unreserve,
    .handle_create = lochi_sim_handle_create,
    .handle_release = lochi_sim_handle_release,
    .map = lochi_sim_map,
    .unmap = lochi_sim_unmap,
    .handle_export = lochi_sim_handle_export,
    .handle_import = lochi_sim_handle_import,
    .copy = lochi_sim_copy,
    .fill = lochi_sim_fill,
    .stream_create = lochi_sim_stream_create,
    .stream_destroy = lochi_sim_stream_destroy,
    .stream_thread_default = lochi_sim_stream_thread_default,
    .stream_wrap = lochi_sim_stream_wrap,
    .stream_query = lochi_sim_stream_query,
    .stream_sync = lochi_sim_stream_sync,
    .stream_wait = lochi_sim_stream_wait,
    .stream_call = lochi_sim_stream_call,
    .event_create = lochi_sim_event_create,
    .event_destroy = lochi_sim_event_destroy,
    .event_record = lochi_sim_event_record,
    .event_query = lochi_sim_event_query,
    .event_sync = lochi_sim_event_sync,
    .event_elapsed = lochi_sim_event_elapsed,
    .device_sync = lochi_sim_device_sync,
    .stream_capture = lochi_sim_stream_capture,
    .peer_enable = lochi_sim_peer_enable,
    .address_query = lochi_sim_address_query,
    .call_costs = sim_call_costs,
    .copy_pitched = lochi_sim_copy_pitched,
    .copy_strided = lochi_sim_copy_strided,
    .fill_strided = lochi_sim_fill_strided,
    .enter = sim_enter,
    .leave = sim_leave,
    .forked = sim_forked,
    .now_ns = sim_now_ns,
};
