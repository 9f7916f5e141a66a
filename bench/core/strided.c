/* SPDX-License-Identifier: MIT */
/* `core strided`: measures copies of tensors between layouts, types and devices, and compares them with a plain
 * copy of as many bytes between the same places: memcpy on the host, loch_copy with a device.
 *
 * The two alternate in every repetition; the median of each counts. Rows are padded by less than a cache line and by a
 * whole cache line. With rows of one line, a pad of one line doubles the memory traffic, and the ratio shows it. */

#include "core.h"
#include <loch/loch.h>
#include <loch/driver.h>
#include <loch/raw.h>
#include <loch/tensor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRIDED_REPETITIONS 9
#define STRIDED_REPETITION_BYTES ((size_t)64 << 20) /* smaller work is repeated up to this size */
#define STRIDED_DEVICE_BYTES ((size_t)64 << 20)     /* size of a copy with a device */
#define STRIDED_AXES 2

typedef enum strided_place { STRIDED_FIRST, STRIDED_SECOND, STRIDED_HOST } strided_place;

typedef struct strided_bench {
    loch_device *device;
    loch_device_properties properties;
    bool is_host, is_json, is_quick, has_printed;
    void *memory[3]; /* by place; STRIDED_HOST is pinned if the device has pinned memory */
    bool is_plain;   /* STRIDED_HOST is from malloc */
    size_t bytes;    /* size of each */
} strided_bench;

/* One copy. Strides count elements; all zeros mean contiguous rows. */
typedef struct strided_work {
    const char *name, *layout;
    strided_place to, from;
    loch_dtype to_type, from_type;
    int64_t shape[STRIDED_AXES], to_strides[STRIDED_AXES], from_strides[STRIDED_AXES];
} strided_work;

/* A copy that is ready to run. */
typedef struct strided_run {
    loch_buffer *buffers[2];
    loch_tensor *to, *from;
    void *to_address;
    const void *from_address;
    size_t bytes; /* elements of the larger side, in bytes */
} strided_run;

/* --- tensors --- */

static loch_status strided_view(const strided_bench *b, strided_place place, loch_dtype dtype, const int64_t *shape,
                                const int64_t *strides, loch_buffer **buffer, loch_tensor **out)
{
    const loch_status status = loch_buffer_wrap(b->memory[place], b->bytes, NULL, buffer);
    if (status != LOCH_OK) return status;
    return loch_tensor_create_in(*buffer, 0, dtype, STRIDED_AXES, shape, strides, out);
}

static void strided_close_run(strided_run *run)
{
    loch_tensor_release(run->to);
    loch_tensor_release(run->from);
    loch_buffer_release(run->buffers[0]);
    loch_buffer_release(run->buffers[1]);
}

static bool strided_open_run(const strided_bench *b, const strided_work *work, strided_run *run)
{
    *run = (strided_run){.to_address = b->memory[work->to], .from_address = b->memory[work->from]};
    if (strided_view(b, work->to, work->to_type, work->shape, work->to_strides, &run->buffers[0], &run->to) != LOCH_OK)
        return false;
    if (strided_view(b, work->from, work->from_type, work->shape, work->from_strides, &run->buffers[1], &run->from) !=
        LOCH_OK)
        return false;
    const size_t to = loch_tensor_get_bytes(run->to), from = loch_tensor_get_bytes(run->from);
    run->bytes = to > from ? to : from;
    return true;
}

/* --- measuring --- */

static bool strided_copy_plain(const strided_bench *b, const strided_run *run)
{
    if (!b->is_host) return loch_copy(run->to_address, run->from_address, run->bytes) == LOCH_OK;
    memcpy(run->to_address, run->from_address, run->bytes);
    /* keeps the compiler from dropping a copy whose result is not read */
    __asm__ volatile("" : : "r"(run->to_address) : "memory");
    return true;
}

static bool strided_copy_loch(const strided_bench *b, const strided_run *run)
{
    (void)b;
    return loch_tensor_copy(run->to, run->from, NULL) == LOCH_OK;
}

typedef bool strided_copy(const strided_bench *b, const strided_run *run);

/* Returns the nanoseconds of `count` copies; 0 on failure. */
static uint64_t strided_time(const strided_bench *b, const strided_run *run, strided_copy *copy, size_t count)
{
    const uint64_t start_ns = loch_host_now_ns();
    for (size_t i = 0; i < count; i++)
        if (!copy(b, run)) return 0;
    const uint64_t ns = loch_host_now_ns() - start_ns;
    return ns ? ns : 1;
}

static int strided_compare(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static bool strided_measure(const strided_bench *b, const strided_run *run, double *loch_rate, double *plain_rate)
{
    const size_t repetitions = b->is_quick ? 1 : STRIDED_REPETITIONS, middle = repetitions / 2;
    const bool is_repeated = !b->is_quick && run->bytes < STRIDED_REPETITION_BYTES;
    const size_t count = is_repeated ? STRIDED_REPETITION_BYTES / run->bytes : 1;
    uint64_t loch_ns[STRIDED_REPETITIONS], plain_ns[STRIDED_REPETITIONS];
    if (!strided_time(b, run, strided_copy_loch, 1) || !strided_time(b, run, strided_copy_plain, 1))
        return false; /* the first run of each side warms up */
    for (size_t i = 0; i < repetitions; i++) {
        loch_ns[i] = strided_time(b, run, strided_copy_loch, count);
        plain_ns[i] = strided_time(b, run, strided_copy_plain, count);
        if (!loch_ns[i] || !plain_ns[i]) return false;
    }
    qsort(loch_ns, repetitions, sizeof *loch_ns, strided_compare);
    qsort(plain_ns, repetitions, sizeof *plain_ns, strided_compare);
    const double total = (double)run->bytes * (double)count * 1e9;
    *loch_rate = total / (double)loch_ns[middle];
    *plain_rate = total / (double)plain_ns[middle];
    return true;
}

/* --- printing --- */

static void strided_print(strided_bench *b, const strided_work *work, size_t bytes, double loch_rate, double plain_rate)
{
    const size_t row = (size_t)work->shape[1] * loch_dtype_bytes(work->to_type);
    tool_steps_hide();
    if (b->is_json)
        printf("%s\n  {\"work\": \"%s\", \"layout\": \"%s\", \"bytes\": %zu, \"row_bytes\": %zu, "
               "\"loch_bytes_per_s\": %.0f, \"plain_bytes_per_s\": %.0f, \"ratio\": %.4f}",
               b->has_printed ? "," : "", work->name, work->layout, bytes, row, loch_rate, plain_rate,
               loch_rate / plain_rate);
    else
        printf("%-18s %-18s %12zu %8zu %10.2f %10.2f %8.3f\n", work->name, work->layout, bytes, row, loch_rate / 1e9,
               plain_rate / 1e9, loch_rate / plain_rate);
    b->has_printed = true;
    fflush(stdout);
    tool_steps_next();
}

static void strided_print_start(const strided_bench *b)
{
    const char *plain = b->is_host ? "memcpy" : "loch_copy";
    if (b->is_json) {
        printf("{\"benchmark\": \"strided\", \"device\": \"%s\", \"against\": \"%s\", \"repetitions\": %d, "
               "\"results\": [",
               loch_device_get_name(b->device), plain, b->is_quick ? 1 : STRIDED_REPETITIONS);
        return;
    }
    printf("%s (%s), medians of %d, tensor copies beside %s of as many bytes\n\n", loch_device_get_name(b->device),
           b->properties.model, b->is_quick ? 1 : STRIDED_REPETITIONS, plain);
    printf("%-18s %-18s %12s %8s %10s %10s %8s\n", "work", "layout", "bytes", "row", "loch GB/s", "plain GB/s",
           "ratio");
}

/* --- the list --- */

static bool strided_one(strided_bench *b, const strided_work *work)
{
    strided_run run;
    double loch_rate, plain_rate;
    const bool is_good = strided_open_run(b, work, &run) && strided_measure(b, &run, &loch_rate, &plain_rate);
    if (is_good) strided_print(b, work, run.bytes, loch_rate, plain_rate);
    strided_close_run(&run);
    return is_good;
}

/* Copies rows of bytes with a pad on the source, on the target, and on both. */
static bool strided_rows(strided_bench *b, const char *name, strided_place to, strided_place from, size_t total,
                         size_t row, size_t pad)
{
    static const char *const sides[] = {"source", "target", "both"};
    for (int side = 0; side < 3; side++) {
        char layout[32];
        snprintf(layout, sizeof layout, "%s + %zu", sides[side], pad);
        const int64_t length = (int64_t)row, wide = (int64_t)(row + pad);
        const strided_work work = {.name = name,
                                   .layout = layout,
                                   .to = to,
                                   .from = from,
                                   .to_type = LOCH_U8,
                                   .from_type = LOCH_U8,
                                   .shape = {(int64_t)(total / row), length},
                                   .to_strides = {side != 0 ? wide : length, 1},
                                   .from_strides = {side != 1 ? wide : length, 1}};
        if (!strided_one(b, &work)) return false;
    }
    return true;
}

static bool strided_square(strided_bench *b, const char *name, strided_place to, strided_place from, loch_dtype to_type,
                           loch_dtype from_type, int64_t side, bool is_turned)
{
    const strided_work work = {.name = name,
                               .layout = is_turned ? "transposed" : "side by side",
                               .to = to,
                               .from = from,
                               .to_type = to_type,
                               .from_type = from_type,
                               .shape = {side, side},
                               .to_strides = {side, 1},
                               .from_strides = {is_turned ? 1 : side, is_turned ? side : 1}};
    return strided_one(b, &work);
}

static bool strided_on_host(strided_bench *b)
{
    static const size_t rows[] = {64, 256, 1024, 4096, 65536};
    const size_t largest = b->is_quick ? (size_t)1 << 20 : (size_t)256 << 20;
    for (size_t pad = 16; pad <= 64; pad += 48)
        for (size_t total = (size_t)1 << 20; total <= largest; total <<= 4)
            for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
                if (!strided_rows(b, "rows", STRIDED_FIRST, STRIDED_SECOND, total, rows[i], pad)) return false;
    const int64_t side = b->is_quick ? 256 : 4096;
    bool is_good = true;
    is_good = is_good && strided_square(b, "u8", STRIDED_FIRST, STRIDED_SECOND, LOCH_U8, LOCH_U8, side, true);
    is_good = is_good && strided_square(b, "f16", STRIDED_FIRST, STRIDED_SECOND, LOCH_F16, LOCH_F16, side, true);
    is_good = is_good && strided_square(b, "f32", STRIDED_FIRST, STRIDED_SECOND, LOCH_F32, LOCH_F32, side, true);
    is_good = is_good && strided_square(b, "f64", STRIDED_FIRST, STRIDED_SECOND, LOCH_F64, LOCH_F64, side, true);
    is_good =
        is_good && strided_square(b, "f32 to bf16", STRIDED_FIRST, STRIDED_SECOND, LOCH_BF16, LOCH_F32, side, false);
    is_good =
        is_good && strided_square(b, "f16 to f32", STRIDED_FIRST, STRIDED_SECOND, LOCH_F32, LOCH_F16, side, false);
    is_good =
        is_good && strided_square(b, "f32 to bf16", STRIDED_FIRST, STRIDED_SECOND, LOCH_BF16, LOCH_F32, side, true);
    return is_good;
}

static bool strided_on_device(strided_bench *b)
{
    static const size_t rows[] = {4, 64, 256, 4096, 65536};
    const size_t total = b->is_quick ? (size_t)1 << 16 : STRIDED_DEVICE_BYTES;
    bool is_good = true;
    for (size_t i = 0; is_good && i < sizeof rows / sizeof *rows; i++) {
        /* the number of rows decides the time, not the number of bytes */
        const size_t bytes = rows[i] < 64 ? total / 16 : total;
        is_good = strided_rows(b, "inside", STRIDED_FIRST, STRIDED_SECOND, bytes, rows[i], 64) &&
                  strided_rows(b, "host to device", STRIDED_FIRST, STRIDED_HOST, bytes, rows[i], 64) &&
                  strided_rows(b, "device to host", STRIDED_HOST, STRIDED_FIRST, bytes, rows[i], 64);
    }
    const int64_t side = b->is_quick ? 64 : 4096;
    is_good = is_good && strided_square(b, "f32 inside", STRIDED_FIRST, STRIDED_SECOND, LOCH_F32, LOCH_F32, side, true);
    is_good =
        is_good && strided_square(b, "f32 to device", STRIDED_FIRST, STRIDED_HOST, LOCH_F32, LOCH_F32, side, true);
    is_good = is_good && strided_square(b, "f32 to host", STRIDED_HOST, STRIDED_FIRST, LOCH_F32, LOCH_F32, side, true);
    is_good =
        is_good && strided_square(b, "f32 to bf16", STRIDED_FIRST, STRIDED_SECOND, LOCH_BF16, LOCH_F32, side, false);
    is_good =
        is_good && strided_square(b, "bf16 to host f32", STRIDED_HOST, STRIDED_FIRST, LOCH_F32, LOCH_BF16, side, false);
    return is_good;
}

/* --- opening and closing --- */

/* Allocates the memory and touches all of it, so that no page fault happens while the clock runs. */
static loch_status strided_take(strided_bench *b)
{
    const unsigned char byte = 1;
    for (int place = STRIDED_FIRST; place <= STRIDED_SECOND; place++) {
        loch_status status = loch_raw_alloc(b->device, LOCH_MEMORY_DEVICE, b->bytes, 0, &b->memory[place]);
        if (status == LOCH_OK) status = loch_fill(b->memory[place], b->bytes, &byte, 1);
        if (status != LOCH_OK) return status;
    }
    if (b->is_host) return LOCH_OK;
    if (loch_device_can(b->device, LOCH_CAN_PINNED))
        return loch_raw_alloc(b->device, LOCH_MEMORY_PINNED, b->bytes, 0, &b->memory[STRIDED_HOST]);
    b->is_plain = true;
    b->memory[STRIDED_HOST] = calloc(1, b->bytes);
    if (b->memory[STRIDED_HOST]) return LOCH_OK;
    return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "the host has no %zu bytes for the benchmark", b->bytes);
}

static void strided_close(strided_bench *b)
{
    if (b->is_plain) {
        free(b->memory[STRIDED_HOST]);
        b->memory[STRIDED_HOST] = NULL;
    }
    for (int place = 0; place < 3; place++)
        if (loch_raw_free(b->memory[place]) != LOCH_OK) tool_fail("%s", loch_error_get()->sentence);
    if (b->device && loch_registry_clear(NULL, NULL, NULL) != LOCH_OK) tool_fail("%s", loch_error_get()->sentence);
    loch_device_release(b->device);
}

/* Room for the largest rows with their pads: a little more than twice the bytes if rows are as short as the pad. */
static size_t strided_room(const strided_bench *b)
{
    if (b->is_host) return b->is_quick ? (size_t)3 << 20 : (size_t)520 << 20;
    return b->is_quick ? (size_t)3 << 20 : (size_t)140 << 20;
}

int core_strided(const tool_bench_options *options)
{
    strided_bench b = {.is_json = options->is_json, .is_quick = options->is_quick};
    b.properties.size = sizeof b.properties;
    int code = 0;
    if (loch_device_open(options->device, &b.device) != LOCH_OK ||
        loch_device_get_properties(b.device, &b.properties) != LOCH_OK) {
        code = tool_fail("%s", loch_error_get()->sentence);
        strided_close(&b);
        return code;
    }
    b.is_host = loch_device_can(b.device, LOCH_CAN_HOST_ACCESS);
    b.bytes = strided_room(&b);
    if (strided_take(&b) != LOCH_OK) {
        code = tool_fail("%s", loch_error_get()->sentence);
    } else {
        strided_print_start(&b);
        tool_steps_begin("strided", 0);
        const bool is_good = b.is_host ? strided_on_host(&b) : strided_on_device(&b);
        tool_steps_end();
        if (!is_good)
            code = tool_fail("%s", loch_error_get()->sentence);
        else if (b.is_json)
            printf("]}\n");
    }
    strided_close(&b);
    return code;
}
