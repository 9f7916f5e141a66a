/* SPDX-License-Identifier: MIT */
/* Opens, reads and maps one file. The header is read into memory of its own before it is checked, so that nothing can
 * change it afterwards. A mapping is a buffer: tensors hold it after the file is closed. A file with private pages that
 * may be written has two, so that what a program writes there is not loaded elsewhere. */
#include "file.h"
#include "common.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

loch_status lochi_safetensors_file_open(const char *path, safetensors_file *out)
{
    *out = (safetensors_file){.number = -1};
    out->path = strdup(path);
    if (!out->path) return LOCH_FAIL(HOST_MEMORY, "no host memory for opening %s", safetensors_tail(path));
    do
        out->number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
    while (out->number < 0 && errno == EINTR);
    if (out->number < 0 && (errno == ENOENT || errno == ENOTDIR))
        return LOCH_FAIL(NOT_FOUND, "%s: %s", safetensors_tail(path), strerror(errno));
    struct stat about;
    if (out->number < 0 || fstat(out->number, &about) != 0)
        return LOCH_FAIL(IO, "%s cannot be opened: %s", safetensors_tail(path), strerror(errno));
    if (!S_ISREG(about.st_mode))
        return LOCH_FAIL(UNSUPPORTED, "%s cannot be mapped: it is not a regular file", safetensors_tail(path));
    out->file_bytes = (uint64_t)about.st_size;
    if (out->file_bytes > SIZE_MAX / 2)
        return LOCH_FAIL(OVERFLOW, "%s does not fit the address space: it has %llu bytes", safetensors_tail(path),
                         (unsigned long long)out->file_bytes);
    return LOCH_OK;
}

loch_status lochi_safetensors_file_read_length(safetensors_file *file, uint64_t *out)
{
    unsigned char bytes[8];
    if (file->file_bytes < sizeof bytes)
        return LOCH_FAIL(CORRUPT, "%s is not a safetensors file: it has %llu bytes", safetensors_tail(file->path),
                         (unsigned long long)file->file_bytes);
    LOCH_RETURN(lochi_safetensors_file_read(file, 0, bytes, sizeof bytes));
    *out = 0;
    for (size_t i = sizeof bytes; i--;)
        *out = *out << 8 | bytes[i];
    return LOCH_OK;
}

loch_status lochi_safetensors_file_read_text(safetensors_file *file, uint64_t offset, size_t bytes, char **out)
{
    *out = calloc(bytes + 1, 1);
    if (!*out)
        return LOCH_FAIL(HOST_MEMORY, "no host memory for the header of %s: %zu bytes", safetensors_tail(file->path),
                         bytes);
    return lochi_safetensors_file_read(file, offset, *out, bytes);
}

static void file_unmap(void *address, size_t bytes, void *user)
{
    (void)user;
    munmap(address, bytes);
}

static loch_status file_map(safetensors_file *file, loch_access access, loch_buffer **out)
{
    const size_t bytes = (size_t)file->file_bytes;
    const int protection = access == LOCH_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE;
    void *pages = mmap(NULL, bytes, protection, MAP_PRIVATE, file->number, 0);
    if (pages == MAP_FAILED)
        return LOCH_FAIL(UNSUPPORTED, "%s cannot be mapped: %s", safetensors_tail(file->path), strerror(errno));
    const loch_external external = {.size = sizeof external, .deleter = file_unmap, .access = access};
    const loch_status status = loch_buffer_wrap(pages, bytes, &external, out);
    if (status != LOCH_OK) munmap(pages, bytes);
    return status;
}

loch_status lochi_safetensors_file_load(safetensors_file *file, uint64_t length, loch_access access)
{
    const uint64_t left = file->file_bytes - sizeof length;
    if (length > SAFETENSORS_HEADER_MAX)
        return LOCH_FAIL(CORRUPT, "%s is not a safetensors file: a header of %llu bytes; the format allows %llu",
                         safetensors_tail(file->path), (unsigned long long)length,
                         (unsigned long long)SAFETENSORS_HEADER_MAX);
    if (length > left)
        return LOCH_FAIL(CORRUPT, "%s is truncated: %llu of %llu bytes of the header are missing",
                         safetensors_tail(file->path), (unsigned long long)(length - left), (unsigned long long)length);
    file->data_start = sizeof length + length;
    LOCH_RETURN(lochi_safetensors_file_read_text(file, sizeof length, (size_t)length, &file->text));
    LOCH_RETURN(lochi_safetensors_header_read(file->path, file->text, (size_t)length, left - length, &file->header));
    safetensors_entry *entries = file->header.entries.items;
    for (size_t i = 0; i < file->header.entries.count; i++)
        entries[i].file = file;
    LOCH_RETURN(file_map(file, LOCH_READ_ONLY, &file->mapped));
    if (access != LOCH_READ_ONLY) return file_map(file, access, &file->shown);
    file->shown = loch_buffer_retain(file->mapped);
    return LOCH_OK;
}

void lochi_safetensors_file_close(safetensors_file *file)
{
    if (file->number >= 0) close(file->number);
    loch_buffer_release(file->mapped);
    loch_buffer_release(file->shown);
    lochi_safetensors_header_free(&file->header);
    free(file->text);
    free(file->path);
}
