/* SPDX-License-Identifier: MIT */
/* Names of addresses, of a program that the test compiles: with debug information, without it, stripped, and another
 * one in its place. The program prints the addresses that its functions were called from. */
#include "elf_file.h"
#include "libdw.h"
#include "symbols.h"
#include "test.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BASE UINT64_C(0x7f0012340000) /* where the module is said to be */

static const char source[] = "#define _GNU_SOURCE\n"
                             "#include <link.h>\n"
                             "#include <stdint.h>\n"
                             "#include <stdio.h>\n"
                             "static int base(struct dl_phdr_info *i, size_t s, void *u) { *(uintptr_t *)u = "
                             "i->dlpi_addr; (void)s; return 1; }\n"
                             "__attribute__((noinline)) void tell(void) { uintptr_t b = 0; dl_iterate_phdr(base, &b);\n"
                             "  printf(\"%lx\\n\", (unsigned long)((uintptr_t)__builtin_return_address(0) - b)); }\n"
                             "__attribute__((noinline)) static void first_caller(void)\n"
                             "{\n"
                             "    tell(); /* line 10 */\n"
                             "    __asm__ volatile(\"\");\n"
                             "}\n"
                             "__attribute__((noinline)) void second_caller(void)\n"
                             "{\n"
                             "    tell(); /* line 15 */\n"
                             "    __asm__ volatile(\"\");\n"
                             "}\n"
                             "static inline __attribute__((always_inline)) void deep(void) { tell(); }\n"
                             "static inline __attribute__((always_inline)) void inlined(void) { deep(); }\n"
                             "__attribute__((noinline)) void third_caller(void)\n"
                             "{\n"
                             "    inlined(); /* line 22 */\n"
                             "    __asm__ volatile(\"\");\n"
                             "    inlined(); /* line 24 */\n"
                             "    __asm__ volatile(\"\");\n"
                             "}\n"
                             "int main(void) { first_caller(); second_caller(); third_caller(); return 0; }\n";

static char folder[] = "/tmp/loch-symbols-XXXXXX";
static bool has_compiler, has_libdw;

static int run(const char *format, ...) LOCH_PRINTF(1, 2);
static int run(const char *format, ...)
{
    char command[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    char path[128];
    snprintf(path, sizeof path, "%s/program.c", folder);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(source, file) >= 0);
    assert_int_equal(fclose(file), 0);
    has_compiler = run("cc --version >/dev/null 2>&1") == 0;
    if (!has_compiler) print_message("there is no compiler cc: programs are not compiled\n");
    void *library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    has_libdw = library != NULL;
    if (library)
        dlclose(library);
    else
        print_message("there is no libdw: lines are not looked for\n");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return run("rm -rf %s", folder);
}

/* Compiles the program as `name` and runs it. Returns the addresses in the file after the four calls. */
static void build(const char *name, const char *flags, uint64_t addresses[4])
{
    assert_int_equal(run("cd %s && cc -O1 -fno-optimize-sibling-calls %s -o %s program.c", folder, flags, name), 0);
    char command[256], line[64];
    snprintf(command, sizeof command, "%s/%s", folder, name);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    for (int i = 0; i < 4; i++) {
        assert_non_null(fgets(line, sizeof line, output));
        addresses[i] = strtoull(line, NULL, 16);
    }
    assert_int_equal(pclose(output), 0);
}

/* Describes an address of the file `name`, as if it were mapped at BASE. */
static const char *describe(const char *name, const char *build_id, size_t build_id_bytes, uint64_t address)
{
    static char text[INSIGHT_SYMBOL_MAX];
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    insight_symbols *symbols = lochi_insight_symbols_create();
    assert_non_null(symbols);
    const insight_module module = {.start = BASE,
                                   .end = BASE + 0x1000000,
                                   .offset = 0 - BASE,
                                   .build_id = (const uint8_t *)build_id,
                                   .build_id_bytes = build_id_bytes,
                                   .path = path,
                                   .path_length = strlen(path)};
    assert_true(lochi_insight_symbols_add_module(symbols, &module));
    for (int i = 0; i < 2; i++) { /* also when the file is open already */
        const size_t length = lochi_insight_symbols_describe(symbols, BASE + address, text, sizeof text);
        assert_int_equal(length, strlen(text));
    }
    lochi_insight_symbols_destroy(symbols);
    return text;
}

static void check_begins(const char *text, const char *start)
{
    if (strncmp(text, start, strlen(start)) != 0) fail_msg("\"%s\" does not begin with \"%s\"", text, start);
}

static void functions_and_lines_come_from_debug_information(void **state)
{
    (void)state;
    uint64_t calls[4];
    if (!has_compiler || !has_libdw) skip();
    static const char *const flags[] = {"-g", "-g -no-pie", "-g -gdwarf-4 -Wl,--build-id=none"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        build("debug", flags[i], calls);
        const char *text = describe("debug", NULL, 0, calls[0]);
        check_begins(text, "first_caller at ");
        assert_non_null(strstr(text, "program.c:10"));
        assert_non_null(strstr(describe("debug", NULL, 0, calls[1]), "program.c:15"));
        for (int k = 2; k < 4; k++) { /* the lines are those of the function that is named */
            text = describe("debug", NULL, 0, calls[k]);
            check_begins(text, "third_caller at ");
            assert_non_null(strstr(text, k == 2 ? "program.c:22" : "program.c:24"));
        }
    }
}

static void functions_come_from_the_symbols_of_a_file(void **state)
{
    (void)state;
    uint64_t calls[4];
    if (!has_compiler) skip();
    build("plain", "", calls);
    assert_string_equal(describe("plain", NULL, 0, calls[0]), "first_caller");
    assert_string_equal(describe("plain", NULL, 0, calls[1]), "second_caller");
    build("stripped", "-s -rdynamic", calls); /* dynamic symbols are left */
    assert_string_equal(describe("stripped", NULL, 0, calls[1]), "second_caller");
}

static void without_symbols_the_module_and_its_offset_are_named(void **state)
{
    (void)state;
    uint64_t calls[4];
    char expected[64];
    if (!has_compiler) skip();
    build("bare", "-s", calls);
    snprintf(expected, sizeof expected, "bare+0x%llx", (unsigned long long)calls[0] - 1);
    assert_string_equal(describe("bare", NULL, 0, calls[0]), expected);
    snprintf(expected, sizeof expected, "nothing+0x%x", 0x1233);
    assert_string_equal(describe("nothing", NULL, 0, 0x1234), expected);
    assert_string_equal(describe("program.c", NULL, 0, 0x1234), "program.c+0x1233"); /* not an ELF file */
    assert_string_equal(describe(".", NULL, 0, 0x1234), ".+0x1233");                 /* not a file */
    assert_string_equal(describe("bare", NULL, 0, 0x1000002), "0x7f0013340002");     /* not in the module */
}

static void another_build_of_the_file_is_not_used(void **state)
{
    (void)state;
    uint64_t calls[4];
    if (!has_compiler) skip();
    build("twin", "-g -Wl,--build-id=0x0102030405060708", calls);
    check_begins(describe("twin", "\1\2\3\4\5\6\7\10", 8, calls[1]), "second_caller");
    check_begins(describe("twin", "\1\2\3\4\5\6\7\11", 8, calls[1]), "twin+0x");
    check_begins(describe("twin", "\1\2\3\4\5\6\7", 7, calls[1]), "twin+0x");
    build("nameless", "-g -Wl,--build-id=none", calls);
    check_begins(describe("nameless", "\1", 1, calls[1]), "nameless+0x");
}

static void a_path_that_would_block_is_not_opened(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_string_equal(describe("pipe", NULL, 0, 0x1234), "pipe+0x1233");
}

static void the_last_module_at_an_address_counts(void **state)
{
    (void)state;
    insight_symbols *symbols = lochi_insight_symbols_create();
    char text[64];
    insight_module module = {.start = 0x1000, .end = 0x3000, .path = "/none/first.so", .path_length = 14};
    assert_true(lochi_insight_symbols_add_module(symbols, &module));
    module =
        (insight_module){.start = 0x2000, .end = 0x4000, .offset = 16, .path = "/none/other.so!", .path_length = 14};
    assert_true(lochi_insight_symbols_add_module(symbols, &module));
    lochi_insight_symbols_describe(symbols, 0x1801, text, sizeof text);
    assert_string_equal(text, "first.so+0x1800");
    lochi_insight_symbols_describe(symbols, 0x2801, text, sizeof text);
    assert_string_equal(text, "other.so+0x2810");
    lochi_insight_symbols_describe(symbols, 0, text, sizeof text);
    assert_string_equal(text, "0x0");
    assert_int_equal(lochi_insight_symbols_describe(symbols, 0x2801, text, 6), 5);
    assert_string_equal(text, "other");
    assert_int_equal(lochi_insight_symbols_describe(symbols, 0x2801, NULL, 0), 0);
    lochi_insight_symbols_destroy(symbols);
    lochi_insight_symbols_destroy(NULL);
}

static void names_of_cpp_functions_are_as_in_the_source(void **state)
{
    (void)state;
    char text[128];
    if (!lochi_insight_debug_demangle("_ZN5space5outerEi", text, sizeof text)) {
        print_message("there is no libstdc++\n");
        skip();
    }
    assert_string_equal(text, "space::outer(int)");
    assert_false(lochi_insight_debug_demangle("main", text, sizeof text));
    assert_false(lochi_insight_debug_demangle("_Z!", text, sizeof text));
    char *endless = malloc(10001);
    memset(endless, 'P', 10000);
    memcpy(endless, "_Z1f", 4);
    endless[10000] = '\0';
    assert_false(lochi_insight_debug_demangle(endless, text, sizeof text));
    free(endless);
}

/* Cuts and damages a real file everywhere; a sanitizer sees a read beyond its end. */
static void damaged_files_do_no_harm(void **state)
{
    (void)state;
    uint64_t calls[4];
    if (!has_compiler) skip();
    build("sound", "", calls);
    char path[256];
    struct stat info = {0};
    snprintf(path, sizeof path, "%s/sound", folder);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0 && fstat(file, &info) == 0);
    const size_t bytes = (size_t)info.st_size;
    uint8_t *whole = malloc(bytes + 1);
    assert_int_equal(read(file, whole, bytes), bytes);
    close(file);
    test_random random = {test_seed(11)};
    for (unsigned round = 0; round < 400; round++) {
        const size_t kept = round % 2 ? bytes : test_random_below(&random, bytes);
        uint8_t *copy = malloc(kept ? kept : 1);
        memcpy(copy, whole, kept);
        for (size_t k = 0; kept && k < 1 + round % 50; k++) /* half of them in the headers */
            copy[k % 2 ? test_random_below(&random, kept) : test_random_below(&random, kept < 64 ? kept : 64)] =
                (uint8_t)test_random_next(&random);
        if (kept >= 4) memcpy(copy, "\177ELF", 4);
        insight_elf elf;
        if (lochi_insight_elf_open(copy, kept, &elf)) {
            size_t length;
            for (unsigned i = 0; i < 4; i++) {
                const char *name =
                    lochi_insight_elf_find(&elf, i ? test_random_next(&random) % 8192 : calls[0], &length);
                if (name) assert_true((const uint8_t *)name >= copy && (const uint8_t *)name + length <= copy + kept);
            }
            lochi_insight_elf_close(&elf);
        }
        free(copy);
    }
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_and_lines_come_from_debug_information),
        cmocka_unit_test(functions_come_from_the_symbols_of_a_file),
        cmocka_unit_test(without_symbols_the_module_and_its_offset_are_named),
        cmocka_unit_test(another_build_of_the_file_is_not_used),
        cmocka_unit_test(a_path_that_would_block_is_not_opened),
        cmocka_unit_test(the_last_module_at_an_address_counts),
        cmocka_unit_test(names_of_cpp_functions_are_as_in_the_source),
        cmocka_unit_test(damaged_files_do_no_harm),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
