/* SPDX-License-Identifier: MIT */
/* Shared by the tests of DLPack: structures as other libraries make them, and tensors with known elements. */
#ifndef LOCH_TEST_DLPACK_FIXTURE_H
#define LOCH_TEST_DLPACK_FIXTURE_H

#include "sweep.h"
#include "tensor_fixture.h"
#include "tensor/dlpack_abi.h"

/* A structure from elsewhere, with a count of its ends. */
typedef struct foreign {
    union {
        struct DLManagedTensorVersioned versioned;
        struct DLManagedTensor legacy;
    } as;
    int64_t shape[LOCH_DIMENSIONS_MAX], strides[LOCH_DIMENSIONS_MAX];
    int ended;
} foreign;

__attribute__((unused)) static _Alignas(64) float foreign_data[64];

__attribute__((unused)) static void foreign_end_versioned(struct DLManagedTensorVersioned *self)
{
    ((foreign *)self->manager_ctx)->ended++;
}

__attribute__((unused)) static void foreign_end_legacy(struct DLManagedTensor *self)
{
    ((foreign *)self->manager_ctx)->ended++;
}

/* 2 rows of 3 floats. */
__attribute__((unused)) static struct DLTensor foreign_tensor(foreign *from)
{
    *from = (foreign){.shape = {2, 3}, .strides = {3, 1}};
    return (struct DLTensor){.data = foreign_data,
                             .device = {LOCHI_DL_CPU, 0},
                             .ndim = 2,
                             .dtype = {LOCHI_DL_FLOAT, 32, 1},
                             .shape = from->shape,
                             .strides = from->strides};
}

__attribute__((unused)) static struct DLManagedTensorVersioned *foreign_versioned(foreign *from)
{
    const struct DLTensor tensor = foreign_tensor(from);
    from->as.versioned = (struct DLManagedTensorVersioned){
        .version = {1, 0}, .manager_ctx = from, .deleter = foreign_end_versioned, .dl_tensor = tensor};
    return &from->as.versioned;
}

__attribute__((unused)) static struct DLManagedTensor *foreign_legacy(foreign *from)
{
    const struct DLTensor tensor = foreign_tensor(from);
    from->as.legacy = (struct DLManagedTensor){.manager_ctx = from, .deleter = foreign_end_legacy, .dl_tensor = tensor};
    return &from->as.legacy;
}

__attribute__((unused)) static loch_tensor *rows(void)
{
    loch_tensor *tensor;
    const float numbers[6] = {1, 2, 3, 4, 5, 6};
    CHECK_OK(loch_tensor_create_from(LOCH_F32, LOCH_SHAPE(2, 3), numbers, NULL, &tensor));
    return tensor;
}

#endif
