/* SPDX-License-Identifier: MIT */
/* Handles on the CPU: pages that move from address to address without a copy.
 *
 * The pages of a handle are in one of three states. Fresh: the handle has no pages yet; mapping it only makes the
 * reserved addresses accessible, so neighbours stay one mapping for the kernel. Mapped: the pages are at `at`, inside a
 * reservation. Parked: the pages are at `at`, outside, because the handle was unmapped and may be mapped again with its
 * contents.
 *
 * Taking pages away from reserved addresses leaves an empty mapping there in the same step (MREMAP_DONTUNMAP), so that
 * no mmap of another thread can take the addresses. If the kernel cannot do that, pages are copied. A released handle
 * drops its pages when it is unmapped.
 *
 * Pages that moved are a separate mapping for the kernel, which limits the mappings of a process. Moving stops at a
 * quarter of that limit.
 *
 * A handle that is created to be shared is a file in memory (file.c): it is mapped where it is needed and keeps its
 * contents while unmapped, so nothing is parked or copied. Its mapping counts as one of pages that moved. */
#include "device/cpu/handle.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/text.h"
#include "device/cpu/cpu.h"
#include "device/cpu/file.h"
#include "device/cpu/memory.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

typedef struct cpu_handle {
    void *at; /* NULL if fresh; where it is mapped, if it is a file */
    int file; /* descriptor of a shareable handle; -1 for private pages */
    bool is_mapped;
    bool is_released;
    bool is_stranger; /* the pages were moved here from another address, or are those of a file */
    bool is_imported; /* the pages belong to another handle, which counts them */
} cpu_handle;

static cpu_handle *handle_of(loch_driver_handle handle)
{
    return (cpu_handle *)(uintptr_t)handle;
}

/* Moves the pages at `from` to `to`, and nowhere else. Calls the kernel itself: communication libraries replace mremap
 * in the process to learn of addresses that lose their pages, and some of them (UCX 1.13) drop the fifth argument. They
 * learn it here by the mmap or munmap of `from` that every caller makes next. Returns 0 or the error number. */
static int handle_move(void *from, void *to, size_t bytes)
{
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    return syscall(SYS_mremap, from, bytes, bytes, flags, to) == -1 ? errno : 0;
}

bool lochi_cpu_probe_move(void)
{
#if defined(LOCHI_NO_DONTUNMAP)
    return false; /* a build for an emulator that accepts the flag and ignores it */
#else
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE); /* 4, 16 or 64 KiB on arm64 */
    char *from = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (from == MAP_FAILED) return false;
    char *to = from + page;
    from[0] = 1;
    const bool can = handle_move(from, to, page) == 0 && to[0] == 1 && from[0] == 0;
    munmap(from, 2 * page);
    return can;
#endif
}

/* Moves the pages at `from` to `to`, which is reserved or fresh. */
static loch_status handle_take_pages(const lochi_cpu *cpu, void *from, void *to, size_t bytes)
{
    if (cpu->can_move) {
        const int error = handle_move(from, to, bytes);
        if (error) return lochi_cpu_fail(error, "moving pages", bytes);
    } else {
        if (mprotect(to, bytes, PROT_READ | PROT_WRITE) != 0) return lochi_cpu_fail(errno, "opening pages", bytes);
        memcpy(to, from, bytes);
    }
    return LOCH_OK;
}

/* Moves pages away from reserved addresses, which are inaccessible again afterwards. */
static loch_status handle_take_reserved(const lochi_cpu *cpu, void *from, void *to, size_t bytes)
{
    LOCH_TRY_RETURN(handle_take_pages(cpu, from, to, bytes));
    return lochi_cpu_decommit(NULL, from, bytes);
}

/* Records that the pages of a handle were moved here. Fails at the limit on mappings. */
static loch_status handle_note_stranger(lochi_cpu *cpu, cpu_handle *handle)
{
    lochi_lock_assert_held(&cpu->lock);
    if (handle->is_stranger) return LOCH_OK;
    if (cpu->mapping_limit && cpu->strangers >= cpu->mapping_limit / 4)
        return LOCH_FAIL(LIMIT,
                         "%zu handles have moved: the limit is a quarter of the %zu mappings of vm.max_map_count",
                         cpu->strangers, cpu->mapping_limit);
    cpu->strangers++;
    handle->is_stranger = true;
    return LOCH_OK;
}

static void handle_forget_stranger(lochi_cpu *cpu, cpu_handle *handle)
{
    lochi_lock_assert_held(&cpu->lock);
    if (handle->is_stranger) cpu->strangers--;
    handle->is_stranger = false;
}

/* Frees a handle that has no owner and no mapping. */
static void handle_end(lochi_cpu *cpu, cpu_handle *handle, size_t bytes)
{
    lochi_lock_assert_held(&cpu->lock);
    handle_forget_stranger(cpu, handle);
    if (!handle->is_imported) cpu->handle_bytes -= bytes;
    if (handle->file >= 0) close(handle->file);
    lochi_free(handle);
}

loch_status lochi_cpu_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                    loch_driver_handle *out)
{
    lochi_cpu *cpu = self;
    cpu_handle *handle = lochi_zalloc(sizeof *handle);
    if (!handle) return LOCH_FAIL(HOST_MEMORY, "no host memory to record a handle");
    handle->file = -1;
    if (options->share) { /* by descriptor: the device claims nothing else */
        const loch_status status = lochi_cpu_file_create(bytes, &handle->file);
        if (status != LOCH_OK) {
            lochi_free(handle);
            return status;
        }
    }
    lochi_lock_take(&cpu->lock);
    const size_t left = cpu->total_bytes - cpu->handle_bytes;
    const bool fits = bytes <= left;
    if (fits) cpu->handle_bytes += bytes;
    lochi_lock_drop(&cpu->lock);
    if (!fits) {
        if (handle->file >= 0) close(handle->file);
        lochi_free(handle);
        return LOCH_FAIL(DEVICE_MEMORY, "a handle of %s does not fit: %s of %s are not used by handles",
                         LOCHI_SIZE(bytes), LOCHI_SIZE(left), LOCHI_SIZE(cpu->total_bytes));
    }
    *out = (loch_driver_handle)(uintptr_t)handle;
    return LOCH_OK;
}

size_t lochi_cpu_count_room(void *self)
{
    lochi_cpu *cpu = self;
    lochi_lock_take(&cpu->lock);
    const size_t left = cpu->total_bytes - cpu->handle_bytes;
    lochi_lock_drop(&cpu->lock);
    return left;
}

loch_status lochi_cpu_handle_export(void *self, loch_driver_handle native, loch_share share, void *out)
{
    (void)self;
    const cpu_handle *handle = handle_of(native);
    if (share != LOCH_SHARE_FD || handle->file < 0)
        return LOCH_FAIL(INVALID, "the handle was not created to be shared that way");
    int copy;
    LOCH_TRY_RETURN(lochi_cpu_file_duplicate(handle->file, &copy));
    memcpy(out, &copy, sizeof copy);
    return LOCH_OK;
}

loch_status lochi_cpu_handle_import(void *self, loch_share share, const void *shared, size_t bytes,
                                    loch_driver_handle *out)
{
    (void)self;
    if (share != LOCH_SHARE_FD) return LOCH_FAIL(UNSUPPORTED, "CPU handles can be shared by file descriptor only");
    cpu_handle *handle = lochi_zalloc(sizeof *handle);
    if (!handle) return LOCH_FAIL(HOST_MEMORY, "no host memory to record a handle");
    int descriptor;
    memcpy(&descriptor, shared, sizeof descriptor);
    const loch_status status = lochi_cpu_file_import(descriptor, bytes, &handle->file);
    if (status != LOCH_OK) {
        lochi_free(handle);
        return status;
    }
    handle->is_imported = true;
    *out = (loch_driver_handle)(uintptr_t)handle;
    return LOCH_OK;
}

loch_status lochi_cpu_handle_release(void *self, loch_driver_handle native, size_t bytes)
{
    lochi_cpu *cpu = self;
    cpu_handle *handle = handle_of(native);
    lochi_lock_take(&cpu->lock);
    if (handle->is_mapped) {
        handle->is_released = true;
    } else {
        if (handle->at) munmap(handle->at, bytes);
        handle_end(cpu, handle, bytes);
    }
    lochi_lock_drop(&cpu->lock);
    return LOCH_OK;
}

loch_status lochi_cpu_map(void *self, void *address, size_t bytes, loch_driver_handle native, void *const *peers,
                          size_t peers_count)
{
    (void)peers, (void)peers_count; /* the CPU has no peers */
    lochi_cpu *cpu = self;
    cpu_handle *handle = handle_of(native);
    lochi_lock_take(&cpu->lock);
    loch_status status;
    if (handle->file >= 0) {
        status = handle_note_stranger(cpu, handle);
        if (status == LOCH_OK) status = lochi_cpu_file_map(cpu, handle->file, address, bytes);
    } else if (!handle->at) {
        status = lochi_cpu_commit(cpu, address, bytes);
        if (status != LOCH_OK) lochi_cpu_decommit(cpu, address, bytes);
    } else {
        status = handle_take_pages(cpu, handle->at, address, bytes);
        if (status == LOCH_OK) munmap(handle->at, bytes); /* the addresses where the pages were parked */
    }
    if (status == LOCH_OK) {
        handle->at = address;
        handle->is_mapped = true;
    }
    lochi_lock_drop(&cpu->lock);
    return status;
}

/* Moves the pages of a handle that may be mapped again out of the reservation. */
static loch_status handle_park(lochi_cpu *cpu, cpu_handle *handle, size_t bytes)
{
    lochi_lock_assert_held(&cpu->lock);
    LOCH_TRY_RETURN(handle_note_stranger(cpu, handle));
    void *parking = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (parking == MAP_FAILED) return lochi_cpu_fail(errno, "parking pages", bytes);
    const loch_status status = handle_take_reserved(cpu, handle->at, parking, bytes);
    if (status != LOCH_OK) {
        munmap(parking, bytes);
        return status;
    }
    handle->at = parking;
    return LOCH_OK;
}

loch_status lochi_cpu_unmap(void *self, void *address, size_t bytes, loch_driver_handle native)
{
    lochi_cpu *cpu = self;
    cpu_handle *handle = handle_of(native);
    lochi_lock_take(&cpu->lock);
    loch_status status;
    if (handle->file >= 0)
        status = lochi_cpu_file_unmap(address, bytes);
    else if (handle->is_released)
        status = lochi_cpu_decommit(cpu, address, bytes);
    else
        status = handle_park(cpu, handle, bytes);
    if (status == LOCH_OK) {
        handle->is_mapped = false;
        if (handle->file >= 0) {
            handle->at = NULL;
            handle_forget_stranger(cpu, handle);
        }
        if (handle->is_released) handle_end(cpu, handle, bytes);
    }
    lochi_lock_drop(&cpu->lock);
    return status;
}

loch_status lochi_cpu_remap(void *self, void *from, void *to, size_t bytes, loch_driver_handle native)
{
    lochi_cpu *cpu = self;
    cpu_handle *handle = handle_of(native);
    lochi_lock_take(&cpu->lock);
    loch_status status = handle_note_stranger(cpu, handle);
    if (status == LOCH_OK && handle->file < 0) status = handle_take_reserved(cpu, from, to, bytes);
    if (status == LOCH_OK && handle->file >= 0) {
        status = lochi_cpu_file_map(cpu, handle->file, to, bytes);
        if (status == LOCH_OK) {
            status = lochi_cpu_file_unmap(from, bytes);
            if (status != LOCH_OK) (void)lochi_cpu_file_unmap(to, bytes);
        }
    }
    if (status == LOCH_OK) handle->at = to;
    lochi_lock_drop(&cpu->lock);
    return status;
}
