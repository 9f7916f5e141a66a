/* SPDX-License-Identifier: MIT */
/* libdw.so.1 and libstdc++.so.6 are loaded by the names that the system finds, never by a recorded path. libdw is given
 * no way to ask a server for debug information. */
#include "libdw.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEMANGLE_MAX 2048 /* longer names stay as they are */

/* --- libdw, as <elfutils/libdwfl.h> declares it --- */

typedef struct Dwfl Dwfl;
typedef struct Dwfl_Module Dwfl_Module;
typedef struct Dwfl_Line Dwfl_Line;

typedef struct dw_callbacks {
    int (*find_elf)(Dwfl_Module *, void **, const char *, uint64_t, char **, void **);
    int (*find_debuginfo)(Dwfl_Module *, void **, const char *, uint64_t, const char *, const char *, uint32_t,
                          char **);
    int (*section_address)(Dwfl_Module *, void **, const char *, uint64_t, const char *, uint32_t, const void *,
                           uint64_t *);
    char **debuginfo_path;
} dw_callbacks;

static struct {
    Dwfl *(*begin)(const dw_callbacks *);
    void (*end)(Dwfl *);
    Dwfl_Module *(*report_elf)(Dwfl *, const char *, const char *, int, uint64_t, bool);
    int (*report_end)(Dwfl *, int (*)(Dwfl_Module *, void *, const char *, uint64_t, void *), void *);
    const char *(*addrinfo)(Dwfl_Module *, uint64_t, uint64_t *, void *, uint32_t *, void **, uint64_t *);
    Dwfl_Line *(*getsrc)(Dwfl_Module *, uint64_t);
    const char *(*lineinfo)(Dwfl_Line *, uint64_t *, int *, int *, uint64_t *, uint64_t *);
    char *(*demangle)(const char *, char *, size_t *, int *);
    bool has_dw;
} libdw;

static dw_callbacks dw_callbacks_used;
static pthread_once_t dw_once = PTHREAD_ONCE_INIT;

/* Finds a function. ISO C has no conversion of a pointer to a function pointer. */
static bool dw_find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static void dw_load(void)
{
    void *library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library)
        libdw.has_dw = dw_find(library, "dwfl_begin", &libdw.begin) && dw_find(library, "dwfl_end", &libdw.end) &&
                       dw_find(library, "dwfl_report_elf", &libdw.report_elf) &&
                       dw_find(library, "dwfl_report_end", &libdw.report_end) &&
                       dw_find(library, "dwfl_module_addrinfo", &libdw.addrinfo) &&
                       dw_find(library, "dwfl_module_getsrc", &libdw.getsrc) &&
                       dw_find(library, "dwfl_lineinfo", &libdw.lineinfo) &&
                       /* dwfl_standard_find_debuginfo would also ask servers */
                       dw_find(library, "dwfl_build_id_find_debuginfo", &dw_callbacks_used.find_debuginfo);
    library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
    if (library) (void)dw_find(library, "__cxa_demangle", &libdw.demangle);
}

/* --- one file --- */

struct insight_debug {
    Dwfl *files;
    Dwfl_Module *module;
};

insight_debug *insight_debug_open(const char *path, int file)
{
    pthread_once(&dw_once, dw_load);
    if (!libdw.has_dw) return NULL;
    insight_debug *debug = calloc(1, sizeof *debug);
    if (!debug) return NULL;
    const int own = fcntl(file, F_DUPFD_CLOEXEC, 3); /* libdw closes it */
    debug->files = own >= 0 ? libdw.begin(&dw_callbacks_used) : NULL;
    /* At base 0, addresses are those of the file. */
    if (debug->files) debug->module = libdw.report_elf(debug->files, path, path, own, 0, true);
    if (!debug->module && own >= 0) close(own);
    if (debug->module && libdw.report_end(debug->files, NULL, NULL) == 0) return debug;
    insight_debug_close(debug);
    return NULL;
}

void insight_debug_close(insight_debug *debug)
{
    if (!debug) return;
    if (debug->files) libdw.end(debug->files);
    free(debug);
}

void insight_debug_find(insight_debug *debug, uint64_t address, const char **function, const char **file, int *line)
{
    uint64_t offset;
    uint64_t symbol[3]; /* a GElf_Sym */
    *file = NULL;
    *line = 0;
    *function = libdw.addrinfo(debug->module, address, &offset, symbol, NULL, NULL, NULL);
    Dwfl_Line *found = libdw.getsrc(debug->module, address);
    if (found) *file = libdw.lineinfo(found, NULL, line, NULL, NULL, NULL);
}

bool insight_debug_demangle(const char *name, char *text, size_t bytes)
{
    pthread_once(&dw_once, dw_load);
    if (!libdw.demangle || strncmp(name, "_Z", 2) != 0 || strlen(name) > DEMANGLE_MAX) return false;
    int status = 0;
    char *plain = libdw.demangle(name, NULL, NULL, &status);
    const bool is_done = plain && status == 0;
    if (is_done) snprintf(text, bytes, "%s", plain);
    free(plain);
    return is_done;
}
