/* SPDX-License-Identifier: MIT */
/* The binary interface of DLPack, declared again so that the library needs no external header. Layouts and values are
 * those of versions 1.0 to 1.3. tests/headers/dlpack_header.c compares them with a real dlpack.h if there is one. Do
 * not include both: the struct tags are the same. */
#ifndef LOCHI_DLPACK_ABI_H
#define LOCHI_DLPACK_ABI_H

#include <stdint.h>

/* Types of devices that Loch supports. */
enum {
    LOCHI_DL_CPU = 1,
    LOCHI_DL_CUDA = 2,
    LOCHI_DL_CUDA_HOST = 3, /* page-locked for CUDA */
    LOCHI_DL_CUDA_MANAGED = 13
};

/* Types of numbers that Loch supports. */
enum {
    LOCHI_DL_INT = 0,
    LOCHI_DL_UINT = 1,
    LOCHI_DL_FLOAT = 2,
    LOCHI_DL_BFLOAT = 4,
    LOCHI_DL_BOOL = 6,
    LOCHI_DL_FLOAT8_E4M3FN = 10,
    LOCHI_DL_FLOAT8_E5M2 = 12
};

/* Bits of DLManagedTensorVersioned.flags. */
enum {
    LOCHI_DL_READ_ONLY = 1 << 0,
    LOCHI_DL_IS_COPIED = 1 << 1 /* only the receiver has the memory */
};

struct DLPackVersion {
    uint32_t major;
    uint32_t minor;
};

struct DLDevice {
    int32_t device_type; /* an enum in the original */
    int32_t device_id;
};

struct DLDataType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes; /* 1 unless an element is a vector */
};

struct DLTensor {
    void *data;
    struct DLDevice device;
    int32_t ndim;
    struct DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; older versions allow NULL for contiguous tensors */
    uint64_t byte_offset;
};

/* The older structure, without a version. */
struct DLManagedTensor {
    struct DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self); /* may be NULL */
};

struct DLManagedTensorVersioned {
    struct DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(
        struct DLManagedTensorVersioned *self); /* may be NULL; at this place in all versions, like `version` */
    uint64_t flags;
    struct DLTensor dl_tensor;
};

#endif
