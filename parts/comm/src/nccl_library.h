/* SPDX-License-Identifier: MIT */
/* The part of NCCL that this library uses: types, constants, functions, found at run time (nccl_library.c). The
 * declarations are Loch's own, so that a build needs no header of NCCL. Constants are named after NCCL's. */
#ifndef COMM_NCCL_LIBRARY_H
#define COMM_NCCL_LIBRARY_H

#include "common.h"

typedef struct nccl_id { /* ncclUniqueId */
    char bytes[LOCH_COMM_ID_BYTES];
} nccl_id;

/* ncclConfig_t of NCCL 2.14: its first members. NCCL reads as many bytes as `size` says. */
typedef struct nccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
} nccl_config;

enum {
    COMM_NCCL_SUCCESS = 0,
    COMM_NCCL_SYSTEM_ERROR = 2,
    COMM_NCCL_INVALID_ARGUMENT = 4,
    COMM_NCCL_INVALID_USAGE = 5,
    COMM_NCCL_REMOTE_ERROR = 6,
    COMM_NCCL_IN_PROGRESS = 7,

    COMM_NCCL_INT8 = 0, /* types; bytes are moved as this one */
    COMM_NCCL_UINT8 = 1,
    COMM_NCCL_INT32 = 2,
    COMM_NCCL_UINT32 = 3,
    COMM_NCCL_INT64 = 4,
    COMM_NCCL_UINT64 = 5,
    COMM_NCCL_FLOAT16 = 6,
    COMM_NCCL_FLOAT32 = 7,
    COMM_NCCL_FLOAT64 = 8,
    COMM_NCCL_BFLOAT16 = 9,
    COMM_NCCL_FLOAT8E4M3 = 10,
    COMM_NCCL_FLOAT8E5M2 = 11,

    COMM_NCCL_SUM = 0,
    COMM_NCCL_PROD = 1,
    COMM_NCCL_MAX = 2,
    COMM_NCCL_MIN = 3,
    COMM_NCCL_AVG = 4,

    COMM_NCCL_WIN_COLL_SYMMETRIC = 1
};

#define COMM_NCCL_MAGIC 0xcafebeefu
#define COMM_NCCL_CONFIG_VERSION 21400 /* of nccl_config */
#define COMM_NCCL_WINDOW_ALIGNMENT 4096

/* The functions: X(name, need, parameters). All return an int: a result. */
#define COMM_NCCL_CALLS(X)                                                                                             \
    X(ncclGetUniqueId, NEEDED, (nccl_id * id))                                                                         \
    X(ncclCommInitRankConfig, NEEDED, (void **comm, int ranks, nccl_id id, int rank, nccl_config *config))             \
    X(ncclCommFinalize, NEEDED, (void *comm))                                                                          \
    X(ncclCommDestroy, NEEDED, (void *comm))                                                                           \
    X(ncclCommAbort, NEEDED, (void *comm))                                                                             \
    X(ncclCommGetAsyncError, NEEDED, (void *comm, int *result))                                                        \
    X(ncclAllReduce, NEEDED, (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream))   \
    X(ncclReduce, NEEDED,                                                                                              \
      (const void *from, void *to, size_t count, int type, int op, int root, void *comm, void *stream))                \
    X(ncclReduceScatter, NEEDED,                                                                                       \
      (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream))                          \
    X(ncclAllGather, NEEDED, (const void *from, void *to, size_t count, int type, void *comm, void *stream))           \
    X(ncclBroadcast, NEEDED, (const void *from, void *to, size_t count, int type, int root, void *comm, void *stream)) \
    X(ncclSend, NEEDED, (const void *from, size_t count, int type, int peer, void *comm, void *stream))                \
    X(ncclRecv, NEEDED, (void *to, size_t count, int type, int peer, void *comm, void *stream))                        \
    X(ncclGroupStart, NEEDED, (void))                                                                                  \
    X(ncclGroupEnd, NEEDED, (void))                                                                                    \
    X(ncclCommRegister, OPTIONAL, (void *comm, void *address, size_t bytes, void **out))                               \
    X(ncclCommDeregister, OPTIONAL, (void *comm, void *handle))                                                        \
    X(ncclCommWindowRegister, OPTIONAL, (void *comm, void *address, size_t bytes, void **out, int flags))              \
    X(ncclCommWindowDeregister, OPTIONAL, (void *comm, void *window))

/* The functions of the loaded library. Complete after lochi_comm_nccl_load has succeeded, and constant from then on. */
typedef struct comm_nccl_api {
    int version; /* 22809 for 2.28.9 */
#define COMM_NCCL_MEMBER(name, need, parameters) int(*name) parameters;
    COMM_NCCL_CALLS(COMM_NCCL_MEMBER)
#undef COMM_NCCL_MEMBER
    const char *(*ncclGetErrorString)(int result);
    const char *(*ncclGetLastError)(void *comm); /* may be NULL */
} comm_nccl_api;

/* Loads NCCL, once. E_UNSUPPORTED: it is not installed, or too old. */
loch_status lochi_comm_nccl_load(const comm_nccl_api **out);

/* Writes the error record for a failed call and returns the status. */
loch_status lochi_comm_nccl_fail(const comm_nccl_api *api, int result, const char *call);

#endif
