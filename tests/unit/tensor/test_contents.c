/* SPDX-License-Identifier: MIT */
/* What is in tensors: reading and writing host memory, single elements, copies with memory of their own, mappings. */
#include "sweep.h"
#include "tensor_fixture.h"

static const char *const device_names[] = {"cpu", "sim:64MiB,backed"};

#define FOR_EACH_DEVICE(device)                                                                                        \
    for (size_t device##_at = 0; device##_at < 2; device##_at++)                                                       \
        for (loch_device *device = sim_open(device_names[device##_at]); device;                                        \
             loch_device_release(device), device = NULL)

/* A 4 x 6 tensor of 0, 1, 2, ... */
static loch_tensor *make_grid(loch_device *device)
{
    int32_t values[24];
    for (int32_t i = 0; i < 24; i++)
        values[i] = i;
    const loch_tensor_options options = {.size = sizeof options, .device = device};
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create_from(LOCH_I32, LOCH_SHAPE(4, 6), values, &options, &tensor));
    return tensor;
}

static void contents_are_read_and_written_on_every_device(void **state)
{
    (void)state;
    FOR_EACH_DEVICE(device)
    {
        loch_tensor *tensor = make_grid(device), *turned, *part;
        int32_t seen[24];
        CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &turned));
        CHECK_OK(loch_tensor_read(turned, seen, sizeof seen, NULL));
        for (int32_t i = 0; i < 24; i++)
            assert_int_equal(seen[i], i % 4 * 6 + i / 4);
        CHECK_OK(loch_tensor_slice(turned, 0, 5, 0, -2, &part)); /* columns 5, 3, 1 */
        const int32_t new[12] = {-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12};
        CHECK_OK(loch_tensor_write(part, new, sizeof new, NULL));
        CHECK_OK(loch_tensor_read(tensor, seen, sizeof seen, NULL));
        for (int32_t i = 0; i < 24; i++) {
            const int32_t row = i / 6, column = i % 6;
            assert_int_equal(seen[i], column % 2 ? -((5 - column) / 2 * 4 + row + 1) : i);
        }
        CHECK_FAILS(loch_tensor_read(tensor, seen, sizeof seen - 1, NULL), INVALID);
        CHECK_FAILS(loch_tensor_read(tensor, NULL, sizeof seen, NULL), INVALID);
        CHECK_FAILS(loch_tensor_write(tensor, new, sizeof new, NULL), INVALID);
        CHECK_FAILS(loch_tensor_write(NULL, new, 0, NULL), INVALID);
        loch_tensor_release(part);
        loch_tensor_release(turned);
        loch_tensor_release(tensor);
    }
}

/* Host memory at which no element may lie. */
static void contents_are_read_and_written_at_odd_addresses(void **state)
{
    (void)state;
    FOR_EACH_DEVICE(device)
    {
        loch_tensor *tensor = make_grid(device), *turned;
        char memory[97];
        CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &turned));
        CHECK_OK(loch_tensor_read(turned, memory + 1, 96, NULL));
        int32_t value;
        memcpy(&value, memory + 1 + 4, 4);
        assert_int_equal(value, 6);
        for (size_t i = 0; i < 24; i++) {
            value = (int32_t)(100 + i);
            memcpy(memory + 1 + 4 * i, &value, 4);
        }
        CHECK_OK(loch_tensor_write(turned, memory + 1, 96, NULL));
        int32_t seen[24];
        CHECK_OK(loch_tensor_read(tensor, seen, sizeof seen, NULL));
        assert_int_equal(seen[6], 101);
        CHECK_OK(loch_tensor_write(tensor, memory + 1, 96, NULL));
        CHECK_OK(loch_tensor_read(tensor, memory + 1, 96, NULL));
        memcpy(&value, memory + 1 + 4 * 23, 4);
        assert_int_equal(value, 123);
        loch_tensor_release(turned);
        loch_tensor_release(tensor);
    }
}

static void single_items_are_read_and_written(void **state)
{
    (void)state;
    FOR_EACH_DEVICE(device)
    {
        loch_tensor *tensor = make_grid(device), *turned;
        loch_scalar value;
        CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &turned));
        CHECK_OK(loch_tensor_read_item(turned, LOCH_SHAPE(-1, 2), NULL, &value));
        assert_int_equal(value.dtype, LOCH_I64);
        assert_int_equal(value.value.i, 17);
        CHECK_OK(loch_tensor_write_item(turned, LOCH_SHAPE(-1, 2), loch_scalar_of(-5.9), NULL));
        CHECK_OK(loch_tensor_read_item(tensor, LOCH_SHAPE(2, 5), NULL, &value));
        assert_int_equal(value.value.i, -5);
        CHECK_FAILS(loch_tensor_read_item(tensor, LOCH_SHAPE(4, 0), NULL, &value), OUT_OF_RANGE);
        CHECK_FAILS(loch_tensor_read_item(tensor, LOCH_SHAPE(0, -7), NULL, &value), OUT_OF_RANGE);
        CHECK_FAILS(loch_tensor_read_item(tensor, LOCH_SHAPE(0), NULL, &value), INVALID);
        CHECK_FAILS(loch_tensor_read_item(tensor, LOCH_SHAPE(0, 0), NULL, NULL), INVALID);
        CHECK_FAILS(loch_tensor_write_item(tensor, 2, NULL, value, NULL), INVALID);
        loch_tensor_release(turned);
        loch_tensor_release(tensor);
    }
}

static void items_come_behind_the_stream_that_is_named(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed,clock=stepped");
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    const loch_tensor_options options = {.size = sizeof options, .device = device, .stream = stream};
    loch_tensor *tensor;
    loch_scalar value;
    CHECK_OK(loch_tensor_create(LOCH_I32, LOCH_SHAPE(8), &options, &tensor));
    CHECK_OK(loch_tensor_fill(tensor, loch_scalar_of(3), stream));
    CHECK_OK(loch_tensor_read_item(tensor, LOCH_SHAPE(5), stream, &value));
    assert_int_equal(value.value.i, 3);
    CHECK_OK(loch_tensor_fill(tensor, loch_scalar_of(4), stream));
    CHECK_OK(loch_tensor_write_item(tensor, LOCH_SHAPE(5), loch_scalar_of(9), stream));
    CHECK_OK(loch_tensor_read_item(tensor, LOCH_SHAPE(5), stream, &value));
    assert_int_equal(value.value.i, 9);
    assert_int_equal(sim_violations(device, NULL), 0);
    loch_tensor_release(tensor);
    loch_stream_close(stream);
    loch_device_release(device);
}

static void read_only_tensors_are_not_written(void **state)
{
    (void)state;
    float memory[4] = {1, 2, 3, 4};
    const loch_external external = {.size = sizeof external, .access = LOCH_READ_ONLY};
    loch_tensor *tensor, *stretched, *other;
    loch_mapping mapping;
    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(4), memory, &external, &tensor));
    CHECK_FAILS(loch_tensor_write(tensor, memory, sizeof memory, NULL), INVALID);
    CHECK_FAILS(loch_tensor_write_item(tensor, LOCH_SHAPE(0), loch_scalar_of(9), NULL), INVALID);
    CHECK_FAILS(loch_tensor_fill(tensor, loch_scalar_of(9), NULL), INVALID);
    CHECK_FAILS(loch_tensor_map(tensor, LOCH_MAP_READ_WRITE, NULL, &mapping), INVALID);
    CHECK_OK(loch_tensor_map(tensor, LOCH_MAP_READ, NULL, &mapping));
    assert_ptr_equal(mapping.address, memory);
    CHECK_OK(loch_tensor_unmap(&mapping, NULL));
    CHECK_OK(loch_tensor_clone(tensor, NULL, &other)); /* a copy may be written */
    CHECK_FAILS(loch_tensor_copy(tensor, other, NULL), INVALID);
    CHECK_OK(loch_tensor_fill(other, loch_scalar_of(9), NULL));
    assert_true(memory[0] == 1);
    CHECK_OK(loch_tensor_expand(other, LOCH_SHAPE(3, 4), &stretched));
    CHECK_FAILS(loch_tensor_fill(stretched, loch_scalar_of(1), NULL), INVALID);
    CHECK_FAILS(loch_tensor_write_item(stretched, LOCH_SHAPE(0, 0), loch_scalar_of(9), NULL), INVALID);
    float seen[12];
    CHECK_OK(loch_tensor_read(stretched, seen, sizeof seen, NULL));
    assert_true(seen[11] == 9);
    loch_tensor_release(stretched);
    loch_tensor_release(other);
    loch_tensor_release(tensor);
}

static void contiguous_clone_and_reshape_copy_when_they_have_to(void **state)
{
    (void)state;
    FOR_EACH_DEVICE(device)
    {
        loch_tensor *tensor = make_grid(device), *turned, *out, *flat;
        CHECK_OK(loch_tensor_contiguous(tensor, NULL, &out));
        assert_ptr_equal(out, tensor); /* another reference */
        loch_tensor_release(out);
        CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &turned));
        CHECK_OK(loch_tensor_contiguous(turned, NULL, &out));
        assert_ptr_not_equal(loch_tensor_get_buffer(out), loch_tensor_get_buffer(tensor));
        assert_true(loch_tensor_is_contiguous(out));
        assert_ptr_equal(loch_tensor_get_device(out), device);
        loch_tensor_release(out);
        CHECK_OK(loch_tensor_reshape(tensor, LOCH_SHAPE(-1), NULL, &flat));
        assert_ptr_equal(loch_tensor_get_buffer(flat), loch_tensor_get_buffer(tensor));
        loch_tensor_release(flat);
        CHECK_OK(loch_tensor_reshape(turned, LOCH_SHAPE(3, -1), NULL, &flat));
        assert_ptr_not_equal(loch_tensor_get_buffer(flat), loch_tensor_get_buffer(tensor));
        int32_t seen[24];
        CHECK_OK(loch_tensor_read(flat, seen, sizeof seen, NULL));
        for (int32_t i = 0; i < 24; i++)
            assert_int_equal(seen[i], i % 4 * 6 + i / 4);
        loch_tensor_release(flat);
        CHECK_FAILS(loch_tensor_reshape(turned, LOCH_SHAPE(5), NULL, &flat), INVALID);
        assert_null(flat);
        CHECK_OK(loch_tensor_clone(tensor, NULL, &out));
        CHECK_OK(loch_tensor_fill(tensor, loch_scalar_of(0), NULL));
        CHECK_OK(loch_tensor_read(out, seen, sizeof seen, NULL));
        assert_int_equal(seen[23], 23);
        loch_tensor_release(out);
        loch_tensor_release(turned);
        loch_tensor_release(tensor);
    }
}

/* Seed 000: clone of an external tensor aborted, of an empty one read NULL. */
static void external_and_empty_tensors_are_cloned(void **state)
{
    (void)state;
    float memory[2] = {1, 2};
    loch_tensor *tensor, *copy;
    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(2), memory, NULL, &tensor));
    CHECK_OK(loch_tensor_clone(tensor, NULL, &copy));
    assert_string_equal(loch_device_get_name(loch_tensor_get_device(copy)), "cpu");
    loch_tensor_release(tensor);
    loch_tensor_release(copy);
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(0, 3), NULL, &tensor));
    CHECK_OK(loch_tensor_clone(tensor, NULL, &copy));
    assert_int_equal(loch_tensor_get_elements(copy), 0);
    CHECK_OK(loch_tensor_read(copy, NULL, 0, NULL));
    CHECK_OK(loch_tensor_write(copy, NULL, 0, NULL));
    loch_tensor_release(tensor);
    loch_tensor_release(copy);
}

static void a_tensor_goes_to_another_type_and_device(void **state)
{
    (void)state;
    loch_device *cpu = sim_open("cpu"), *device = sim_open("sim:64MiB,backed");
    loch_tensor *host = make_grid(cpu), *there, *back, *same;
    const loch_tensor_options to_device = {.size = sizeof to_device, .device = device};
    const loch_tensor_options to_host = {.size = sizeof to_host, .device = cpu};
    CHECK_OK(loch_tensor_to(host, LOCH_DTYPE_NONE, NULL, &same));
    assert_ptr_equal(same, host);
    loch_tensor_release(same);
    CHECK_OK(loch_tensor_to(host, LOCH_I32, &to_host, &same));
    assert_ptr_equal(same, host);
    loch_tensor_release(same);
    CHECK_OK(loch_tensor_to(host, LOCH_F16, &to_device, &there));
    assert_ptr_equal(loch_tensor_get_device(there), device);
    assert_int_equal(loch_tensor_get_dtype(there), LOCH_F16);
    CHECK_OK(loch_tensor_to(there, LOCH_I64, &to_host, &back));
    int64_t seen[24];
    CHECK_OK(loch_tensor_read(back, seen, sizeof seen, NULL));
    for (int64_t i = 0; i < 24; i++)
        assert_int_equal(seen[i], i);
    CHECK_OK(loch_tensor_to(there, LOCH_F32, NULL, &same)); /* another type, on the same device */
    assert_ptr_equal(loch_tensor_get_device(same), device);
    loch_tensor_release(same);
    /* pinned memory is the device's, but not on it */
    loch_allocator *pinned;
    const loch_attributes attributes = {.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    CHECK_OK(loch_device_acquire_allocator(device, attributes, LOCH_FALLBACK_NONE, &pinned));
    const loch_tensor_options to_pinned = {.size = sizeof to_pinned, .allocator = pinned};
    loch_tensor *staged, *moved;
    CHECK_OK(loch_tensor_to(host, LOCH_DTYPE_NONE, &to_pinned, &staged));
    assert_true(loch_tensor_is_on_host(staged));
    char text[128];
    CHECK_OK(loch_tensor_describe(staged, text, sizeof text, NULL));
    assert_string_equal(text, "i32[4, 6], 96 bytes on the host, pinned for sim:64MiB,backed");
    CHECK_OK(loch_tensor_to(staged, LOCH_DTYPE_NONE, &to_device, &moved));
    assert_ptr_not_equal(moved, staged);
    assert_false(loch_tensor_is_on_host(moved));
    CHECK_FAILS(loch_tensor_to(staged, LOCH_DTYPE_COUNT, NULL, &same), INVALID);
    CHECK_FAILS(loch_tensor_to(NULL, LOCH_F32, NULL, &same), INVALID);
    loch_allocator_release(pinned);
    loch_tensor_release(moved);
    loch_tensor_release(staged);
    loch_tensor_release(back);
    loch_tensor_release(there);
    loch_tensor_release(host);
    loch_device_release(device);
    loch_device_release(cpu);
}

static void a_mapping_shows_and_takes_contents(void **state)
{
    (void)state;
    FOR_EACH_DEVICE(device)
    {
        loch_tensor *tensor = make_grid(device), *turned;
        CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &turned));
        loch_mapping mapping;
        CHECK_OK(loch_tensor_map(turned, LOCH_MAP_READ_WRITE, NULL, &mapping));
        int32_t *elements = mapping.address;
        assert_int_equal(elements[5 * mapping.strides[0] + 3 * mapping.strides[1]], 23);
        elements[5 * mapping.strides[0] + 3 * mapping.strides[1]] = 99;
        loch_tensor_release(turned); /* the mapping keeps it */
        CHECK_OK(loch_tensor_unmap(&mapping, NULL));
        assert_null(mapping.address);
        CHECK_OK(loch_tensor_unmap(&mapping, NULL)); /* again: nothing */
        loch_scalar value;
        CHECK_OK(loch_tensor_read_item(tensor, LOCH_SHAPE(3, 5), NULL, &value));
        assert_int_equal(value.value.i, 99);
        CHECK_OK(loch_tensor_map(tensor, LOCH_MAP_WRITE, NULL, &mapping));
        for (size_t i = 0; i < 24; i++)
            ((int32_t *)mapping.address)[i] = -(int32_t)i;
        CHECK_OK(loch_tensor_unmap(&mapping, NULL));
        CHECK_OK(loch_tensor_read_item(tensor, LOCH_SHAPE(3, 5), NULL, &value));
        assert_int_equal(value.value.i, -23);
        CHECK_FAILS(loch_tensor_map(tensor, (loch_map_access)9, NULL, &mapping), INVALID);
        CHECK_FAILS(loch_tensor_map(NULL, LOCH_MAP_READ, NULL, &mapping), INVALID);
        CHECK_FAILS(loch_tensor_map(tensor, LOCH_MAP_READ, NULL, NULL), INVALID);
        loch_tensor_release(tensor);
    }
}

/* --- failures of host memory --- */

static loch_status run_contents(const void *user)
{
    (void)user;
    loch_device *device = NULL;
    loch_tensor *tensor = NULL, *turned = NULL, *flat = NULL, *wide = NULL;
    loch_mapping mapping = {0};
    int32_t values[24] = {0};
    loch_status status = loch_device_open("sim:64MiB,backed", &device);
    const loch_tensor_options options = {.size = sizeof options, .device = device};
    if (status == LOCH_OK) status = loch_tensor_create_from(LOCH_I32, LOCH_SHAPE(4, 6), values, &options, &tensor);
    if (status == LOCH_OK) status = loch_tensor_transpose(tensor, 0, 1, &turned);
    if (status == LOCH_OK) status = loch_tensor_reshape(turned, LOCH_SHAPE(24), NULL, &flat);
    if (status == LOCH_OK) status = loch_tensor_to(turned, LOCH_F64, NULL, &wide);
    if (status == LOCH_OK) status = loch_tensor_map(turned, LOCH_MAP_READ_WRITE, NULL, &mapping);
    if (status == LOCH_OK) status = loch_tensor_unmap(&mapping, NULL);
    if (status == LOCH_OK) status = loch_tensor_read(turned, values, sizeof values, NULL);
    loch_tensor_release(wide);
    loch_tensor_release(flat);
    loch_tensor_release(turned);
    loch_tensor_release(tensor);
    if (device && loch_device_set_allocator(device, NULL) != LOCH_OK) return LOCH_E_CORRUPT;
    loch_device_release(device);
    return status;
}

static void contents_survive_failing_host_memory(void **state)
{
    (void)state;
    test_host_sweep(run_contents, NULL);
}

/* A stream of the device that the elements are on takes them to memory that is not that device's. */
static void a_copy_to_the_host_comes_in_the_order_of_its_stream(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed,clock=stepped"), *cpu = sim_open("cpu");
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_tensor *grid = make_grid(device), *host, *pinned, *turned;
    const loch_tensor_options options = {.size = sizeof options, .device = cpu, .stream = stream};
    CHECK_OK(loch_tensor_to(grid, LOCH_DTYPE_NONE, &options, &host));
    CHECK_OK(loch_stream_sync(stream));
    void *there;
    CHECK_OK(loch_tensor_get_address(host, &there));
    assert_int_equal(((const int32_t *)there)[23], 23);
    int32_t *memory = sim_pinned(device, 24 * sizeof *memory);
    for (int32_t i = 0; i < 24; i++)
        memory[i] = i;
    CHECK_OK(loch_tensor_wrap(LOCH_I32, LOCH_SHAPE(4, 6), memory, NULL, &pinned));
    CHECK_OK(loch_tensor_transpose(pinned, 0, 1, &turned));
    char odd[24 * sizeof(int32_t) + 8];
    char *target = odd + (1 - (uintptr_t)odd) % 4; /* where no element may lie */
    CHECK_OK(loch_tensor_read(turned, target, 24 * sizeof(int32_t), stream));
    int32_t second;
    memcpy(&second, target + sizeof second, sizeof second);
    assert_int_equal(second, 6);
    loch_tensor_release(turned);
    loch_tensor_release(pinned);
    loch_tensor_release(host);
    loch_tensor_release(grid);
    CHECK_OK(loch_device_sync(device));
    CHECK_OK(loch_raw_free(memory));
    assert_int_equal(sim_violations(device, NULL), 0);
    loch_stream_close(stream);
    loch_device_release(cpu);
    loch_device_release(device);
}

/* A pinned block is released while the default stream of its device still reads it: its next owner must not write
 * before that. `target` receives what was read. */
typedef struct pending_read {
    loch_device *device;
    loch_allocator *pinned;
    loch_buffer *target;
} pending_read;

static void pending_read_begin(pending_read *pending)
{
    const unsigned char first = 1;
    const loch_attributes pinned = {.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    pending->device = sim_open("sim:64MiB,backed,clock=stepped,seed=2");
    CHECK_OK(loch_device_acquire_allocator(pending->device, pinned, LOCH_FALLBACK_NONE, &pending->pinned));
    loch_buffer *source;
    CHECK_OK(loch_buffer_create(pending->pinned, 4096, NULL, &source));
    CHECK_OK(loch_buffer_fill(source, &first, 1, NULL));
    CHECK_OK(loch_buffer_create_for_device(pending->device, 4096, NULL, &pending->target));
    loch_stream *stream = loch_stream_get_default(pending->device);
    CHECK_OK(sim_busy(stream, 100000));
    const loch_buffer_copy_options options = {.size = sizeof options, .stream = stream};
    CHECK_OK(loch_buffer_copy(pending->target, source, &options));
    loch_buffer_release(source);
}

static void pending_read_end(pending_read *pending)
{
    unsigned char seen = 0;
    CHECK_OK(loch_copy(&seen, loch_buffer_get_address(pending->target), 1));
    assert_int_equal(seen, 1);
    assert_int_equal(sim_violations(pending->device, NULL), 0);
    loch_buffer_release(pending->target);
    loch_allocator_release(pending->pinned);
    loch_device_release(pending->device);
}

static loch_tensor *make_twos(loch_device *device)
{
    const loch_tensor_options options = {.size = sizeof options, .device = device};
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(LOCH_U8, LOCH_SHAPE(4096), &options, &tensor));
    CHECK_OK(loch_tensor_fill(tensor, loch_scalar_from_signed(2), NULL));
    return tensor;
}

static void a_tensor_goes_to_pinned_memory_of_another_device(void **state)
{
    (void)state;
    for (int has_stream = 0; has_stream < 2; has_stream++) {
        loch_device *device = sim_open("sim:64MiB,backed,clock=stepped");
        loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        loch_tensor *tensor = make_twos(device), *copy;
        pending_read pending;
        pending_read_begin(&pending);
        const loch_tensor_options options = {
            .size = sizeof options, .allocator = pending.pinned, .stream = has_stream ? stream : NULL};
        CHECK_OK(loch_tensor_to(tensor, LOCH_DTYPE_NONE, &options, &copy));
        CHECK_OK(loch_device_sync(device));
        loch_tensor_release(copy);
        pending_read_end(&pending);
        loch_tensor_release(tensor);
        loch_stream_close(stream);
        loch_device_release(device);
    }
}

static void a_mapping_takes_memory_in_order(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        pending_read pending;
        pending_read_begin(&pending);
        loch_stream *stream = sim_stream(pending.device, LOCH_STREAM_INDEPENDENT);
        const loch_tensor_options options = {.size = sizeof options, .device = pending.device, .stream = stream};
        loch_tensor *tensor;
        CHECK_OK(loch_tensor_create(LOCH_U8, LOCH_SHAPE(4096), &options, &tensor));
        CHECK_OK(loch_tensor_fill(tensor, loch_scalar_from_signed(2), stream));
        CHECK_OK(loch_stream_sync(stream));
        loch_mapping mapping;
        const loch_map_access access = way & 1 ? LOCH_MAP_READ : LOCH_MAP_WRITE;
        CHECK_OK(loch_tensor_map(tensor, access, way & 2 ? stream : NULL, &mapping));
        if (access == LOCH_MAP_WRITE) memset(mapping.address, 3, 4096);
        CHECK_OK(loch_stream_sync(loch_stream_get_default(pending.device)));
        CHECK_OK(loch_tensor_unmap(&mapping, stream));
        loch_tensor_release(tensor);
        loch_stream_close(stream);
        pending_read_end(&pending);
    }
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(contents_are_read_and_written_on_every_device),
        TENSOR_TEST(contents_are_read_and_written_at_odd_addresses),
        TENSOR_TEST(single_items_are_read_and_written),
        TENSOR_TEST(items_come_behind_the_stream_that_is_named),
        TENSOR_TEST(read_only_tensors_are_not_written),
        TENSOR_TEST(contiguous_clone_and_reshape_copy_when_they_have_to),
        TENSOR_TEST(external_and_empty_tensors_are_cloned),
        TENSOR_TEST(a_tensor_goes_to_another_type_and_device),
        TENSOR_TEST(a_copy_to_the_host_comes_in_the_order_of_its_stream),
        TENSOR_TEST(a_tensor_goes_to_pinned_memory_of_another_device),
        TENSOR_TEST(a_mapping_takes_memory_in_order),
        TENSOR_TEST(a_mapping_shows_and_takes_contents),
        TENSOR_TEST(contents_survive_failing_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
