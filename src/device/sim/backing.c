/* SPDX-License-Identifier: MIT */
/* The memory behind a backed simulated device: one sparse file, so that an object can be at several addresses at
 * once, and process addresses at which pieces of the file are mapped. */
#include "device/sim/backing.h"
#include "base/cancel.h"
#include "base/checked.h"
#include "base/heap.h"
#include "base/text.h"
#include "device/sim/fail.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

size_t lochi_sim_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

loch_status lochi_sim_file_create(lochi_sim_file **out)
{
    LOCHI_NOT_CANCELLED;
    lochi_sim_file *file = lochi_zalloc(sizeof *file);
    if (!file) return SIM_FAIL(HOST_MEMORY, "no host memory for a backed simulated device");
    const size_t bytes = (size_t)1 << LOCHI_SIM_WINDOW_BITS;
    file->references = 1;
    file->fd = memfd_create("loch-sim", MFD_CLOEXEC);
    loch_status status = LOCH_OK;
    if (file->fd < 0 || ftruncate(file->fd, (off_t)bytes) != 0)
        status = SIM_FAIL_CODE(DRIVER, errno, "the system cannot create the memory file of a backed device: %s",
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

void lochi_sim_file_release(lochi_sim_file *file)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    LOCHI_NOT_CANCELLED;
    if (!file || --file->references) return;
    lochi_sim_space_fini(&file->space);
    if (file->fd >= 0) close(file->fd);
    lochi_free(file);
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

loch_status lochi_sim_host_map(void *at, const lochi_sim_object *object)
{
    void *got = mmap(at, object->extent->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, object->file->fd,
                     (off_t)object->extent->by_address.key);
    if (got != MAP_FAILED) return LOCH_OK;
    return SIM_FAIL_CODE(DRIVER, errno, "the system cannot map %s for a backed device: %s",
                         LOCHI_SIZE(object->extent->bytes), strerror(errno));
}
