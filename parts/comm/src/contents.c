/* SPDX-License-Identifier: MIT */
/* Contents go in chunks. Before a chunk each side says whether it is ready: the giver has the chunk in one piece, the
 * receiver has room for it. So neither waits for data that will never come. A chunk goes in place where the wire takes
 * the memory, and otherwise through a staging tensor; pages that are scattered are packed there. */
#include "contents.h"
#include "kit/fail.h"
#include <string.h>

#define CHUNK_BYTES ((size_t)64 << 20)
#define READY_MAGIC 0x6c6f6361u

/* Whether a side is ready for a chunk. */
typedef struct ready {
    uint8_t bytes[8];
} ready;

/* A transfer of one piece. */
typedef struct contents {
    handover_wire *wire;
    loch_buffer *buffer;
    char *address; /* of the buffer */
    loch_tensor *stage;
    bool is_direct; /* the wire takes the buffer */
} contents;

static size_t contents_least(size_t one, size_t other)
{
    return one < other ? one : other;
}

/* Sends the state of this side and receives the other's, in this order at the giver. Returns this side's failure, or
 * the other's. */
static loch_status contents_agree(handover_wire *wire, loch_status own, bool is_giver)
{
    const loch_error error = *loch_error_get();
    const uint32_t numbers[2] = {READY_MAGIC, (uint32_t)own};
    uint32_t theirs[2] = {0, 0};
    ready mine = {{0}}, other = {{0}};
    memcpy(mine.bytes, numbers, sizeof mine.bytes);
    loch_status status = is_giver ? lochi_comm_handover_wire_send(wire, mine.bytes, sizeof mine.bytes)
                                  : lochi_comm_handover_wire_receive(wire, other.bytes, sizeof other.bytes);
    if (status == LOCH_OK)
        status = is_giver ? lochi_comm_handover_wire_receive(wire, other.bytes, sizeof other.bytes)
                          : lochi_comm_handover_wire_send(wire, mine.bytes, sizeof mine.bytes);
    if (own != LOCH_OK) return loch_error_set(own, error.driver, error.driver_code, "%s", error.sentence);
    if (status != LOCH_OK) return status;
    memcpy(theirs, other.bytes, sizeof theirs);
    if (theirs[0] != READY_MAGIC || theirs[1] >= LOCH_STATUS_COUNT) {
        wire->is_broken = true;
        return LOCH_FAIL(IO, "%s sent something else than the contents of a hand-over", wire->name);
    }
    if (theirs[1] == LOCH_OK) return LOCH_OK;
    return loch_error_set((loch_status)theirs[1], NULL, 0, "%s failed while contents were handed over: %s", wire->name,
                          loch_status_text((loch_status)theirs[1]));
}

/* --- tensors --- */

/* Makes the staging tensor of a transfer, at its first use: `bytes` are as many as the largest chunk has. */
static loch_status contents_stage(contents *all, size_t bytes)
{
    const loch_tensor_options options = {.size = sizeof options, .device = all->wire->device};
    const int64_t shape[] = {(int64_t)bytes};
    return all->stage ? LOCH_OK : loch_tensor_create(LOCH_U8, 1, shape, &options, &all->stage);
}

/* Makes a tensor on `bytes` of the buffer, or of the stage. */
static loch_status contents_view(contents *all, bool is_staged, size_t offset, size_t bytes, loch_tensor **out)
{
    const int64_t shape[] = {(int64_t)bytes};
    loch_buffer *buffer = is_staged ? loch_tensor_get_buffer(all->stage) : all->buffer;
    return loch_tensor_create_in(buffer, is_staged ? 0 : offset, LOCH_U8, 1, shape, NULL, out);
}

/* --- the giver --- */

/* Where a range of the packed contents lies in the piece: the bytes from `packed` on that lie together. */
static size_t contents_find(const handover_offer *offer, size_t packed, size_t bytes, size_t *from)
{
    *from = packed;
    if (!offer->page_bytes) return bytes;
    size_t page = packed / offer->page_bytes;
    const size_t inside = packed % offer->page_bytes;
    *from = offer->page_offsets[page] + inside;
    size_t together = offer->page_bytes - inside;
    while (together < bytes && offer->page_offsets[page + 1] == offer->page_offsets[page] + offer->page_bytes) {
        together += offer->page_bytes;
        page++;
    }
    return contents_least(together, bytes);
}

/* Packs a range of the contents into the stage. */
static loch_status contents_pack(contents *all, const handover_offer *offer, size_t first, size_t packed, size_t bytes)
{
    void *to;
    loch_status status = loch_tensor_get_address(all->stage, &to);
    for (size_t done = 0, from, part; done < bytes && status == LOCH_OK; done += part) {
        part = contents_find(offer, packed + done, bytes - done, &from);
        status = loch_copy((char *)to + done, all->address + first + from, part);
    }
    return status;
}

/* Makes a tensor that has a chunk in one piece. */
static loch_status contents_take_chunk(contents *all, const handover_offer *offer, size_t first, size_t packed,
                                       size_t bytes, size_t largest, loch_tensor **out)
{
    size_t from;
    *out = NULL;
    const bool is_together = contents_find(offer, packed, bytes, &from) == bytes;
    if (all->is_direct && is_together) return contents_view(all, false, first + from, bytes, out);
    loch_status status = contents_stage(all, largest);
    if (status == LOCH_OK) status = contents_pack(all, offer, first, packed, bytes);
    return status == LOCH_OK ? contents_view(all, true, 0, bytes, out) : status;
}

static size_t contents_bytes(const handover_offer *offer, size_t piece)
{
    return offer->page_bytes ? offer->pages_count * offer->page_bytes : offer->pieces[piece].bytes;
}

static loch_status contents_send_chunks(contents *all, const handover_offer *offer, size_t piece, size_t first)
{
    const size_t bytes = contents_bytes(offer, piece);
    loch_status status = LOCH_OK;
    for (size_t done = 0, part; done < bytes && status == LOCH_OK; done += part) {
        loch_tensor *chunk;
        part = contents_least(bytes - done, CHUNK_BYTES);
        status = contents_take_chunk(all, offer, first, done, part, contents_least(bytes, CHUNK_BYTES), &chunk);
        status = contents_agree(all->wire, status, true);
        if (status == LOCH_OK) status = lochi_comm_handover_wire_send_tensor(all->wire, chunk);
        loch_tensor_release(chunk);
    }
    return status;
}

loch_status lochi_comm_handover_contents_send(handover_wire *wire, const handover_offer *offer, size_t piece,
                                              loch_buffer *from, size_t first, loch_status waited)
{
    contents all = {.wire = wire, .buffer = from, .is_direct = lochi_comm_handover_wire_takes(wire, from)};
    void *address = NULL;
    if (!contents_bytes(offer, piece)) return LOCH_OK;
    const loch_status pinned = waited == LOCH_OK ? loch_buffer_pin(from, NULL, &address) : waited;
    if (pinned != LOCH_OK) return contents_agree(wire, pinned, true);
    all.address = address;
    const loch_status status = contents_send_chunks(&all, offer, piece, first);
    loch_tensor_release(all.stage);
    (void)!loch_buffer_unpin(from, NULL);
    return status;
}

/* --- the receiver --- */

/* Makes a tensor that receives a chunk: in the buffer, or in the stage. */
static loch_status contents_make_room(contents *all, size_t offset, size_t bytes, size_t largest, loch_tensor **out)
{
    *out = NULL;
    const loch_status status = all->is_direct ? LOCH_OK : contents_stage(all, largest);
    return status == LOCH_OK ? contents_view(all, !all->is_direct, offset, bytes, out) : status;
}

/* Copies a chunk out of the stage. */
static loch_status contents_unpack(contents *all, size_t offset, size_t bytes)
{
    void *from;
    loch_status status = loch_tensor_get_address(all->stage, &from);
    if (status == LOCH_OK) status = loch_copy(all->address + offset, from, bytes);
    return status;
}

loch_status lochi_comm_handover_contents_receive(handover_wire *wire, loch_buffer *to)
{
    contents all = {.wire = wire,
                    .buffer = to,
                    .address = loch_buffer_get_address(to),
                    .is_direct = lochi_comm_handover_wire_takes(wire, to)};
    const size_t bytes = loch_buffer_get_bytes(to);
    loch_status status = LOCH_OK, kept = LOCH_OK;
    for (size_t done = 0, part; done < bytes && status == LOCH_OK; done += part) {
        loch_tensor *chunk = NULL;
        part = contents_least(bytes - done, CHUNK_BYTES);
        if (kept == LOCH_OK) kept = contents_make_room(&all, done, part, contents_least(bytes, CHUNK_BYTES), &chunk);
        status = contents_agree(wire, kept, false);
        if (status == LOCH_OK) status = lochi_comm_handover_wire_receive_tensor(wire, chunk);
        if (status == LOCH_OK && !all.is_direct) kept = contents_unpack(&all, done, part);
        loch_tensor_release(chunk);
    }
    loch_tensor_release(all.stage);
    return status == LOCH_OK ? kept : status;
}

/* --- mapped memory --- */

loch_status lochi_comm_handover_contents_copy(const handover_offer *offer, size_t piece, loch_buffer *from,
                                              loch_buffer *to, loch_stream *stream)
{
    const char *source = loch_buffer_get_address(from);
    char *target = loch_buffer_get_address(to);
    loch_stream *order = stream ? stream : loch_stream_get_default(loch_buffer_get_device(to));
    loch_status status = LOCH_OK;
    offer_run run;
    for (size_t at = 0; status == LOCH_OK && lochi_comm_handover_offer_next_run(offer, piece, &at, &run);)
        status = loch_copy_on(target + run.to, source + run.from, run.bytes, order);
    if (status == LOCH_OK) status = loch_buffer_record_use(from, order);
    if (status == LOCH_OK) status = loch_buffer_record_use(to, order);
    if (status == LOCH_OK && !stream) status = loch_stream_sync(order);
    return status;
}
