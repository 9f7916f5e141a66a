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

typedef struct dw_die {
    void *address, *unit, *abbreviation;
    long padding;
} dw_die;

typedef struct dw_attribute {
    unsigned code, form;
    unsigned char *value;
    void *unit;
} dw_attribute;

enum { DW_INLINED = 0x1d, DW_SUBPROGRAM = 0x2e, DW_CALL_FILE = 0x58, DW_CALL_LINE = 0x59 };

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
    dw_die *(*addrdie)(Dwfl_Module *, uint64_t, uint64_t *);
    int (*getscopes)(dw_die *, uint64_t, dw_die **);
    int (*getscopes_die)(dw_die *, dw_die **);
    int (*tag)(dw_die *);
    dw_attribute *(*attr)(dw_die *, unsigned, dw_attribute *);
    int (*formudata)(dw_attribute *, uint64_t *);
    int (*getsrcfiles)(dw_die *, void **, size_t *);
    const char *(*filesrc)(void *, size_t, uint64_t *, uint64_t *);
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
                       dw_find(library, "dwfl_module_addrdie", &libdw.addrdie) &&
                       dw_find(library, "dwarf_getscopes", &libdw.getscopes) &&
                       dw_find(library, "dwarf_getscopes_die", &libdw.getscopes_die) &&
                       dw_find(library, "dwarf_tag", &libdw.tag) && dw_find(library, "dwarf_attr", &libdw.attr) &&
                       dw_find(library, "dwarf_formudata", &libdw.formudata) &&
                       dw_find(library, "dwarf_getsrcfiles", &libdw.getsrcfiles) &&
                       dw_find(library, "dwarf_filesrc", &libdw.filesrc) &&
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

insight_debug *lochi_insight_debug_open(const char *path, int file)
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
    lochi_insight_debug_close(debug);
    return NULL;
}

void lochi_insight_debug_close(insight_debug *debug)
{
    if (!debug) return;
    if (debug->files) libdw.end(debug->files);
    free(debug);
}

/* Reads a number of a description. */
static bool dw_read(dw_die *die, unsigned name, uint64_t *out)
{
    dw_attribute attribute;
    return libdw.attr(die, name, &attribute) && libdw.formudata(&attribute, out) == 0;
}

/* Finds the outermost of the functions that were inlined at `inner`. The chain goes from it to the compilation unit. */
static dw_die *dw_find_outermost(dw_die *inner, dw_die **chain)
{
    dw_die *found = NULL;
    const int count = libdw.getscopes_die(inner, chain);
    for (int i = 0; i < count && libdw.tag(&(*chain)[i]) != DW_SUBPROGRAM; i++)
        if (libdw.tag(&(*chain)[i]) == DW_INLINED) found = &(*chain)[i];
    return found;
}

/* Finds where a function calls what was inlined into it at an address: the line of the address itself is in the inlined
 * function. Leaves `file` and `line` alone if nothing was inlined there. */
static void dw_find_call(insight_debug *debug, uint64_t address, const char **file, int *line)
{
    uint64_t bias, call_file, call_line;
    dw_die *unit = libdw.addrdie(debug->module, address, &bias), *scopes = NULL, *chain = NULL, *found = NULL;
    const int count = unit ? libdw.getscopes(unit, address - bias, &scopes) : 0;
    int at = 0; /* the innermost inlined function, if the address is in one */
    while (at < count && libdw.tag(&scopes[at]) != DW_INLINED && libdw.tag(&scopes[at]) != DW_SUBPROGRAM)
        at++;
    if (at < count && libdw.tag(&scopes[at]) == DW_INLINED) found = dw_find_outermost(&scopes[at], &chain);
    if (found && dw_read(found, DW_CALL_FILE, &call_file) && dw_read(found, DW_CALL_LINE, &call_line)) {
        void *files;
        size_t file_count;
        const bool has_file = libdw.getsrcfiles(unit, &files, &file_count) == 0 && call_file < file_count;
        const char *path = has_file ? libdw.filesrc(files, call_file, NULL, NULL) : NULL;
        if (path && call_line <= INT32_MAX) {
            *file = path;
            *line = (int)call_line;
        }
    }
    free(chain);
    free(scopes);
}

void lochi_insight_debug_find(insight_debug *debug, uint64_t address, const char **function, const char **file,
                              int *line)
{
    uint64_t offset;
    uint64_t symbol[3]; /* a GElf_Sym */
    *file = NULL;
    *line = 0;
    *function = libdw.addrinfo(debug->module, address, &offset, symbol, NULL, NULL, NULL);
    Dwfl_Line *found = libdw.getsrc(debug->module, address);
    if (found) *file = libdw.lineinfo(found, NULL, line, NULL, NULL, NULL);
    if (found) dw_find_call(debug, address, file, line);
}

bool lochi_insight_debug_demangle(const char *name, char *text, size_t bytes)
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
