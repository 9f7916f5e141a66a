/* SPDX-License-Identifier: MIT */
/* DLPack structures at random, against a model that computes in 128 bits: what is accepted, what it reaches, what is in it, and
 * that a structure is ended once when it was accepted and never when it was not. LOCH_TEST_SEED repeats a run. */
#include "sim_fixture.h"
#include "tensor/dlpack_abi.h"

__extension__ typedef __int128 wide;

enum { CASES = 100000, ARENA = 4096, WALK_MAX = 4096 };

typedef struct fuzz {
    test_random random;
    union {
        struct DLManagedTensorVersioned versioned;
        struct DLManagedTensor legacy;
    } as;
    struct DLTensor *tensor; /* in one of the two */
    bool is_versioned;
    int64_t shape[LOCH_DIMENSIONS_MAX + 4], strides[LOCH_DIMENSIONS_MAX + 4];
    int ended;
} fuzz;

static _Alignas(64) unsigned char arena[ARENA];

static void end_versioned(struct DLManagedTensorVersioned *self)
{
    ((fuzz *)self->manager_ctx)->ended++;
}

static void end_legacy(struct DLManagedTensor *self)
{
    ((fuzz *)self->manager_ctx)->ended++;
}

static const struct DLDataType known_types[] = {{0, 8, 1},  {0, 16, 1}, {0, 32, 1}, {0, 64, 1}, {1, 8, 1},
                                                {1, 16, 1}, {1, 32, 1}, {1, 64, 1}, {2, 16, 1}, {2, 32, 1},
                                                {2, 64, 1}, {4, 16, 1}, {6, 8, 1},  {10, 8, 1}, {12, 8, 1}};
#define KNOWN_TYPES (sizeof known_types / sizeof *known_types)

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
static void fuzz_make(fuzz *f)
{
    test_random *random = &f->random;
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

static void fuzz_mutate(fuzz *f)
{
    test_random *random = &f->random;
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

/* --- the model --- */

typedef struct model {
    bool is_good;
    wide low, high; /* addresses: the first byte, and the one behind the last */
    wide first;     /* of the element with all indices 0 */
    wide elements;
    int64_t strides[LOCH_DIMENSIONS_MAX];
    int64_t bytes;
} model;

static bool is_known_type(struct DLDataType type)
{
    for (size_t i = 0; i < KNOWN_TYPES; i++)
        if (memcmp(&known_types[i], &type, sizeof type) == 0) return true;
    return false;
}

/* The product of all sizes that are not 0 has to fit, so that strides can be made of it. */
static bool model_count(const struct DLTensor *t, model *m)
{
    wide span = 1;
    m->elements = 1;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] < 0) return false;
        if (t->shape[i] == 0) m->elements = 0;
        if (t->shape[i] != 0) span *= t->shape[i];
        if (span > PTRDIFF_MAX / m->bytes) return false;
    }
    if (m->elements) m->elements = span;
    return true;
}

/* Strides that are not followed may be wild, and then become 1. */
static int64_t model_stride(const struct DLTensor *t, const model *m, int axis, wide row)
{
    if (!t->strides) return (int64_t)row;
    const int64_t stride = t->strides[axis], most = PTRDIFF_MAX / m->bytes;
    return t->shape[axis] <= 1 && (stride > most || stride < -most) ? 1 : stride;
}

static void model_reach(const struct DLTensor *t, model *m)
{
    wide row = 1;
    m->low = m->high = 0;
    for (int i = t->ndim - 1; i >= 0; i--) {
        m->strides[i] = model_stride(t, m, i, row);
        if (t->shape[i]) row *= t->shape[i];
        const wide reach = (wide)m->strides[i] * (t->shape[i] - 1) * m->bytes;
        if (reach < 0) m->low += reach;
        if (reach > 0) m->high += reach;
    }
    m->high += m->bytes;
}

static model model_of(const fuzz *f)
{
    model m = {.is_good = false};
    const struct DLTensor *t = f->tensor;
    if (f->is_versioned && f->as.versioned.version.major != 1) return m;
    if (t->ndim < 0 || t->ndim > LOCH_DIMENSIONS_MAX || (t->ndim > 0 && !t->shape)) return m;
    if (!is_known_type(t->dtype) || t->device.device_type != LOCHI_DL_CPU) return m;
    m.bytes = t->dtype.bits / 8;
    if (!model_count(t, &m)) return m;
    if (!m.elements) {
        m.is_good = true;
        return m;
    }
    m.first = (wide)(uintptr_t)t->data + t->byte_offset;
    model_reach(t, &m);
    m.low += m.first;
    m.high += m.first;
    m.is_good = t->data && m.high - m.low <= PTRDIFF_MAX / 2 && m.low >= 0 && m.high <= UINTPTR_MAX &&
                m.first <= UINTPTR_MAX && m.first % m.bytes == 0;
    return m;
}

/* --- one case --- */

/* The elements, row after row, by the model's own walk. */
static void expect_elements(const struct DLTensor *t, const model *m, loch_tensor *tensor)
{
    static unsigned char read[WALK_MAX * 8];
    const size_t bytes = (size_t)m->bytes, count = (size_t)m->elements;
    CHECK_OK(loch_tensor_read(tensor, read, bytes * count, NULL));
    for (size_t i = 0; i < count; i++) {
        wide place = m->first;
        size_t left = i;
        for (int axis = t->ndim - 1; axis >= 0; axis--) {
            place += (wide)(left % (size_t)t->shape[axis]) * m->strides[axis] * m->bytes;
            left /= (size_t)t->shape[axis];
        }
        const unsigned char *expected = (const unsigned char *)(uintptr_t)place;
        if (t->dtype.code == LOCHI_DL_BOOL && *expected && read[i]) continue; /* true may be any number, and become 1 */
        if (memcmp(read + i * bytes, expected, bytes) != 0) fail_msg("element %zu differs", i);
    }
}

static void expect_same(fuzz *f, const model *m, loch_tensor *tensor)
{
    const struct DLTensor *t = f->tensor;
    loch_buffer *buffer = loch_tensor_get_buffer(tensor);
    void *address;
    assert_int_equal(loch_tensor_get_dimensions(tensor), t->ndim);
    assert_int_equal(loch_dtype_bytes(loch_tensor_get_dtype(tensor)), m->bytes);
    assert_true(loch_tensor_get_elements(tensor) == (size_t)m->elements);
    if (t->ndim) assert_memory_equal(loch_tensor_get_shape(tensor), t->shape, (size_t)t->ndim * sizeof(int64_t));
    const bool is_read_only = f->is_versioned && (f->as.versioned.flags & LOCHI_DL_READ_ONLY);
    assert_int_equal(loch_tensor_get_access(tensor), is_read_only ? LOCH_READ_ONLY : LOCH_READ_WRITE);
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    if (!m->elements) {
        assert_null(address);
        return;
    }
    if (t->ndim) assert_memory_equal(loch_tensor_get_strides(tensor), m->strides, (size_t)t->ndim * sizeof(int64_t));
    assert_true((uintptr_t)address == (uintptr_t)m->first);
    assert_true((uintptr_t)loch_buffer_get_address(buffer) == (uintptr_t)m->low);
    assert_true(loch_buffer_get_bytes(buffer) == (size_t)(m->high - m->low));
    const bool is_inside = m->low >= (uintptr_t)arena && m->high <= (uintptr_t)arena + ARENA;
    if (is_inside && m->elements <= WALK_MAX) expect_elements(t, m, tensor);
}

/* Through Loch and out again: the same. */
static void expect_again(loch_tensor *tensor)
{
    struct DLManagedTensorVersioned *managed;
    CHECK_OK(loch_tensor_to_dlpack(tensor, NULL, &managed));
    void *address;
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    const struct DLTensor *t = &managed->dl_tensor;
    assert_ptr_equal(t->data, address);
    assert_int_equal(t->ndim, loch_tensor_get_dimensions(tensor));
    for (int i = 0; i < t->ndim; i++) {
        assert_true(t->shape[i] == loch_tensor_get_shape(tensor)[i]);
        assert_true(t->strides[i] == loch_tensor_get_strides(tensor)[i]);
    }
    managed->deleter(managed);
}

static bool fuzz_one(fuzz *f)
{
    const model m = model_of(f);
    loch_tensor *tensor = TEST_UNTOUCHED;
    const loch_status status = f->is_versioned ? loch_tensor_from_dlpack(&f->as.versioned, NULL, &tensor)
                                               : loch_tensor_from_dlpack_legacy(&f->as.legacy, NULL, &tensor);
    if ((status == LOCH_OK) != m.is_good)
        fail_msg("%s, but the model says %s: %s", loch_status_name(status), m.is_good ? "good" : "bad",
                 status == LOCH_OK ? "" : loch_error_get()->sentence);
    assert_int_equal(f->ended, 0);
    if (status != LOCH_OK) {
        assert_null(tensor);
        return false;
    }
    expect_same(f, &m, tensor);
    expect_again(tensor);
    assert_int_equal(f->ended, 0);
    loch_tensor_release(tensor);
    assert_int_equal(f->ended, 1);
    return true;
}

static void structures_at_random(void **state)
{
    (void)state;
    static fuzz f;
    f.random.state = test_seed(2024);
    size_t good = 0;
    test_pattern_write(arena, sizeof arena, 3);
    for (int i = 0; i < CASES; i++) {
        fuzz_make(&f);
        for (size_t changes = test_random_below(&f.random, 4); changes > 0; changes--)
            fuzz_mutate(&f);
        good += fuzz_one(&f);
    }
    print_message("%zu of %d accepted\n", good, CASES);
    assert_in_range(good, CASES / 5, CASES * 4 / 5); /* or it tests one side alone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {SIM_TEST(structures_at_random)};
    return cmocka_run_group_tests_name("dlpack, fuzzed", tests, NULL, NULL);
}
