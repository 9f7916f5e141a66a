/* SPDX-License-Identifier: MIT */
/* Fuzz target: ELF files, as insight reads them for the names of functions. The first two bytes are an address to look
 * for, the rest is the file. A name that is found is in the file. */
#include "fuzz.h"

#include "elf_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_input input = {data, bytes};
    const uint64_t address = fuzz_number(&input, 2);
    insight_elf elf;
    if (!lochi_insight_elf_open(input.data, input.bytes, &elf)) return 0;
    FUZZ_EXPECT(!elf.build_id || elf.build_id_bytes <= input.bytes);
    for (size_t i = 0; i < elf.build_id_bytes; i++)
        FUZZ_EXPECT(elf.build_id + i < input.data + input.bytes);
    for (uint64_t step = 0; step < 3; step++) {
        size_t length;
        const char *name = lochi_insight_elf_find(&elf, address * (step * step + 1), &length);
        if (!name) continue;
        FUZZ_EXPECT((const uint8_t *)name >= input.data && length > 0);
        FUZZ_EXPECT((const uint8_t *)name + length <= input.data + input.bytes);
        FUZZ_EXPECT(!memchr(name, '\0', length));
    }
    lochi_insight_elf_close(&elf);
    return 0;
}
