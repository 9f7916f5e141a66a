/* SPDX-License-Identifier: MIT */
/* Fuzz target: mixes of `loch fleet`. A mix that is read has entries that a fleet can use; one that is refused says
 * why, in one line. The text is in memory of its own size, so that a read behind it is found. */
#include "fuzz.h"
#include "fleet_mix.h"

static void fuzz_check_entry(const fleet_mix *mix, const fleet_entry *entry)
{
    FUZZ_EXPECT(*entry->path && strlen(entry->path) < sizeof entry->path);
    FUZZ_EXPECT(*entry->name && strlen(entry->name) < sizeof entry->name);
    FUZZ_EXPECT(entry->weight > 0 && entry->weight <= 1e9);
    FUZZ_EXPECT(entry->compute <= 1000);
    FUZZ_EXPECT(entry->limit_bytes <= UINT64_C(1) << 62);
    for (const fleet_entry *other = mix->entries; other < entry; other++)
        FUZZ_EXPECT(strcmp(other->name, entry->name) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fleet_mix mix = {.count = 0};
    char *text = malloc(bytes ? bytes : 1);
    FUZZ_EXPECT(text != NULL);
    if (bytes) memcpy(text, data, bytes);
    const bool is_good = fleet_mix_parse(&mix, text, bytes, "folder/mix");
    FUZZ_EXPECT(mix.count <= FLEET_PROGRAMS_MAX);
    for (size_t i = 0; i < mix.count; i++)
        fuzz_check_entry(&mix, &mix.entries[i]);
    FUZZ_EXPECT(is_good || (*mix.error && !strchr(mix.error, '\n')));
    fleet_mix_free(&mix);
    free(text);
    return 0;
}
