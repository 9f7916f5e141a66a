/* SPDX-License-Identifier: MIT */
/* Streams that are handed to a driver by their handles. */
#ifndef LOCH_KERNEL_STREAM_H
#define LOCH_KERNEL_STREAM_H

#include <loch/stream.h>

/* Refuses a stream that was closed. It has no handle, as the default stream has none: a query tells them apart. */
static inline loch_status lochi_kernel_check_stream(loch_stream *stream)
{
    if (loch_stream_get_native(stream) || stream == loch_stream_get_default(loch_stream_get_device(stream)))
        return LOCH_OK;
    const loch_status status = loch_stream_query(stream);
    return status == LOCH_E_BUSY ? LOCH_OK : status;
}

#endif
