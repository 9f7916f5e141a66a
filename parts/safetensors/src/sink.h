/* SPDX-License-Identifier: MIT */
/* A file that is written and replaces another as a whole (sink.c). */
#ifndef SAFETENSORS_SINK_H
#define SAFETENSORS_SINK_H

#include <limits.h>
#include <loch/status.h>

typedef struct safetensors_sink {
    const char *path; /* as the caller wrote it */
    int number;
    char final[PATH_MAX];     /* the final name: `path`, or the target of its links */
    char temporary[PATH_MAX]; /* the present name; "" if the path is written directly */
} safetensors_sink;

/* Open a file, and write to it. E_IO. Call safetensors_sink_close in any case; `path` must stay until then. A path that
 * is not a regular file (a pipe, a device) is written directly. */
loch_status safetensors_sink_open(safetensors_sink *sink, const char *path);
loch_status safetensors_sink_write(safetensors_sink *sink, const void *from, size_t bytes);

/* Closes a file. If `status` is LOCH_OK, writes it to the disk and gives it its name; otherwise removes it. Returns the
 * first failure. */
loch_status safetensors_sink_close(safetensors_sink *sink, loch_status status);

#endif
