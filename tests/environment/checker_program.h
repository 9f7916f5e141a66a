/* SPDX-License-Identifier: MIT */
/* Correct and wrong uses of a pool on the CPU, chosen by name. The program runs under tools that find wrong uses. */
#ifndef LOCH_TEST_CHECKER_PROGRAM_H
#define LOCH_TEST_CHECKER_PROGRAM_H

#include <loch/loch.h>
#include <loch/driver.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile unsigned char checker_sink; /* keeps the result of a read */

static void checker_ok(loch_status status)
{
    if (status == LOCH_OK) return;
    fprintf(stderr, "%s\n", loch_error_get()->sentence);
    _exit(1);
}

static unsigned char *checker_take(loch_allocator *pool, size_t bytes)
{
    void *block;
    checker_ok(loch_alloc(pool, bytes, &block));
    return block;
}

/* Everything that a program may do. */
static void checker_use_properly(loch_allocator *pool)
{
    static const size_t sizes[] = {1, 100, 8000, 9000, 300000, (size_t)1 << 20, (size_t)5 << 20};
    unsigned char *blocks[7];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 7; i++) {
            blocks[i] = checker_take(pool, sizes[i]);
            memset(blocks[i], (int)i, sizes[i]);
        }
        void *moved;
        checker_ok(loch_allocator_realloc(pool, blocks[4], 400000, NULL, &moved)); /* may move */
        checker_ok(loch_allocator_realloc(pool, moved, 310000, NULL, &moved));     /* in place */
        blocks[4] = moved;
        const loch_child_options options = {.size = sizeof options, .kind = LOCH_CHILD_RANGE, .limit_bytes = 1000000};
        loch_allocator *child;
        checker_ok(loch_pool_create_child(pool, "child", &options, &child));
        unsigned char *inside = checker_take(child, 50000);
        memset(inside, 1, 50000);
        checker_ok(loch_free(child, inside));
        loch_allocator_release(child);
        for (size_t i = 0; i < 7; i++) {
            if (blocks[i][0] != i || blocks[i][sizes[i] - 1] != i) _exit(1);
            checker_ok(loch_free(pool, blocks[i]));
        }
        size_t released;
        if (round == 1) checker_ok(loch_allocator_trim(pool, 0, &released));
    }
}

static void checker_use_after_free(loch_allocator *pool, size_t bytes)
{
    /* One before, so that the second comes from what the thread keeps. */
    unsigned char *first = checker_take(pool, bytes);
    memset(first, 1, bytes);
    checker_ok(loch_free(pool, first));
    unsigned char *block = checker_take(pool, bytes);
    memset(block, 1, bytes);
    checker_ok(loch_free(pool, block));
    checker_sink = block[bytes / 2];
}

/* Returns the exit code; a tool that finds something ends the program, or changes it. */
static int checker_run(const char *name)
{
    loch_device *device;
    loch_allocator *pool;
    checker_ok(loch_device_open("cpu", &device));
    checker_ok(loch_pool_create(device, "pool", NULL, &pool));
    if (!strcmp(name, "properly")) checker_use_properly(pool);
    if (!strcmp(name, "small")) checker_use_after_free(pool, 100);
    if (!strcmp(name, "kept")) checker_use_after_free(pool, 20000);
    if (!strcmp(name, "large")) checker_use_after_free(pool, (size_t)5 << 20);
    if (!strcmp(name, "beyond")) {
        unsigned char *block = checker_take(pool, 10000);
        block[10000] = 1;
        checker_ok(loch_free(pool, block));
    }
    if (!strcmp(name, "uninitialised")) {
        unsigned char *block = checker_take(pool, 10000);
        memset(block, 1, 10000);
        checker_ok(loch_free(pool, block));
        block = checker_take(pool, 10000);
        if (block[77] == 3) puts("three");
        checker_ok(loch_free(pool, block));
    }
    if (!strcmp(name, "leak")) checker_sink = (unsigned char)(uintptr_t)memset(checker_take(pool, 777), 1, 777);
    loch_allocator_release(pool);
    loch_device_release(device);
    return 0;
}

#endif
