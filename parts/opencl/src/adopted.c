/* SPDX-License-Identifier: MIT */
/* The list of contexts of the caller, with one lock. */
#include "adopted.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

static pthread_mutex_t adopted_lock = PTHREAD_MUTEX_INITIALIZER;
static lochi_opencl_adopted *adopted_list; /* under the lock, like all that follows */
static unsigned adopted_last;

static loch_status adopted_retain_handles(cl_context_of context, cl_device id)
{
    LOCHI_OPENCL_TRY(clRetainContext, (context));
    const cl_result result = lochi_opencl.clRetainDevice(id);
    if (result == LOCHI_CL_SUCCESS) return LOCH_OK;
    lochi_opencl.clReleaseContext(context);
    return lochi_opencl_fail(result, "clRetainDevice");
}

/* Enters a new pair. Lock held. */
static loch_status adopted_enter(cl_context_of context, cl_device id, lochi_opencl_adopted **out)
{
    lochi_opencl_adopted *adopted = calloc(1, sizeof *adopted);
    if (!adopted) return loch_error_set(LOCH_E_HOST_MEMORY, "opencl", 0, "no host memory to record a context");
    const loch_status status = adopted_retain_handles(context, id);
    if (status != LOCH_OK) {
        free(adopted);
        return status;
    }
    *adopted = (lochi_opencl_adopted){context, id, ++adopted_last, 1, adopted_list};
    *out = adopted_list = adopted;
    return LOCH_OK;
}

loch_status lochi_opencl_adopt(cl_context_of context, cl_device id, lochi_opencl_adopted **out)
{
    loch_status status = LOCH_OK;
    pthread_mutex_lock(&adopted_lock);
    lochi_opencl_adopted *adopted = adopted_list;
    while (adopted && (adopted->context != context || adopted->id != id))
        adopted = adopted->next;
    if (adopted) {
        adopted->references++;
        *out = adopted;
    } else {
        status = adopted_enter(context, id, out);
    }
    pthread_mutex_unlock(&adopted_lock);
    return status;
}

lochi_opencl_adopted *lochi_opencl_adopted_find(unsigned number)
{
    pthread_mutex_lock(&adopted_lock);
    lochi_opencl_adopted *adopted = adopted_list;
    while (adopted && adopted->number != number)
        adopted = adopted->next;
    if (adopted) adopted->references++;
    pthread_mutex_unlock(&adopted_lock);
    return adopted;
}

void lochi_opencl_adopted_release(lochi_opencl_adopted *adopted)
{
    if (!adopted) return;
    pthread_mutex_lock(&adopted_lock);
    const bool is_last = --adopted->references == 0;
    if (is_last) {
        lochi_opencl_adopted **link = &adopted_list;
        while (*link != adopted)
            link = &(*link)->next;
        *link = adopted->next;
    }
    pthread_mutex_unlock(&adopted_lock);
    if (!is_last) return;
    lochi_opencl.clReleaseDevice(adopted->id);
    lochi_opencl.clReleaseContext(adopted->context);
    free(adopted);
}
