/* SPDX-License-Identifier: MIT */
/* The cached events of a stream pool (stream_pool.c), for contexts. Its streams are public: loch/stream_pool.h. */
#ifndef LOCHI_STREAM_POOL_H
#define LOCHI_STREAM_POOL_H

#include <loch/stream_pool.h>

/* Acquires an event that is not recorded: a cached one, otherwise a new one.
 * @param out  owned by the caller; give it back with lochi_stream_pool_release_event. NULL on failure. */
loch_status lochi_stream_pool_acquire_event(loch_stream_pool *pool, loch_event_kind kind, loch_event **out);

/* Gives an event back to its pool, passed or not. An event that was not acquired from this pool still belongs to the
 * caller. NULL does nothing. */
void lochi_stream_pool_release_event(loch_stream_pool *pool, loch_event *event);

#endif
