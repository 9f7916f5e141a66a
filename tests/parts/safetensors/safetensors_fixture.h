/* SPDX-License-Identifier: MIT */
/* Shared by the tests of .safetensors files: a folder of their own, and files made of a header and data. */
#ifndef LOCH_TEST_SAFETENSORS_FIXTURE_H
#define LOCH_TEST_SAFETENSORS_FIXTURE_H

#include "failing_heap.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <loch/safetensors.h>
#include <sys/stat.h>
#include <unistd.h>

static char fixture_folder[] = "/tmp/loch-safetensors-XXXXXX";
static char fixture_path[96]; /* a.safetensors in the folder */
static loch_host_usage fixture_usage = {.size = sizeof fixture_usage};
static int fixture_number; /* the next descriptor that open returns */

__attribute__((unused)) static int fixture_next_number(void)
{
    const int number = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(number);
    return number;
}

__attribute__((unused)) static int fixture_group_setup(void **state)
{
    (void)state;
    if (test_heap_install() != LOCH_OK || !mkdtemp(fixture_folder)) return -1;
    snprintf(fixture_path, sizeof fixture_path, "%s/a.safetensors", fixture_folder);
    return 0;
}

static loch_status fixture_count_one(const loch_safetensors_info *info, void *user)
{
    (void)info;
    ++*(size_t *)user;
    return LOCH_OK;
}

/* Returns the number of tensors of a file. */
__attribute__((unused)) static size_t fixture_count(const loch_safetensors *file)
{
    size_t count = 0;
    CHECK_OK(loch_safetensors_walk(file, fixture_count_one, &count));
    return count;
}

/* Removes all files of the folder. Returns how many there were. */
__attribute__((unused)) static size_t fixture_clear(void)
{
    size_t count = 0;
    DIR *folder = opendir(fixture_folder);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            assert_int_equal(unlinkat(dirfd(folder), entry->d_name, 0), 0);
            count++;
        }
    closedir(folder);
    return count;
}

__attribute__((unused)) static int fixture_group_teardown(void **state)
{
    (void)state;
    fixture_clear();
    return rmdir(fixture_folder);
}

__attribute__((unused)) static int fixture_setup(void **state)
{
    (void)state;
    CHECK_OK(loch_host_get_usage(&fixture_usage));
    fixture_number = fixture_next_number();
    return 0;
}

/* Nothing is left behind: neither bookkeeping nor open files. */
__attribute__((unused)) static int fixture_teardown(void **state)
{
    (void)state;
    loch_host_usage now = {.size = sizeof now};
    size_t leaks;
    fixture_clear();
    if (loch_buffer_collect(LOCH_WAIT_END, NULL) != LOCH_OK) return -1;
    if (loch_registry_clear(NULL, NULL, &leaks) != LOCH_OK || leaks) return -1; /* default allocators stay otherwise */
    CHECK_OK(loch_host_get_usage(&now));
    if (now.blocks == fixture_usage.blocks && now.bytes == fixture_usage.bytes &&
        fixture_next_number() == fixture_number)
        return 0;
    print_error("%zu pieces of bookkeeping were left behind\n", now.blocks - fixture_usage.blocks);
    return -1;
}

#define FIXTURE_TEST(function) cmocka_unit_test_setup_teardown(function, fixture_setup, fixture_teardown)

/* Writes bytes to a file. */
__attribute__((unused)) static void fixture_write(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* Writes a file with a header and data. */
__attribute__((unused)) static void fixture_make(const char *path, const char *header, size_t header_bytes,
                                                 const void *data, size_t data_bytes)
{
    char *bytes = malloc(8 + header_bytes + data_bytes + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (char)((uint64_t)header_bytes >> (8 * i));
    memcpy(bytes + 8, header, header_bytes);
    if (data_bytes) memcpy(bytes + 8 + header_bytes, data, data_bytes);
    fixture_write(path, bytes, 8 + header_bytes + data_bytes);
    free(bytes);
}

/* Writes the header of text and `data_bytes` bytes of data, whose values are 0, 1, 2, ... */
__attribute__((unused)) static void fixture_make_counted(const char *path, const char *header, size_t data_bytes)
{
    unsigned char *data = malloc(data_bytes + 1);
    assert_non_null(data);
    for (size_t i = 0; i < data_bytes; i++)
        data[i] = (unsigned char)i;
    fixture_make(path, header, strlen(header), data, data_bytes);
    free(data);
}

/* Checks that the sentence of the last failure contains a text. */
#define CHECK_SAYS(text)                                                                                               \
    do {                                                                                                               \
        if (!strstr(loch_error_get()->sentence, (text)))                                                               \
            fail_msg("\"%s\" does not say \"%s\"", loch_error_get()->sentence, (text));                                \
    } while (0)

#endif
