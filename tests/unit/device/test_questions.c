/* SPDX-License-Identifier: MIT */
/* How often drivers are asked about addresses that Loch does not know. The driver here is a double that counts. As
 * CUDA's, it knows the memory of all its devices, and says so if none of them has it. */
#include "test.h"
#include <loch/print.h>
#include <loch/tensor.h>

typedef struct oracle {
    int index;
} oracle;

static size_t oracle_questions;
static char oracle_memory[256]; /* of another library */
static int oracle_owner = -1;   /* the device that has it; -1: it is plain memory */

static loch_status oracle_open(const char *arguments, void **self)
{
    oracle *o = calloc(1, sizeof *o);
    if (!o) return loch_error_set(LOCH_E_HOST_MEMORY, "oracle", 0, "no memory");
    o->index = atoi(arguments);
    *self = o;
    return LOCH_OK;
}

static void oracle_close(void *self)
{
    free(self);
}

static loch_status oracle_get_properties(void *self, loch_device_properties *out)
{
    (void)self;
    out->total_bytes = TEST_GIB;
    out->alignment_bytes = 16;
    out->numa_node = -1;
    return LOCH_OK;
}

static loch_status oracle_memory_info(void *self, loch_memory_info *out)
{
    (void)self;
    *out = (loch_memory_info){.total_bytes = TEST_GIB, .free_bytes = TEST_GIB};
    return LOCH_OK;
}

static loch_status oracle_raw_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    (void)self;
    if (posix_memalign(out, alignment < 16 ? 16 : alignment, bytes) == 0) return LOCH_OK;
    return loch_error_set(LOCH_E_DEVICE_MEMORY, "oracle", 0, "no memory");
}

static loch_status oracle_raw_free(void *self, void *address, size_t bytes)
{
    (void)self, (void)bytes;
    free(address);
    return LOCH_OK;
}

static loch_status oracle_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes,
                               void *peer, void *stream)
{
    (void)self, (void)direction, (void)peer, (void)stream;
    memmove(to, from, bytes);
    return LOCH_OK;
}

static loch_status oracle_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream)
{
    (void)self, (void)stream;
    for (size_t i = 0; i < bytes; i += pattern_bytes)
        memcpy((char *)to + i, &pattern, pattern_bytes);
    return LOCH_OK;
}

static loch_status oracle_address_query(void *self, const void *address, loch_address_info *out)
{
    const oracle *o = self;
    const uintptr_t at = (uintptr_t)address, start = (uintptr_t)oracle_memory;
    oracle_questions++;
    if (oracle_owner < 0 || at < start || at >= start + sizeof oracle_memory) return LOCH_E_FOREIGN;
    if (oracle_owner != o->index) return LOCH_E_NOT_FOUND;
    out->kind = LOCH_MEMORY_PINNED;
    out->base = oracle_memory;
    out->bytes = sizeof oracle_memory;
    return LOCH_OK;
}

static const loch_driver oracle_table = {
    .size = sizeof oracle_table,
    .name = "oracle",
    .summary = "a double that counts questions about addresses",
    .open = oracle_open,
    .close = oracle_close,
    .get_properties = oracle_get_properties,
    .memory_info = oracle_memory_info,
    .raw_alloc = oracle_raw_alloc,
    .raw_free = oracle_raw_free,
    .copy = oracle_copy,
    .fill = oracle_fill,
    .address_query = oracle_address_query,
};

enum { ORACLES = 3 };
static loch_device *oracles[ORACLES], *cpu, *sim;

/* Returns how often a driver was asked since the last call. */
static size_t questions(void)
{
    static size_t seen;
    const size_t all = oracle_questions + test_call_count(sim, "address_query") + test_call_count(cpu, "address_query");
    const size_t since = all - seen;
    seen = all;
    return since;
}

/* --- unknown addresses --- */

/* One question for each side and driver: the oracle once for its three devices, the simulator for its one, and the CPU,
 * which recognises nothing, never. */
static void a_copy_asks_each_driver_once_for_a_side(void **state)
{
    (void)state;
    char from[64] = "plain", to[64];
    questions();
    CHECK_OK(loch_copy(to, from, sizeof to));
    assert_string_equal(to, "plain");
    assert_int_equal(questions(), 4);
    assert_int_equal(test_call_count(cpu, "address_query"), 0);
}

static void memory_of_another_library_is_found_on_each_device(void **state)
{
    (void)state;
    for (int i = 0; i < ORACLES; i++) {
        loch_address_info info = {.size = sizeof info};
        oracle_owner = i;
        CHECK_OK(loch_address_query(oracle_memory + 5, &info));
        assert_ptr_equal(info.device, oracles[i]);
        assert_int_equal(info.kind, LOCH_MEMORY_PINNED);
        assert_ptr_equal(info.base, oracle_memory);
    }
    oracle_owner = -1;
}

/* What a driver said is not remembered: the addresses may go to a device meanwhile. */
static void an_answer_is_not_kept(void **state)
{
    (void)state;
    char from[sizeof oracle_memory] = "x";
    loch_address_info info = {.size = sizeof info};
    CHECK_OK(loch_copy(oracle_memory, from, sizeof from));
    CHECK_OK(loch_address_query(oracle_memory, &info));
    assert_null(info.device);
    oracle_owner = 1;
    CHECK_OK(loch_address_query(oracle_memory, &info));
    assert_ptr_equal(info.device, oracles[1]);
    oracle_owner = -1;
    CHECK_OK(loch_address_query(oracle_memory, &info));
    assert_null(info.device);
}

/* --- memory that was asked about --- */

static loch_tensor *wrap(float *elements, int64_t rows)
{
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_wrap(LOCH_F32, 2, (int64_t[]){rows, 4}, elements, NULL, &tensor));
    return tensor;
}

/* Tensors on plain host memory ask when they are made, and never again. */
static void tensors_on_plain_memory_ask_nothing(void **state)
{
    (void)state;
    float one[8] = {1, 2, 3, 4, 5, 6, 7, 8}, two[8] = {0};
    char text[200];
    size_t length;
    loch_scalar item;
    questions();
    loch_tensor *from = wrap(one, 2), *to = wrap(two, 2), *turned, *part;
    assert_int_equal(questions(), 4);
    CHECK_OK(loch_tensor_copy(to, from, NULL));
    assert_memory_equal(one, two, sizeof one);
    CHECK_OK(loch_tensor_transpose(from, 0, 1, &turned));
    CHECK_OK(loch_tensor_slice(to, 0, 1, 2, 1, &part));
    CHECK_OK(loch_tensor_print(turned, NULL, text, sizeof text, &length));
    assert_non_null(strstr(text, "8"));
    CHECK_OK(loch_tensor_read_item(from, 2, (int64_t[]){1, 3}, NULL, &item));
    CHECK_OK(loch_tensor_write_item(from, 2, (int64_t[]){1, 3}, item, NULL));
    CHECK_OK(loch_tensor_fill(part, item, NULL));
    CHECK_OK(loch_buffer_copy(loch_tensor_get_buffer(to), loch_tensor_get_buffer(from), NULL));
    CHECK_OK(loch_buffer_fill(loch_tensor_get_buffer(to), "\0", 1, NULL));
    assert_int_equal(questions(), 0);
    loch_tensor_release(part);
    loch_tensor_release(turned);
    loch_tensor_release(from);
    loch_tensor_release(to);
}

/* Printing memory of a device asks nothing either: both sides are known. */
static void printing_a_device_tensor_asks_nothing(void **state)
{
    (void)state;
    loch_tensor *tensor;
    char text[400];
    size_t length;
    const loch_tensor_options options = {.size = sizeof options, .device = sim};
    CHECK_OK(loch_tensor_create(LOCH_F32, 2, (int64_t[]){3, 5}, &options, &tensor));
    questions();
    CHECK_OK(loch_tensor_print(tensor, NULL, text, sizeof text, &length));
    assert_int_equal(questions(), 0);
    float host[15];
    CHECK_OK(loch_tensor_read(tensor, host, sizeof host, NULL));
    assert_int_equal(questions(), 2); /* about the caller's memory, once */
    loch_tensor_release(tensor);
    test_end_defaults();
}

static int begin(void **state)
{
    (void)state;
    CHECK_OK(loch_driver_register(&oracle_table));
    CHECK_OK(loch_device_open("cpu", &cpu));
    CHECK_OK(loch_device_open("sim:1GiB", &sim));
    for (int i = 0; i < ORACLES; i++) {
        char name[16];
        snprintf(name, sizeof name, "oracle:%d", i);
        CHECK_OK(loch_device_open(name, &oracles[i]));
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (int i = 0; i < ORACLES; i++)
        loch_device_release(oracles[i]);
    loch_device_release(sim);
    loch_device_release(cpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_asks_each_driver_once_for_a_side),
        cmocka_unit_test(memory_of_another_library_is_found_on_each_device),
        cmocka_unit_test(an_answer_is_not_kept),
        cmocka_unit_test(tensors_on_plain_memory_ask_nothing),
        cmocka_unit_test(printing_a_device_tensor_asks_nothing),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
