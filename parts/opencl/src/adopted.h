/* SPDX-License-Identifier: MIT */
/* Contexts of the caller. A device is opened by name, and a name must not carry addresses: each pair of context and
 * device that a caller gives has a number, and its device is "opencl:context<number>". */
#ifndef LOCH_OPENCL_ADOPTED_H
#define LOCH_OPENCL_ADOPTED_H

#include "api.h"

typedef struct lochi_opencl_adopted {
    cl_context_of context; /* retained */
    cl_device id;          /* retained */
    unsigned number;
    size_t references; /* of open devices, and of calls that open one */
    struct lochi_opencl_adopted *next;
} lochi_opencl_adopted;

/* Finds or enters a pair, and takes a reference. */
loch_status lochi_opencl_adopt(cl_context_of context, cl_device id, lochi_opencl_adopted **out);

/* Finds a pair by its number and takes a reference; NULL if there is none. */
lochi_opencl_adopted *lochi_opencl_adopted_find(unsigned number);

/* Releases a reference; the last one removes the pair. NULL does nothing. */
void lochi_opencl_adopted_release(lochi_opencl_adopted *adopted);

#endif
