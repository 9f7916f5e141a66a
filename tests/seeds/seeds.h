/* SPDX-License-Identifier: MIT */
/* Rows: what five texts about memory ask for, sentence by sentence, each as a test. The number of a row is the number
 * of the text and of the row; its words are those of the text, in English. A row that fails says which sentence it was.
 * Every row has the host and a simulated device with their default allocators, and leaves nothing behind. */
#ifndef LOCH_TEST_SEEDS_H
#define LOCH_TEST_SEEDS_H

#include "tensor_fixture.h"
#include <loch/engine.h>
#include <loch/tensor.h>
#include <pthread.h>
#include <unistd.h>

#define KIB TEST_KIB
#define MIB TEST_MIB

static loch_device *cpu, *gpu;
static loch_allocator *host, *memory; /* default allocators of both */
static loch_stream *stream;           /* of gpu */

typedef struct seed_row {
    const char *words;
    CMUnitTestFunction run;
} seed_row;

#define ROW(number, words)                                                                                             \
    static void row_##number(void **state);                                                                            \
    static const seed_row row_of_##number = {#number " " words, row_##number};                                         \
    static const seed_row *const row_at_##number __attribute__((section("seed_rows"), used)) = &row_of_##number;       \
    static void row_##number(void **state __attribute__((unused)))

extern const seed_row *const __start_seed_rows[], *const __stop_seed_rows[];

static int rows_setup(void **state)
{
    if (sim_setup(state)) return -1;
    cpu = sim_open("cpu");
    gpu = sim_open("sim:256MiB,granule=64KiB,backed");
    stream = sim_stream(gpu, LOCH_STREAM_INDEPENDENT);
    CHECK_OK(loch_device_acquire_default(cpu, &host));
    CHECK_OK(loch_device_acquire_default(gpu, &memory));
    return 0;
}

static int rows_teardown(void **state)
{
    loch_allocator_clear(&host);
    loch_allocator_clear(&memory);
    loch_stream_clear(&stream);
    loch_device_clear(&cpu);
    loch_device_clear(&gpu);
    return tensor_teardown(state);
}

int main(void)
{
    static struct CMUnitTest tests[200];
    size_t count = 0;
    /* cppcheck-suppress comparePointers ; both ends of the section that the linker makes */
    for (const seed_row *const *row = __start_seed_rows; row < __stop_seed_rows; row++)
        tests[count++] = (struct CMUnitTest){(*row)->words, (*row)->run, rows_setup, rows_teardown, NULL};
    return _cmocka_run_group_tests("rows", tests, count, NULL, NULL);
}

/* --- short ways --- */

__attribute__((unused)) static void *take(loch_allocator *from, size_t bytes)
{
    void *block;
    CHECK_OK(loch_alloc(from, bytes, &block));
    assert_non_null(block);
    return block;
}

__attribute__((unused)) static void *ask(loch_allocator *from, const loch_request *request)
{
    void *block;
    CHECK_OK(loch_allocator_alloc(from, request, &block));
    return block;
}

__attribute__((unused)) static void give(loch_allocator *to, void *block)
{
    CHECK_OK(loch_free(to, block));
}

__attribute__((unused)) static uint64_t live(loch_allocator *of)
{
    return loch_stats_of(of).blocks;
}

__attribute__((unused)) static loch_pool_info figures(loch_allocator *pool)
{
    loch_pool_info info = LOCH_SIZED(loch_pool_info);
    CHECK_OK(loch_pool_get_info(pool, &info));
    return info;
}

__attribute__((unused)) static loch_block find(loch_allocator *in, const void *block)
{
    loch_block found = LOCH_SIZED(loch_block);
    CHECK_OK(loch_allocator_find(in, block, &found));
    return found;
}

/* Bytes that the simulated device has handed out. */
__attribute__((unused)) static size_t held(void)
{
    return sim_stats(gpu).physical_bytes;
}

__attribute__((unused)) static loch_buffer *buffer_of(loch_allocator *from, size_t bytes, char byte)
{
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(from, bytes, NULL, &buffer));
    if (bytes) CHECK_OK(loch_buffer_fill(buffer, &byte, 1, NULL));
    return buffer;
}

__attribute__((unused)) static void expect_bytes(const void *address, size_t bytes, char byte)
{
    char *seen = malloc(bytes);
    CHECK_OK(loch_copy(seen, address, bytes));
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(seen[i], byte);
    free(seen);
}

#endif
