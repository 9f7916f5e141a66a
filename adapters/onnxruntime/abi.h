/* SPDX-License-Identifier: MIT */
/* Internal header: the part of ONNX Runtime's binary interface that the adapter uses, so that the library builds
 * without ONNX Runtime and serves all versions of it.
 *
 * OrtApi is a table of functions that only grows at its end, and so is OrtAllocator. tests/adapters/onnxruntime
 * compares everything here with the real header at compile time. */
#ifndef LOCHI_ONNXRUNTIME_ABI_H
#define LOCHI_ONNXRUNTIME_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus lochi_ort_status;
typedef struct OrtEnv lochi_ort_env;
typedef struct OrtMemoryInfo lochi_ort_memory_info;
typedef struct OrtSessionOptions lochi_ort_session_options;
typedef struct OrtKeyValuePairs lochi_ort_pairs;

/* OrtApiBase. */
typedef struct lochi_ort_base {
    const void *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
} lochi_ort_base;

/* Version of the interface that has Reserve, and the one that has GetStats and pairs of keys and values. */
#define LOCHI_ORT_OLDEST 18
#define LOCHI_ORT_WITH_STATS 23

/* OrtAllocator of version LOCHI_ORT_WITH_STATS. */
typedef struct lochi_ort_allocator {
    uint32_t version;
    void *(*alloc)(struct lochi_ort_allocator *self, size_t bytes);
    void (*free)(struct lochi_ort_allocator *self, void *address);
    const lochi_ort_memory_info *(*info)(const struct lochi_ort_allocator *self);
    void *(*reserve)(struct lochi_ort_allocator *self, size_t bytes);
    lochi_ort_status *(*get_stats)(const struct lochi_ort_allocator *self, lochi_ort_pairs **out);
    void *(*alloc_on_stream)(struct lochi_ort_allocator *self, size_t bytes, void *stream); /* NULL: alloc serves */
} lochi_ort_allocator;

/* Functions of OrtApi: index in the table, name here, name there, result, parameters. */
#define LOCHI_ORT_FUNCTIONS(X)                                                                                         \
    X(0, create_status, CreateStatus, lochi_ort_status *, (int code, const char *message))                             \
    X(2, get_error_message, GetErrorMessage, const char *, (const lochi_ort_status *status))                           \
    X(3, create_env, CreateEnv, lochi_ort_status *, (int level, const char *name, lochi_ort_env **out))                \
    X(68, create_memory_info, CreateMemoryInfo, lochi_ort_status *,                                                    \
      (const char *name, int type, int id, int memory_type, lochi_ort_memory_info **out))                              \
    X(92, release_env, ReleaseEnv, void, (lochi_ort_env * env))                                                        \
    X(93, release_status, ReleaseStatus, void, (lochi_ort_status * status))                                            \
    X(94, release_memory_info, ReleaseMemoryInfo, void, (lochi_ort_memory_info * info))                                \
    X(130, add_config, AddSessionConfigEntry, lochi_ort_status *,                                                      \
      (lochi_ort_session_options * options, const char *key, const char *value))                                       \
    X(176, register_allocator, RegisterAllocator, lochi_ort_status *,                                                  \
      (lochi_ort_env * env, lochi_ort_allocator * allocator))                                                          \
    X(177, unregister_allocator, UnregisterAllocator, lochi_ort_status *,                                              \
      (lochi_ort_env * env, const lochi_ort_memory_info *info))                                                        \
    X(237, has_config, HasSessionConfigEntry, lochi_ort_status *,                                                      \
      (const lochi_ort_session_options *options, const char *key, int *out))                                           \
    X(238, get_config, GetSessionConfigEntry, lochi_ort_status *,                                                      \
      (const lochi_ort_session_options *options, const char *key, char *value, size_t *bytes))

/* Functions of OrtApi since LOCHI_ORT_WITH_STATS. */
#define LOCHI_ORT_STATS_FUNCTIONS(X)                                                                                   \
    X(295, create_pairs, CreateKeyValuePairs, void, (lochi_ort_pairs * *out))                                          \
    X(296, add_pair, AddKeyValuePair, void, (lochi_ort_pairs * pairs, const char *key, const char *value))

/* The functions in use, copied out of the table. */
typedef struct lochi_ort_functions {
#define LOCHI_ORT_MEMBER(index, name, ort_name, result, parameters) result(*name) parameters;
    LOCHI_ORT_FUNCTIONS(LOCHI_ORT_MEMBER)
    LOCHI_ORT_STATS_FUNCTIONS(LOCHI_ORT_MEMBER)
#undef LOCHI_ORT_MEMBER
} lochi_ort_functions;

#define LOCHI_ORT_FAIL 1             /* ORT_FAIL of OrtErrorCode */
#define LOCHI_ORT_WARNING 2          /* ORT_LOGGING_LEVEL_WARNING */
#define LOCHI_ORT_DEVICE_ALLOCATOR 0 /* OrtDeviceAllocator, the only type that can be registered */
#define LOCHI_ORT_MEMORY_TYPE 0      /* OrtMemTypeDefault */
#define LOCHI_ORT_MEMORY_NAME "Cpu"  /* name of the memory of the cpu */

#endif
