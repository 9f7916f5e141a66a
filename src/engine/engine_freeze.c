/* SPDX-License-Identifier: MIT */
/* Freezes all pools of an engine, those of each seat on one stream. */
#include "base/fail.h"
#include "engine/engine_state.h"
#include "memory/pool/pool.h"

static loch_status freeze_seat(lochi_seat *seat, loch_tag tag, size_t *bytes)
{
    loch_stream *stream;
    loch_freeze_report report = {.size = sizeof report};
    LOCH_TRY_RETURN(loch_stream_pool_acquire(seat->streams, &stream));
    const loch_freeze_options options = {.size = sizeof options, .tag = tag, .stream = stream};
    loch_status status = loch_pool_freeze(seat->allocator, &options, &report);
    *bytes += report.bytes;
    if (status == LOCH_OK) status = lochi_pool_freeze_below(seat->allocator, &options, bytes);
    if (status == LOCH_OK) status = loch_stream_sync(stream);
    const loch_error saved = lochi_error_save();
    if (loch_stream_pool_release(seat->streams, stream) != LOCH_OK) loch_stream_close(stream);
    lochi_error_restore(&saved);
    return status;
}

loch_status loch_engine_freeze(loch_engine *engine, loch_tag tag, size_t *bytes)
{
    size_t frozen = 0;
    loch_status status = LOCH_OK;
    if (bytes) *bytes = 0;
    if (!engine) return LOCH_FAIL(INVALID, "the engine is NULL");
    for (unsigned i = 0; i < engine->count && !engine->is_direct && status == LOCH_OK; i++) {
        status = freeze_seat(&engine->seats[i], tag, &frozen);
        if (status != LOCH_OK) status = lochi_engine_fail_at(i, status);
    }
    if (bytes) *bytes = frozen;
    return status;
}
