/* SPDX-License-Identifier: MIT */
/* Fuzz target: DLPack structures that come in, against the model of dlpack_model.h. Every field is taken from the
 * input. */
#include "dlpack_model.h"
#include "fuzz.h"

/* Small numbers are the most likely; wild ones come now and then. */
static int64_t dlpack_number(fuzz_input *input)
{
    static const int64_t edges[] = {
        0, 1, -1, 2, 16, -17, INT32_MAX, (int64_t)1 << 32, INT64_MAX, INT64_MIN, INT64_MAX / 2, INT64_MIN / 8};
    const uint8_t kind = fuzz_byte(input);
    if (kind < 200) return (int64_t)(kind % 33) - 16;
    if (kind < 240) return edges[kind % (sizeof edges / sizeof *edges)];
    return (int64_t)fuzz_number(input, 8);
}

static void dlpack_fill(dlpack_case *f, fuzz_input *input)
{
    const uint8_t kind = fuzz_byte(input), type = fuzz_byte(input), place = fuzz_byte(input);
    struct DLTensor tensor = {.data = arena + 8 * (size_t)place,
                              .device = {LOCHI_DL_CPU, 0},
                              .dtype = known_types[type % KNOWN_TYPES],
                              .shape = f->shape,
                              .strides = f->strides};
    f->ended = 0;
    f->is_versioned = kind & 1;
    if (kind & 2) tensor.strides = NULL;
    if (kind & 4) tensor.shape = fuzz_byte(input) ? f->shape : NULL;
    if (kind & 8)
        tensor.dtype = (struct DLDataType){fuzz_byte(input), fuzz_byte(input), (uint16_t)dlpack_number(input)};
    if (kind & 16) tensor.data = (void *)(uintptr_t)fuzz_number(input, 8);
    if (kind & 32) tensor.byte_offset = (uint64_t)dlpack_number(input);
    if (kind & 64) tensor.device.device_type = (int32_t)dlpack_number(input);
    tensor.ndim = kind & 128 ? (int32_t)dlpack_number(input) : (int32_t)(fuzz_byte(input) % (LOCH_DIMENSIONS_MAX + 2));
    memset(&f->as, 0, sizeof f->as);
    if (f->is_versioned) {
        const uint8_t version = fuzz_byte(input);
        f->as.versioned = (struct DLManagedTensorVersioned){
            {version < 240 ? 1 : version, version % 5}, f, end_versioned, fuzz_byte(input), tensor};
    } else {
        f->as.legacy = (struct DLManagedTensor){tensor, f, end_legacy};
    }
    f->tensor = f->is_versioned ? &f->as.versioned.dl_tensor : &f->as.legacy.dl_tensor;
    for (size_t i = 0; i < LOCH_DIMENSIONS_MAX + 4; i++) {
        f->shape[i] = dlpack_number(input);
        f->strides[i] = dlpack_number(input);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static dlpack_case f;
    fuzz_input input = {data, bytes};
    if (!arena[1]) test_pattern_write(arena, sizeof arena, 3);
    dlpack_fill(&f, &input);
    fuzz_begin();
    (void)dlpack_try(&f);
    fuzz_end();
    return 0;
}
