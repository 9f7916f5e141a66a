/* SPDX-License-Identifier: MIT */
/* new and delete of C++, by their names in the binary interface. They spare a call from the C++ library to malloc. A
 * request that fails is passed to the C++ library, which calls the new handler and throws. Programs that define
 * operators of their own keep them. */
#include "front.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define OPERATOR(name) __asm__(name) __attribute__((visibility("default")))

void *operator_new(size_t bytes) OPERATOR("_Znwm");
void *operator_new_array(size_t bytes) OPERATOR("_Znam");
void *operator_new_nothrow(size_t bytes, const void *nothrow) OPERATOR("_ZnwmRKSt9nothrow_t");
void *operator_new_array_nothrow(size_t bytes, const void *nothrow) OPERATOR("_ZnamRKSt9nothrow_t");
void operator_delete(void *address) OPERATOR("_ZdlPv");
void operator_delete_array(void *address) OPERATOR("_ZdaPv");
void operator_delete_sized(void *address, size_t bytes) OPERATOR("_ZdlPvm");
void operator_delete_array_sized(void *address, size_t bytes) OPERATOR("_ZdaPvm");

/* Calls the operator of the C++ library, which fails in the way that the program expects. */
static void *operator_next(const char *name, size_t bytes, const void *nothrow)
{
    void *(*next)(size_t, const void *);
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) return NULL;
    memcpy(&next, &found, sizeof next);
    return next(bytes, nothrow); /* operators without the second parameter ignore it */
}

void *operator_new(size_t bytes)
{
    void *address = front_alloc(bytes);
    return __builtin_expect(address != NULL, 1) ? address : operator_next("_Znwm", bytes, NULL);
}

void *operator_new_array(size_t bytes)
{
    void *address = front_alloc(bytes);
    return __builtin_expect(address != NULL, 1) ? address : operator_next("_Znam", bytes, NULL);
}

void *operator_new_nothrow(size_t bytes, const void *nothrow)
{
    void *address = front_alloc(bytes);
    return __builtin_expect(address != NULL, 1) ? address : operator_next("_ZnwmRKSt9nothrow_t", bytes, nothrow);
}

void *operator_new_array_nothrow(size_t bytes, const void *nothrow)
{
    void *address = front_alloc(bytes);
    return __builtin_expect(address != NULL, 1) ? address : operator_next("_ZnamRKSt9nothrow_t", bytes, nothrow);
}

void operator_delete(void *address)
{
    front_free(address);
}

void operator_delete_array(void *address)
{
    front_free(address);
}

void operator_delete_sized(void *address, size_t bytes)
{
    (void)bytes;
    front_free(address);
}

void operator_delete_array_sized(void *address, size_t bytes)
{
    (void)bytes;
    front_free(address);
}
