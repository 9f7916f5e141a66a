/* SPDX-License-Identifier: MIT */
/* Reads .symtab, or .dynsym if the file was stripped, and the notes for the build id. */
#include "elf_file.h"
#include <elf.h>
#include <stdlib.h>
#include <string.h>

/* A function: addresses from `start` to `end`. */
typedef struct elf_function {
    uint64_t start, end;
    uint64_t name; /* offset in the file */
    uint64_t name_end;
} elf_function;

/* Copies a struct out of the file, which need not be aligned. Returns false if it is not all there. */
static bool elf_read(const insight_elf *elf, uint64_t offset, void *to, size_t bytes)
{
    if (offset > elf->bytes || elf->bytes - offset < bytes) return false;
    memcpy(to, elf->data + offset, bytes);
    return true;
}

static bool elf_has(const insight_elf *elf, uint64_t offset, uint64_t bytes)
{
    return offset <= elf->bytes && elf->bytes - offset >= bytes;
}

/* Reads the header of section `index`. */
static bool elf_section(const insight_elf *elf, uint64_t index, Elf64_Shdr *out)
{
    Elf64_Ehdr header;
    if (!elf_read(elf, 0, &header, sizeof header) || header.e_shentsize != sizeof *out || index >= header.e_shnum)
        return false;
    return header.e_shoff <= elf->bytes && /* so the sum does not overflow */
           elf_read(elf, header.e_shoff + index * sizeof *out, out, sizeof *out);
}

/* --- the build id --- */

/* Looks for a build id among notes. */
static void elf_read_notes(insight_elf *elf, uint64_t offset, uint64_t bytes)
{
    if (!elf_has(elf, offset, bytes)) return;
    const uint64_t end = offset + bytes;
    Elf64_Nhdr note;
    while (!elf->build_id && end - offset >= sizeof note && elf_read(elf, offset, &note, sizeof note)) {
        const uint64_t name = offset + sizeof note;
        const uint64_t contents = name + (((uint64_t)note.n_namesz + 3) & ~(uint64_t)3);
        const uint64_t next = contents + (((uint64_t)note.n_descsz + 3) & ~(uint64_t)3);
        if (contents > end || note.n_descsz > end - contents) return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(elf->data + name, "GNU", 4)) {
            elf->build_id = elf->data + contents;
            elf->build_id_bytes = note.n_descsz;
        }
        if (next > end) return;
        offset = next;
    }
}

static void elf_find_build_id(insight_elf *elf, const Elf64_Ehdr *header)
{
    if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phoff > elf->bytes) return;
    for (uint64_t i = 0; i < header->e_phnum && !elf->build_id; i++) {
        Elf64_Phdr segment;
        if (!elf_read(elf, header->e_phoff + i * sizeof segment, &segment, sizeof segment)) return;
        if (segment.p_type == PT_NOTE) elf_read_notes(elf, segment.p_offset, segment.p_filesz);
    }
}

bool lochi_insight_elf_open(const uint8_t *data, size_t bytes, insight_elf *out)
{
    Elf64_Ehdr header;
    *out = (insight_elf){.data = data, .bytes = bytes};
    if (!elf_read(out, 0, &header, sizeof header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
        return false;
    elf_find_build_id(out, &header);
    return true;
}

void lochi_insight_elf_close(insight_elf *elf)
{
    lochi_array_free(&elf->functions);
}

/* --- functions --- */

static int elf_compare(const void *left, const void *right)
{
    const elf_function *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    if (a->end != b->end) return a->end > b->end ? -1 : 1; /* the longer one first; the last one is found */
    return a->name < b->name ? -1 : a->name > b->name;
}

/* Reads the functions of a table of symbols. */
static bool elf_read_symbols(insight_elf *elf, const Elf64_Shdr *table)
{
    Elf64_Shdr strings;
    if (table->sh_entsize != sizeof(Elf64_Sym) || !elf_has(elf, table->sh_offset, table->sh_size)) return false;
    if (!elf_section(elf, table->sh_link, &strings) || !elf_has(elf, strings.sh_offset, strings.sh_size)) return false;
    for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym symbol;
        if (!elf_read(elf, table->sh_offset + i * sizeof symbol, &symbol, sizeof symbol)) return false;
        const unsigned type = ELF64_ST_TYPE(symbol.st_info);
        if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF) continue;
        if (!symbol.st_name || symbol.st_name >= strings.sh_size || symbol.st_size > UINT64_MAX - symbol.st_value)
            continue;
        const elf_function function = {.start = symbol.st_value,
                                       .end = symbol.st_value + symbol.st_size,
                                       .name = strings.sh_offset + symbol.st_name,
                                       .name_end = strings.sh_offset + strings.sh_size};
        if (!lochi_array_append(&elf->functions, &function, 1, sizeof function)) return false;
    }
    return elf->functions.count > 0;
}

/* A symbol without a size reaches to the next one. */
static void elf_close_gaps(insight_elf *elf)
{
    elf_function *functions = elf->functions.data;
    for (size_t i = 0; i + 1 < elf->functions.count; i++)
        if (functions[i].end == functions[i].start) functions[i].end = functions[i + 1].start;
}

static void elf_read_functions(insight_elf *elf)
{
    elf->has_functions = true;
    bool is_read = false;
    static const uint32_t types[] = {SHT_SYMTAB, SHT_DYNSYM};
    for (size_t k = 0; k < sizeof types / sizeof *types && !is_read; k++) {
        Elf64_Shdr section;
        for (uint64_t i = 0; !is_read && elf_section(elf, i, &section); i++)
            if (section.sh_type == types[k]) is_read = elf_read_symbols(elf, &section);
    }
    if (!elf->functions.count) return;
    qsort(elf->functions.data, elf->functions.count, sizeof(elf_function), elf_compare);
    elf_close_gaps(elf);
}

const char *lochi_insight_elf_find(insight_elf *elf, uint64_t address, size_t *length)
{
    if (!elf->has_functions) elf_read_functions(elf);
    const elf_function *functions = elf->functions.data;
    size_t low = 0, high = elf->functions.count; /* the last function that starts at the address or before */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (functions[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    *length = 0;
    if (!low || address >= functions[low - 1].end) return NULL;
    const elf_function *found = &functions[low - 1];
    const char *name = (const char *)elf->data + found->name;
    *length = strnlen(name, found->name_end - found->name);
    return *length ? name : NULL;
}
