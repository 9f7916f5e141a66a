/* SPDX-License-Identifier: MIT */
/* The forwarding driver. Its `self` is a pair of the other driver and that driver's `self`; where a peer's `self` is
 * handed in, it is one of these pairs too, because peers are of one driver. Memory is libc's: a driver from outside has
 * no other. */
#include "faulty_driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAULTY_PEERS_MAX 16

typedef struct faulty_device {
    const loch_driver *driver;
    void *self;
} faulty_device;

static atomic_int faulty_mode;
static _Atomic uint64_t faulty_after, faulty_count, faulty_devices;

static int faulty_strikes(void)
{
    uint64_t number = atomic_fetch_add(&faulty_count, 1), after = atomic_load(&faulty_after);
    int mode = atomic_load(&faulty_mode);
    return (mode == TEST_FAILING_ONCE && number == after) || (mode == TEST_FAILING_FOREVER && number >= after);
}

static loch_status faulty_fail(loch_status status, const char *call)
{
    return loch_error_set(status, "faulty", 77, "the faulty driver fails %s, as it was told to", call);
}

/* --- holding up --- */

static pthread_mutex_t faulty_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t faulty_changed = PTHREAD_COND_INITIALIZER;
static atomic_uint faulty_kinds; /* test_held; changed with the mutex held */
static unsigned faulty_waiting;  /* calls that are held up */

static void faulty_pass(test_held kind)
{
    if (!(atomic_load(&faulty_kinds) & kind)) return;
    pthread_mutex_lock(&faulty_mutex);
    faulty_waiting++;
    pthread_cond_broadcast(&faulty_changed);
    while (atomic_load(&faulty_kinds) & kind)
        pthread_cond_wait(&faulty_changed, &faulty_mutex);
    faulty_waiting--;
    pthread_mutex_unlock(&faulty_mutex);
}

static void faulty_set_kinds(unsigned kinds)
{
    pthread_mutex_lock(&faulty_mutex);
    atomic_store(&faulty_kinds, kinds);
    pthread_cond_broadcast(&faulty_changed);
    pthread_mutex_unlock(&faulty_mutex);
}

void test_faulty_hold(unsigned kinds)
{
    faulty_set_kinds(kinds);
}

void test_faulty_let_go(void)
{
    faulty_set_kinds(0);
}

bool test_faulty_await_held(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    int error = 0;
    pthread_mutex_lock(&faulty_mutex);
    while (!faulty_waiting && !error)
        error = pthread_cond_timedwait(&faulty_changed, &faulty_mutex, &until);
    pthread_mutex_unlock(&faulty_mutex);
    return !error;
}

/* --- refusing --- */

static atomic_bool faulty_refuses_unmap, faulty_soils;

void test_faulty_soil(bool is_soiled)
{
    atomic_store(&faulty_soils, is_soiled);
}

void test_faulty_refuse_unmap(bool is_refused)
{
    atomic_store(&faulty_refuses_unmap, is_refused);
}

/* --- identity --- */

static loch_status faulty_open(const char *arguments, void **self)
{
    char name[16] = "";
    const char *colon = strchr(arguments, ':');
    size_t length = colon ? (size_t)(colon - arguments) : strlen(arguments);
    if (length == 0 || length >= sizeof name)
        return loch_error_set(LOCH_E_INVALID, "faulty", 0, "\"faulty:%s\" names no device: faulty:cpu", arguments);
    memcpy(name, arguments, length);
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "open");
    const loch_driver *driver = loch_driver_find(name);
    if (!driver) return loch_error_set(LOCH_E_NOT_FOUND, "faulty", 0, "there is no driver %s to forward to", name);
    faulty_device *f = malloc(sizeof *f);
    if (!f) return loch_error_set(LOCH_E_HOST_MEMORY, "faulty", 0, "no memory for a device");
    f->driver = driver;
    loch_status status = driver->open(colon ? colon + 1 : "", &f->self);
    if (status != LOCH_OK) {
        free(f);
        return status;
    }
    atomic_fetch_add(&faulty_devices, 1);
    *self = f;
    return LOCH_OK;
}

static void faulty_close(void *self)
{
    faulty_device *f = self;
    f->driver->close(f->self);
    free(f);
    atomic_fetch_sub(&faulty_devices, 1);
}

/* --- slots with peers --- */

static loch_status faulty_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                              size_t peers_count)
{
    const faulty_device *f = self;
    faulty_pass(TEST_HELD_MAP);
    void *theirs[FAULTY_PEERS_MAX];
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "map");
    if (peers_count > FAULTY_PEERS_MAX)
        return loch_error_set(LOCH_E_LIMIT, "faulty", 0, "more than %d peers", FAULTY_PEERS_MAX);
    for (size_t i = 0; i < peers_count; i++) {
        const faulty_device *peer = peers[i];
        if (peer->driver != f->driver)
            return loch_error_set(LOCH_E_UNSUPPORTED, "faulty", 0, "a peer is forwarded to another driver");
        theirs[i] = peer->self;
    }
    loch_status status = f->driver->map(f->self, address, bytes, handle, theirs, peers_count);
    if (status != LOCH_OK || !atomic_load(&faulty_soils)) return status;
    status = f->driver->fill(f->self, address, bytes, TEST_SOILED, 1, NULL);
    return status == LOCH_OK ? f->driver->device_sync(f->self) : status;
}

static loch_status faulty_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes,
                               void *peer, void *stream)
{
    const faulty_device *f = self, *other = peer;
    faulty_pass(TEST_HELD_COPY);
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "copy");
    return f->driver->copy(f->self, direction, to, from, bytes, other ? other->self : NULL, stream);
}

static loch_status faulty_copy_pitched(void *self, loch_direction direction, void *to, const void *from,
                                       const loch_pitched *shape, void *peer, void *stream)
{
    const faulty_device *f = self, *other = peer;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "copy_pitched");
    return f->driver->copy_pitched(f->self, direction, to, from, shape, other ? other->self : NULL, stream);
}

static loch_status faulty_copy_strided(void *self, const loch_strided *work, void *stream)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "copy_strided");
    return f->driver->copy_strided(f->self, work, stream);
}

static loch_status faulty_fill_strided(void *self, const loch_strided *work, void *stream)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "fill_strided");
    return f->driver->fill_strided(f->self, work, stream);
}

static loch_status faulty_discard(void *self, void *address, size_t bytes)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "discard");
    return f->driver->discard(f->self, address, bytes);
}

static loch_status faulty_protect(void *self, void *address, size_t bytes, loch_access access)
{
    const faulty_device *f = self;
    if (access == LOCH_READ_ONLY && faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "protect");
    return f->driver->protect(f->self, address, bytes, access);
}

static loch_status faulty_enter(void *self, void **before)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "enter");
    return f->driver->enter(f->self, before);
}

static loch_status faulty_leave(void *self, void *before)
{
    const faulty_device *f = self;
    return f->driver->leave(f->self, before);
}

static loch_status faulty_peer_enable(void *self, void *peer)
{
    const faulty_device *f = self, *other = peer;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "peer_enable");
    if (other->driver != f->driver)
        return loch_error_set(LOCH_E_UNSUPPORTED, "faulty", 0, "the peer is forwarded to another driver");
    return f->driver->peer_enable(f->self, other->self);
}

/* --- slots that are not failures' business --- */

static loch_status faulty_address_query(void *self, const void *address, loch_address_info *out)
{
    const faulty_device *f = self;
    return f->driver->address_query(f->self, address, out);
}

static uint64_t faulty_now_ns(void *self)
{
    const faulty_device *f = self;
    return f->driver->now_ns(f->self);
}

static void faulty_call_costs(void *self, uint64_t ns[LOCH_CALL_COUNT])
{
    const faulty_device *f = self;
    f->driver->call_costs(f->self, ns);
}

/* --- slots that are forwarded as they are --- */

static loch_status faulty_get_properties(void *self, loch_device_properties *out)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "get_properties");
    loch_status status = f->driver->get_properties(f->self, out);
    if (status == LOCH_OK) snprintf(out->driver, sizeof out->driver, "faulty");
    return status;
}

static loch_status faulty_memory_info(void *self, loch_memory_info *out)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "memory_info");
    return f->driver->memory_info(f->self, out);
}

static loch_status faulty_raw_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    const faulty_device *f = self;
    faulty_pass(TEST_HELD_RAW);
    if (faulty_strikes()) return faulty_fail(LOCH_E_DEVICE_MEMORY, "raw_alloc");
    return f->driver->raw_alloc(f->self, bytes, alignment, out);
}

static loch_status faulty_raw_free(void *self, void *address, size_t bytes)
{
    const faulty_device *f = self;
    faulty_pass(TEST_HELD_RAW);
    return f->driver->raw_free(f->self, address, bytes);
}

static loch_status faulty_pinned_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    const faulty_device *f = self;
    faulty_pass(TEST_HELD_RAW);
    if (faulty_strikes()) return faulty_fail(LOCH_E_DEVICE_MEMORY, "pinned_alloc");
    return f->driver->pinned_alloc(f->self, bytes, alignment, out);
}

static loch_status faulty_pinned_free(void *self, void *address, size_t bytes)
{
    const faulty_device *f = self;
    faulty_pass(TEST_HELD_RAW);
    return f->driver->pinned_free(f->self, address, bytes);
}

static loch_status faulty_managed_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DEVICE_MEMORY, "managed_alloc");
    return f->driver->managed_alloc(f->self, bytes, alignment, out);
}

static loch_status faulty_managed_free(void *self, void *address, size_t bytes)
{
    const faulty_device *f = self;
    return f->driver->managed_free(f->self, address, bytes);
}

static loch_status faulty_host_register(void *self, void *address, size_t bytes)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "host_register");
    return f->driver->host_register(f->self, address, bytes);
}

static loch_status faulty_host_unregister(void *self, void *address, size_t bytes)
{
    const faulty_device *f = self;
    return f->driver->host_unregister(f->self, address, bytes);
}

static loch_status faulty_ordered_alloc(void *self, size_t bytes, void *stream, void **out)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DEVICE_MEMORY, "ordered_alloc");
    return f->driver->ordered_alloc(f->self, bytes, stream, out);
}

static loch_status faulty_ordered_free(void *self, void *address, size_t bytes, void *stream)
{
    const faulty_device *f = self;
    return f->driver->ordered_free(f->self, address, bytes, stream);
}

static loch_status faulty_reserve(void *self, size_t bytes, size_t alignment, void **out)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DEVICE_MEMORY, "reserve");
    return f->driver->reserve(f->self, bytes, alignment, out);
}

static loch_status faulty_unreserve(void *self, void *address, size_t bytes)
{
    const faulty_device *f = self;
    return f->driver->unreserve(f->self, address, bytes);
}

static loch_status faulty_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                        loch_driver_handle *out)
{
    const faulty_device *f = self;
    faulty_pass(TEST_HELD_CREATE);
    if (faulty_strikes()) return faulty_fail(LOCH_E_DEVICE_MEMORY, "handle_create");
    return f->driver->handle_create(f->self, bytes, options, out);
}

static loch_status faulty_handle_release(void *self, loch_driver_handle handle, size_t bytes)
{
    const faulty_device *f = self;
    return f->driver->handle_release(f->self, handle, bytes);
}

static loch_status faulty_unmap(void *self, void *address, size_t bytes, loch_driver_handle handle)
{
    const faulty_device *f = self;
    faulty_pass(TEST_HELD_UNMAP);
    if (atomic_load(&faulty_refuses_unmap)) return faulty_fail(LOCH_E_DRIVER, "unmap");
    return f->driver->unmap(f->self, address, bytes, handle);
}

static loch_status faulty_remap(void *self, void *from, void *to, size_t bytes, loch_driver_handle handle)
{
    const faulty_device *f = self;
    faulty_pass(TEST_HELD_MAP);
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "remap");
    return f->driver->remap(f->self, from, to, bytes, handle);
}

static loch_status faulty_handle_export(void *self, loch_driver_handle handle, loch_share share, void *out)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "handle_export");
    return f->driver->handle_export(f->self, handle, share, out);
}

static loch_status faulty_handle_import(void *self, loch_share share, const void *shared, size_t bytes,
                                        loch_driver_handle *out)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "handle_import");
    return f->driver->handle_import(f->self, share, shared, bytes, out);
}

static loch_status faulty_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "fill");
    return f->driver->fill(f->self, to, bytes, pattern, pattern_bytes, stream);
}

static loch_status faulty_stream_create(void *self, const loch_stream_options *options, void **out)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "stream_create");
    return f->driver->stream_create(f->self, options, out);
}

static loch_status faulty_stream_destroy(void *self, void *stream)
{
    const faulty_device *f = self;
    return f->driver->stream_destroy(f->self, stream);
}

static loch_status faulty_stream_thread_default(void *self, void **out)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "stream_thread_default");
    return f->driver->stream_thread_default(f->self, out);
}

static loch_status faulty_stream_wrap(void *self, void *native, void **out)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "stream_wrap");
    return f->driver->stream_wrap(f->self, native, out);
}

static void *faulty_stream_native(void *self, void *stream)
{
    const faulty_device *f = self;
    return f->driver->stream_native(f->self, stream);
}

static void faulty_stream_unwrap(void *self, void *stream)
{
    const faulty_device *f = self;
    f->driver->stream_unwrap(f->self, stream);
}

static loch_status faulty_stream_query(void *self, void *stream)
{
    const faulty_device *f = self;
    loch_status status = f->driver->stream_query(f->self, stream);
    return faulty_strikes() ? faulty_fail(LOCH_E_DRIVER, "stream_query") : status;
}

static loch_status faulty_stream_sync(void *self, void *stream)
{
    const faulty_device *f = self;
    faulty_pass(TEST_HELD_WAIT);
    loch_status status = f->driver->stream_sync(f->self, stream);
    return faulty_strikes() ? faulty_fail(LOCH_E_DRIVER, "stream_sync") : status;
}

static loch_status faulty_stream_wait(void *self, void *stream, void *event)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "stream_wait");
    return f->driver->stream_wait(f->self, stream, event);
}

static loch_status faulty_stream_call(void *self, void *stream, loch_stream_function *function, void *user)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "stream_call");
    return f->driver->stream_call(f->self, stream, function, user);
}

static loch_status faulty_event_create(void *self, loch_event_kind kind, void **out)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "event_create");
    return f->driver->event_create(f->self, kind, out);
}

static loch_status faulty_event_destroy(void *self, void *event)
{
    const faulty_device *f = self;
    return f->driver->event_destroy(f->self, event);
}

static loch_status faulty_event_record(void *self, void *event, void *stream)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "event_record");
    return f->driver->event_record(f->self, event, stream);
}

static loch_status faulty_event_query(void *self, void *event)
{
    const faulty_device *f = self;
    loch_status status = f->driver->event_query(f->self, event);
    return faulty_strikes() ? faulty_fail(LOCH_E_DRIVER, "event_query") : status;
}

static loch_status faulty_event_sync(void *self, void *event)
{
    const faulty_device *f = self;
    faulty_pass(TEST_HELD_WAIT);
    loch_status status = f->driver->event_sync(f->self, event);
    return faulty_strikes() ? faulty_fail(LOCH_E_DRIVER, "event_sync") : status;
}

static loch_status faulty_event_elapsed(void *self, void *start, void *end, uint64_t *out_ns)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "event_elapsed");
    return f->driver->event_elapsed(f->self, start, end, out_ns);
}

static loch_status faulty_device_sync(void *self)
{
    const faulty_device *f = self;
    faulty_pass(TEST_HELD_WAIT);
    loch_status status = f->driver->device_sync(f->self);
    return faulty_strikes() ? faulty_fail(LOCH_E_DRIVER, "device_sync") : status;
}

static loch_status faulty_stream_capture(void *self, void *stream, loch_capture_info *out)
{
    const faulty_device *f = self;
    if (faulty_strikes()) return faulty_fail(LOCH_E_DRIVER, "stream_capture");
    return f->driver->stream_capture(f->self, stream, out);
}

loch_status test_faulty_register(void)
{
    static const loch_driver driver = {
        .size = sizeof driver,
        .name = "faulty",
        .summary = "forwards to another driver and fails when told to",
        .open = faulty_open,
        .close = faulty_close,
        .get_properties = faulty_get_properties,
        .memory_info = faulty_memory_info,
        .raw_alloc = faulty_raw_alloc,
        .raw_free = faulty_raw_free,
        .pinned_alloc = faulty_pinned_alloc,
        .pinned_free = faulty_pinned_free,
        .managed_alloc = faulty_managed_alloc,
        .managed_free = faulty_managed_free,
        .host_register = faulty_host_register,
        .host_unregister = faulty_host_unregister,
        .ordered_alloc = faulty_ordered_alloc,
        .ordered_free = faulty_ordered_free,
        .reserve = faulty_reserve,
        .unreserve = faulty_unreserve,
        .handle_create = faulty_handle_create,
        .handle_release = faulty_handle_release,
        .map = faulty_map,
        .unmap = faulty_unmap,
        .remap = faulty_remap,
        .handle_export = faulty_handle_export,
        .handle_import = faulty_handle_import,
        .copy = faulty_copy,
        .fill = faulty_fill,
        .stream_create = faulty_stream_create,
        .stream_destroy = faulty_stream_destroy,
        .stream_thread_default = faulty_stream_thread_default,
        .stream_wrap = faulty_stream_wrap,
        .stream_native = faulty_stream_native,
        .stream_unwrap = faulty_stream_unwrap,
        .stream_query = faulty_stream_query,
        .stream_sync = faulty_stream_sync,
        .stream_wait = faulty_stream_wait,
        .stream_call = faulty_stream_call,
        .event_create = faulty_event_create,
        .event_destroy = faulty_event_destroy,
        .event_record = faulty_event_record,
        .event_query = faulty_event_query,
        .event_sync = faulty_event_sync,
        .event_elapsed = faulty_event_elapsed,
        .device_sync = faulty_device_sync,
        .stream_capture = faulty_stream_capture,
        .peer_enable = faulty_peer_enable,
        .address_query = faulty_address_query,
        .call_costs = faulty_call_costs,
        .now_ns = faulty_now_ns,
        .copy_pitched = faulty_copy_pitched,
        .copy_strided = faulty_copy_strided,
        .fill_strided = faulty_fill_strided,
        .discard = faulty_discard,
        .protect = faulty_protect,
        .enter = faulty_enter,
        .leave = faulty_leave,
    };
    return loch_driver_register(&driver);
}

void test_faulty_set(test_failing mode, uint64_t after)
{
    atomic_store(&faulty_mode, mode);
    atomic_store(&faulty_after, after);
    atomic_store(&faulty_count, 0);
}

uint64_t test_faulty_count(void)
{
    return atomic_load(&faulty_count);
}

uint64_t test_faulty_open(void)
{
    return atomic_load(&faulty_devices);
}
