/* SPDX-License-Identifier: MIT */
/* Fuzz target: allocation traces, as text. */
#include "trace_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const fuzz_input input = {data, bytes};
    if (bytes >= 2 && (!memcmp(data, "\x1f\x8b", 2) || *data == 0x28)) return 0; /* those are fuzz_trace_packed's */
    trace_try(&input);
    return 0;
}
