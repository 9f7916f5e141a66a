/* SPDX-License-Identifier: MIT */
/* The table of parcels. A parcel owns a reference on its buffer, a pin if the buffer is movable, its span and the mark
 * that importers wait for. It ends when its owner has destroyed it and the last lease on it has ended. */
#include "owner.h"
#include "state.h"
#include "kit/fail.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWNER_BUCKETS 256

static loch_parcel *owner_buckets[OWNER_BUCKETS];
static uint64_t owner_last_id;

static loch_parcel **owner_bucket(uint64_t id)
{
    return &owner_buckets[id % OWNER_BUCKETS];
}

/* --- the life of a parcel --- */

static loch_status owner_find_address(loch_parcel *parcel, loch_stream *stream)
{
    loch_buffer *buffer = parcel->buffer;
    if (loch_buffer_is_movable(buffer)) {
        const loch_status status = loch_buffer_pin(buffer, stream, &parcel->address);
        if (status != LOCH_OK) return status;
        parcel->is_pinned = true;
    } else {
        parcel->address = loch_buffer_get_address(buffer);
    }
    if (parcel->address && parcel->bytes) return LOCH_OK;
    return LOCH_FAIL(INVALID, "a buffer without memory cannot be shared");
}

static void owner_write_token(loch_parcel *parcel, const share_key *owner)
{
    loch_device_properties properties = {.size = sizeof properties};
    const share_span *span = parcel->span;
    share_token token = {.owner = *owner,
                         .secret = parcel->secret,
                         .parcel = parcel->id,
                         .span = span->id,
                         .bytes = parcel->bytes,
                         .offset = (uintptr_t)parcel->address - span->start,
                         .span_bytes = span->bytes,
                         .pid = (uint32_t)getpid(),
                         .share = (uint8_t)span->share,
                         .access = (uint8_t)parcel->access};
    if (loch_device_get_properties(span->device, &properties) == LOCH_OK)
        memcpy(token.driver, properties.driver, sizeof token.driver);
    token.has_fabric =
        span->share == LOCH_SHARE_FABRIC && span->count == 1 &&
        loch_handle_export(span->pieces[0].handle, LOCH_SHARE_FABRIC, sizeof token.fabric, token.fabric) == LOCH_OK;
    parcel->token_bytes = lochi_share_token_write(&token, parcel->token);
}

static void owner_list(loch_parcel *parcel)
{
    pthread_mutex_lock(&lochi_share_lock);
    parcel->next = *owner_bucket(parcel->id);
    *owner_bucket(parcel->id) = parcel;
    parcel->is_listed = true;
    pthread_mutex_unlock(&lochi_share_lock);
}

/* Gives back what a parcel has, complete or half built. */
static void owner_end(loch_parcel *parcel)
{
    lochi_share_order_end(&parcel->order);
    lochi_share_span_release(parcel->span);
    if (parcel->is_pinned) (void)!loch_buffer_unpin(parcel->buffer, NULL);
    loch_buffer_release(parcel->buffer);
    free(parcel);
}

loch_status lochi_share_owner_create(loch_buffer *buffer, const loch_parcel_options *options, const share_key *owner,
                                     loch_parcel **out)
{
    loch_parcel *parcel = calloc(1, sizeof *parcel);
    if (!parcel) return LOCH_FAIL(HOST_MEMORY, "no host memory for a parcel");
    parcel->buffer = loch_buffer_retain(buffer);
    parcel->bytes = loch_buffer_get_bytes(buffer);
    parcel->epoch = lochi_share_epoch;
    parcel->references = 1;
    parcel->users = options->users;
    parcel->user_id = options->user_id;
    const bool is_read_only = options->access == LOCH_READ_ONLY || loch_buffer_get_access(buffer) == LOCH_READ_ONLY;
    parcel->access = is_read_only ? LOCH_READ_ONLY : LOCH_READ_WRITE;
    pthread_mutex_lock(&lochi_share_lock);
    parcel->id = ++owner_last_id;
    pthread_mutex_unlock(&lochi_share_lock);
    loch_status status = LOCH_OK;
    if (!lochi_share_key_create(&parcel->secret))
        status = LOCH_FAIL(IO, "the system has no random numbers for a secret");
    if (status == LOCH_OK) status = owner_find_address(parcel, options->stream);
    if (status == LOCH_OK) status = lochi_share_span_acquire(parcel->address, parcel->bytes, &parcel->span);
    if (status == LOCH_OK) status = lochi_share_order_begin(parcel->span->device, options->stream, &parcel->order);
    if (status != LOCH_OK) {
        owner_end(parcel);
        return status;
    }
    owner_write_token(parcel, owner);
    owner_list(parcel);
    *out = parcel;
    return LOCH_OK;
}

void lochi_share_owner_release(loch_parcel *parcel)
{
    pthread_mutex_lock(&lochi_share_lock);
    const bool is_last = --parcel->references == 0;
    pthread_mutex_unlock(&lochi_share_lock);
    if (is_last) owner_end(parcel);
}

void lochi_share_owner_destroy(loch_parcel *parcel)
{
    pthread_mutex_lock(&lochi_share_lock);
    for (loch_parcel **at = owner_bucket(parcel->id); parcel->is_listed && *at; at = &(*at)->next)
        if (*at == parcel) {
            *at = parcel->next;
            parcel->is_listed = false;
            break;
        }
    pthread_mutex_unlock(&lochi_share_lock);
    lochi_share_owner_release(parcel);
}

/* --- imports --- */

static bool owner_allows(const loch_parcel *parcel, const uid_t *user)
{
    if (!user || parcel->users == LOCH_PARCEL_ANY_USER || *user == geteuid()) return true;
    return parcel->users == LOCH_PARCEL_ONE_USER && *user == (uid_t)parcel->user_id;
}

bool lochi_share_owner_expects(uid_t user)
{
    bool is_allowed = user == geteuid();
    pthread_mutex_lock(&lochi_share_lock);
    for (size_t i = 0; i < OWNER_BUCKETS && !is_allowed; i++)
        for (const loch_parcel *parcel = owner_buckets[i]; parcel && !is_allowed; parcel = parcel->next)
            is_allowed = owner_allows(parcel, &user);
    pthread_mutex_unlock(&lochi_share_lock);
    return is_allowed;
}

loch_parcel *lochi_share_owner_acquire(uint64_t id, const share_key *secret, const uid_t *user, bool is_import,
                                       share_result *result)
{
    pthread_mutex_lock(&lochi_share_lock);
    loch_parcel *parcel = *owner_bucket(id);
    while (parcel && parcel->id != id)
        parcel = parcel->next;
    if (!parcel || !lochi_share_key_is(&parcel->secret, secret))
        *result = SHARE_NO_PARCEL;
    else if (!owner_allows(parcel, user))
        *result = SHARE_NO_USER;
    else
        *result = parcel->span->is_stale ? SHARE_IS_STALE : SHARE_OK;
    if (*result == SHARE_OK) {
        parcel->references++;
        parcel->imports += is_import;
    } else {
        parcel = NULL;
    }
    pthread_mutex_unlock(&lochi_share_lock);
    return parcel;
}

void lochi_share_owner_end_import(loch_parcel *parcel)
{
    pthread_mutex_lock(&lochi_share_lock);
    parcel->imports--;
    pthread_mutex_unlock(&lochi_share_lock);
    lochi_share_owner_release(parcel);
}

void lochi_share_owner_forked(void)
{
    for (size_t i = 0; i < OWNER_BUCKETS; i++)
        for (loch_parcel *parcel = owner_buckets[i]; parcel; parcel = parcel->next) {
            parcel->is_listed = false;
            parcel->references = 1; /* the leases are the parent's */
            parcel->imports = 0;
        }
    memset(owner_buckets, 0, sizeof owner_buckets);
    lochi_share_span_forked();
}
