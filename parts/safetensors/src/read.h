/* SPDX-License-Identifier: MIT */
/* Reads of a file by one thread or several (read.c). */
#ifndef SAFETENSORS_READ_H
#define SAFETENSORS_READ_H

#include "file.h"
#include <pthread.h>
#include <stdbool.h>

#define SAFETENSORS_READ_THREADS_MAX 8

/* A read that failed. */
typedef struct safetensors_read_failure {
    loch_status status; /* E_IO; E_CORRUPT: the file has become shorter */
    int error;          /* errno */
    uint64_t place;     /* in the file */
    const safetensors_file *file;
} safetensors_read_failure;

/* Reads exactly `bytes` in the calling thread. Returns false and describes the failure; sets no error record. */
bool lochi_safetensors_read_range(const safetensors_file *file, uint64_t offset, void *to, size_t bytes,
                                  safetensors_read_failure *out);

/* Sets the error record of a failure and returns its status. */
loch_status lochi_safetensors_read_tell(const safetensors_read_failure *failure);

/* Returns how many threads help the caller to read `parts` parts: less than parts, processors and the most allowed. */
size_t lochi_safetensors_read_helpers(size_t parts);

/* Starts up to `count` threads with all signals blocked. Returns how many started; they are joined by the caller. */
size_t lochi_safetensors_read_start(void *(*run)(void *), void *user, size_t count, pthread_t *out);

#endif
