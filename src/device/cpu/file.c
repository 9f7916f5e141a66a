/* SPDX-License-Identifier: MIT */
/* Files in memory (memfd) behind handles that other processes import.
 *
 * The size of a file is sealed, so that no process can shrink it under the mapping of another process, which would be
 * killed by SIGBUS. A file that comes from another process is checked for its seals and its size. */
#include "device/cpu/file.h"
#include "base/fail.h"
#include "kit/text.h"
#include "device/cpu/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* Sets the error record. A process without descriptors is short of a resource of the device, as without pages: memory
 * that the pool has already may serve. */
static loch_status file_fail(int error, const char *what, size_t bytes)
{
    if (error == EMFILE || error == ENFILE)
        return loch_error_set(
            LOCH_E_DEVICE_MEMORY, "cpu", error,
            "%s of %s failed: the %s has no file descriptor left, and each shareable handle needs one", what,
            LOCHI_SIZE(bytes), error == EMFILE ? "process" : "system");
    return lochi_cpu_fail(error, what, bytes);
}

loch_status lochi_cpu_file_create(size_t bytes, int *out)
{
    const int file = memfd_create("loch-handle", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) return file_fail(errno, "a shareable handle", bytes);
    if (ftruncate(file, (off_t)bytes) != 0 || fcntl(file, F_ADD_SEALS, FILE_SEALS | F_SEAL_SEAL) != 0) {
        const int error = errno;
        close(file);
        return file_fail(error, "a shareable handle", bytes);
    }
    *out = file;
    return LOCH_OK;
}

loch_status lochi_cpu_file_duplicate(int file, int *out)
{
    const int copy = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return file_fail(errno, "exporting a handle", 0);
    *out = copy;
    return LOCH_OK;
}

loch_status lochi_cpu_file_import(int descriptor, size_t bytes, int *out)
{
    struct stat found;
    if (fstat(descriptor, &found) != 0)
        return LOCH_FAIL(INVALID, "descriptor %d cannot be imported: %s", descriptor, strerror(errno));
    const int seals = fcntl(descriptor, F_GET_SEALS);
    if (seals < 0 || (seals & FILE_SEALS) != FILE_SEALS)
        return LOCH_FAIL(INVALID, "descriptor %d was not exported by a CPU device: its size is not sealed", descriptor);
    if (found.st_size < 0 || (size_t)found.st_size != bytes)
        return LOCH_FAIL(INVALID, "the handle behind descriptor %d has %s, not %s", descriptor,
                         LOCHI_SIZE((size_t)found.st_size), LOCHI_SIZE(bytes));
    return lochi_cpu_file_duplicate(descriptor, out);
}

loch_status lochi_cpu_file_map(const lochi_cpu *cpu, int file, void *address, size_t bytes)
{
    if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
        return lochi_cpu_fail(errno, "mapping a shareable handle", bytes);
    const loch_status status = lochi_cpu_advise(cpu, address, bytes);
    if (status != LOCH_OK) (void)lochi_cpu_file_unmap(address, bytes);
    return status;
}

loch_status lochi_cpu_file_unmap(void *address, size_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap(address, bytes, PROT_NONE, flags, -1, 0) != MAP_FAILED) return LOCH_OK;
    return lochi_cpu_fail(errno, "unmapping a shareable handle", bytes);
}
