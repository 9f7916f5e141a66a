/* SPDX-License-Identifier: MIT */
/* Finds and loads cuBLAS and NCCL.
 *
 * If the option names a file, only that file is tried. Otherwise a library that the process has loaded already is used,
 * found by its soname, so that the process does not load a second copy. Otherwise the system's search path is used. A
 * loaded library stays loaded until the process ends. A failure is not cached: the next call tries again. */
#include "engine/library.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/lock.h"
#include "base/logging.h"
#include "base/options.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY_FILES_MAX 3
#define LIBRARY_SYMBOLS_MAX 5
#define LIBRARY_REASON_MAX 200

lochi_cublas_api lochi_cublas;
lochi_nccl_api lochi_nccl;

static loch_status library_ask_cublas(int *version)
{
    int part[3] = {0};
    for (int i = 0; i < 3; i++)
        LOCH_TRY_RETURN(LOCHI_CUBLAS_STATUS(lochi_cublas.cublasGetProperty(i, &part[i]), cublasGetProperty));
    *version = part[0] * 10000 + part[1] * 100 + part[2]; /* the format of CUBLAS_VERSION in its header */
    return LOCH_OK;
}

static loch_status library_ask_nccl(int *version)
{
    return LOCHI_NCCL_STATUS(lochi_nccl.ncclGetVersion(version), ncclGetVersion);
}

typedef struct library_entry {
    const char *name;                     /* for people */
    const char *option;                   /* option that names the file */
    const char *environment;              /* environment variable of that option */
    const char *files[LIBRARY_FILES_MAX]; /* tried in this order */
    struct {
        const char *symbol;
        void *to; /* where the address is stored in the table */
        enum { NEEDED, OPTIONAL } need;
    } symbols[LIBRARY_SYMBOLS_MAX];
    loch_status (*ask_version)(int *version);
    int version;          /* written before `is_ready` */
    void *handle;         /* written before `is_ready` */
    atomic_bool is_ready; /* release after the table is complete, acquire before it is read */
} library_entry;

static library_entry library_entries[] = {
    [LOCH_LIBRARY_CUBLAS] = {.name = "cuBLAS",
                             .option = "cublas",
                             .environment = "LOCH_CUBLAS",
                             .files = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"},
                             .symbols = {{"cublasCreate_v2", &lochi_cublas.cublasCreate, NEEDED},
                                         {"cublasDestroy_v2", &lochi_cublas.cublasDestroy, NEEDED},
                                         {"cublasSetStream_v2", &lochi_cublas.cublasSetStream, NEEDED},
                                         {"cublasGetProperty", &lochi_cublas.cublasGetProperty, NEEDED},
                                         {"cublasGetStatusString", &lochi_cublas.cublasGetStatusString, OPTIONAL}},
                             .ask_version = library_ask_cublas},
    [LOCH_LIBRARY_NCCL] = {.name = "NCCL",
                           .option = "nccl",
                           .environment = "LOCH_NCCL",
                           .files = {"libnccl.so.2", "libnccl.so"},
                           .symbols = {{"ncclGetVersion", &lochi_nccl.ncclGetVersion, NEEDED},
                                       {"ncclCommInitAll", &lochi_nccl.ncclCommInitAll, NEEDED},
                                       {"ncclCommDestroy", &lochi_nccl.ncclCommDestroy, NEEDED},
                                       {"ncclGetErrorString", &lochi_nccl.ncclGetErrorString, NEEDED},
                                       {"ncclGetLastError", &lochi_nccl.ncclGetLastError, OPTIONAL}},
                           .ask_version = library_ask_nccl},
};

#define LIBRARY_COUNT (sizeof library_entries / sizeof *library_entries)

/* Guards the loading of all libraries. Held over dlopen, which runs constructors of the library. */
static lochi_lock library_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LIBRARIES);

/* --- finding --- */

/* Tells whether the last dlopen failed although the file exists: the file is broken, or needs a library that is
 * missing. */
static bool library_is_there(const char *file, const char *reason)
{
    static const char absent[] = ": cannot open shared object file";
    const size_t length = strlen(file);
    return reason && (strncmp(reason, file, length) != 0 || strncmp(reason + length, absent, sizeof absent - 1) != 0);
}

/* Opens the first of the entry's files that loads.
 * @param why  receives the reason of the first file that exists and does not load; "" if there is no such file */
static void *library_open_any(const library_entry *entry, int flags, char why[LIBRARY_REASON_MAX])
{
    void *handle = NULL;
    *why = '\0';
    for (size_t i = 0; i < LIBRARY_FILES_MAX && entry->files[i] && !handle; i++) {
        handle = dlopen(entry->files[i], RTLD_NOW | RTLD_LOCAL | flags);
        const char *reason = handle ? NULL : dlerror();
        if (!*why && library_is_there(entry->files[i], reason)) snprintf(why, LIBRARY_REASON_MAX, "%s", reason);
    }
    return handle;
}

static loch_status library_absent(const library_entry *entry)
{
    char files[80] = "";
    for (size_t i = 0; i < LIBRARY_FILES_MAX && entry->files[i]; i++) {
        const size_t length = strlen(files);
        snprintf(files + length, sizeof files - length, "%s%s", i ? ", " : "", entry->files[i]);
    }
    return LOCH_FAIL(UNSUPPORTED, "%s was not found (tried %s): install it, or set %s (option %s) to its file",
                     entry->name, files, entry->environment, entry->option);
}

/* Opens a library.
 * @param path  the file that the option names; "" if it is not set */
static loch_status library_open(const library_entry *entry, const char *path, void **out)
{
    char why[LIBRARY_REASON_MAX];
    *out = *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : library_open_any(entry, RTLD_NOLOAD, why);
    if (!*out && !*path) *out = library_open_any(entry, 0, why);
    if (*out) return LOCH_OK;
    if (!*path && *why) return LOCH_FAIL(UNSUPPORTED, "%s was found but does not load: %s", entry->name, why);
    if (!*path) return library_absent(entry);
    const char *reason = dlerror();
    return LOCH_FAIL(UNSUPPORTED, "%s does not load from the file that %s (option %s) names: %.150s", entry->name,
                     entry->environment, entry->option, reason ? reason : path);
}

/* --- loading --- */

static loch_status library_read_symbols(library_entry *entry, void *handle, const char *path)
{
    for (size_t i = 0; i < LIBRARY_SYMBOLS_MAX; i++) {
        void *address = dlsym(handle, entry->symbols[i].symbol);
        if (!address && entry->symbols[i].need == NEEDED)
            return LOCH_FAIL(UNSUPPORTED, "%.120s has no function %s: set %s (option %s) to a file of %s", path,
                             entry->symbols[i].symbol, entry->environment, entry->option, entry->name);
        memcpy(entry->symbols[i].to, &address, sizeof address);
    }
    return entry->ask_version(&entry->version);
}

/* Loads a library from a path and fills its table. */
static loch_status library_load_from(library_entry *entry, const char *path)
{
    lochi_lock_assert_held(&library_lock);
    LOCHI_NOT_CANCELLED;
    void *handle;
    LOCH_TRY_RETURN(library_open(entry, path, &handle));
    const loch_status status = library_read_symbols(entry, handle, *path ? path : entry->files[0]);
    if (status != LOCH_OK) {
        dlclose(handle);
        return status;
    }
    entry->handle = handle;
    atomic_store_explicit(&entry->is_ready, true, memory_order_release);
    LOCHI_LOG(INFO, "loaded %s %d", entry->name, entry->version);
    return LOCH_OK;
}

static loch_status library_load(loch_library library, library_entry **out)
{
    if ((size_t)library >= LIBRARY_COUNT) return LOCH_FAIL(INVALID, "there is no library %d", (int)library);
    library_entry *entry = *out = &library_entries[library];
    if (atomic_load_explicit(&entry->is_ready, memory_order_acquire)) return LOCH_OK;
    char path[LOCH_OPTION_VALUE_MAX];
    LOCH_TRY_RETURN(lochi_option_text(entry->option, path));
    lochi_lock_take(&library_lock);
    loch_status status = LOCH_OK;
    if (!atomic_load_explicit(&entry->is_ready, memory_order_relaxed)) status = library_load_from(entry, path);
    lochi_lock_drop(&library_lock);
    return status;
}

loch_status loch_library_load(loch_library library, int *version)
{
    library_entry *entry;
    if (version) *version = 0;
    LOCH_TRY_RETURN(library_load(library, &entry));
    if (version) *version = entry->version;
    return LOCH_OK;
}

loch_status loch_library_find(loch_library library, const char *symbol, void **out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the function is NULL");
    *out = NULL;
    if (!symbol || !*symbol) return LOCH_FAIL(INVALID, "the name of the library function is missing");
    library_entry *entry;
    LOCH_TRY_RETURN(library_load(library, &entry));
    *out = dlsym(entry->handle, symbol);
    if (*out) return LOCH_OK;
    return LOCH_FAIL(NOT_FOUND, "%s %d has no function %.100s", entry->name, entry->version, symbol);
}

/* --- result codes --- */

loch_status lochi_cublas_fail(int result, const char *call)
{
    const char *text = lochi_cublas.cublasGetStatusString ? lochi_cublas.cublasGetStatusString(result) : NULL;
    return loch_error_set(LOCH_E_DRIVER, "cublas", result, "%s: %.150s, code %d", call, text ? text : "it failed",
                          result);
}

loch_status lochi_nccl_fail(int result, const char *call)
{
    const char *text = lochi_nccl.ncclGetErrorString(result);
    const char *detail = lochi_nccl.ncclGetLastError ? lochi_nccl.ncclGetLastError(NULL) : NULL;
    return loch_error_set(LOCH_E_DRIVER, "nccl", result, "%s: %.80s, code %d%s%.100s", call, text ? text : "it failed",
                          result, detail && *detail ? ": " : "", detail ? detail : "");
}
