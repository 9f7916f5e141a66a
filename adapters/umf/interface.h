/* SPDX-License-Identifier: MIT */
/* UMF's binary interface, as far as a pool needs it: results, controls, the table of a pool, calls of a provider. UMF
 * keeps it stable within a major version. Declared here so that the library is built without UMF's headers; the test
 * (tests/adapters/umf) compares it with them. */
#ifndef LOCHI_UMF_INTERFACE_H
#define LOCHI_UMF_INTERFACE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* Version of a table or of the interface: major and minor number. */
#define LOCHI_UMF_VERSION(major, minor) (((uint32_t)(major) << 16) | (uint32_t)(minor))

/* Version of the table in this file. UMF 1.0 reads it up to `control`. */
#define LOCHI_UMF_TABLE_VERSION LOCHI_UMF_VERSION(1, 1)

typedef enum lochi_umf_result {
    LOCHI_UMF_SUCCESS = 0,
    LOCHI_UMF_OUT_OF_MEMORY = 1, /* of any memory: UMF has no other code */
    LOCHI_UMF_PROVIDER_SPECIFIC = 2,
    LOCHI_UMF_INVALID_ARGUMENT = 3,
    LOCHI_UMF_INVALID_ALIGNMENT = 4,
    LOCHI_UMF_NOT_SUPPORTED = 5,
    LOCHI_UMF_MISSING = 7, /* something that the call depends on */
    LOCHI_UMF_INVALID_PATH = 9,
    LOCHI_UMF_UNKNOWN = 0x7ffffffe
} lochi_umf_result;

/* What a control asks for. */
typedef enum lochi_umf_query { LOCHI_UMF_READ, LOCHI_UMF_WRITE, LOCHI_UMF_RUN } lochi_umf_query;

/* Where a control comes from: a call has a value, the configuration (UMF_CONF) has text. */
typedef enum lochi_umf_origin { LOCHI_UMF_NOWHERE, LOCHI_UMF_CALL, LOCHI_UMF_CONFIGURATION } lochi_umf_origin;

/* A memory provider. */
typedef struct umf_memory_provider_t lochi_umf_provider;

/* The functions of a pool. */
struct umf_memory_pool_ops_t {
    uint32_t version;
    lochi_umf_result (*initialize)(lochi_umf_provider *provider, const void *params, void **pool);
    lochi_umf_result (*finalize)(void *pool);
    void *(*malloc)(void *pool, size_t size);
    void *(*calloc)(void *pool, size_t count, size_t size);
    void *(*realloc)(void *pool, void *block, size_t size);
    void *(*aligned_malloc)(void *pool, size_t size, size_t alignment);
    lochi_umf_result (*get_size)(void *pool, const void *block, size_t *size);
    lochi_umf_result (*free)(void *pool, void *block);
    lochi_umf_result (*get_last_error)(void *pool);
    lochi_umf_result (*get_name)(void *pool, const char **name);
    lochi_umf_result (*control)(void *pool, lochi_umf_origin origin, const char *path, void *value, size_t size,
                                lochi_umf_query query, va_list arguments);
    lochi_umf_result (*trim)(void *pool, size_t keep_bytes); /* since 1.1 */
};

/* Calls of UMF, found in the process. */
typedef struct lochi_umf_calls {
    lochi_umf_result (*alloc)(lochi_umf_provider *provider, size_t size, size_t alignment, void **out);
    lochi_umf_result (*free)(lochi_umf_provider *provider, void *address, size_t size);
    lochi_umf_result (*get_ipc_size)(lochi_umf_provider *provider, size_t *size); /* SUCCESS: the provider has IPC */
    int (*get_version)(void);
    void *library; /* what dlopen returned, NULL if the names are linked */
} lochi_umf_calls;

#endif
