/* SPDX-License-Identifier: MIT */
/* Finds and starts Open MPI or MPICH.
 *
 * A library that is loaded stays loaded. MPI can be started once in a process, so what is started here ends at exit: in
 * order if all communicators are destroyed, and otherwise not at all, so that the launcher sees a process that ended in
 * disorder and ends the job. */
#include "mpi_library.h"
#include "kit/fail.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MPI_ENVIRONMENT "LOCH_COMM_MPI"

typedef enum mpi_brand { MPI_OPEN_MPI, MPI_MPICH, MPI_BRANDS } mpi_brand;

static const struct {
    const char *word;     /* in LOCH_COMM_MPI */
    const char *files[3]; /* tried in this order */
    const char *launched; /* variable that its launcher sets */
} mpi_brands[MPI_BRANDS] = {
    [MPI_OPEN_MPI] = {"openmpi", {"libmpi.so.40", "libmpi.so.80"}, "OMPI_COMM_WORLD_SIZE"},
    [MPI_MPICH] = {"mpich", {"libmpich.so.12", "libmpi.so.12"}, "PMI_RANK"},
};

static pthread_mutex_t mpi_lock = PTHREAD_MUTEX_INITIALIZER;
static comm_mpi_library mpi_library;
static atomic_bool mpi_is_ready; /* stored with release when the library is complete */

/* --- finding --- */

static void *mpi_open_brand(mpi_brand brand, int flags)
{
    void *handle = NULL;
    for (size_t i = 0; i < 3 && mpi_brands[brand].files[i] && !handle; i++)
        handle = dlopen(mpi_brands[brand].files[i], RTLD_NOW | RTLD_GLOBAL | flags); /* plug-ins look symbols up */
    return handle;
}

/* Returns the library that the process has loaded, by linking or otherwise; NULL if there is none. */
static void *mpi_find_loaded(void)
{
    if (dlsym(RTLD_DEFAULT, "MPI_Init_thread")) return dlopen(NULL, RTLD_NOW);
    void *handle = mpi_open_brand(MPI_OPEN_MPI, RTLD_NOLOAD);
    return handle ? handle : mpi_open_brand(MPI_MPICH, RTLD_NOLOAD);
}

static bool mpi_is_set(const char *name)
{
    const char *text = secure_getenv(name);
    return text && *text;
}

/* Opens the library that the variable names. */
static loch_status mpi_open_named(const char *text, void **out)
{
    for (int brand = 0; brand < MPI_BRANDS; brand++)
        if (strcmp(text, mpi_brands[brand].word) == 0) {
            *out = mpi_open_brand((mpi_brand)brand, 0);
            if (*out) return LOCH_OK;
            return LOCH_FAIL(UNSUPPORTED, "%s is %s, and its library %s is not installed", MPI_ENVIRONMENT, text,
                             mpi_brands[brand].files[0]);
        }
    *out = dlopen(text, RTLD_NOW | RTLD_GLOBAL);
    if (*out) return LOCH_OK;
    const char *reason = dlerror();
    return LOCH_FAIL(UNSUPPORTED, "MPI does not load from the file that %s names: %.150s", MPI_ENVIRONMENT,
                     reason ? reason : text);
}

static loch_status mpi_open(void **out)
{
    *out = mpi_find_loaded();
    if (*out) return LOCH_OK;
    const char *text = secure_getenv(MPI_ENVIRONMENT);
    if (text && *text) return mpi_open_named(text, out);
    /* Open MPI's launcher sets variables of PMI too. */
    const bool is_mpich_first = !mpi_is_set(mpi_brands[MPI_OPEN_MPI].launched) && mpi_is_set("PMI_RANK");
    *out = mpi_open_brand(is_mpich_first ? MPI_MPICH : MPI_OPEN_MPI, 0);
    if (!*out) *out = mpi_open_brand(is_mpich_first ? MPI_OPEN_MPI : MPI_MPICH, 0);
    if (*out) return LOCH_OK;
    return LOCH_FAIL(UNSUPPORTED,
                     "neither Open MPI (libmpi.so.40) nor MPICH (libmpich.so.12) is installed; %s names "
                     "another file",
                     MPI_ENVIRONMENT);
}

/* --- the two binary interfaces --- */

static void *mpi_object(void *handle, const char *name, bool *is_complete)
{
    void *address = dlsym(handle, name);
    if (!address) *is_complete = false;
    return address;
}

static bool mpi_read_open_mpi(void *handle, comm_mpi_library *library)
{
    bool is_complete = true;
#define MPI_OBJECT(name) (mpi_handle) mpi_object(handle, "ompi_mpi_" #name, &is_complete)
    library->world = MPI_OBJECT(comm_world);
    library->byte = MPI_OBJECT(byte);
    library->errors_return = MPI_OBJECT(errors_return);
    library->info_null = MPI_OBJECT(info_null);
    library->types[LOCH_F64] = MPI_OBJECT(double);
    library->types[LOCH_F32] = MPI_OBJECT(float);
    library->types[LOCH_I8] = MPI_OBJECT(int8_t);
    library->types[LOCH_I16] = MPI_OBJECT(int16_t);
    library->types[LOCH_I32] = MPI_OBJECT(int32_t);
    library->types[LOCH_I64] = MPI_OBJECT(int64_t);
    library->types[LOCH_U8] = library->types[LOCH_BOOL] = MPI_OBJECT(uint8_t);
    library->types[LOCH_U16] = MPI_OBJECT(uint16_t);
    library->types[LOCH_U32] = MPI_OBJECT(uint32_t);
    library->types[LOCH_U64] = MPI_OBJECT(uint64_t);
    library->ops[LOCH_COMM_SUM] = MPI_OBJECT(op_sum);
    library->ops[LOCH_COMM_PRODUCT] = MPI_OBJECT(op_prod);
    library->ops[LOCH_COMM_MIN] = MPI_OBJECT(op_min);
    library->ops[LOCH_COMM_MAX] = MPI_OBJECT(op_max);
#undef MPI_OBJECT
    library->in_place = (void *)(intptr_t)COMM_OPEN_MPI_IN_PLACE;           /* NOLINT(performance-no-int-to-ptr) */
    library->status_ignore = (void *)(intptr_t)COMM_OPEN_MPI_STATUS_IGNORE; /* NOLINT(performance-no-int-to-ptr) */
    library->type_shared = COMM_OPEN_MPI_TYPE_SHARED;
    return is_complete;
}

static void mpi_read_mpich(comm_mpi_library *library)
{
    library->world = COMM_MPICH_MPI_COMM_WORLD;
    library->byte = COMM_MPICH_MPI_BYTE;
    library->errors_return = COMM_MPICH_MPI_ERRORS_RETURN;
    library->info_null = COMM_MPICH_MPI_INFO_NULL;
    library->types[LOCH_F64] = COMM_MPICH_MPI_DOUBLE;
    library->types[LOCH_F32] = COMM_MPICH_MPI_FLOAT;
    library->types[LOCH_I8] = COMM_MPICH_MPI_INT8_T;
    library->types[LOCH_I16] = COMM_MPICH_MPI_INT16_T;
    library->types[LOCH_I32] = COMM_MPICH_MPI_INT32_T;
    library->types[LOCH_I64] = COMM_MPICH_MPI_INT64_T;
    library->types[LOCH_U8] = library->types[LOCH_BOOL] = COMM_MPICH_MPI_UINT8_T;
    library->types[LOCH_U16] = COMM_MPICH_MPI_UINT16_T;
    library->types[LOCH_U32] = COMM_MPICH_MPI_UINT32_T;
    library->types[LOCH_U64] = COMM_MPICH_MPI_UINT64_T;
    library->ops[LOCH_COMM_SUM] = COMM_MPICH_MPI_SUM;
    library->ops[LOCH_COMM_PRODUCT] = COMM_MPICH_MPI_PROD;
    library->ops[LOCH_COMM_MIN] = COMM_MPICH_MPI_MIN;
    library->ops[LOCH_COMM_MAX] = COMM_MPICH_MPI_MAX;
    library->in_place = (void *)(intptr_t)COMM_MPICH_IN_PLACE;           /* NOLINT(performance-no-int-to-ptr) */
    library->status_ignore = (void *)(intptr_t)COMM_MPICH_STATUS_IGNORE; /* NOLINT(performance-no-int-to-ptr) */
    library->type_shared = COMM_MPICH_TYPE_SHARED;
}

/* Copies the first number of a text: "Open MPI v4.1.4, package ..." and "MPICH Version: 4.0.2". */
static void mpi_read_version(const char *text, char *out, size_t bytes)
{
    const char *from = text + strcspn(text, "0123456789");
    snprintf(out, bytes, "%.*s", (int)strspn(from, "0123456789.rca"), from);
}

static loch_status mpi_read(void *handle, comm_mpi_library *library)
{
    void *address;
#define MPI_FIND(name, parameters)                                                                                     \
    address = dlsym(handle, #name);                                                                                    \
    if (!address) return LOCH_FAIL(UNSUPPORTED, "the MPI library of this process has no function %s", #name);          \
    memcpy(&library->name, &address, sizeof address);
    COMM_MPI_CALLS(MPI_FIND)
#undef MPI_FIND
    char text[MPI_WORD_TEXT] = "";
    int length = 0;
    library->MPI_Get_library_version(text, &length);
    if (strncmp(text, "Open MPI", 8) == 0) {
        library->name = "Open MPI";
        if (!mpi_read_open_mpi(handle, library))
            return LOCH_FAIL(UNSUPPORTED, "the library of %.60s lacks objects that programs link with", text);
    } else if (dlsym(handle, "ompi_mpi_comm_world")) {
        return LOCH_FAIL(UNSUPPORTED, "the MPI library \"%.60s\" is not known: Open MPI and MPICH are", text);
    } else {
        library->name = "MPICH";
        mpi_read_mpich(library);
    }
    mpi_read_version(text, library->version, sizeof library->version);
    if (strcmp(library->name, "MPICH") == 0) /* repaired in 4.1.2; relatives of MPICH have versions of their own */
        library->has_root_bug = strncmp(library->version, "3.", 2) == 0 || strncmp(library->version, "4.0", 3) == 0 ||
                                strcmp(library->version, "4.1") == 0 || strcmp(library->version, "4.1.1") == 0 ||
                                strncmp(text, "MPICH", 5) != 0;
    return LOCH_OK;
}

loch_status lochi_comm_mpi_load(const comm_mpi_library **out)
{
    *out = &mpi_library;
    if (atomic_load_explicit(&mpi_is_ready, memory_order_acquire)) return LOCH_OK;
    pthread_mutex_lock(&mpi_lock);
    loch_status status = LOCH_OK;
    if (!atomic_load_explicit(&mpi_is_ready, memory_order_relaxed)) {
        void *handle;
        status = mpi_open(&handle);
        if (status == LOCH_OK) status = mpi_read(handle, &mpi_library);
        if (status == LOCH_OK) atomic_store_explicit(&mpi_is_ready, true, memory_order_release);
    }
    pthread_mutex_unlock(&mpi_lock);
    return status;
}

bool lochi_comm_mpi_is_running(void)
{
    void *handle = mpi_find_loaded();
    int (*initialized)(int *flag) = NULL;
    int (*finalized)(int *flag) = NULL;
    if (!handle) return false;
    void *address = dlsym(handle, "MPI_Initialized");
    memcpy(&initialized, &address, sizeof address);
    address = dlsym(handle, "MPI_Finalized");
    memcpy(&finalized, &address, sizeof address);
    int is_begun = 0, is_ended = 0;
    if (initialized) initialized(&is_begun);
    if (finalized) finalized(&is_ended);
    dlclose(handle);
    return is_begun && !is_ended;
}

bool lochi_comm_mpi_is_launched(void)
{
    return mpi_is_set(mpi_brands[MPI_OPEN_MPI].launched) || mpi_is_set(mpi_brands[MPI_MPICH].launched);
}

/* --- starting and ending --- */

static unsigned mpi_users;   /* under mpi_lock */
static pid_t mpi_started_by; /* process that started MPI here; 0 for none; under mpi_lock */

static void mpi_exit(void)
{
    int is_ended = 1;
    if (mpi_users || mpi_started_by != getpid()) return;
    mpi_library.MPI_Finalized(&is_ended);
    if (!is_ended) mpi_library.MPI_Finalize();
}

static loch_status mpi_start(const comm_mpi_library *library)
{
    int is_begun = 0, is_ended = 0, provided;
    library->MPI_Finalized(&is_ended);
    if (is_ended) return LOCH_FAIL(UNSUPPORTED, "MPI has ended in this process, and it cannot be started again");
    library->MPI_Initialized(&is_begun);
    if (is_begun) return LOCH_OK;
    LOCH_RETURN(lochi_comm_mpi_status(
        library, library->MPI_Init_thread(NULL, NULL, MPI_WORD_THREAD_MULTIPLE, &provided), "MPI_Init_thread"));
    mpi_started_by = getpid();
    atexit(mpi_exit);
    return LOCH_OK;
}

loch_status lochi_comm_mpi_begin(const comm_mpi_library *library)
{
    pthread_mutex_lock(&mpi_lock);
    const loch_status status = mpi_start(library);
    mpi_users += status == LOCH_OK;
    pthread_mutex_unlock(&mpi_lock);
    return status;
}

void lochi_comm_mpi_end(void)
{
    pthread_mutex_lock(&mpi_lock);
    mpi_users--;
    pthread_mutex_unlock(&mpi_lock);
}

loch_status lochi_comm_mpi_status(const comm_mpi_library *library, int code, const char *call)
{
    if (code == 0) return LOCH_OK;
    char text[MPI_WORD_TEXT] = "";
    int length = 0;
    library->MPI_Error_string(code, text, &length);
    text[strcspn(text, "\n")] = '\0';
    return loch_error_set(LOCH_E_DRIVER, "mpi", code, "%s of %s: %.160s", call, library->name,
                          *text ? text : "an unknown error");
}
