/* SPDX-License-Identifier: MIT */
/* Contents that tell where they lie in their block: every few KiB hold another word. What was moved by a wrong
 * distance, or in part, shows; with one word throughout it would not. */
#ifndef LOCH_TEST_STEPS_H
#define LOCH_TEST_STEPS_H

#include "test.h"

#define TEST_STEP_BYTES ((size_t)16 << 10)

static inline uint32_t test_step_word(uint32_t seed, size_t word)
{
    return seed * 4096 + (uint32_t)(word / (TEST_STEP_BYTES / sizeof(uint32_t)));
}

/* Queues the writing of `bytes` at a device's address. */
__attribute__((unused)) static void test_steps_write(loch_stream *stream, void *address, size_t bytes, uint32_t seed)
{
    for (size_t at = 0; at < bytes; at += TEST_STEP_BYTES) {
        const uint32_t word = test_step_word(seed, at / sizeof word);
        const size_t left = bytes - at;
        CHECK_OK(loch_fill_on((char *)address + at, left < TEST_STEP_BYTES ? left : TEST_STEP_BYTES, &word, sizeof word,
                              stream));
    }
}

/* Compares what was read; `what` for the message. */
__attribute__((unused)) static void test_steps_expect(const uint32_t *seen, size_t bytes, uint32_t seed,
                                                      const char *what)
{
    for (size_t i = 0; i < bytes / sizeof *seen; i++)
        if (seen[i] != test_step_word(seed, i))
            fail_msg("%s: word %zu of %zu is %x, not %x", what, i, bytes / sizeof *seen, seen[i],
                     test_step_word(seed, i));
}

#endif
