/* SPDX-License-Identifier: MIT */
/* The declarations of parts/comm/src/mpi_library.h against a real mpi.h, of Open MPI or of MPICH. There is nothing to
 * run: what has drifted does not compile. Addresses are no constants in C; the jobs of MPI use them. */
#include "mpi_library.h"
#include <mpi.h>

#ifdef OPEN_MPI

_Static_assert((int)MPI_COMM_TYPE_SHARED == COMM_OPEN_MPI_TYPE_SHARED, "MPI_COMM_TYPE_SHARED has another value");

#else

#define SAME_NUMBER(name, number) _Static_assert((int)(name) == (number), #name " has another value");
COMM_MPICH_HANDLES(SAME_NUMBER)
_Static_assert((int)MPI_COMM_TYPE_SHARED == COMM_MPICH_TYPE_SHARED, "MPI_COMM_TYPE_SHARED has another value");

#endif

_Static_assert((int)MPI_THREAD_MULTIPLE == MPI_WORD_THREAD_MULTIPLE, "MPI_THREAD_MULTIPLE has another value");
_Static_assert(MPI_MAX_LIBRARY_VERSION_STRING <= MPI_WORD_TEXT && MPI_MAX_ERROR_STRING <= MPI_WORD_TEXT,
               "a text of MPI is longer");
_Static_assert(sizeof(MPI_Comm) <= sizeof(mpi_handle) && sizeof(MPI_Datatype) <= sizeof(mpi_handle) &&
                   sizeof(MPI_Op) <= sizeof(mpi_handle) && sizeof(MPI_Request) <= sizeof(mpi_handle),
               "a handle is larger");
