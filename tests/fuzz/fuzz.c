/* SPDX-License-Identifier: MIT */
/* Inputs taken apart, files in memory, and the account of bookkeeping, for fuzz targets. */
#include "fuzz.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

static loch_host_usage fuzz_usage = {.size = sizeof fuzz_usage};

/* Checks of test.h end the program here, as no test is under way that they could end. */
int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    return test_heap_install() == LOCH_OK ? 0 : 1;
}

uint8_t fuzz_byte(fuzz_input *input)
{
    if (!input->bytes) return 0;
    input->bytes--;
    return *input->data++;
}

uint64_t fuzz_number(fuzz_input *input, size_t bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; i++)
        number |= (uint64_t)fuzz_byte(input) << 8 * i;
    return number;
}

size_t fuzz_below(fuzz_input *input, size_t limit)
{
    return (size_t)fuzz_number(input, limit > 256 ? 2 : 1) % limit;
}

char *fuzz_text(fuzz_input *input, char *text, size_t capacity)
{
    size_t length = 0;
    while (input->bytes && length + 1 < capacity)
        text[length++] = (char)fuzz_byte(input);
    text[length] = '\0';
    return text;
}

const char *fuzz_file(const fuzz_input *input)
{
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("input", MFD_CLOEXEC);
        if (file < 0) fuzz_fail("no file in memory");
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    if (ftruncate(file, 0) != 0 || pwrite(file, input->data, input->bytes, 0) != (ssize_t)input->bytes)
        fuzz_fail("the file in memory cannot be written");
    return path;
}

void fuzz_begin(void)
{
    test_heap_set(TEST_FAILING_NEVER, 0);
    CHECK_OK(loch_host_get_usage(&fuzz_usage));
}

void fuzz_end(void)
{
    loch_host_usage now = {.size = sizeof now};
    size_t leaks = 0, waiting = 0;
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, &waiting));
    CHECK_OK(loch_registry_clear(NULL, NULL, &leaks));
    CHECK_OK(loch_host_get_usage(&now));
    if (leaks || waiting || now.blocks != fuzz_usage.blocks || now.bytes != fuzz_usage.bytes || test_heap_wrong())
        fuzz_fail(
            "%zu blocks leaked, %zu buffers wait, %zu pieces of bookkeeping were left behind, %zu had another size",
            leaks, waiting, now.blocks - fuzz_usage.blocks, (size_t)test_heap_wrong());
}

_Noreturn void fuzz_fail(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is above */
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s\n", text);
    abort();
}
