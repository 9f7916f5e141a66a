/* SPDX-License-Identifier: MIT */
/* A C++ exception, thrown from C.
 *
 * PyTorch's way to hear of a failed allocation is an exception, and the plug-in has no C++ to throw it with. The process
 * has: PyTorch brought libstdc++. Its names and the layout of what they make are fixed by the C++ ABI, which compilers
 * for Linux share. Frames on the way need unwind tables, so this folder is compiled with -fexceptions. */
#include "loch_torch.h"

#include <dlfcn.h>
#include <string.h>

/* Room for a std::runtime_error: two pointers, and some to spare. */
#define EXCEPTION_BYTES 64

/* extern "C" of the ABI; the constructor and destructor are members, whose first argument is the object. */
typedef struct torch_cxx {
    void *(*allocate)(size_t bytes);
    void (*construct)(void *self, const char *text);
    void (*destruct)(void *self);
    void *type;
    void (*throw)(void *exception, void *type, void (*destruct)(void *));
} torch_cxx;

static int torch_find(void *library, const char *name, void *out)
{
    void *address = dlsym(library, name);
    memcpy(out, &address, sizeof address);
    return address != NULL;
}

static int torch_find_all(void *library, torch_cxx *cxx)
{
    return torch_find(library, "__cxa_allocate_exception", &cxx->allocate) &&
           torch_find(library, "_ZNSt13runtime_errorC1EPKc", &cxx->construct) &&
           torch_find(library, "_ZNSt13runtime_errorD1Ev", &cxx->destruct) &&
           torch_find(library, "_ZTISt13runtime_error", &cxx->type) && torch_find(library, "__cxa_throw", &cxx->throw);
}

void lochi_torch_raise(const char *text)
{
    torch_cxx cxx;
    void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_NOLOAD); /* the one that is there, or none */
    if (!library) return;
    const int is_there = torch_find_all(library, &cxx);
    dlclose(library); /* PyTorch keeps it */
    if (!is_there) return;
    void *exception = cxx.allocate(EXCEPTION_BYTES);
    cxx.construct(exception, text);
    cxx.throw(exception, cxx.type, cxx.destruct);
}
