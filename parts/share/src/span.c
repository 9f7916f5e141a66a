/* SPDX-License-Identifier: MIT */
/* A span borrows the handles of the pool. The memory of a live block stays where it is, except that a pool can be put
 * to sleep. So the devices of all spans are observed: when a handle of a span goes, the span is stale, and the observer
 * returns, which lets the pool destroy the handle, after the last thread has stopped using it.
 *
 * A span is entered in the list before its handles are read for the second time. A handle that goes before that is
 * found by the second reading, one that goes later by the observer. */
#include "span.h"
#include "state.h"
#include "kit/fail.h"
#include <errno.h>
#include <loch/observer.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static share_span *span_list;
static uint64_t span_last_id;
static pthread_cond_t span_unused = PTHREAD_COND_INITIALIZER; /* `exporting` of a span became 0 */

/* --- observed devices --- */

/* A device with spans. */
typedef struct span_device {
    struct span_device *next;
    loch_device *device;
    size_t spans;
} span_device;

static span_device *span_devices;
static pthread_mutex_t span_devices_lock = PTHREAD_MUTEX_INITIALIZER; /* held while observers are added and removed */

static void span_observe(loch_range_event event, const loch_range *range, void *user)
{
    (void)user;
    if (event != LOCH_RANGE_GOING || !range->memory) return;
    const uintptr_t start = (uintptr_t)range->address, end = start + range->bytes;
    pthread_mutex_lock(&lochi_share_lock);
    for (bool is_used = true; is_used;) {
        is_used = false;
        for (share_span *span = span_list; span; span = span->next) {
            if (span->start >= end || start >= span->start + span->bytes) continue;
            span->is_stale = true;
            is_used = is_used || span->exporting;
        }
        if (is_used) pthread_cond_wait(&span_unused, &lochi_share_lock); /* spans may have gone: look again */
    }
    pthread_mutex_unlock(&lochi_share_lock);
}

/* Counts one more span of a device, which is observed from now on. */
static loch_status span_device_add(loch_device *device)
{
    loch_status status = LOCH_OK;
    pthread_mutex_lock(&span_devices_lock);
    span_device *found = span_devices;
    while (found && found->device != device)
        found = found->next;
    if (!found) {
        found = calloc(1, sizeof *found);
        status = found ? loch_observer_add(device, span_observe, NULL)
                       : LOCH_FAIL(HOST_MEMORY, "no host memory to observe a device");
        if (status == LOCH_E_EXISTS) status = LOCH_OK; /* inherited by a fork */
        if (status == LOCH_OK && found) {
            *found = (span_device){span_devices, device, 0};
            span_devices = found;
        } else {
            free(found);
        }
    }
    if (status == LOCH_OK && found) found->spans++;
    pthread_mutex_unlock(&span_devices_lock);
    return status;
}

static void span_device_remove(loch_device *device)
{
    pthread_mutex_lock(&span_devices_lock);
    span_device **at = &span_devices;
    while (*at && (*at)->device != device)
        at = &(*at)->next;
    span_device *found = *at;
    if (found && --found->spans == 0) {
        *at = found->next;
        (void)!loch_observer_remove(device, span_observe, NULL);
        free(found);
    }
    pthread_mutex_unlock(&span_devices_lock);
}

/* --- spans --- */

static loch_status span_refuse(const void *address)
{
    return LOCH_FAIL(UNSUPPORTED,
                     "the memory at %p cannot be shared: create its pool with handle.share = LOCH_SHARE_FD", address);
}

/* Makes a span of the mappings around a range. */
static loch_status span_read(const void *address, size_t bytes, share_span **out)
{
    const uintptr_t end = (uintptr_t)address + bytes;
    share_span *span = NULL;
    size_t capacity = 0;
    uint32_t share = LOCH_SHARE_FD | LOCH_SHARE_FABRIC;
    *out = NULL;
    for (uintptr_t at = (uintptr_t)address; at < end;) {
        loch_virtual_info info = {.size = sizeof info};
        if (loch_virtual_find((const void *)at, &info) != LOCH_OK || !(share &= info.share) ||
            (span && (info.device != span->device || span->count == SHARE_HANDLES_MAX))) {
            free(span);
            return span_refuse((const void *)at);
        }
        if (!span || span->count == capacity) {
            capacity = capacity ? 2 * capacity : 8;
            share_span *larger = realloc(span, sizeof *span + capacity * sizeof *span->pieces);
            if (!larger) {
                free(span);
                return LOCH_FAIL(HOST_MEMORY, "no host memory to list the handles of a buffer");
            }
            if (!span) *larger = (share_span){.start = (uintptr_t)info.start, .device = info.device};
            span = larger;
        }
        span->pieces[span->count++] = (share_piece){info.handle, info.bytes};
        span->bytes += info.bytes;
        at = (uintptr_t)info.start + info.bytes;
    }
    if (!span) return LOCH_FAIL(INVALID, "memory of 0 bytes cannot be shared");
    span->share = share & LOCH_SHARE_FD ? LOCH_SHARE_FD : LOCH_SHARE_FABRIC;
    *out = span;
    return LOCH_OK;
}

static bool span_is_equal(const share_span *one, const share_span *other)
{
    return one->device == other->device && one->start == other->start && one->count == other->count &&
           memcmp(one->pieces, other->pieces, one->count * sizeof *one->pieces) == 0;
}

/* Enters a span in the list, or finds its equal there. Takes the argument. */
static share_span *span_enter(share_span *span)
{
    pthread_mutex_lock(&lochi_share_lock);
    share_span *found = span_list;
    while (found && (found->is_stale || !span_is_equal(found, span)))
        found = found->next;
    if (!found) {
        found = span;
        found->id = ++span_last_id;
        found->next = span_list;
        span_list = found;
    }
    found->parcels++;
    pthread_mutex_unlock(&lochi_share_lock);
    if (found != span) {
        loch_device_release(span->device);
        free(span);
    }
    return found;
}

loch_status lochi_share_span_acquire(const void *address, size_t bytes, share_span **out)
{
    share_span *span, *again;
    loch_status status = span_read(address, bytes, &span);
    *out = NULL;
    if (status != LOCH_OK || !span) return status;
    status = span_device_add(span->device);
    if (status != LOCH_OK) {
        free(span);
        return status;
    }
    loch_device_retain(span->device);
    span = span_enter(span);
    status = span_read(address, bytes, &again);
    if (status == LOCH_OK && again && !span_is_equal(span, again))
        status = LOCH_FAIL(BUSY, "the memory at %p was put to sleep meanwhile", address);
    free(again);
    if (status != LOCH_OK) {
        lochi_share_span_release(span);
        return status;
    }
    *out = span;
    return LOCH_OK;
}

void lochi_share_span_release(share_span *span)
{
    if (!span) return;
    loch_device *device = span->device;
    pthread_mutex_lock(&lochi_share_lock);
    const bool is_last = --span->parcels == 0;
    for (share_span **at = &span_list; is_last && *at; at = &(*at)->next)
        if (*at == span) {
            *at = span->next;
            break;
        }
    pthread_mutex_unlock(&lochi_share_lock);
    span_device_remove(device); /* one for each acquire */
    if (!is_last) return;
    loch_device_release(device);
    free(span);
}

void lochi_share_span_forked(void)
{
    span_list = NULL;
    span_devices = NULL;
    pthread_mutex_init(&span_devices_lock, NULL);
    pthread_cond_init(&span_unused, NULL);
}

/* --- exporting --- */

/* Returns what to answer when a handle cannot be exported. */
static share_result span_explain(share_reply *reply)
{
    const loch_error *error = loch_error_get();
    if (error->driver_code == EMFILE || error->driver_code == ENFILE) return SHARE_NO_DESCRIPTOR;
    reply->code = (uint32_t)error->driver_code;
    return SHARE_FAILED;
}

share_result lochi_share_span_export(share_span *span, size_t first, share_reply *reply, int *descriptors,
                                     size_t *count)
{
    *count = 0;
    pthread_mutex_lock(&lochi_share_lock);
    const bool is_stale = span->is_stale;
    if (!is_stale) span->exporting++;
    pthread_mutex_unlock(&lochi_share_lock);
    if (is_stale) return SHARE_IS_STALE;
    share_result result = SHARE_OK;
    reply->first = (uint32_t)first;
    for (size_t i = 0; i < SHARE_CHUNK && first + i < span->count && result == SHARE_OK; i++) {
        const share_piece *piece = &span->pieces[first + i];
        int descriptor = -1;
        const bool is_fd = span->share == LOCH_SHARE_FD;
        const loch_status status =
            is_fd ? loch_handle_export(piece->handle, LOCH_SHARE_FD, sizeof descriptor, &descriptor)
                  : loch_handle_export(piece->handle, LOCH_SHARE_FABRIC, sizeof reply->fabric[i], reply->fabric[i]);
        if (status != LOCH_OK) {
            result = span_explain(reply);
            break;
        }
        reply->handle_bytes[i] = piece->bytes;
        reply->count = (uint32_t)i + 1;
        if (is_fd) descriptors[(*count)++] = descriptor;
    }
    pthread_mutex_lock(&lochi_share_lock);
    if (--span->exporting == 0) pthread_cond_broadcast(&span_unused);
    pthread_mutex_unlock(&lochi_share_lock);
    return result;
}
