/* SPDX-License-Identifier: MIT */
/* Modules by address; the file of each is opened when the first of its addresses is described. */
#include "symbols.h"
#include "elf_file.h"
#include "libdw.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYMBOLS_NAME 512 /* bytes of a function's name; longer ones are cut */

typedef struct symbols_module {
    uint64_t start, end, offset;
    char *path;
    uint8_t *build_id;
    size_t build_id_bytes;
    bool was_opened;
    void *map; /* the file; NULL if it is not used */
    size_t map_bytes;
    insight_elf elf;
    insight_debug *debug; /* NULL without libdw */
} symbols_module;

struct insight_symbols {
    lochi_array modules; /* of symbols_module * */
};

insight_symbols *lochi_insight_symbols_create(void)
{
    return calloc(1, sizeof(insight_symbols));
}

static void symbols_free_module(symbols_module *module)
{
    if (!module) return;
    lochi_insight_debug_close(module->debug);
    if (module->map) {
        lochi_insight_elf_close(&module->elf);
        munmap(module->map, module->map_bytes);
    }
    free(module->path);
    free(module->build_id);
    free(module);
}

void lochi_insight_symbols_destroy(insight_symbols *symbols)
{
    if (!symbols) return;
    symbols_module **modules = symbols->modules.data;
    for (size_t i = 0; i < symbols->modules.count; i++)
        symbols_free_module(modules[i]);
    lochi_array_free(&symbols->modules);
    free(symbols);
}

bool lochi_insight_symbols_add_module(insight_symbols *symbols, const insight_module *module)
{
    symbols_module *made = calloc(1, sizeof *made);
    if (!made) return false;
    made->start = module->start;
    made->end = module->end;
    made->offset = module->offset;
    made->path = strndup(module->path, module->path_length);
    made->build_id = malloc(module->build_id_bytes + 1);
    if (made->path && made->build_id) {
        if (module->build_id_bytes) memcpy(made->build_id, module->build_id, module->build_id_bytes);
        made->build_id_bytes = module->build_id_bytes;
        if (lochi_array_append(&symbols->modules, &made, 1, sizeof made)) return true;
    }
    symbols_free_module(made);
    return false;
}

/* --- files --- */

/* Returns whether an opened file is the one that was recorded. */
static bool symbols_is_recorded(const symbols_module *module)
{
    return !module->build_id_bytes || (module->elf.build_id_bytes == module->build_id_bytes &&
                                       !memcmp(module->elf.build_id, module->build_id, module->build_id_bytes));
}

/* Maps the file of a module. A recorded path may name anything: only regular files are read, and opening one neither
 * waits nor changes the terminal. */
static void symbols_open(symbols_module *module)
{
    module->was_opened = true;
    struct stat info;
    const int file = open(module->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) return;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (map != MAP_FAILED) {
            module->map = map;
            module->map_bytes = (size_t)info.st_size;
        }
    }
    if (module->map &&
        (!lochi_insight_elf_open(module->map, module->map_bytes, &module->elf) || !symbols_is_recorded(module))) {
        munmap(module->map, module->map_bytes);
        module->map = NULL;
    }
    if (module->map) module->debug = lochi_insight_debug_open(module->path, file);
    close(file);
}

static symbols_module *symbols_find(const insight_symbols *symbols, uint64_t address)
{
    symbols_module **modules = symbols->modules.data;
    for (size_t i = symbols->modules.count; i > 0; i--)
        if (address >= modules[i - 1]->start && address < modules[i - 1]->end) return modules[i - 1];
    return NULL;
}

/* --- texts --- */

/* Writes the name of a function as in the source. */
static void symbols_write_name(const char *name, size_t length, char text[SYMBOLS_NAME])
{
    char plain[SYMBOLS_NAME];
    const char *version = length > 1 ? memchr(name + 1, '@', length - 1) : NULL; /* of a symbol: "open@@GLIBC_2.2.5" */
    if (version) length = (size_t)(version - name);
    const size_t kept = length < sizeof plain ? length : sizeof plain - 1;
    memcpy(plain, name, kept);
    plain[kept] = '\0';
    if (!lochi_insight_debug_demangle(plain, text, SYMBOLS_NAME)) memcpy(text, plain, kept + 1);
    for (char *at = text; *at; at++) /* a text is one line, also if a file was made to do harm */
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
}

/* Describes an address by the file of its module. Returns false if the file does not know it. */
static bool symbols_name(symbols_module *module, uint64_t address, char *text, size_t bytes)
{
    if (!module->was_opened) symbols_open(module);
    if (!module->map) return false;
    const char *function = NULL, *file = NULL;
    int line = 0;
    size_t length = 0;
    if (module->debug) lochi_insight_debug_find(module->debug, address, &function, &file, &line);
    if (function)
        length = strlen(function);
    else
        function = lochi_insight_elf_find(&module->elf, address, &length);
    if (!function || !length) return false;
    char name[SYMBOLS_NAME];
    symbols_write_name(function, length, name);
    if (file && line > 0)
        snprintf(text, bytes, "%s at %s:%d", name, file, line);
    else
        snprintf(text, bytes, "%s", name);
    return true;
}

size_t lochi_insight_symbols_describe(insight_symbols *symbols, uint64_t address, char *text, size_t bytes)
{
    if (!bytes) return 0;
    const uint64_t call = address - 1; /* a return address may be behind the end of its function */
    symbols_module *module = symbols_find(symbols, call);
    if (!module) {
        snprintf(text, bytes, "0x%" PRIx64, address);
    } else if (!symbols_name(module, call + module->offset, text, bytes)) {
        const char *slash = strrchr(module->path, '/');
        snprintf(text, bytes, "%s+0x%" PRIx64, slash ? slash + 1 : module->path, call + module->offset);
    }
    return strlen(text);
}
