/* SPDX-License-Identifier: MIT */
/* DLPack structures at random against a model (dlpack_model.h). LOCH_TEST_SEED repeats a run. */
#include "dlpack_model.h"
#include "sim_fixture.h"

enum { CASES = 100000 };

static int64_t any_number(test_random *random)
{
    static const int64_t edges[] = {
        0, 1, -1, 2, 16, -17, INT32_MAX, (int64_t)1 << 32, INT64_MAX, INT64_MIN, INT64_MAX / 2, INT64_MIN / 8};
    switch (test_random_below(random, 4)) {
    case 0: return edges[test_random_below(random, sizeof edges / sizeof *edges)];
    case 1: return (int64_t)test_random_next(random);
    default: return (int64_t)test_random_below(random, 33) - 16;
    }
}

/* One that makes sense: small, and mostly inside the arena. */
static void fuzz_make(dlpack_case *f, test_random *random)
{
    const struct DLTensor tensor = {
        .data = arena + 8 * test_random_below(random, ARENA / 8),
        .device = {LOCHI_DL_CPU, 0},
        .ndim = (int32_t)test_random_below(random, 6),
        .dtype = known_types[test_random_below(random, KNOWN_TYPES)],
        .shape = f->shape,
        .strides = test_random_below(random, 8) ? f->strides : NULL,
        .byte_offset = test_random_below(random, 2) ? 0 : 8 * test_random_below(random, 16),
    };
    for (size_t i = 0; i < LOCH_DIMENSIONS_MAX + 4; i++) {
        f->shape[i] = (int64_t)(test_random_below(random, 10) ? 1 + test_random_below(random, 5) : 0);
        f->strides[i] = (int64_t)test_random_below(random, 41) - 20;
    }
    f->ended = 0;
    f->is_versioned = test_random_below(random, 2);
    if (f->is_versioned)
        f->as.versioned = (struct DLManagedTensorVersioned){
            {1, (uint32_t)test_random_below(random, 5)}, f, end_versioned, test_random_below(random, 8), tensor};
    else
        f->as.legacy = (struct DLManagedTensor){tensor, f, end_legacy};
    f->tensor = f->is_versioned ? &f->as.versioned.dl_tensor : &f->as.legacy.dl_tensor;
}

static void fuzz_mutate(dlpack_case *f, test_random *random)
{
    struct DLTensor *t = f->tensor;
    switch (test_random_below(random, 12)) {
    case 0: t->ndim = (int32_t)any_number(random); break;
    case 1: t->dtype.code = (uint8_t)test_random_next(random); break;
    case 2: t->dtype.bits = (uint8_t)test_random_next(random); break;
    case 3: t->dtype.lanes = (uint16_t)any_number(random); break;
    case 4: t->data = test_random_below(random, 2) ? NULL : (void *)(uintptr_t)test_random_next(random); break;
    case 5: t->byte_offset = (uint64_t)any_number(random); break;
    case 6: t->shape = NULL; break;
    case 7: t->device.device_type = (int32_t)any_number(random); break;
    case 8:
        f->as.versioned.version.major = f->is_versioned ? (uint32_t)any_number(random) : f->as.versioned.version.major;
        break;
    case 9: t->ndim = (int32_t)test_random_below(random, LOCH_DIMENSIONS_MAX + 1); break;
    case 10: f->shape[test_random_below(random, 6)] = any_number(random); break;
    default: f->strides[test_random_below(random, 6)] = any_number(random); break;
    }
}

static void structures_at_random_agree_with_the_model(void **state)
{
    (void)state;
    static dlpack_case f;
    test_random random = {test_seed(2024)};
    size_t good = 0;
    test_pattern_write(arena, sizeof arena, 3);
    for (int i = 0; i < CASES; i++) {
        fuzz_make(&f, &random);
        for (size_t changes = test_random_below(&random, 4); changes > 0; changes--)
            fuzz_mutate(&f, &random);
        good += dlpack_try(&f);
    }
    print_message("%zu of %d accepted\n", good, CASES);
    assert_in_range(good, CASES / 5, CASES * 4 / 5); /* or it tests one side alone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {SIM_TEST(structures_at_random_agree_with_the_model)};
    return cmocka_run_group_tests_name("dlpack, fuzzed", tests, NULL, NULL);
}
