/* SPDX-License-Identifier: MIT */
/* Tokens and messages as bytes. A token ends with a sum of its bytes, which tells damage from a wrong secret; the
 * secret itself is checked by the owner. */
#include "message.h"
#include "kit/fail.h"
#include <string.h>

bool lochi_share_key_is(const share_key *one, const share_key *other)
{
    unsigned differs = 0;
    for (size_t i = 0; i < SHARE_KEY_BYTES; i++)
        differs |= (unsigned)(one->bytes[i] ^ other->bytes[i]);
    return differs == 0;
}

/* --- tokens --- */

/* The bytes of a token: magic, version, kind of sharing, access, whether a fabric handle follows, the members in their
 * order, the sum. */
enum { TOKEN_HEAD_BYTES = 8, TOKEN_SUM_BYTES = 4 };

typedef struct token_writer {
    uint8_t *at;
} token_writer;

static void token_put(token_writer *writer, const void *bytes, size_t count)
{
    memcpy(writer->at, bytes, count);
    writer->at += count;
}

typedef struct token_reader {
    const uint8_t *at;
} token_reader;

static void token_get(token_reader *reader, void *bytes, size_t count)
{
    memcpy(bytes, reader->at, count);
    reader->at += count;
}

/* Adds up bytes (FNV-1a). */
static uint32_t token_sum(const uint8_t *bytes, size_t count)
{
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < count; i++)
        sum = (sum ^ bytes[i]) * 16777619u;
    return sum;
}

static size_t token_bytes(bool has_fabric)
{
    return TOKEN_HEAD_BYTES + 2 * SHARE_KEY_BYTES + 5 * sizeof(uint64_t) + sizeof(uint32_t) + SHARE_DRIVER_BYTES +
           (has_fabric ? LOCH_SHARE_BYTES_MAX : 0) + TOKEN_SUM_BYTES;
}

size_t lochi_share_token_write(const share_token *token, uint8_t *out)
{
    token_writer writer = {out};
    const uint32_t magic = SHARE_MAGIC;
    const uint8_t head[4] = {SHARE_VERSION, token->share, token->access, token->has_fabric};
    token_put(&writer, &magic, sizeof magic);
    token_put(&writer, head, sizeof head);
    token_put(&writer, &token->owner, sizeof token->owner);
    token_put(&writer, &token->secret, sizeof token->secret);
    token_put(&writer, &token->parcel, sizeof token->parcel);
    token_put(&writer, &token->span, sizeof token->span);
    token_put(&writer, &token->bytes, sizeof token->bytes);
    token_put(&writer, &token->offset, sizeof token->offset);
    token_put(&writer, &token->span_bytes, sizeof token->span_bytes);
    token_put(&writer, &token->pid, sizeof token->pid);
    token_put(&writer, token->driver, sizeof token->driver);
    if (token->has_fabric) token_put(&writer, token->fabric, sizeof token->fabric);
    const uint32_t sum = token_sum(out, (size_t)(writer.at - out));
    token_put(&writer, &sum, sizeof sum);
    return (size_t)(writer.at - out);
}

static bool token_is_sound(const share_token *token)
{
    return (token->share == LOCH_SHARE_FD || token->share == LOCH_SHARE_FABRIC) && token->access <= LOCH_READ_ONLY &&
           token->bytes && token->span_bytes <= SIZE_MAX / 2 && token->offset < token->span_bytes &&
           token->bytes <= token->span_bytes - token->offset &&
           memchr(token->driver, '\0', sizeof token->driver) != NULL;
}

loch_status lochi_share_token_read(const void *bytes, size_t count, share_token *out)
{
    uint32_t magic = 0, sum;
    uint8_t head[4] = {0};
    const uint8_t *start = bytes;
    token_reader reader = {start};
    *out = (share_token){.pid = 0};
    if (count >= TOKEN_HEAD_BYTES) {
        token_get(&reader, &magic, sizeof magic);
        token_get(&reader, head, sizeof head);
    }
    if (magic != SHARE_MAGIC) return LOCH_FAIL(INVALID, "these %zu bytes are not a token of a parcel", count);
    if (head[0] != SHARE_VERSION)
        return LOCH_FAIL(UNSUPPORTED, "the token comes from version %u of the protocol, this process has version %u",
                         head[0], SHARE_VERSION);
    const size_t needed = token_bytes(head[3] == 1);
    if (head[3] > 1 || count != needed)
        return LOCH_FAIL(INVALID, "the token is damaged: it has %zu bytes, not %zu", count, needed);
    memcpy(&sum, start + needed - TOKEN_SUM_BYTES, sizeof sum);
    if (sum != token_sum(start, needed - TOKEN_SUM_BYTES))
        return LOCH_FAIL(INVALID, "the token is damaged: its sum is wrong");
    out->share = head[1];
    out->access = head[2];
    out->has_fabric = head[3];
    token_get(&reader, &out->owner, sizeof out->owner);
    token_get(&reader, &out->secret, sizeof out->secret);
    token_get(&reader, &out->parcel, sizeof out->parcel);
    token_get(&reader, &out->span, sizeof out->span);
    token_get(&reader, &out->bytes, sizeof out->bytes);
    token_get(&reader, &out->offset, sizeof out->offset);
    token_get(&reader, &out->span_bytes, sizeof out->span_bytes);
    token_get(&reader, &out->pid, sizeof out->pid);
    token_get(&reader, out->driver, sizeof out->driver);
    if (out->has_fabric) token_get(&reader, out->fabric, sizeof out->fabric);
    if (token_is_sound(out)) return LOCH_OK;
    return LOCH_FAIL(INVALID, "the token is damaged: its sizes do not agree");
}

/* --- messages --- */

bool lochi_share_request_is_sound(const void *bytes, size_t count, share_request *out)
{
    *out = (share_request){.magic = 0};
    if (count != sizeof *out) return false;
    memcpy(out, bytes, sizeof *out);
    /* The version is answered, not refused: the importer shall learn it. */
    return out->magic == SHARE_MAGIC && (out->version != SHARE_VERSION || (out->kind && out->kind < SHARE_KIND_END)) &&
           out->first < SHARE_HANDLES_MAX && out->wants <= 1;
}

/* Returns whether the sizes in a reply agree. */
static bool reply_sizes_agree(const share_reply *reply)
{
    if (!reply->handles || reply->handles > SHARE_HANDLES_MAX || reply->count > SHARE_CHUNK ||
        reply->first > reply->handles || reply->count > reply->handles - reply->first)
        return false;
    if (!reply->bytes || reply->span_bytes > SIZE_MAX / 2 || reply->offset >= reply->span_bytes ||
        reply->bytes > reply->span_bytes - reply->offset)
        return false;
    uint64_t rest = reply->span_bytes;
    for (uint32_t i = 0; i < reply->count; i++) {
        if (!reply->handle_bytes[i] || reply->handle_bytes[i] > rest) return false;
        rest -= reply->handle_bytes[i];
    }
    return true;
}

bool lochi_share_reply_is_sound(const void *bytes, size_t count, share_reply *out)
{
    memset(out, 0, sizeof *out);
    if (count < SHARE_REPLY_BYTES || count > sizeof *out) return false;
    memcpy(out, bytes, count);
    if (out->magic != SHARE_MAGIC || out->result >= SHARE_RESULT_END) return false;
    if (out->result != SHARE_OK) return true;
    if (out->version != SHARE_VERSION || out->access > LOCH_READ_ONLY || out->is_ready > 1 || out->has_event > 1)
        return false;
    if (out->share != LOCH_SHARE_FD && out->share != LOCH_SHARE_FABRIC) return false;
    if (out->share == LOCH_SHARE_FABRIC && count != sizeof *out) return false;
    return reply_sizes_agree(out);
}
