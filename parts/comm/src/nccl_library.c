/* SPDX-License-Identifier: MIT */
/* Finds the functions of NCCL. Loch itself finds and loads the library (loch/library.h). */
#include "nccl_library.h"
#include "kit/fail.h"
#include <stdatomic.h>
#include <stdio.h>

#define NCCL_VERSION_LEAST 21400 /* the first with communicators that do not block */

static pthread_mutex_t nccl_lock = PTHREAD_MUTEX_INITIALIZER;
static comm_nccl_api nccl_api;
static atomic_bool nccl_is_ready; /* stored with release when the table is complete */

static loch_status nccl_find(const char *name, bool is_needed, void *to)
{
    void *address;
    const loch_status status = loch_library_find(LOCH_LIBRARY_NCCL, name, &address);
    if (status != LOCH_OK && is_needed) return status;
    memcpy(to, &address, sizeof address);
    return LOCH_OK;
}

static loch_status nccl_read(comm_nccl_api *api)
{
    enum { OPTIONAL, NEEDED };
    LOCH_RETURN(loch_library_load(LOCH_LIBRARY_NCCL, &api->version));
    if (api->version < NCCL_VERSION_LEAST)
        return LOCH_FAIL(UNSUPPORTED, "NCCL %d is too old: communicators need 2.14 or later", api->version);
#define NCCL_FIND(name, need, parameters) LOCH_RETURN(nccl_find(#name, (need) == NEEDED, &api->name));
    COMM_NCCL_CALLS(NCCL_FIND)
#undef NCCL_FIND
    LOCH_RETURN(nccl_find("ncclGetErrorString", true, &api->ncclGetErrorString));
    return nccl_find("ncclGetLastError", false, &api->ncclGetLastError);
}

loch_status lochi_comm_nccl_load(const comm_nccl_api **out)
{
    *out = &nccl_api;
    if (atomic_load_explicit(&nccl_is_ready, memory_order_acquire)) return LOCH_OK;
    pthread_mutex_lock(&nccl_lock);
    loch_status status = LOCH_OK;
    if (!atomic_load_explicit(&nccl_is_ready, memory_order_relaxed)) {
        status = nccl_read(&nccl_api);
        if (status == LOCH_OK) atomic_store_explicit(&nccl_is_ready, true, memory_order_release);
    }
    pthread_mutex_unlock(&nccl_lock);
    return status;
}

static loch_status nccl_classify(int result)
{
    switch (result) {
    case COMM_NCCL_INVALID_ARGUMENT:
    case COMM_NCCL_INVALID_USAGE: return LOCH_E_INVALID;
    case COMM_NCCL_REMOTE_ERROR: return LOCH_E_NOT_FOUND;
    default: return LOCH_E_DRIVER;
    }
}

loch_status lochi_comm_nccl_fail(const comm_nccl_api *api, int result, const char *call)
{
    const char *text = api->ncclGetErrorString(result);
    const char *last = api->ncclGetLastError ? api->ncclGetLastError(NULL) : NULL;
    char line[120] = "";
    if (last) {
        snprintf(line, sizeof line, "%s", last);
        line[strcspn(line, "\n")] = '\0';
    }
    return loch_error_set(nccl_classify(result), "nccl", result, "%s: %.100s%s%s", call, text ? text : "unknown",
                          *line ? ": " : "", line);
}
