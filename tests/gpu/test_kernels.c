/* SPDX-License-Identifier: MIT */
/* Loch's own kernels on a real GPU: conversions of all types, copies and fills of random layouts, transposes, rows by
 * index, graphs and streams, against the host. LOCH_TEST_KERNELS=few tests fewer pairs of types, for sanitizers.
 * LOCH_TEST_DEVICE names another device, such as sim:256MiB,backed. */
#include "cuda_fixture.h"
#include <loch/kernel_set.h>
#include <loch/rows.h>

#define COUNT 65536 /* elements of a conversion */
#define ARENA ((size_t)1 << 20)
#define CAPTURE_GLOBAL 0

static bool is_cuda, is_few;

static uint64_t calls(const char *name)
{
    return test_call_count(device, name);
}

/* Counts what goes through the host: no copy inside the device may. */
static uint64_t other_copies(void)
{
    return calls("copy") + calls("copy_pitched");
}

static size_t below(size_t limit)
{
    return test_random_below(&randomness, limit);
}

/* --- conversions --- */

static uint64_t value_of(loch_dtype type)
{
    uint64_t bits = test_random_next(&randomness);
    const unsigned kind = (unsigned)below(8), cut = (unsigned)below(64);
    if (kind == 0) return bits;
    if (type == LOCH_F32) {
        if (kind == 1) return 0x7f800000u | (bits & 0x807fffffu);
        if (kind < 6) bits = (bits & 0x807fffffu) | (97 + bits % 60) << 23;
        return bits & ~((1u << cut % 24) - 1);
    }
    if (type == LOCH_F64) {
        if (kind == 1) return 0x7ff0000000000000u | (bits & 0x800fffffffffffffu);
        if (kind < 6) bits = (bits & 0x800fffffffffffffu) | (993 + bits % 60) << 52;
        return (bits & ~(((uint64_t)1 << cut % 53) - 1)) | (kind == 5);
    }
    bits >>= cut;
    if (kind == 1) bits = 0 - bits;
    if (kind == 2) bits &= ~(((uint64_t)1 << cut) - 1);
    return bits;
}

static loch_tensor *make(loch_dtype type, int64_t count, const void *data)
{
    const loch_tensor_options options = {.size = sizeof options, .device = device};
    loch_tensor *tensor;
    if (data)
        CHECK_OK(loch_tensor_create_from(type, 1, &count, data, &options, &tensor));
    else
        CHECK_OK(loch_tensor_create(type, 1, &count, &options, &tensor));
    return tensor;
}

static loch_tensor *slice(loch_tensor *tensor, int64_t start, int64_t stop, int64_t step)
{
    loch_tensor *view;
    CHECK_OK(loch_tensor_slice(tensor, 0, start, stop, step, &view));
    return view;
}

/* Converts `from` and compares with the host, element by element. */
static void convert_and_expect(loch_tensor *to, loch_tensor *from, const unsigned char *data, size_t start, size_t step,
                               loch_overflow overflow)
{
    const loch_dtype to_type = loch_tensor_get_dtype(to), from_type = loch_tensor_get_dtype(from);
    const size_t to_bytes = loch_dtype_bytes(to_type), from_bytes = loch_dtype_bytes(from_type);
    const size_t count = loch_tensor_get_elements(from);
    const loch_tensor_copy_options options = {.size = sizeof options, .overflow = overflow};
    const loch_convert_options how = {.size = sizeof how, .overflow = overflow};
    const uint64_t before = other_copies();
    CHECK_OK(loch_tensor_copy(to, from, &options));
    assert_int_equal(other_copies(), before);
    unsigned char *got = malloc(count * to_bytes), *wanted = malloc(count * to_bytes), *in = malloc(count * from_bytes);
    for (size_t i = 0; i < count; i++)
        memcpy(in + i * from_bytes, data + (start + i * step) * from_bytes, from_bytes);
    CHECK_OK(loch_convert(to_type, wanted, from_type, in, count, &how));
    CHECK_OK(loch_tensor_read(to, got, count * to_bytes, NULL));
    for (size_t i = 0; i < count; i++)
        if (memcmp(got + i * to_bytes, wanted + i * to_bytes, to_bytes) != 0) {
            uint64_t x = 0, y = 0, z = 0;
            memcpy(&x, in + i * from_bytes, from_bytes);
            memcpy(&y, got + i * to_bytes, to_bytes);
            memcpy(&z, wanted + i * to_bytes, to_bytes);
            fail_msg("%s 0x%llx to %s, element %zu, step %zu: 0x%llx instead of 0x%llx", loch_dtype_name(from_type),
                     (unsigned long long)x, loch_dtype_name(to_type), i, step, (unsigned long long)y,
                     (unsigned long long)z);
        }
    free(got);
    free(wanted);
    free(in);
}

static void convert_pair(loch_dtype to_type, loch_tensor *from, const unsigned char *data, loch_overflow overflow)
{
    loch_tensor *to = make(to_type, COUNT, NULL);
    convert_and_expect(to, from, data, 0, 1, overflow);
    loch_tensor *to_part = slice(to, 3, COUNT - 6, 1), *from_part = slice(from, 3, COUNT - 6, 1);
    convert_and_expect(to_part, from_part, data, 3, 1, overflow); /* runs that begin and end inside of vectors */
    loch_tensor *to_half = slice(to, 0, COUNT / 2, 1), *from_half = slice(from, 1, COUNT, 2);
    convert_and_expect(to_half, from_half, data, 1, 2, overflow); /* element by element */
    loch_tensor_release(to_half);
    loch_tensor_release(from_half);
    loch_tensor_release(to_part);
    loch_tensor_release(from_part);
    loch_tensor_release(to);
}

static bool is_left_out(loch_dtype to, loch_dtype from)
{
    return is_few && (to * 7 + from * 3) % 11 != 0;
}

static void all_types_are_converted(void **state)
{
    (void)state;
    for (int from = 1; from < LOCH_DTYPE_COUNT; from++) {
        const loch_dtype type = (loch_dtype)from;
        const size_t bytes = loch_dtype_bytes(type);
        unsigned char *data = malloc(COUNT * bytes);
        for (size_t i = 0; i < COUNT; i++) {
            const uint64_t bits = bytes <= 2 ? i : value_of(type);
            memcpy(data + i * bytes, &bits, bytes);
        }
        loch_tensor *source = make(type, COUNT, data);
        for (int to = 1; to < LOCH_DTYPE_COUNT; to++) {
            if (to == from || is_left_out((loch_dtype)to, type)) continue;
            convert_pair((loch_dtype)to, source, data, LOCH_OVERFLOW_SATURATE);
            if (to == LOCH_F8E4M3 || to == LOCH_F8E5M2)
                convert_pair((loch_dtype)to, source, data, LOCH_OVERFLOW_SPECIAL);
        }
        loch_tensor_release(source);
        free(data);
    }
}

/* --- layouts --- */

/* A buffer on the device and one on the host with equal bytes. */
typedef struct twin {
    loch_buffer *here, *there;
    loch_device *cpu;
} twin;

static void twin_open(twin *t, uint64_t seed)
{
    unsigned char *bytes = malloc(ARENA);
    test_pattern_write(bytes, ARENA, seed);
    CHECK_OK(loch_device_open("cpu", &t->cpu));
    CHECK_OK(loch_buffer_create_for_device(device, ARENA, NULL, &t->there));
    CHECK_OK(loch_buffer_create_for_device(t->cpu, ARENA, NULL, &t->here));
    CHECK_OK(loch_copy(loch_buffer_get_address(t->there), bytes, ARENA));
    CHECK_OK(loch_copy(loch_buffer_get_address(t->here), bytes, ARENA));
    free(bytes);
}

static void twin_expect(const twin *t, const char *what, size_t round)
{
    unsigned char *now = malloc(ARENA);
    const unsigned char *wanted = loch_buffer_get_address(t->here);
    CHECK_OK(loch_copy(now, loch_buffer_get_address(t->there), ARENA));
    for (size_t i = 0; i < ARENA; i++)
        if (now[i] != wanted[i])
            fail_msg("%s, round %zu: byte %zu is %02x and not %02x", what, round, i, now[i], wanted[i]);
    free(now);
}

static void twin_close(twin *t)
{
    loch_buffer_release(t->here);
    loch_buffer_release(t->there);
    loch_device_release(t->cpu);
}

/* Chooses strides in elements: axes in a random order, with gaps, some backwards, for a source some 0. Returns the
 * elements that the layout reaches; `start` is that of the element with all indices 0. */
static size_t choose_strides(const int64_t *shape, size_t axes, bool is_source, int64_t *strides, size_t *start)
{
    size_t order[LOCH_DIMENSIONS_MAX], next = below(5) ? 1 : 1 + below(4);
    *start = 0;
    for (size_t i = 0; i < axes; i++)
        order[i] = axes - 1 - i;
    for (size_t i = axes; i > 1 && below(3); i--) {
        const size_t other = below(i), kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
    for (size_t i = 0; i < axes; i++) {
        const size_t axis = order[i];
        strides[axis] = (int64_t)next;
        if (is_source && !below(10)) {
            strides[axis] = 0;
            continue;
        }
        if (!below(8)) {
            *start += ((size_t)shape[axis] - 1) * next;
            strides[axis] = -strides[axis];
        }
        next *= (size_t)shape[axis];
        if (!below(4)) next += 1 + below(9);
        if (!below(4)) next = (next + 15) / 16 * 16;
    }
    return next;
}

typedef struct pair {
    loch_tensor *here, *there;
} pair;

static bool pair_open(pair *p, const twin *t, loch_dtype type, size_t axes, const int64_t *shape,
                      const int64_t *strides, size_t start, size_t reach)
{
    const size_t bytes = loch_dtype_bytes(type), extra = below(20);
    if ((reach + extra) * bytes > ARENA) return false;
    const size_t offset = (start + extra) * bytes;
    CHECK_OK(loch_tensor_create_in(t->here, offset, type, axes, shape, strides, &p->here));
    CHECK_OK(loch_tensor_create_in(t->there, offset, type, axes, shape, strides, &p->there));
    return true;
}

static void pair_close(pair *p)
{
    loch_tensor_release(p->here);
    loch_tensor_release(p->there);
}

/* Types of which few pairs are compiled, with every size. */
static loch_dtype some_type(void)
{
    static const loch_dtype types[] = {LOCH_F32, LOCH_F16, LOCH_U8, LOCH_I64, LOCH_BF16};
    return types[below(is_few ? 2 : 5)];
}

static void random_layouts_are_copied_and_filled(void **state)
{
    (void)state;
    twin to, from;
    twin_open(&to, 1);
    twin_open(&from, 2);
    for (size_t round = 0; round < (is_few ? 60u : 600u); round++) {
        const size_t axes = 1 + below(5);
        int64_t shape[5], to_strides[5], from_strides[5];
        size_t count = 1, to_start, from_start;
        for (size_t i = 0; i < axes; i++)
            count *= (size_t)(shape[i] = (int64_t)(1 + below(below(4) ? 12 : 200)));
        if (count > 60000) continue;
        const size_t to_reach = choose_strides(shape, axes, false, to_strides, &to_start);
        const size_t from_reach = choose_strides(shape, axes, true, from_strides, &from_start);
        const loch_dtype to_type = some_type(), from_type = below(3) ? some_type() : to_type;
        pair target, source;
        if (!pair_open(&target, &to, to_type, axes, shape, to_strides, to_start, to_reach)) continue;
        if (!pair_open(&source, &from, from_type, axes, shape, from_strides, from_start, from_reach)) {
            pair_close(&target);
            continue;
        }
        if (below(4)) {
            CHECK_OK(loch_tensor_copy(target.here, source.here, NULL));
            CHECK_OK(loch_tensor_copy(target.there, source.there, NULL));
        } else {
            const loch_scalar value = loch_scalar_of((long long)test_random_next(&randomness));
            CHECK_OK(loch_tensor_fill(target.here, value, NULL));
            CHECK_OK(loch_tensor_fill(target.there, value, NULL));
        }
        if (round % 4 == 0 || is_few) twin_expect(&to, "layouts", round);
        pair_close(&target);
        pair_close(&source);
    }
    twin_expect(&to, "layouts", 0);
    twin_close(&to);
    twin_close(&from);
}

/* Planes of sizes around those of a tile, some with a gap between rows, turned. */
static void planes_are_turned(void **state)
{
    (void)state;
    static const loch_dtype types[] = {LOCH_U8, LOCH_F16, LOCH_F32, LOCH_I64, LOCH_BF16, LOCH_F8E4M3};
    twin to, from;
    twin_open(&to, 3);
    twin_open(&from, 4);
    for (size_t round = 0; round < (is_few ? 24u : 240u); round++) {
        const loch_dtype to_type = types[round % 4], from_type = round % 3 ? to_type : types[below(6)];
        const int64_t x = (int64_t)(16 + below(150)), y = (int64_t)(16 + below(150)), gap = (int64_t)below(4);
        const int64_t planes = (int64_t)(1 + below(3)), shape[] = {planes, x, y};
        const int64_t to_strides[] = {x * (y + gap), y + gap, 1}, from_strides[] = {y * (x + gap), 1, x + gap};
        pair target, source;
        if (!pair_open(&target, &to, to_type, 3, shape, to_strides, 0, (size_t)(planes * x * (y + gap)))) continue;
        if (!pair_open(&source, &from, from_type, 3, shape, from_strides, 0, (size_t)(planes * y * (x + gap)))) {
            pair_close(&target);
            continue;
        }
        CHECK_OK(loch_tensor_copy(target.here, source.here, NULL));
        CHECK_OK(loch_tensor_copy(target.there, source.there, NULL));
        twin_expect(&to, "planes", round);
        pair_close(&target);
        pair_close(&source);
    }
    twin_close(&to);
    twin_close(&from);
}

/* More elements than a launch counts. */
static void long_tensors_are_converted(void **state)
{
    (void)state;
    const int64_t count = ((int64_t)5 << 29) + 37;
    loch_memory_info memory = {.size = sizeof memory};
    if (!is_cuda || is_few) skip();
    CHECK_OK(loch_device_calculate_memory(device, &memory));
    if (memory.free_bytes < (uint64_t)count * 4) {
        print_message("skipped: the device has no 10 GiB\n");
        skip();
    }
    loch_tensor *from = make(LOCH_U8, count, NULL), *to = make(LOCH_F16, count, NULL);
    CHECK_OK(loch_tensor_fill(from, loch_scalar_of(7), NULL));
    for (int64_t at = 0; at < count; at += count / 64) {
        CHECK_OK(loch_tensor_write_item(from, 1, &at, loch_scalar_of((long long)(at % 251)), NULL));
    }
    CHECK_OK(loch_tensor_copy(to, from, NULL));
    for (int64_t at = 0; at < count; at += count / 64) {
        loch_scalar value;
        CHECK_OK(loch_tensor_read_item(to, 1, &at, NULL, &value));
        assert_true(value.value.f == (double)(at % 251));
        const int64_t next = at + 1 < count ? at + 1 : at - 1;
        CHECK_OK(loch_tensor_read_item(to, 1, &next, NULL, &value));
        assert_true(value.value.f == 7);
    }
    loch_tensor_release(from);
    loch_tensor_release(to);
}

/* --- rows --- */

static void rows_are_gathered_and_scattered(void **state)
{
    (void)state;
    enum { TABLE = 91, TAKEN = 200 };
    twin to, from;
    twin_open(&to, 5);
    twin_open(&from, 6);
    for (size_t round = 0; round < 60; round++) {
        const bool is_gather = round % 2, is_wide = round & 2;
        const loch_dtype type = some_type();
        const int64_t row = (int64_t)(1 + below(round % 3 ? 20 : 300)), to_row = row + (int64_t)below(3);
        const int64_t taken = is_gather ? TAKEN : TABLE / 2;
        const int64_t to_shape[] = {is_gather ? taken : TABLE, row}, from_shape[] = {is_gather ? TABLE : taken, row};
        const int64_t to_strides[] = {to_row, 1}, from_strides[] = {row, 1};
        int64_t wide[TAKEN];
        int32_t narrow[TAKEN];
        for (int64_t i = 0; i < taken; i++) {
            wide[i] = is_gather ? (int64_t)below(TABLE) : 2 * i;
            if (!below(6)) wide[i] = below(2) ? -1 - (int64_t)below(4) : TABLE + (int64_t)below(100000);
            narrow[i] = (int32_t)wide[i];
        }
        pair target, source;
        if (!pair_open(&target, &to, type, 2, to_shape, to_strides, 0, (size_t)(to_shape[0] * to_row))) continue;
        if (!pair_open(&source, &from, type, 2, from_shape, from_strides, 0, (size_t)(from_shape[0] * row))) {
            pair_close(&target);
            continue;
        }
        const void *numbers = is_wide ? (const void *)wide : narrow;
        const loch_dtype index_type = is_wide ? LOCH_I64 : LOCH_I32;
        const loch_tensor_options host = {.size = sizeof host, .device = to.cpu};
        loch_tensor *there = make(index_type, taken, numbers), *here;
        CHECK_OK(loch_tensor_create_from(index_type, 1, &taken, numbers, &host, &here));
        if (is_gather) {
            CHECK_OK(loch_rows_gather(target.here, source.here, here, NULL));
            CHECK_OK(loch_rows_gather(target.there, source.there, there, NULL));
        } else {
            CHECK_OK(loch_rows_scatter(target.here, source.here, here, NULL));
            CHECK_OK(loch_rows_scatter(target.there, source.there, there, NULL));
        }
        twin_expect(&to, "rows", round);
        loch_tensor_release(here);
        loch_tensor_release(there);
        pair_close(&target);
        pair_close(&source);
    }
    twin_close(&to);
    twin_close(&from);
}

/* --- streams and graphs --- */

static void fill_numbers(float *numbers, size_t count, float first)
{
    for (size_t i = 0; i < count; i++)
        numbers[i] = first + (float)i;
}

/* A conversion, a transpose, a fill and a gather, whose kernels are loaded in the capture, give the right bytes at each
 * launch of the graph. */
static void work_is_captured(void **state)
{
    (void)state;
    if (!is_cuda) skip();
    enum { SIDE = 64, N = SIDE * SIDE };
    loch_stream *stream;
    void *context, *graph, *executable;
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(caller.cuCtxSetCurrent(context), 0);
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    void *native = loch_stream_get_native(stream);
    float numbers[N];
    fill_numbers(numbers, N, 1);
    const int64_t plane[] = {SIDE, SIDE}, taken = SIDE;
    int32_t indices[SIDE];
    for (int i = 0; i < SIDE; i++)
        indices[i] = SIDE - 1 - i;
    loch_tensor *from = make(LOCH_F32, N, numbers), *narrow = make(LOCH_U16, N, NULL), *wide = make(LOCH_F64, N, NULL);
    loch_tensor *turned = make(LOCH_U16, N, NULL), *gathered = make(LOCH_U16, N, NULL),
                *which = make(LOCH_I32, taken, indices);
    loch_tensor *planes[3], *view;
    CHECK_OK(loch_tensor_view(narrow, 2, plane, &planes[0]));
    CHECK_OK(loch_tensor_view(turned, 2, plane, &planes[1]));
    CHECK_OK(loch_tensor_view(gathered, 2, plane, &planes[2]));
    CHECK_OK(loch_tensor_transpose(planes[0], 0, 1, &view));
    loch_tensor *odd = slice(wide, 1, N, 2);
    CHECK_OK(loch_stream_sync(stream));
    const loch_tensor_copy_options options = {.size = sizeof options, .stream = stream};
    assert_int_equal(caller.cuStreamBeginCapture_v2(native, CAPTURE_GLOBAL), 0);
    CHECK_OK(loch_tensor_copy(narrow, from, &options));
    CHECK_OK(loch_tensor_copy(planes[1], view, &options));
    CHECK_OK(loch_rows_gather(planes[2], planes[1], which, stream));
    CHECK_OK(loch_tensor_fill(odd, loch_scalar_of(-2.5), stream));
    assert_int_equal(caller.cuStreamEndCapture(native, &graph), 0);
    assert_int_equal(caller.cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
    for (int launch = 0; launch < 3; launch++) {
        fill_numbers(numbers, N, (float)(launch * 100));
        CHECK_OK(loch_tensor_write(from, numbers, sizeof numbers, stream));
        CHECK_OK(loch_tensor_fill(wide, loch_scalar_of(0), stream));
        assert_int_equal(caller.cuGraphLaunch(executable, native), 0);
        uint16_t got[N];
        double doubles[N];
        CHECK_OK(loch_tensor_read(gathered, got, sizeof got, stream));
        CHECK_OK(loch_tensor_read(wide, doubles, sizeof doubles, stream));
        CHECK_OK(loch_stream_sync(stream));
        for (int i = 0; i < SIDE; i++)
            for (int k = 0; k < SIDE; k++)
                assert_int_equal(got[i * SIDE + k], launch * 100 + k * SIDE + (SIDE - 1 - i));
        for (int i = 0; i < N; i++)
            assert_true(doubles[i] == (i % 2 ? -2.5 : 0));
    }
    assert_int_equal(caller.cuGraphExecDestroy(executable), 0);
    assert_int_equal(caller.cuGraphDestroy(graph), 0);
    loch_tensor *all[] = {odd, view, planes[0], planes[1], planes[2], from, narrow, wide, turned, gathered, which};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        loch_tensor_release(all[i]);
    loch_stream_close(stream);
    assert_int_equal(caller.cuCtxSetCurrent(NULL), 0);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
}

/* Two streams convert by turns; each result is ordered by an event. Tensors are released while work is queued. */
static void streams_are_ordered(void **state)
{
    (void)state;
    enum { N = 1 << 20, TURNS = 20 };
    loch_stream *streams[2];
    loch_event *event;
    for (int i = 0; i < 2; i++)
        CHECK_OK(loch_stream_create(device, NULL, &streams[i]));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &event));
    int32_t *numbers = malloc(N * sizeof *numbers), *got = malloc(N * sizeof *got);
    for (int32_t i = 0; i < N; i++)
        numbers[i] = i;
    loch_tensor *last = make(LOCH_I32, N, numbers);
    for (int turn = 0; turn < TURNS; turn++) {
        loch_stream *stream = streams[turn % 2];
        const loch_tensor_options where = {.size = sizeof where, .device = device, .stream = stream};
        const loch_tensor_copy_options how = {.size = sizeof how, .stream = stream};
        const int64_t count = N;
        loch_tensor *next;
        CHECK_OK(loch_tensor_create(turn % 2 ? LOCH_I32 : LOCH_F32, 1, &count, &where, &next));
        CHECK_OK(loch_tensor_copy(next, last, &how));
        CHECK_OK(loch_event_record(event, stream));
        CHECK_OK(loch_stream_wait(streams[1 - turn % 2], event));
        loch_tensor_release(last);
        last = next;
    }
    CHECK_OK(loch_tensor_read(last, got, N * sizeof *got, streams[0]));
    CHECK_OK(loch_stream_sync(streams[0]));
    assert_memory_equal(got, numbers, N * sizeof *got);
    loch_tensor_release(last);
    loch_event_destroy(event);
    for (int i = 0; i < 2; i++)
        loch_stream_close(streams[i]);
    free(numbers);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_captured), /* first: no kernel is loaded yet */
        cmocka_unit_test(random_layouts_are_copied_and_filled),
        cmocka_unit_test(planes_are_turned),
        cmocka_unit_test(rows_are_gathered_and_scattered),
        cmocka_unit_test(streams_are_ordered),
        cmocka_unit_test(long_tensors_are_converted),
        cmocka_unit_test(all_types_are_converted),
    };
    loch_kernel_set_destroy(NULL); /* so that the kernels are linked with this program */
    const char *name = getenv("LOCH_TEST_DEVICE"), *few = getenv("LOCH_TEST_KERNELS");
    is_cuda = !name;
    is_few = few && !strcmp(few, "few");
    if (is_cuda) return CUDA_RUN(tests);
    if (loch_device_open(name, &device) != LOCH_OK) return 1;
    randomness.state = test_seed(0x10c4);
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    test_end_defaults();
    loch_device_release(device);
    return failures;
}
