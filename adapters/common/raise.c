/* SPDX-License-Identifier: MIT */
/* Throws a C++ exception from C.
 *
 * PyTorch and ONNX Runtime report a failed allocation only by an exception, and the adapters contain no C++. The
 * process has libstdc++, which the engine loaded. Its names and the layout of exceptions are fixed by the C++ ABI,
 * which compilers for Linux share. Frames between the throw and the engine need unwind tables, so the adapters are
 * compiled with -fexceptions. */
#include "raise.h"

#include <dlfcn.h>
#include <string.h>

/* Room for a std::runtime_error: two pointers and a reserve. */
#define EXCEPTION_BYTES 64

/* Functions of the ABI with C linkage. Constructor and destructor are members: their first argument is the object. */
typedef struct raise_cxx {
    void *(*allocate)(size_t bytes);
    void (*construct)(void *self, const char *text);
    void (*destruct)(void *self);
    void *type;
    void (*throw)(void *exception, void *type, void (*destruct)(void *));
} raise_cxx;

static int raise_find(void *library, const char *name, void *out)
{
    void *address = dlsym(library, name);
    memcpy(out, &address, sizeof address);
    return address != NULL;
}

static int raise_find_all(void *library, raise_cxx *cxx)
{
    return raise_find(library, "__cxa_allocate_exception", &cxx->allocate) &&
           raise_find(library, "_ZNSt13runtime_errorC1EPKc", &cxx->construct) &&
           raise_find(library, "_ZNSt13runtime_errorD1Ev", &cxx->destruct) &&
           raise_find(library, "_ZTISt13runtime_error", &cxx->type) && raise_find(library, "__cxa_throw", &cxx->throw);
}

void lochi_raise(const char *text)
{
    raise_cxx cxx;
    void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_NOLOAD); /* the library that is loaded already, or none */
    if (!library) return;
    const int is_there = raise_find_all(library, &cxx);
    dlclose(library); /* never closed: the engine keeps it loaded */
    if (!is_there) return;
    void *exception = cxx.allocate(EXCEPTION_BYTES);
    cxx.construct(exception, text);
    cxx.throw(exception, cxx.type, cxx.destruct);
}
