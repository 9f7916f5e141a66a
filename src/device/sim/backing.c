/* SPDX-License-Identifier: MIT */
/* The memory behind backed simulated devices: pieces of one sparse file, so that an object can be at several addresses
 * at once, mapped at addresses of the process.
 *
 * Everything that holds contents is made by the first operation that uses them (copy, fill, kernel), and at most once:
 *
 *     the file              lochi_sim_all.file, for all devices
 *     an object's place     object->file and object->extent, until the object ends
 *     a span's mapping      span->is_mapped, until the span ends
 *
 * Before that a span has reserved addresses without access, and its contents are zeros. So opening a device of any
 * size, creating, mapping and freeing make no system call for contents. Only a device that was opened with "backed"
 * makes them with the span, because the host may touch its memory without an operation.
 *
 * A page takes memory of the host once it was used. Work that would use more than the host has free fails before it is
 * queued (lochi_sim_host_check). The check does not see what other processes take meanwhile: then the system decides,
 * as for every process. */
#include "device/sim/backing.h"
#include "kit/cancel.h"
#include "base/checked.h"
#include "base/heap.h"
#include "kit/hint.h"
#include "kit/text.h"
#include "device/cpu/cpu.h"
#include "device/sim/fail.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define BACKING_LOOK ((size_t)64 << 20) /* bytes that are used between two looks at the memory of the host */
#define BACKING_LEFT 64                 /* one part of so many of the host's memory is left alone */

size_t lochi_sim_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* --- the file --- */

/* Creates the file, with no object in it. A limit on the size of files holds for it too, so it stays within. */
static loch_status backing_create_file(lochi_sim_file **out)
{
    LOCHI_NOT_CANCELLED;
    struct rlimit limit;
    size_t bytes = (size_t)1 << LOCHI_SIM_WINDOW_BITS;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
        bytes = (size_t)limit.rlim_cur & ~(lochi_sim_page_bytes() - 1);
    lochi_sim_file *file = lochi_zalloc(sizeof *file);
    if (!file) return SIM_FAIL(HOST_MEMORY, "no host memory for a backed simulated device");
    file->fd = memfd_create("loch-sim", MFD_CLOEXEC);
    loch_status status = LOCH_OK;
    if (file->fd < 0 || ftruncate(file->fd, (off_t)bytes) != 0)
        status = SIM_FAIL_CODE(DRIVER, errno, "the system cannot create the memory file of backed devices: %s",
                               strerror(errno));
    if (status == LOCH_OK) status = lochi_sim_space_init(&file->space, 0, bytes);
    if (status != LOCH_OK) {
        if (file->fd >= 0) close(file->fd);
        lochi_free(file);
        return status;
    }
    *out = file;
    return LOCH_OK;
}

static void backing_destroy_file(lochi_sim_file *file)
{
    LOCHI_NOT_CANCELLED;
    if (lochi_sim_all.file == file) lochi_sim_all.file = NULL;
    lochi_sim_space_fini(&file->space);
    if (file->fd >= 0) close(file->fd);
    lochi_free(file);
}

/* Gives an object its place in the file. */
static loch_status backing_place(lochi_sim_object *object)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    size_t bytes;
    if (!lochi_round_up(object->charged, lochi_sim_page_bytes(), &bytes))
        return SIM_FAIL(OVERFLOW, "%zu bytes do not fit the address space", object->charged);
    if (!lochi_sim_all.file) LOCH_TRY_RETURN(backing_create_file(&lochi_sim_all.file));
    lochi_sim_file *file = lochi_sim_all.file;
    const loch_status status = lochi_sim_space_take(&file->space, bytes, lochi_sim_page_bytes(), &object->extent);
    if (status == LOCH_OK) {
        object->file = file;
        file->references++;
    } else if (!file->references) {
        backing_destroy_file(file);
    }
    return status;
}

void lochi_sim_object_unplace(lochi_sim_object *object)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_file *file = object->file;
    if (!file) return;
    /* If the file system cannot punch holes, the pages stay until the offset is used again. That is harmless. */
    if (file->fd >= 0)
        (void)fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)object->extent->by_address.key,
                        (off_t)object->extent->bytes);
    lochi_sim_space_give(&file->space, object->extent);
    if (!--file->references) backing_destroy_file(file);
}

void lochi_sim_file_forked(void)
{
    lochi_sim_file *file = lochi_sim_all.file;
    if (!file) return;
    close(file->fd);
    file->fd = -1;
    lochi_sim_all.file = NULL;
}

/* --- addresses of the process --- */

void *lochi_sim_host_reserve(size_t bytes, size_t alignment)
{
    const size_t page = lochi_sim_page_bytes();
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    size_t all = bytes;
    if (alignment > page && !lochi_add(bytes, alignment - page, &all)) return NULL;
    char *start = mmap(NULL, all, PROT_NONE, flags, -1, 0);
    if (start == MAP_FAILED) return NULL;
    if (alignment <= page) return start;
    char *aligned = start + (-(uintptr_t)start & (alignment - 1));
    if (aligned != start) munmap(start, (size_t)(aligned - start));
    if (aligned + bytes != start + all) munmap(aligned + bytes, (size_t)(start + all - (aligned + bytes)));
    return aligned;
}

loch_status lochi_sim_host_map(lochi_sim_span *span)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (LOCHI_LIKELY(span->is_mapped)) return LOCH_OK;
    lochi_sim_object *object = span->object;
    if (!object->file) LOCH_TRY_RETURN(backing_place(object));
    const void *got = mmap((void *)span->node.key, object->extent->bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_FIXED, object->file->fd, (off_t)object->extent->by_address.key);
    if (got == MAP_FAILED)
        return SIM_FAIL_CODE(DRIVER, errno, "the system cannot map %s for a backed device: %s",
                             LOCHI_SIZE(object->extent->bytes), strerror(errno));
    span->is_mapped = true;
    return LOCH_OK;
}

/* --- memory of the host --- */

/* Counts the bytes of a use that have no page yet. */
static size_t backing_count_new(const lochi_sim_use *use)
{
    const lochi_sim_object *object = use->span->object;
    if (!object->file) return use->bytes;
    const off_t start = (off_t)(object->extent->by_address.key + use->offset), end = start + (off_t)use->bytes;
    size_t bytes = 0;
    for (off_t at = start; at < end;) {
        const off_t hole = lseek(object->file->fd, at, SEEK_HOLE);
        if (hole < 0 || hole >= end) break;
        at = lseek(object->file->fd, hole, SEEK_DATA);
        if (at < 0 || at > end) at = end; /* no data up to the end of the file */
        bytes += (size_t)(at - hole);
    }
    return bytes;
}

loch_status lochi_sim_host_check(const lochi_sim_use *uses, size_t count)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    size_t bytes = 0, new = 0;
    for (size_t i = 0; i < count; i++)
        if (uses[i].span->object->is_backed) bytes += uses[i].bytes;
    if (LOCHI_LIKELY(bytes <= lochi_sim_all.room)) {
        lochi_sim_all.room -= bytes;
        return LOCH_OK;
    }
    loch_memory_info host;
    lochi_cpu_read_memory("", -1, &host);
    const size_t least = host.total_bytes / BACKING_LEFT, left = host.free_bytes > least ? host.free_bytes - least : 0;
    lochi_sim_all.room = left / 4 < BACKING_LOOK ? left / 4 : BACKING_LOOK;
    if (bytes <= left || !host.total_bytes) return LOCH_OK;
    for (size_t i = 0; i < count; i++)
        if (uses[i].span->object->is_backed) new += backing_count_new(&uses[i]);
    if (new <= left) return LOCH_OK;
    return SIM_FAIL(HOST_MEMORY,
                    "%s of simulated memory are used for the first time, and the host has %s free: use less, or open "
                    "the device with \"unbacked\" if contents do not matter",
                    LOCHI_SIZE(new), LOCHI_SIZE(left));
}
