/* SPDX-License-Identifier: MIT */
/* Internal header of the ggml adapter: the object, its buffers, and what its files call of each other.
 *
 * The interfaces of devices and buffers are tables of functions in a header that ggml keeps private, so the adapter is
 * compiled against the sources of the ggml that loads it. */
#ifndef LOCHI_GGML_STATE_H
#define LOCHI_GGML_STATE_H

#include "loch_ggml.h"

#include <ggml-backend-impl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define LOCHI_GGML_NAME_MAX 32

/* Alignment of buffers and tensors: a cache line, and more than any kernel of the CPU backend asks for. */
#define LOCHI_GGML_ALIGNMENT 64

/* Weights start and end with a page, so that all of them are protected when they are frozen. */
#define LOCHI_GGML_PAGE 4096

/* Types of buffers: one for each kind, and the type of the device, whose buffers get their kind from their tensors. */
enum { LOCHI_GGML_TYPES = 4, LOCHI_GGML_BY_TENSORS = 3 };

/* A growable block: the memory of one tensor of a cache. Hangs on ggml_tensor.extra. */
typedef struct lochi_ggml_part {
    char *address;
    size_t bytes; /* that have memory; all are zero or written */
    size_t max_bytes;
    struct lochi_ggml_part *next;
} lochi_ggml_part;

typedef struct lochi_ggml_buffer {
    loch_ggml *ggml;
    ggml_backend_buffer_t buffer;
    loch_ggml_kind kind;
    bool is_guess; /* the kind was told from the tensors */
    bool grows;    /* every tensor has a part; `base` is the start of addresses without memory */
    /* A write through ggml's interface, which cannot fail, found no memory. Work on the buffer fails until a clear. */
    atomic_bool lost;
    void *base;
    lochi_ggml_part *parts;
    struct lochi_ggml_buffer *previous, *next; /* in the list of the object, under its lock */
} lochi_ggml_buffer;

struct loch_ggml {
    atomic_size_t references; /* the creator's, and one for each buffer and backend */
    loch_allocator *pool;
    size_t granule_bytes;
    loch_tag tags[3]; /* by loch_ggml_kind */
    char name[LOCHI_GGML_NAME_MAX];
    char type_names[LOCHI_GGML_TYPES][LOCHI_GGML_NAME_MAX + 16];
    ggml_backend_dev_t cpu;
    struct ggml_backend_reg reg;
    struct ggml_backend_device device;
    struct ggml_backend_buffer_type types[LOCHI_GGML_TYPES];
    pthread_mutex_t lock; /* of the list */
    lochi_ggml_buffer *buffers;
};

/* --- loch_ggml.c --- */

void lochi_ggml_retain(loch_ggml *ggml);
void lochi_ggml_release(loch_ggml *ggml);

/* Writes the thread's error record to ggml's log. */
void lochi_ggml_log(const loch_ggml *ggml, const char *what, size_t bytes);

/* --- buffer.c --- */

void lochi_ggml_init_types(loch_ggml *ggml);

/* Returns the record of a buffer of any loch_ggml; NULL for other buffers. */
lochi_ggml_buffer *lochi_ggml_find(ggml_backend_buffer_t buffer);

/* Gives a part memory up to `bytes`, and zeros in what is new. Returns false after a line in the log if memory is
 * short. */
bool lochi_ggml_grow(loch_ggml *ggml, lochi_ggml_part *part, size_t bytes);

/* --- backend.c --- */

void lochi_ggml_init_device(loch_ggml *ggml);

#endif
