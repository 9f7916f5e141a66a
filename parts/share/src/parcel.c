/* SPDX-License-Identifier: MIT */
/* The public calls: options and arguments are checked here. */
#include "importer.h"
#include "link.h"
#include "owner.h"
#include "server.h"
#include "state.h"
#include "transfer.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include "kit/sized.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PARCEL_TIMEOUT_NS 30000000000u /* of an import without a timeout */

static loch_status parcel_check_users(loch_parcel_users users)
{
    if ((unsigned)users <= LOCH_PARCEL_ANY_USER) return LOCH_OK;
    return LOCH_FAIL(INVALID, "the options of a parcel name users that do not exist: %u", (unsigned)users);
}

static void parcel_forked_owner(void)
{
    lochi_share_server_forked();
    lochi_share_owner_forked();
}

/* --- the owner --- */

static loch_status parcel_create(loch_buffer *buffer, const loch_parcel_options *options, loch_parcel **out)
{
    share_key owner;
    lochi_share_state_watch_forks(parcel_forked_owner, lochi_share_importer_forked);
    const loch_status status = lochi_share_server_start(&owner);
    return status == LOCH_OK ? lochi_share_owner_create(buffer, options, &owner, out) : status;
}

loch_status loch_parcel_create(loch_buffer *buffer, const loch_parcel_options *options, loch_parcel **out)
{
    if (out) *out = NULL;
    if (!buffer || !out) return LOCH_FAIL(INVALID, "loch_parcel_create needs a buffer and an out pointer");
    loch_parcel_options read = {.size = sizeof read};
    loch_status status = lochi_sized_read("the options of a parcel", options, &read, sizeof read);
    if (status == LOCH_OK) status = parcel_check_users(read.users);
    if (status == LOCH_OK && (unsigned)read.access > LOCH_READ_ONLY)
        status = LOCH_FAIL(INVALID, "the access of a parcel is not valid: %u", (unsigned)read.access);
    if (status != LOCH_OK) return status;
    LOCHI_NOT_CANCELLED;
    status = parcel_create(buffer, &read, out);
    return status;
}

void loch_parcel_destroy(loch_parcel *parcel)
{
    if (!parcel) return;
    LOCHI_NOT_CANCELLED;
    lochi_share_owner_destroy(parcel);
}

const void *loch_parcel_get_token(const loch_parcel *parcel, size_t *length)
{
    if (length) *length = parcel ? parcel->token_bytes : 0;
    return parcel ? parcel->token : NULL;
}

loch_status loch_parcel_get_info(const loch_parcel *parcel, loch_parcel_info *out)
{
    if (!parcel || !out || out->size < sizeof out->size)
        return LOCH_FAIL(INVALID, "loch_parcel_get_info needs a parcel, and a struct whose size is set");
    loch_parcel_info info = {.size = out->size, .bytes = parcel->bytes};
    pthread_mutex_lock(&lochi_share_lock);
    info.imports = parcel->imports;
    info.state = parcel->is_listed && !parcel->span->is_stale ? LOCH_PARCEL_OPEN : LOCH_PARCEL_STALE;
    pthread_mutex_unlock(&lochi_share_lock);
    memcpy(out, &info, out->size < sizeof info ? out->size : sizeof info);
    return LOCH_OK;
}

/* --- importers --- */

/* Gives a process a buffer of its own: the buffer itself, or a read-only buffer on it. */
static loch_status parcel_import_own(loch_device *device, const share_token *token, loch_stream *stream,
                                     loch_buffer **out)
{
    share_result result;
    loch_parcel *parcel = lochi_share_owner_acquire(token->parcel, &token->secret, NULL, false, &result);
    if (!parcel)
        return result == SHARE_IS_STALE ? LOCH_FAIL(BUSY, "the memory of the parcel was given back: its pool slept")
                                        : LOCH_FAIL(NOT_FOUND, "this process has no such parcel: it was destroyed");
    loch_status status = lochi_share_order_wait(&parcel->order, device, stream);
    if (status == LOCH_OK && parcel->access == LOCH_READ_ONLY) {
        const loch_external external = {
            .size = sizeof external, .device = device, .owner = parcel->buffer, .access = LOCH_READ_ONLY};
        status = loch_buffer_wrap(parcel->address, parcel->bytes, &external, out);
    } else if (status == LOCH_OK) {
        *out = loch_buffer_retain(parcel->buffer);
    }
    lochi_share_owner_release(parcel);
    return status;
}

/* Imports a token. Takes `link`, the connection that came with it; -1 for none. */
static loch_status parcel_import(loch_device *device, const void *bytes, size_t count,
                                 const loch_parcel_import_options *options, uint64_t deadline_ns, int link,
                                 loch_buffer **out)
{
    share_token token;
    loch_device_properties properties = {.size = sizeof properties};
    loch_status status = lochi_share_token_read(bytes, count, &token);
    if (status == LOCH_OK) status = loch_device_get_properties(device, &properties);
    if (status == LOCH_OK && strcmp(properties.driver, token.driver) != 0)
        status = LOCH_FAIL(INVALID, "the memory of the parcel is on a device of driver \"%s\", and %s is not one",
                           token.driver, loch_device_get_name(device));
    const bool is_own = status == LOCH_OK && lochi_share_server_is(&token.owner);
    if (link >= 0 && (status != LOCH_OK || is_own)) close(link);
    if (status != LOCH_OK) return status;
    if (is_own) return parcel_import_own(device, &token, options->stream, out);
    lochi_share_state_watch_forks(parcel_forked_owner, lochi_share_importer_forked);
    return lochi_share_importer_import(device, &token, options, deadline_ns, link, out);
}

static loch_status parcel_read_import(loch_device *device, const loch_parcel_import_options *given,
                                      loch_parcel_import_options *out)
{
    *out = (loch_parcel_import_options){.size = sizeof *out};
    loch_status status = lochi_sized_read("the options of a parcel", given, out, sizeof *out);
    if (!out->timeout_ns) out->timeout_ns = PARCEL_TIMEOUT_NS;
    if (status == LOCH_OK) status = parcel_check_users(out->users);
    if (status == LOCH_OK && out->stream && loch_stream_get_device(out->stream) != device)
        status = LOCH_FAIL(INVALID, "the stream of the import belongs to another device than %s",
                           loch_device_get_name(device));
    return status;
}

loch_status loch_parcel_import(loch_device *device, const void *token, size_t bytes,
                               const loch_parcel_import_options *options, loch_buffer **out)
{
    if (out) *out = NULL;
    if (!device || !token || !out)
        return LOCH_FAIL(INVALID, "loch_parcel_import needs a device, a token and an out pointer");
    loch_parcel_import_options read;
    loch_status status = parcel_read_import(device, options, &read);
    if (status != LOCH_OK) return status;
    LOCHI_NOT_CANCELLED;
    status = parcel_import(device, token, bytes, &read, lochi_share_deadline(read.timeout_ns), -1, out);
    return status;
}

/* --- sockets --- */

loch_status loch_parcel_send(const loch_parcel *parcel, int socket)
{
    if (!parcel) return LOCH_FAIL(INVALID, "loch_parcel_send needs a parcel");
    if (parcel->epoch != lochi_share_epoch)
        return LOCH_FAIL(FORKED, "the parcel belongs to the parent of this process");
    int link;
    LOCHI_NOT_CANCELLED;
    loch_status status = lochi_share_transfer_check(socket);
    if (status == LOCH_OK) status = lochi_share_server_connect(parcel->id, &link);
    if (status == LOCH_OK) {
        status = lochi_share_transfer_send(socket, parcel->token, parcel->token_bytes, link);
        close(link);
    }
    return status;
}

loch_status loch_parcel_receive(loch_device *device, int socket, const loch_parcel_import_options *options,
                                loch_buffer **out)
{
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "loch_parcel_receive needs a device and an out pointer");
    loch_parcel_import_options read;
    loch_status status = parcel_read_import(device, options, &read);
    if (status != LOCH_OK) return status;
    uint8_t token[LOCH_PARCEL_TOKEN_MAX];
    size_t bytes;
    int link;
    const uint64_t deadline_ns = lochi_share_deadline(read.timeout_ns);
    LOCHI_NOT_CANCELLED;
    status = lochi_share_transfer_check(socket);
    if (status == LOCH_OK) status = lochi_share_transfer_receive(socket, deadline_ns, token, &bytes, &link);
    if (status == LOCH_OK) status = parcel_import(device, token, bytes, &read, deadline_ns, link, out);
    return status;
}
