/* SPDX-License-Identifier: MIT */
/* A cubin is a 64-bit ELF file for the machine 190. Its headers say where its parts lie; every part has to lie inside
 * the image. PTX is text that has the directive .version before any other, behind comments and spaces. */
#include "image.h"
#include "kit/fail.h"
#include <ctype.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define MACHINE_CUDA 190

static loch_status image_refuse(const char *why)
{
    return LOCH_FAIL(INVALID, "the image of a module %s", why);
}

/* --- cubins --- */

/* Tells whether `count` items of `each` bytes from `offset` on lie inside the image. */
static int image_has(size_t bytes, uint64_t offset, uint64_t count, uint64_t each)
{
    return offset <= bytes && (!each || count <= (bytes - offset) / each);
}

static int cubin_sections_fit(const unsigned char *image, size_t bytes, const Elf64_Ehdr *head)
{
    for (unsigned i = 0; i < head->e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, image + head->e_shoff + (size_t)i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS && !image_has(bytes, section.sh_offset, section.sh_size, 1)) return 0;
    }
    for (unsigned i = 0; i < head->e_phnum; i++) {
        Elf64_Phdr segment;
        memcpy(&segment, image + head->e_phoff + (size_t)i * sizeof segment, sizeof segment);
        if (!image_has(bytes, segment.p_offset, segment.p_filesz, 1)) return 0;
    }
    return 1;
}

static loch_status cubin_check(const unsigned char *image, size_t bytes)
{
    Elf64_Ehdr head;
    if (bytes < sizeof head) return image_refuse("is a cubin that is cut off");
    memcpy(&head, image, sizeof head);
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_machine != MACHINE_CUDA)
        return image_refuse("is an ELF file, but not a cubin");
    if ((head.e_shnum && head.e_shentsize != sizeof(Elf64_Shdr)) ||
        (head.e_phnum && head.e_phentsize != sizeof(Elf64_Phdr)))
        return image_refuse("is a cubin with damaged headers");
    if (!image_has(bytes, head.e_shoff, head.e_shnum, sizeof(Elf64_Shdr)) ||
        !image_has(bytes, head.e_phoff, head.e_phnum, sizeof(Elf64_Phdr)) || !cubin_sections_fit(image, bytes, &head))
        return image_refuse("is a cubin that is cut off");
    return LOCH_OK;
}

/* --- PTX --- */

/* Returns the offset behind spaces and comments. */
static size_t ptx_skip(const char *text, size_t bytes, size_t at)
{
    while (at < bytes) {
        if (isspace((unsigned char)text[at])) {
            at++;
        } else if (at + 1 < bytes && text[at] == '/' && text[at + 1] == '/') {
            while (at < bytes && text[at] != '\n')
                at++;
        } else if (at + 1 < bytes && text[at] == '/' && text[at + 1] == '*') {
            for (at += 2; at < bytes && (text[at - 1] != '*' || text[at] != '/'); at++) {}
            at += at < bytes;
        } else {
            break;
        }
    }
    return at;
}

static int ptx_is(const char *text, size_t bytes)
{
    static const char first[] = ".version";
    const size_t at = ptx_skip(text, bytes, 0), length = sizeof first - 1;
    return bytes - at >= length && !memcmp(text + at, first, length);
}

/* --- both --- */

loch_status lochi_kernel_image_check(const void *image, size_t bytes, lochi_image_kind *out)
{
    static const unsigned char fat[] = {0x50, 0xed, 0x55, 0xba};
    *out = LOCHI_IMAGE_PTX;
    if (!image || !bytes) return image_refuse("is empty");
    if (bytes >= SELFMAG && !memcmp(image, ELFMAG, SELFMAG)) {
        *out = LOCHI_IMAGE_CUBIN;
        return cubin_check(image, bytes);
    }
    if (bytes >= sizeof fat && !memcmp(image, fat, sizeof fat))
        return image_refuse("is a fat binary: take the PTX or the cubin out of it");
    if (!ptx_is(image, bytes)) return image_refuse("is neither PTX nor a cubin");
    const char *end = memchr(image, 0, bytes);
    if (end && end != (const char *)image + bytes - 1) return image_refuse("is PTX with a zero byte inside");
    return LOCH_OK;
}

unsigned lochi_kernel_image_architecture(const void *image, size_t bytes, lochi_image_kind kind)
{
    if (kind == LOCHI_IMAGE_CUBIN) {
        Elf64_Ehdr head;
        memcpy(&head, image, sizeof head);
        return head.e_ident[EI_ABIVERSION] >= 8 ? head.e_flags >> 8 & 0xff : head.e_flags & 0xff;
    }
    static const char word[] = ".target";
    const char *found = memmem(image, bytes, word, sizeof word - 1), *end = (const char *)image + bytes;
    if (!found) return 0;
    unsigned architecture = 0;
    while (found < end && *found != '\n' && !isdigit((unsigned char)*found))
        found++;
    for (; found < end && isdigit((unsigned char)*found) && architecture < 1000; found++)
        architecture = architecture * 10 + (unsigned)(*found - '0');
    return architecture;
}
