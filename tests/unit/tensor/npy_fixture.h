/* SPDX-License-Identifier: MIT */
/* Shared by the tests of .npy files: a folder of their own, and files made of bytes. */
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

/* Writes what stands before the data, of version 1, 2 or 3; the dict is followed by blanks and a line end up to `bytes`
 * where that is more. Returns its length. */
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

__attribute__((unused)) static loch_tensor *load(const loch_npy_load_options *options)
{
    loch_tensor *tensor;
    CHECK_OK(loch_npy_load(npy_path, options, &tensor));
    return tensor;
}

#define LOAD_FAILS(options, suffix)                                                                                    \
    do {                                                                                                               \
        loch_tensor *loaded = TEST_UNTOUCHED;                                                                          \
        CHECK_FAILS(loch_npy_load(npy_path, (options), &loaded), suffix);                                              \
        assert_null(loaded);                                                                                           \
    } while (0)

/* Elements of a tensor by indices, in the order of the file, as f64. */
__attribute__((unused)) static double item(loch_tensor *tensor, size_t place, bool is_columns)
{
    const size_t dimensions = loch_tensor_get_dimensions(tensor);
    const int64_t *shape = loch_tensor_get_shape(tensor);
    int64_t indices[LOCH_DIMENSIONS_MAX];
    for (size_t i = 0; i < dimensions; i++) {
        const size_t axis = is_columns ? i : dimensions - 1 - i;
        indices[axis] = (int64_t)(place % (size_t)shape[axis]);
        place /= (size_t)shape[axis];
    }
    loch_scalar scalar;
    CHECK_OK(loch_tensor_read_item(tensor, dimensions, indices, NULL, &scalar));
    return scalar.dtype == LOCH_F64   ? scalar.value.f
           : scalar.dtype == LOCH_I64 ? (double)scalar.value.i
                                      : (double)scalar.value.u;
}

__attribute__((unused)) static loch_tensor *make_tensor(loch_dtype dtype, size_t dimensions, const int64_t *shape,
                                                        const loch_tensor_options *memory)
{
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(dtype, dimensions, shape, memory, &tensor));
    const size_t bytes = loch_tensor_get_bytes(tensor);
    char *data = malloc(bytes + 1);
    assert_non_null(data);
    test_pattern_write(data, bytes, dtype);
    CHECK_OK(loch_tensor_write(tensor, data, bytes, NULL));
    free(data);
    return tensor;
}

__attribute__((unused)) static loch_tensor_options memory_on(loch_device *device)
{
    loch_tensor_options memory = {.size = sizeof memory};
    CHECK_OK(loch_direct_create(device, "direct", NULL, &memory.allocator));
    return memory;
}

__attribute__((unused)) static void put_dict(const char *dict, size_t data_bytes)
{
    static char file[4096];
    const size_t header = npy_make_header(file, 1, dict, strlen(dict), 0);
    memset(file + header, 1, data_bytes);
    npy_put_file(npy_path, file, header + data_bytes);
}

#endif
