/* SPDX-License-Identifier: MIT */
/* The part of MPI that this library uses: types, constants, functions, found at run time.
 *
 * Open MPI and MPICH have one interface of functions and two of data. A handle is the address of an object in Open MPI
 * and an int in MPICH. Here a handle is a word: both systems pass either in one register, and a handle that comes out
 * through a pointer is written into a word of zeros. Arrays of handles differ, so no call here takes one. */
#ifndef COMM_MPI_LIBRARY_H
#define COMM_MPI_LIBRARY_H

#include "common.h"

typedef uintptr_t mpi_handle; /* MPI_Comm, MPI_Datatype, MPI_Op, MPI_Request, MPI_Info, MPI_Errhandler */

/* An MPI_Status of either library: only MPI_Get_count reads it. */
typedef struct mpi_status {
    uint64_t words[8];
} mpi_status;

#define MPI_WORD_THREAD_MULTIPLE 3
#define MPI_WORD_TEXT 8192 /* the longer of the two libraries' MPI_MAX_LIBRARY_VERSION_STRING */

/* The functions: X(name, parameters). All return an int: 0 for success. */
#define COMM_MPI_CALLS(X)                                                                                              \
    X(MPI_Initialized, (int *flag))                                                                                    \
    X(MPI_Finalized, (int *flag))                                                                                      \
    X(MPI_Init_thread, (int *argc, char ***argv, int required, int *provided))                                         \
    X(MPI_Finalize, (void))                                                                                            \
    X(MPI_Get_library_version, (char *text, int *length))                                                              \
    X(MPI_Error_string, (int code, char *text, int *length))                                                           \
    X(MPI_Comm_dup, (mpi_handle comm, mpi_handle * out))                                                               \
    X(MPI_Comm_free, (mpi_handle * comm))                                                                              \
    X(MPI_Comm_rank, (mpi_handle comm, int *rank))                                                                     \
    X(MPI_Comm_size, (mpi_handle comm, int *size))                                                                     \
    X(MPI_Comm_split_type, (mpi_handle comm, int type, int key, mpi_handle info, mpi_handle *out))                     \
    X(MPI_Comm_set_errhandler, (mpi_handle comm, mpi_handle handler))                                                  \
    X(MPI_Allreduce, (const void *from, void *to, int count, mpi_handle type, mpi_handle op, mpi_handle comm))         \
    X(MPI_Reduce, (const void *from, void *to, int count, mpi_handle type, mpi_handle op, int root, mpi_handle comm))  \
    X(MPI_Reduce_scatter_block,                                                                                        \
      (const void *from, void *to, int count, mpi_handle type, mpi_handle op, mpi_handle comm))                        \
    X(MPI_Allgather, (const void *from, int from_count, mpi_handle from_type, void *to, int to_count,                  \
                      mpi_handle to_type, mpi_handle comm))                                                            \
    X(MPI_Alltoall, (const void *from, int from_count, mpi_handle from_type, void *to, int to_count,                   \
                     mpi_handle to_type, mpi_handle comm))                                                             \
    X(MPI_Bcast, (void *data, int count, mpi_handle type, int root, mpi_handle comm))                                  \
    X(MPI_Send, (const void *data, int count, mpi_handle type, int to, int tag, mpi_handle comm))                      \
    X(MPI_Recv, (void *data, int count, mpi_handle type, int from, int tag, mpi_handle comm, void *status))            \
    X(MPI_Sendrecv,                                                                                                    \
      (const void *data, int count, mpi_handle type, int to, int tag, void *received, int received_count,              \
       mpi_handle received_type, int from, int received_tag, mpi_handle comm, void *status))                           \
    X(MPI_Probe, (int from, int tag, mpi_handle comm, void *status))                                                   \
    X(MPI_Get_count, (const void *status, mpi_handle type, int *count))                                                \
    X(MPI_Isend, (const void *data, int count, mpi_handle type, int to, int tag, mpi_handle comm, mpi_handle *out))    \
    X(MPI_Irecv, (void *data, int count, mpi_handle type, int from, int tag, mpi_handle comm, mpi_handle *out))        \
    X(MPI_Wait, (mpi_handle * request, void *status))                                                                  \
    X(MPI_Barrier, (mpi_handle comm))

/* Handles of MPICH: X(name, number). They are those of the common binary interface of MPICH and its relatives. */
#define COMM_MPICH_HANDLES(X)                                                                                          \
    X(MPI_COMM_WORLD, 0x44000000)                                                                                      \
    X(MPI_BYTE, 0x4c00010d)                                                                                            \
    X(MPI_ERRORS_RETURN, 0x54000001)                                                                                   \
    X(MPI_INFO_NULL, 0x1c000000)                                                                                       \
    X(MPI_DOUBLE, 0x4c00080b)                                                                                          \
    X(MPI_FLOAT, 0x4c00040a)                                                                                           \
    X(MPI_INT8_T, 0x4c000137)                                                                                          \
    X(MPI_INT16_T, 0x4c000238)                                                                                         \
    X(MPI_INT32_T, 0x4c000439)                                                                                         \
    X(MPI_INT64_T, 0x4c00083a)                                                                                         \
    X(MPI_UINT8_T, 0x4c00013b)                                                                                         \
    X(MPI_UINT16_T, 0x4c00023c)                                                                                        \
    X(MPI_UINT32_T, 0x4c00043d)                                                                                        \
    X(MPI_UINT64_T, 0x4c00083e)                                                                                        \
    X(MPI_SUM, 0x58000003)                                                                                             \
    X(MPI_PROD, 0x58000004)                                                                                            \
    X(MPI_MIN, 0x58000002)                                                                                             \
    X(MPI_MAX, 0x58000001)

enum {
#define COMM_MPICH_NUMBER(name, number) COMM_MPICH_##name = (number),
    COMM_MPICH_HANDLES(COMM_MPICH_NUMBER)
#undef COMM_MPICH_NUMBER
        COMM_MPICH_IN_PLACE = -1, /* as an address, as the next */
    COMM_MPICH_STATUS_IGNORE = 1,
    COMM_MPICH_TYPE_SHARED = 1,
    COMM_OPEN_MPI_IN_PLACE = 1,
    COMM_OPEN_MPI_STATUS_IGNORE = 0,
    COMM_OPEN_MPI_TYPE_SHARED = 0
};

/* A loaded library. Constant once it is loaded. */
typedef struct comm_mpi_library {
    const char *name; /* "Open MPI" or "MPICH" */
    char version[32];
#define COMM_MPI_MEMBER(name, parameters) int(*name) parameters;
    COMM_MPI_CALLS(COMM_MPI_MEMBER)
#undef COMM_MPI_MEMBER
    mpi_handle world, byte, errors_return, info_null;
    mpi_handle types[LOCH_DTYPE_COUNT];    /* 0 where the library does not reduce the type */
    mpi_handle ops[LOCH_COMM_AVERAGE + 1]; /* 0 where the library has no such operation */
    void *in_place, *status_ignore;
    int type_shared;
    bool has_root_bug; /* a reduction in place at a root that is not rank 0 crashes */
} comm_mpi_library;

/* Finds the MPI library of this process, once: the one that is loaded; else the one that LOCH_COMM_MPI names, by file
 * or as "openmpi" or "mpich"; else that of the launcher; else one that is installed. */
loch_status lochi_comm_mpi_load(const comm_mpi_library **out);

/* Returns whether MPI is loaded and initialised in this process, without loading it. */
bool lochi_comm_mpi_is_running(void);

/* Returns whether a launcher of MPI has started this process. */
bool lochi_comm_mpi_is_launched(void);

/* Starts MPI, unless the program has, and counts one user. E_UNSUPPORTED: MPI was ended before. */
loch_status lochi_comm_mpi_begin(const comm_mpi_library *library);

/* Counts one user less. MPI that was started here ends when the process exits without users. */
void lochi_comm_mpi_end(void);

/* Returns LOCH_OK for 0, and otherwise writes the error record: E_DRIVER. */
loch_status lochi_comm_mpi_status(const comm_mpi_library *library, int code, const char *call);

#endif
