/* SPDX-License-Identifier: MIT */
/* An import: a lease from the owner, the span mapped once in this process, the owner's work waited for, and a buffer on
 * the memory. The buffer gives the mapping and the lease back when the last work that is recorded for it has ended. */
#include "importer.h"
#include "cuda.h"
#include "link.h"
#include "mapped.h"
#include "peer.h"
#include "state.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include "kit/backoff.h"
#include <stdlib.h>
#include <string.h>

/* What a buffer holds of another process. */
typedef struct import_lease {
    share_owner *owner; /* one use; NULL for memory of another machine, which is not counted */
    uint64_t id;
    share_mapped *mapped; /* one use */
    bool is_granted;
} import_lease;

/* Gives back what a lease holds. */
static void import_clear(import_lease *lease)
{
    lochi_share_mapped_release(lease->mapped);
    if (lease->is_granted) lochi_share_peer_end_lease(lease->owner, lease->id);
    lochi_share_peer_release(lease->owner);
    *lease = (import_lease){.owner = NULL};
}

static void import_end(import_lease *lease)
{
    import_clear(lease);
    free(lease);
}

static void import_delete(void *address, size_t bytes, void *user)
{
    (void)address, (void)bytes;
    LOCHI_NOT_CANCELLED;
    import_end(user);
}

/* --- answers of the owner --- */

static loch_status import_refuse(const share_reply *reply, uint32_t pid)
{
    const unsigned process = (unsigned)pid;
    switch (reply->result) {
    case SHARE_OK: return LOCH_OK;
    case SHARE_NO_PARCEL: return LOCH_FAIL(NOT_FOUND, "process %u has no such parcel: it was destroyed", process);
    case SHARE_NO_USER:
        return LOCH_FAIL(UNSUPPORTED, "the parcel of process %u is not for this user: its owner must allow it",
                         process);
    case SHARE_NO_VERSION:
        return LOCH_FAIL(UNSUPPORTED, "process %u has version %u of the protocol, this process has version %u", process,
                         (unsigned)reply->version, SHARE_VERSION);
    case SHARE_NO_DESCRIPTOR: return LOCH_FAIL(LIMIT, "process %u has no file descriptor left for an import", process);
    case SHARE_NO_MEMORY: return LOCH_FAIL(HOST_MEMORY, "process %u has no host memory for an import", process);
    case SHARE_IS_STALE:
        return LOCH_FAIL(BUSY, "the memory of the parcel of process %u was given back: its pool was put to sleep",
                         process);
    default:
        return loch_error_set(LOCH_E_DRIVER, NULL, (long)reply->code, "process %u cannot export a handle: code %u",
                              process, (unsigned)reply->code);
    }
}

/* Asks the owner, and fails if it refuses or answers about another buffer than the token. */
static loch_status import_ask(import_lease *lease, const share_token *token, share_request *request,
                              uint64_t deadline_ns, share_reply *reply, int *descriptors, size_t *count)
{
    request->lease = lease->id;
    loch_status status = lochi_share_peer_ask(lease->owner, request, deadline_ns, reply, descriptors, count);
    lease->id = request->lease;
    if (status == LOCH_OK) status = import_refuse(reply, token->pid);
    if (status != LOCH_OK) return status;
    if (reply->bytes == token->bytes && reply->offset == token->offset && reply->span_bytes == token->span_bytes &&
        reply->span == token->span && reply->access == token->access)
        return LOCH_OK;
    return LOCH_FAIL(IO, "process %u answers about another buffer than the token", (unsigned)token->pid);
}

/* --- mapping --- */

/* Maps the handles that came with a reply. */
static loch_status import_map(share_mapped *mapped, const share_reply *reply, const int *descriptors, size_t count)
{
    const bool is_fd = reply->share == LOCH_SHARE_FD;
    loch_status status = LOCH_OK;
    if (is_fd && count != reply->count)
        return LOCH_FAIL(IO, "%zu of %u descriptors came from the owner", count, (unsigned)reply->count);
    for (size_t i = 0; i < reply->count && status == LOCH_OK; i++)
        status =
            lochi_share_mapped_add(mapped, (loch_share)reply->share,
                                   is_fd ? (const void *)&descriptors[i] : reply->fabric[i], reply->handle_bytes[i]);
    return status;
}

/* Maps the span from the first reply on, and asks for the rest of its handles. */
static loch_status import_map_all(import_lease *lease, loch_device *device, const share_token *token,
                                  uint64_t deadline_ns, const share_reply *first, const int *descriptors, size_t count)
{
    share_mapped *mapped;
    loch_status status = lochi_share_mapped_create(device, lochi_share_peer_get_number(lease->owner), token->span,
                                                   token->span_bytes, first->handles, &mapped);
    if (status != LOCH_OK) return status;
    status = import_map(mapped, first, descriptors, count);
    for (uint32_t at = first->count; status == LOCH_OK && at < first->handles;) {
        share_request request = {.kind = SHARE_FETCH, .first = at};
        share_reply reply;
        int more[SHARE_CHUNK];
        size_t more_count;
        status = import_ask(lease, token, &request, deadline_ns, &reply, more, &more_count);
        if (status == LOCH_OK && (!reply.count || reply.first != at || reply.handles != first->handles))
            status = LOCH_FAIL(IO, "the owner sent other handles than it was asked for");
        if (status == LOCH_OK) status = import_map(mapped, &reply, more, more_count);
        lochi_share_link_close_all(more, more_count);
        at += reply.count;
    }
    if (status == LOCH_OK) {
        status = lochi_share_mapped_enter(&mapped);
        lease->mapped = mapped;
    } else {
        lochi_share_mapped_release(mapped);
    }
    return status;
}

/* Maps memory of a process that is not on this machine. Nothing is counted: the owner must keep it. No connection tells
 * whose memory it is, so no other import finds it. */
static loch_status import_from_afar(import_lease *lease, loch_device *device, const share_token *token)
{
    share_mapped *mapped;
    loch_status status = lochi_share_mapped_create(device, 0, token->span, token->span_bytes, 1, &mapped);
    if (status != LOCH_OK) return status;
    status = lochi_share_mapped_add(mapped, LOCH_SHARE_FABRIC, token->fabric, token->span_bytes);
    if (status != LOCH_OK) {
        lochi_share_mapped_release(mapped);
        return status;
    }
    status = lochi_share_mapped_enter(&mapped);
    lease->mapped = mapped;
    return status;
}

/* --- order --- */

/* Waits for the owner's work: by its event on the device, or by asking until the work has ended. */
static loch_status import_wait(import_lease *lease, loch_device *device, const share_token *token, loch_stream *stream,
                               uint64_t deadline_ns, const share_reply *first)
{
    if (first->is_ready) return LOCH_OK;
    if (first->has_event && lochi_share_cuda_wait_shared(device, first->event, stream)) return LOCH_OK;
    for (unsigned turn = LOCHI_BACKOFF_AWAKE;;) {
        share_request request = {.kind = SHARE_READY};
        share_reply reply;
        int none[SHARE_CHUNK];
        size_t count;
        const loch_status status = import_ask(lease, token, &request, deadline_ns, &reply, none, &count);
        lochi_share_link_close_all(none, count);
        if (status != LOCH_OK || reply.is_ready) return status;
        if (lochi_share_deadline_is_over(deadline_ns))
            return LOCH_FAIL(BUSY, "the work of process %u on its buffer did not end in time", (unsigned)token->pid);
        lochi_backoff(&turn);
    }
}

/* --- the import --- */

/* Gets a lease from the owner, and the memory that belongs to it. */
static loch_status import_lease_begin(import_lease *lease, loch_device *device, const share_token *token,
                                      uint64_t deadline_ns, share_reply *reply)
{
    lease->mapped = lochi_share_mapped_find(device, lochi_share_peer_get_number(lease->owner), token->span);
    share_request request = {
        .kind = SHARE_IMPORT, .parcel = token->parcel, .secret = token->secret, .wants = !lease->mapped};
    int descriptors[SHARE_CHUNK];
    size_t count = 0;
    lease->is_granted = true; /* the end of a lease that was refused does no harm; one that comes too late is ended */
    loch_status status = import_ask(lease, token, &request, deadline_ns, reply, descriptors, &count);
    if (status == LOCH_OK && lease->mapped && lochi_share_mapped_bytes(lease->mapped) != token->span_bytes)
        status = LOCH_FAIL(IO, "process %u answers about another buffer than the token", (unsigned)token->pid);
    if (status == LOCH_OK && !lease->mapped)
        status = import_map_all(lease, device, token, deadline_ns, reply, descriptors, count);
    lochi_share_link_close_all(descriptors, count);
    return status;
}

static loch_status import_memory(import_lease *lease, loch_device *device, const share_token *token,
                                 const loch_parcel_import_options *options, uint64_t deadline_ns, int link)
{
    share_reply reply;
    for (bool is_second = false;; is_second = true) {
        loch_status status = link >= 0 ? lochi_share_peer_adopt(token, link, &lease->owner)
                                       : lochi_share_peer_acquire(token, options, deadline_ns, &lease->owner);
        if (status == LOCH_E_NOT_FOUND && token->has_fabric) return import_from_afar(lease, device, token);
        if (status != LOCH_OK) return status;
        status = import_lease_begin(lease, device, token, deadline_ns, &reply);
        if (status == LOCH_OK) return import_wait(lease, device, token, options->stream, deadline_ns, &reply);
        /* An owner that lives may have dropped an older connection: it had no descriptor left, or was not answered. */
        if (is_second || status != LOCH_E_NOT_FOUND || !lochi_share_peer_is_closed(lease->owner)) return status;
        import_clear(lease);
    }
}

loch_status lochi_share_importer_import(loch_device *device, const share_token *token,
                                        const loch_parcel_import_options *options, uint64_t deadline_ns, int link,
                                        loch_buffer **out)
{
    import_lease *lease = calloc(1, sizeof *lease);
    if (!lease) {
        if (link >= 0) lochi_share_link_close_all(&link, 1);
        return LOCH_FAIL(HOST_MEMORY, "no host memory for an import");
    }
    loch_status status = import_memory(lease, device, token, options, deadline_ns, link);
    if (status == LOCH_OK) {
        const loch_external external = {.size = sizeof external,
                                        .device = device,
                                        .deleter = import_delete,
                                        .user = lease,
                                        .access = (loch_access)token->access};
        status =
            loch_buffer_wrap(lochi_share_mapped_start(lease->mapped) + token->offset, token->bytes, &external, out);
    }
    if (status != LOCH_OK) import_end(lease);
    return status;
}

void lochi_share_importer_forked(void)
{
    lochi_share_peer_forked();
    lochi_share_mapped_forked();
}
