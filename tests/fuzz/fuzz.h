/* SPDX-License-Identifier: MIT */
/* Shared by the fuzz targets. A target is one file tests/fuzz/fuzz_<name>.c with LLVMFuzzerTestOneInput, which gets any
 * bytes and must return; an error ends the program by abort. `make fuzz` links targets with libFuzzer. All other builds
 * link them with replay.c, which runs the inputs in tests/fuzz/corpus/<name>. */
#ifndef LOCH_FUZZ_H
#define LOCH_FUZZ_H

#include "failing_heap.h"
#include "test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerInitialize(int *count, char ***arguments);

/* Bytes that are taken from the front; behind the last one there are zeroes. */
typedef struct fuzz_input {
    const uint8_t *data;
    size_t bytes;
} fuzz_input;

uint8_t fuzz_byte(fuzz_input *input);

/* The next `bytes` bytes as a number, the lowest first; at most 8. */
uint64_t fuzz_number(fuzz_input *input, size_t bytes);

/* A number below `limit`, which is not 0, of one byte, or of two where one would not do. */
size_t fuzz_below(fuzz_input *input, size_t limit);

/* Up to `capacity - 1` bytes of what is left as text; `text` is returned. Text ends at the first zero byte. */
char *fuzz_text(fuzz_input *input, char *text, size_t capacity);

/* A file in memory that holds what is left of the input, and nothing else. Its name is static, and is used again by
 * each call. */
const char *fuzz_file(const fuzz_input *input);

/* Notes the bookkeeping that is out now, and expects it to be all again. */
void fuzz_begin(void);
void fuzz_end(void);

/* Ends the program with a sentence. */
_Noreturn void fuzz_fail(const char *format, ...) LOCH_PRINTF(1, 2);

/* Fails unless a call that gave `status` kept its promise: a code of the set, a record with it, and a sentence. */
#define FUZZ_FAILED(status, set) test_check_fails((status), (set), "call", __FILE__, __LINE__)

#define FUZZ_EXPECT(condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) fuzz_fail("%s:%d: not so: %s", __FILE__, __LINE__, #condition);                              \
    } while (0)

#endif
