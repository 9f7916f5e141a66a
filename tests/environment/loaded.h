/* SPDX-License-Identifier: MIT */
/* libloch.so loaded by dlopen, as programs do that find it at run time: a table of the functions that tests call. Each
 * table has a library of its own; the one that the test program is linked with is another. */
#ifndef LOCH_TEST_LOADED_H
#define LOCH_TEST_LOADED_H

#include "test.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#define LOADED_FUNCTIONS(X)                                                                                            \
    X(loch_version)                                                                                                    \
    X(loch_error_get)                                                                                                  \
    X(loch_device_open)                                                                                                \
    X(loch_device_release)                                                                                             \
    X(loch_stream_require_thread_default)                                                                              \
    X(loch_pool_create)                                                                                                \
    X(loch_allocator_release)                                                                                          \
    X(loch_alloc)                                                                                                      \
    X(loch_free)

typedef struct loaded {
    void *handle;
#define LOADED_MEMBER(name) __typeof__(&name) name;
    LOADED_FUNCTIONS(LOADED_MEMBER)
#undef LOADED_MEMBER
} loaded;

/* The library that was built with this program, in the folder `lib` two above its own; NULL where it is not there. */
static inline const char *loaded_path(void)
{
    static char path[PATH_MAX + 32];
    const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    if (length <= 0 || length >= PATH_MAX) return NULL;
    path[length] = '\0';
    for (int i = 0; i < 3; i++) {
        char *slash = strrchr(path, '/');
        if (!slash) return NULL;
        *slash = '\0';
    }
    strcat(path, "/lib/libloch.so");
    return access(path, R_OK) == 0 ? path : NULL;
}

/* Returns NULL, or what went wrong. */
static inline const char *loaded_open(loaded *library, const char *path)
{
    library->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library->handle) return dlerror();
#define LOADED_READ(name)                                                                                              \
    *(void **)&library->name = dlsym(library->handle, #name);                                                          \
    if (!library->name) return #name;
    LOADED_FUNCTIONS(LOADED_READ)
#undef LOADED_READ
    return NULL;
}

/* Uses a library as a thread of a program does; returns NULL, or the first call that went wrong. */
static inline const char *loaded_use(const loaded *library)
{
    loch_device *device = NULL;
    loch_allocator *pool = NULL;
    loch_stream *stream = NULL;
    void *blocks[8];
    if (strcmp(library->loch_version(), LOCH_VERSION_STRING) != 0) return "loch_version";
    if (library->loch_device_open("nothing", &device) != LOCH_E_NOT_FOUND) return "a failing loch_device_open";
    if (library->loch_error_get()->status != LOCH_E_NOT_FOUND) return "loch_error_get";
    if (library->loch_device_open("sim:64MiB,backed", &device) != LOCH_OK) return "loch_device_open";
    if (library->loch_stream_require_thread_default(device, &stream) != LOCH_OK)
        return "loch_stream_require_thread_default";
    if (library->loch_pool_create(device, NULL, NULL, &pool) != LOCH_OK) return "loch_pool_create";
    for (size_t i = 0; i < 8; i++) {
        if (library->loch_alloc(pool, (size_t)100 << i, &blocks[i]) != LOCH_OK) return "loch_alloc";
        memset(blocks[i], (int)i, (size_t)100 << i);
    }
    for (size_t i = 0; i < 8; i++)
        if (library->loch_free(pool, blocks[i]) != LOCH_OK) return "loch_free";
    library->loch_allocator_release(pool);
    library->loch_device_release(device);
    return NULL;
}

#endif
