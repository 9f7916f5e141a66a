/* SPDX-License-Identifier: MIT */
/** @file snapshot.h
 *  Snapshots: what all allocators of the process hold at one moment, as JSON. docs/snapshot.md describes the contents,
 *  docs/snapshot.schema.json is their schema.
 *
 *  The option `snapshot` (LOCH_SNAPSHOT) names a file that the library writes by itself when a request for memory fails
 *  in the end for the first time.
 */
#ifndef LOCH_SNAPSHOT_H
#define LOCH_SNAPSHOT_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** Writes a snapshot of the process to a file: devices, tags, and every allocator that was used, with its statistics;
 *  of pools also handles, streams and all blocks in order of address. A file at `path` is replaced as a whole by one
 *  that only its user can read; a symbolic link gives E_IO. Each pool is copied at one moment; other threads wait for
 *  the copy at most, and go on while the file is written. An allocator that is not thread safe is described fully only
 *  on the single thread that uses it. E_HOST_MEMORY: no memory for the copy. E_IO: the file cannot be written.
 *  E_INVALID: no path. Any thread, without a lock that a function of the user's allocators takes. */
LOCH_API LOCH_MUST_USE loch_status loch_snapshot_save(const char *path);

LOCH_END_DECLS

#endif
