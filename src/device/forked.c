/* SPDX-License-Identifier: MIT */
/* The driver of a device that did not survive a fork, in place of its own driver. Slots that give something back do
 * nothing and succeed, so that objects can be ended in the child. All other slots fail with E_FORKED. `self` is the
 * loch_device. */
#include "device/forked.h"
#include "base/fail.h"
#include <loch/host.h>

loch_status lochi_device_refuse_forked(const loch_device *device)
{
    return LOCH_FAIL(FORKED,
                     "%.80s was opened before a fork: open it in the child, or start the child by spawn or exec",
                     device->name);
}

static loch_status forked_refuse(void *self)
{
    return lochi_device_refuse_forked(self);
}

static loch_status forked_open(const char *arguments, void **self)
{
    (void)arguments, (void)self;
    return LOCH_FAIL(FORKED, "a device that was opened before a fork cannot be opened again");
}

static void forked_close(void *self)
{
    (void)self;
}

static loch_status forked_get_properties(void *self, loch_device_properties *out)
{
    (void)out;
    return forked_refuse(self);
}

static loch_status forked_memory_info(void *self, loch_memory_info *out)
{
    (void)out;
    return forked_refuse(self);
}

static loch_status forked_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    (void)bytes, (void)alignment, (void)out;
    return forked_refuse(self);
}

static loch_status forked_free(void *self, void *address, size_t bytes)
{
    (void)self, (void)address, (void)bytes;
    return LOCH_OK;
}

static loch_status forked_register(void *self, void *address, size_t bytes)
{
    (void)address, (void)bytes;
    return forked_refuse(self);
}

static loch_status forked_ordered_alloc(void *self, size_t bytes, void *stream, void **out)
{
    (void)bytes, (void)stream, (void)out;
    return forked_refuse(self);
}

static loch_status forked_ordered_free(void *self, void *address, size_t bytes, void *stream)
{
    (void)self, (void)address, (void)bytes, (void)stream;
    return LOCH_OK;
}

static loch_status forked_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                        loch_driver_handle *out)
{
    (void)bytes, (void)options, (void)out;
    return forked_refuse(self);
}

static loch_status forked_handle_release(void *self, loch_driver_handle handle, size_t bytes)
{
    (void)self, (void)handle, (void)bytes;
    return LOCH_OK;
}

static loch_status forked_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                              size_t peers_count)
{
    (void)address, (void)bytes, (void)handle, (void)peers, (void)peers_count;
    return forked_refuse(self);
}

static loch_status forked_unmap(void *self, void *address, size_t bytes, loch_driver_handle handle)
{
    (void)self, (void)address, (void)bytes, (void)handle;
    return LOCH_OK;
}

static loch_status forked_remap(void *self, void *from, void *to, size_t bytes, loch_driver_handle handle)
{
    (void)from, (void)to, (void)bytes, (void)handle;
    return forked_refuse(self);
}

static loch_status forked_export(void *self, loch_driver_handle handle, loch_share share, void *out)
{
    (void)handle, (void)share, (void)out;
    return forked_refuse(self);
}

static loch_status forked_import(void *self, loch_share share, const void *shared, size_t bytes,
                                 loch_driver_handle *out)
{
    (void)share, (void)shared, (void)bytes, (void)out;
    return forked_refuse(self);
}

static loch_status forked_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes,
                               void *peer, void *stream)
{
    (void)direction, (void)to, (void)from, (void)bytes, (void)peer, (void)stream;
    return forked_refuse(self);
}

static loch_status forked_copy_pitched(void *self, loch_direction direction, void *to, const void *from,
                                       const loch_pitched *shape, void *peer, void *stream)
{
    (void)direction, (void)to, (void)from, (void)shape, (void)peer, (void)stream;
    return forked_refuse(self);
}

static loch_status forked_strided(void *self, const loch_strided *work, void *stream)
{
    (void)work, (void)stream;
    return forked_refuse(self);
}

static loch_status forked_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream)
{
    (void)to, (void)bytes, (void)pattern, (void)pattern_bytes, (void)stream;
    return forked_refuse(self);
}

static loch_status forked_stream_create(void *self, const loch_stream_options *options, void **out)
{
    (void)options, (void)out;
    return forked_refuse(self);
}

static loch_status forked_make(void *self, void **out)
{
    (void)out;
    return forked_refuse(self);
}

static loch_status forked_destroy(void *self, void *object)
{
    (void)self, (void)object;
    return LOCH_OK;
}

static loch_status forked_stream_wrap(void *self, void *native, void **out)
{
    (void)native, (void)out;
    return forked_refuse(self);
}

static void *forked_stream_native(void *self, void *stream)
{
    (void)self, (void)stream;
    return NULL; /* the queue belongs to the parent process */
}

static void forked_stream_unwrap(void *self, void *stream)
{
    (void)self, (void)stream;
}

/* Refuse calls on one stream or event, or on two. */
static loch_status forked_ask(void *self, void *object)
{
    (void)object;
    return forked_refuse(self);
}

static loch_status forked_ask_both(void *self, void *first, void *second)
{
    (void)first, (void)second;
    return forked_refuse(self);
}

static loch_status forked_stream_call(void *self, void *stream, loch_stream_function *function, void *user)
{
    (void)stream, (void)function, (void)user;
    return forked_refuse(self);
}

static loch_status forked_stream_capture(void *self, void *stream, loch_capture_info *out)
{
    (void)stream, (void)out;
    return forked_refuse(self);
}

static loch_status forked_event_create(void *self, loch_event_kind kind, void **out)
{
    (void)kind, (void)out;
    return forked_refuse(self);
}

static loch_status forked_event_elapsed(void *self, void *start, void *end, uint64_t *out_ns)
{
    (void)start, (void)end, (void)out_ns;
    return forked_refuse(self);
}

static loch_status forked_address_query(void *self, const void *address, loch_address_info *out)
{
    (void)self, (void)address, (void)out;
    return LOCH_E_NOT_FOUND;
}

static void forked_call_costs(void *self, uint64_t ns[LOCH_CALL_COUNT])
{
    (void)self, (void)ns;
}

static uint64_t forked_now_ns(void *self)
{
    (void)self;
    return loch_host_now_ns();
}

/* Memory that is made writable again is about to be freed: succeeds. */
static loch_status forked_protect(void *self, void *address, size_t bytes, loch_access access)
{
    (void)address, (void)bytes;
    return access == LOCH_READ_ONLY ? forked_refuse(self) : LOCH_OK;
}

static loch_status forked_discard(void *self, void *address, size_t bytes)
{
    (void)address, (void)bytes;
    return forked_refuse(self);
}

const loch_driver lochi_forked_driver = {
    .size = sizeof lochi_forked_driver,
    .name = "forked",
    .summary = "devices that were opened before a fork",
    .open = forked_open,
    .close = forked_close,
    .get_properties = forked_get_properties,
    .memory_info = forked_memory_info,
    .raw_alloc = forked_alloc,
    .raw_free = forked_free,
    .pinned_alloc = forked_alloc,
    .pinned_free = forked_free,
    .managed_alloc = forked_alloc,
    .managed_free = forked_free,
    .host_register = forked_register,
    .host_unregister = forked_free,
    .ordered_alloc = forked_ordered_alloc,
    .ordered_free = forked_ordered_free,
    .reserve = forked_alloc,
    .unreserve = forked_free,
    .handle_create = forked_handle_create,
    .handle_release = forked_handle_release,
    .map = forked_map,
    .unmap = forked_unmap,
    .remap = forked_remap,
    .handle_export = forked_export,
    .handle_import = forked_import,
    .copy = forked_copy,
    .fill = forked_fill,
    .stream_create = forked_stream_create,
    .stream_destroy = forked_destroy,
    .stream_thread_default = forked_make,
    .stream_wrap = forked_stream_wrap,
    .stream_query = forked_ask,
    .stream_sync = forked_ask,
    .stream_wait = forked_ask_both,
    .stream_call = forked_stream_call,
    .event_create = forked_event_create,
    .event_destroy = forked_destroy,
    .event_record = forked_ask_both,
    .event_query = forked_ask,
    .event_sync = forked_ask,
    .event_elapsed = forked_event_elapsed,
    .device_sync = forked_refuse,
    .stream_capture = forked_stream_capture,
    .peer_enable = forked_ask,
    .address_query = forked_address_query,
    .call_costs = forked_call_costs,
    .copy_pitched = forked_copy_pitched,
    .protect = forked_protect,
    .enter = forked_make,
    .leave = forked_destroy,
    .forked = forked_refuse,
    .now_ns = forked_now_ns,
    .stream_native = forked_stream_native,
    .stream_unwrap = forked_stream_unwrap,
    .copy_strided = forked_strided,
    .fill_strided = forked_strided,
    .discard = forked_discard,
};
