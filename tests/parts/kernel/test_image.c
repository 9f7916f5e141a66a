/* SPDX-License-Identifier: MIT */
/* Images of modules: PTX, cubins, and what is neither or not whole. */
#include "image.h"
#include "test.h"
#include <elf.h>

static const char ptx[] =
    "// a comment\n/* another ** one */\n  .version 7.0\n.target sm_75, debug\n.address_size 64\n";

/* A cubin of headers alone, with one section and one segment of eight bytes at its end. */
typedef struct small_cubin {
    Elf64_Ehdr head;
    Elf64_Shdr section;
    Elf64_Phdr segment;
    char contents[8];
} small_cubin;

static small_cubin cubin(void)
{
    small_cubin made = {
        .head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 0x41, 8},
                 .e_machine = 190,
                 .e_flags = 0x6005a04,
                 .e_shoff = offsetof(small_cubin, section),
                 .e_shnum = 1,
                 .e_shentsize = sizeof(Elf64_Shdr),
                 .e_phoff = offsetof(small_cubin, segment),
                 .e_phnum = 1,
                 .e_phentsize = sizeof(Elf64_Phdr)},
        .section = {.sh_type = SHT_PROGBITS, .sh_offset = offsetof(small_cubin, contents), .sh_size = 8},
        .segment = {.p_offset = offsetof(small_cubin, contents), .p_filesz = 8}};
    return made;
}

static void ptx_is_known(void **state)
{
    (void)state;
    lochi_image_kind kind = LOCHI_IMAGE_CUBIN;
    CHECK_OK(lochi_kernel_image_check(ptx, sizeof ptx, &kind)); /* with its final zero */
    assert_int_equal(kind, LOCHI_IMAGE_PTX);
    CHECK_OK(lochi_kernel_image_check(ptx, sizeof ptx - 1, &kind));
    assert_int_equal(lochi_kernel_image_architecture(ptx, sizeof ptx - 1, kind), 75);
    assert_int_equal(lochi_kernel_image_architecture(".version 7.0\n", 13, kind), 0);
    assert_int_equal(lochi_kernel_image_architecture(".target", 7, kind), 0);
}

static void a_cubin_is_known(void **state)
{
    (void)state;
    lochi_image_kind kind = LOCHI_IMAGE_PTX;
    small_cubin image = cubin();
    CHECK_OK(lochi_kernel_image_check(&image, sizeof image, &kind));
    assert_int_equal(kind, LOCHI_IMAGE_CUBIN);
    assert_int_equal(lochi_kernel_image_architecture(&image, sizeof image, kind), 90);
    image.head.e_ident[EI_ABIVERSION] = 7;
    image.head.e_flags = 0x500550;
    assert_int_equal(lochi_kernel_image_architecture(&image, sizeof image, kind), 80);
}

/* Every shorter length is refused, and nothing is read behind it. */
static void a_cut_off_image_is_refused(void **state)
{
    (void)state;
    lochi_image_kind kind;
    const small_cubin image = cubin();
    for (size_t bytes = 0; bytes < sizeof image; bytes++) {
        char *cut = malloc(bytes ? bytes : 1);
        assert_non_null(cut);
        memcpy(cut, &image, bytes);
        CHECK_FAILS(lochi_kernel_image_check(cut, bytes, &kind), INVALID);
        free(cut);
    }
    for (size_t bytes = 0; bytes < 44; bytes++) { /* .version ends at byte 44 */
        char *cut = malloc(bytes ? bytes : 1);
        assert_non_null(cut);
        memcpy(cut, ptx, bytes);
        CHECK_FAILS(lochi_kernel_image_check(cut, bytes, &kind), INVALID);
        free(cut);
    }
}

static void damaged_headers_are_refused(void **state)
{
    (void)state;
    lochi_image_kind kind;
    small_cubin image = cubin();
#define REFUSED(member, value)                                                                                         \
    do {                                                                                                               \
        image = cubin();                                                                                               \
        image.member = value;                                                                                          \
        CHECK_FAILS(lochi_kernel_image_check(&image, sizeof image, &kind), INVALID);                                   \
    } while (0)
    REFUSED(head.e_machine, EM_X86_64);
    REFUSED(head.e_ident[EI_CLASS], ELFCLASS32);
    REFUSED(head.e_ident[EI_DATA], ELFDATA2MSB);
    REFUSED(head.e_shentsize, 63);
    REFUSED(head.e_phentsize, 0);
    REFUSED(head.e_shnum, 60000);
    REFUSED(head.e_shoff, UINT64_MAX);
    REFUSED(head.e_shoff, sizeof image);
    REFUSED(head.e_phoff, UINT64_MAX - 8);
    REFUSED(section.sh_offset, UINT64_MAX);
    REFUSED(section.sh_size, UINT64_MAX);
    REFUSED(section.sh_size, 9);
    REFUSED(segment.p_filesz, 9);
    REFUSED(segment.p_offset, sizeof image);
    image = cubin();
    image.section.sh_type = SHT_NOBITS; /* takes no room in the file */
    image.section.sh_size = UINT64_MAX;
    CHECK_OK(lochi_kernel_image_check(&image, sizeof image, &kind));
}

static void what_is_neither_is_refused(void **state)
{
    (void)state;
    lochi_image_kind kind;
    CHECK_FAILS(lochi_kernel_image_check(NULL, 10, &kind), INVALID);
    CHECK_FAILS(lochi_kernel_image_check(ptx, 0, &kind), INVALID);
    CHECK_FAILS(lochi_kernel_image_check("extern \"C\" void f();", 20, &kind), INVALID);
    CHECK_FAILS(lochi_kernel_image_check("/* without an end", 17, &kind), INVALID);
    CHECK_FAILS(lochi_kernel_image_check("/", 1, &kind), INVALID);
    CHECK_FAILS(lochi_kernel_image_check("\x50\xed\x55\xba fat", 8, &kind), INVALID);
    assert_non_null(strstr(loch_error_get()->sentence, "fat binary"));
    char holed[sizeof ptx];
    memcpy(holed, ptx, sizeof ptx);
    holed[sizeof ptx - 10] = 0;
    CHECK_FAILS(lochi_kernel_image_check(holed, sizeof holed, &kind), INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ptx_is_known),
        cmocka_unit_test(a_cubin_is_known),
        cmocka_unit_test(a_cut_off_image_is_refused),
        cmocka_unit_test(damaged_headers_are_refused),
        cmocka_unit_test(what_is_neither_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
