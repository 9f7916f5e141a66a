/* SPDX-License-Identifier: MIT */
/* Times of .safetensors files: opened, read in place, loaded into new memory, copied into memory that exists. Then the
 * copy of all tensors in one call beside its two halves: reading the file into host memory, and copying pinned memory
 * to the device. The last line is the time of the slower half over the time of the whole: 1.00 if they overlap fully.
 *
 *   build/bench/safetensors FILE [DEVICE [ROUNDS]]     a file of tensors (default: cpu, 5 rounds)
 *   build/bench/safetensors --make FILE MIB            writes one: tensors of 16 MiB
 *
 * Prints the best and the median time of the rounds and the median of the processors' time, in milliseconds.
 * bench/safetensors/run compares with the format's own library. */
#include <loch/loch.h>
#include <loch/safetensors.h>
#include <loch/tensor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS_MAX 100
#define TENSORS_MAX 4096

typedef struct bench {
    const char *path;
    loch_device *device;
    loch_stream *stream;
    loch_safetensors *file;
    const char *names[TENSORS_MAX];
    loch_tensor *tensors[TENSORS_MAX];
    loch_tensor *on_host[TENSORS_MAX]; /* targets of reading alone */
    loch_buffer *pinned;               /* source of copying alone, as large as the largest tensor */
    size_t count;
    size_t bytes;
} bench;

static loch_status take_name(const loch_safetensors_info *info, void *user)
{
    bench *b = user;
    if (b->count < TENSORS_MAX && info->dtype) {
        b->names[b->count++] = info->name;
        b->bytes += (size_t)info->bytes;
    }
    return LOCH_OK;
}

static void release_tensors(bench *b)
{
    for (size_t i = 0; i < b->count; i++)
        loch_tensor_clear(&b->tensors[i]);
}

static void open_file(bench *b)
{
    loch_safetensors_close(b->file);
    LOCH_CHECK(loch_safetensors_open(b->path, NULL, &b->file));
    b->count = b->bytes = 0;
    LOCH_CHECK(loch_safetensors_walk(b->file, take_name, b));
}

static volatile uint64_t sum;

/* Reads every byte where it is. */
static void read_in_place(bench *b)
{
    for (size_t i = 0; i < b->count; i++) {
        uint64_t part = 0;
        void *at;
        LOCH_CHECK(loch_safetensors_acquire_tensor(b->file, b->names[i], &b->tensors[i]));
        LOCH_CHECK(loch_tensor_get_address(b->tensors[i], &at));
        const size_t words = loch_tensor_get_bytes(b->tensors[i]) / sizeof part;
        for (size_t j = 0; j < words; j++) {
            uint64_t word;
            memcpy(&word, (const char *)at + j * sizeof word, sizeof word);
            part += word;
        }
        sum += part;
    }
    release_tensors(b);
}

static void load_new(bench *b)
{
    const loch_tensor_options memory = {.size = sizeof memory, .device = b->device};
    const loch_safetensors_load_options options = {.size = sizeof options, .memory = &memory};
    for (size_t i = 0; i < b->count; i++)
        LOCH_CHECK(loch_safetensors_load(b->file, b->names[i], &options, &b->tensors[i]));
}

static void copy_again(bench *b)
{
    for (size_t i = 0; i < b->count; i++)
        LOCH_CHECK(loch_safetensors_copy(b->file, b->names[i], b->tensors[i], NULL));
}

/* Copies on a stream: from the mapping, if the device is not the host. */
static void copy_on_stream(bench *b)
{
    const loch_safetensors_load_options options = {.size = sizeof options, .stream = b->stream};
    for (size_t i = 0; i < b->count; i++)
        LOCH_CHECK(loch_safetensors_copy(b->file, b->names[i], b->tensors[i], &options));
    LOCH_CHECK(loch_stream_sync(b->stream));
}

static void copy_many(bench *b)
{
    LOCH_CHECK(loch_safetensors_copy_many(b->file, b->names, b->tensors, b->count, NULL));
}

static void read_alone(bench *b)
{
    LOCH_CHECK(loch_safetensors_copy_many(b->file, b->names, b->on_host, b->count, NULL));
}

static void copy_alone(bench *b)
{
    const loch_buffer_copy_options options = {.size = sizeof options, .stream = b->stream, .fit = LOCH_FIT_CLIP};
    for (size_t i = 0; i < b->count; i++)
        LOCH_CHECK(loch_buffer_copy(loch_tensor_get_buffer(b->tensors[i]), b->pinned, &options));
    LOCH_CHECK(loch_stream_sync(b->stream));
}

/* Creates what the halves of a copy need. */
static void make_halves(bench *b)
{
    const loch_attributes pinned = {.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    loch_allocator *allocator;
    size_t largest = 0;
    for (size_t i = 0; i < b->count; i++) {
        const loch_tensor *like = b->tensors[i];
        LOCH_CHECK(loch_tensor_create(loch_tensor_get_dtype(like), loch_tensor_get_dimensions(like),
                                      loch_tensor_get_shape(like), NULL, &b->on_host[i]));
        if (loch_tensor_get_bytes(like) > largest) largest = loch_tensor_get_bytes(like);
    }
    LOCH_CHECK(loch_device_acquire_allocator(b->device, pinned, LOCH_FALLBACK_PAGEABLE, &allocator));
    LOCH_CHECK(loch_buffer_create(allocator, largest, NULL, &b->pinned));
    loch_allocator_release(allocator);
    read_alone(b); /* the pages of host memory exist from now on */
    copy_alone(b);
}

static void release_halves(bench *b)
{
    for (size_t i = 0; i < b->count; i++)
        loch_tensor_clear(&b->on_host[i]);
    loch_buffer_clear(&b->pinned);
}

static int compare(const void *a, const void *b)
{
    const double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* Times a function and returns its best time. `fresh`: the file is opened again before each round, so that its pages
 * are not mapped yet, and the tensors of the round before are given back to the system. */
static double measure(bench *b, const char *name, void (*function)(bench *), bool fresh, int rounds)
{
    double times[ROUNDS_MAX] = {0}, processor[ROUNDS_MAX] = {0};
    for (int i = 0; i < rounds; i++) {
        if (fresh) {
            release_tensors(b);
            LOCH_CHECK(loch_registry_clear(NULL, NULL, NULL));
            open_file(b);
        }
        const clock_t used = clock();
        const uint64_t start = loch_host_now_ns();
        function(b);
        times[i] = (double)(loch_host_now_ns() - start) / 1e6;
        processor[i] = (double)(clock() - used) * 1e3 / CLOCKS_PER_SEC;
    }
    qsort(times, (size_t)rounds, sizeof *times, compare);
    qsort(processor, (size_t)rounds, sizeof *processor, compare);
    printf("%-28s %10.3f %10.3f %10.3f\n", name, times[0], times[rounds / 2], processor[rounds / 2]);
    return times[0];
}

static int make_file(const char *path, size_t mib)
{
    static char names[TENSORS_MAX][32];
    const char *pointers[TENSORS_MAX];
    loch_tensor *tensors[TENSORS_MAX];
    const size_t count = mib / 16 ? mib / 16 : 1;
    if (count > TENSORS_MAX) return 1;
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "layers.%zu.weight", i);
        pointers[i] = names[i];
        LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(2048, 2048), NULL, &tensors[i]));
        LOCH_CHECK(loch_tensor_fill(tensors[i], loch_scalar_of((double)i), NULL));
    }
    LOCH_CHECK(loch_safetensors_save(path, pointers, tensors, count, NULL));
    for (size_t i = 0; i < count; i++)
        loch_tensor_release(tensors[i]);
    return 0;
}

int main(int count, char **arguments)
{
    static bench b;
    if (count == 4 && strcmp(arguments[1], "--make") == 0)
        return make_file(arguments[2], strtoul(arguments[3], NULL, 10));
    if (count < 2) {
        fprintf(stderr, "usage: safetensors FILE [DEVICE [ROUNDS]] | --make FILE MIB\n");
        return 2;
    }
    b.path = arguments[1];
    const long asked = count > 3 ? strtol(arguments[3], NULL, 10) : 5;
    const int rounds = asked < 1 ? 1 : asked > ROUNDS_MAX ? ROUNDS_MAX : (int)asked;
    LOCH_CHECK(loch_device_open(count > 2 ? arguments[2] : "cpu", &b.device));
    LOCH_CHECK(loch_stream_create(b.device, NULL, &b.stream));
    open_file(&b);
    printf("%zu tensors, %zu MiB\n%-28s %10s %10s %10s\n", b.count, b.bytes >> 20, "", "best ms", "median ms",
           "CPU ms");
    (void)measure(&b, "open", open_file, false, rounds);
    (void)measure(&b, "read in place", read_in_place, true, rounds);
    (void)measure(&b, "load into new memory", load_new, true, rounds);
    (void)measure(&b, "copy into that memory again", copy_again, false, rounds);
    (void)measure(&b, "copy on a stream", copy_on_stream, false, rounds);
    make_halves(&b);
    const double read_ms = measure(&b, "read alone, to host memory", read_alone, false, rounds);
    const double copy_ms = measure(&b, "copy alone, pinned memory", copy_alone, false, rounds);
    const double load_ms = measure(&b, "copy all in one call", copy_many, false, rounds);
    printf("%-28s %10.2f\n", "slower half over all", (read_ms > copy_ms ? read_ms : copy_ms) / load_ms);
    release_halves(&b);
    release_tensors(&b);
    loch_safetensors_close(b.file);
    loch_stream_close(b.stream);
    loch_device_release(b.device);
    return 0;
}
