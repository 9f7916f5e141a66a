/* SPDX-License-Identifier: MIT */
/* Fuzz target: unwind tables, as the call stacks read them. The first four bytes are the distance of a return address
 * from the tables, the rest is .eh_frame_hdr with .eh_frame behind it. */
#include "fuzz.h"

#include "base/stack_cfi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_input input = {data, bytes};
    const int32_t distance = (int32_t)fuzz_number(&input, 4);
    const uintptr_t address = (uintptr_t)input.data + (uintptr_t)(intptr_t)distance;
    const lochi_stack_rule rule = lochi_stack_cfi_read(input.data, input.data, input.data + input.bytes, address);
    FUZZ_EXPECT(rule >> 28 == 1);
    return 0;
}
