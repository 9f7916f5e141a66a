/* SPDX-License-Identifier: MIT */
/* Fuzz target: compressed traces. The first byte says which compression the file claims to have; the rest is the file,
 * behind the bytes that such a file starts with. */
#include "trace_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static uint8_t file[65536];
    fuzz_input input = {data, bytes};
    const bool is_gzip = fuzz_byte(&input) % 2 == 0;
    const size_t start = is_gzip ? 2 : 4;
    if (input.bytes > sizeof file - start) return 0;
    memcpy(file, is_gzip ? "\x1f\x8b" : "\x28\xb5\x2f\xfd", start);
    if (input.bytes) memcpy(file + start, input.data, input.bytes);
    trace_try(&(fuzz_input){file, start + input.bytes});
    return 0;
}
