/* SPDX-License-Identifier: MIT */
/* What the tests of .npy files share: a folder of their own, and files made of bytes. */
#ifndef LOCH_TEST_NPY_FIXTURE_H
#define LOCH_TEST_NPY_FIXTURE_H

#include "failing_heap.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char npy_folder[] = "/tmp/loch-npy-XXXXXX";
static char npy_path[64];
static loch_host_usage npy_usage_before = {.size = sizeof npy_usage_before};

__attribute__((unused)) static int npy_group_setup(void **state)
{
    (void)state;
    if (test_heap_install() != LOCH_OK || !mkdtemp(npy_folder)) return -1;
    snprintf(npy_path, sizeof npy_path, "%s/a.npy", npy_folder);
    return 0;
}

__attribute__((unused)) static int npy_group_teardown(void **state)
{
    (void)state;
    return rmdir(npy_folder);
}

/* How many files the folder holds. */
__attribute__((unused)) static size_t npy_count_files(void)
{
    size_t count = 0;
    DIR *folder = opendir(npy_folder);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(folder);
    return count;
}

/* Open files of this process. */
__attribute__((unused)) static int npy_next_file(void)
{
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(file);
    return file;
}

static int npy_file_before;

__attribute__((unused)) static int npy_setup(void **state)
{
    (void)state;
    CHECK_OK(loch_host_get_usage(&npy_usage_before));
    npy_file_before = npy_next_file();
    return 0;
}

/* Nothing is left: neither bookkeeping, nor files, nor open ones. */
__attribute__((unused)) static int npy_teardown(void **state)
{
    (void)state;
    loch_host_usage now = {.size = sizeof now};
    size_t leaks;
    unlink(npy_path);
    if (loch_buffer_collect(LOCH_WAIT_END, NULL) != LOCH_OK) return -1;
    if (loch_registry_clear(NULL, NULL, &leaks) != LOCH_OK || leaks) return -1; /* default allocators stay otherwise */
    CHECK_OK(loch_host_get_usage(&now));
    if (now.blocks == npy_usage_before.blocks && now.bytes == npy_usage_before.bytes &&
        npy_next_file() == npy_file_before && npy_count_files() == 0)
        return 0;
    print_error("%zu pieces of bookkeeping and %zu files were left behind\n", now.blocks - npy_usage_before.blocks,
                npy_count_files());
    return -1;
}

#define NPY_TEST(function) cmocka_unit_test_setup_teardown(function, npy_setup, npy_teardown)

__attribute__((unused)) static void npy_put_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* The contents of a file; the caller frees them. */
__attribute__((unused)) static char *npy_get_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}

/* Writes what stands before the data, of version 1, 2 or 3; the dict is followed by blanks and a line end up to `bytes` where
 * that is more. Returns its length. */
__attribute__((unused)) static size_t npy_make_header(char *out, int version, const char *dict, size_t dict_bytes,
                                                      size_t bytes)
{
    const size_t before = version == 1 ? 10 : 12;
    const size_t length = before + dict_bytes < bytes ? bytes - before : dict_bytes;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (char)version;
    out[7] = 0;
    for (size_t i = 8; i < before; i++)
        out[i] = (char)(length >> 8 * (i - 8));
    memset(out + before, ' ', length);
    if (length > dict_bytes) out[before + length - 1] = '\n';
    memcpy(out + before, dict, dict_bytes);
    return before + length;
}

#endif
