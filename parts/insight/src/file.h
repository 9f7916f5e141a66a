/* SPDX-License-Identifier: MIT */
/* Whole files in memory, and files that are written. */
#ifndef LOCH_INSIGHT_FILE_H
#define LOCH_INSIGHT_FILE_H

#include "kit/array.h"
#include "kit/new_file.h"
#include <loch/insight.h>
#include <signal.h>
#include <stdio.h>

/* The contents of a file, decompressed. */
typedef struct insight_source {
    const char *path;
    const uint8_t *data;
    size_t bytes;
    lochi_array memory; /* owns the contents */
} insight_source;

/* Reads a whole file ("-": standard input); .gz and .zst through gzip and zstd, up to LOCH_READ_MIB. E_IO,
 * E_LIMIT, E_HOST_MEMORY. Call
 * lochi_insight_source_free in either case. */
loch_status lochi_insight_source_read(const char *path, insight_source *source);

void lochi_insight_source_free(insight_source *source);

/* A file that is being written. It gets its name at the end, so a failure leaves the old file. */
typedef struct insight_sink {
    FILE *file;
    const char *path;
    lochi_new_file whole; /* not opened for standard output */
    int child;            /* process id of the program that compresses; 0 for none */
    sigset_t signals;     /* blocked signals of the thread before SIGPIPE was blocked; with a child */
} insight_sink;

/* Opens a file for writing ("-": standard output). What is written to .gz and .zst goes through gzip and zstd. E_IO. */
loch_status lochi_insight_sink_open(const char *path, insight_sink *sink);

/* Ends a file: writes what is buffered and gives the file its name, if `status` is LOCH_OK; otherwise removes it.
 * Returns the first failure. */
loch_status lochi_insight_sink_close(insight_sink *sink, loch_status status);

#endif
