/* SPDX-License-Identifier: MIT */
/* CPU memory. Raw blocks come from libc, or directly from mmap if they have 1 MiB or more or are bound to a node.
 * Reserved addresses are inaccessible mappings that are charged to no account; they are committed and decommitted in
 * place. */
#include "device/cpu/memory.h"
#include "base/checked.h"
#include "base/fail.h"
#include "kit/text.h"
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CPU_MMAP_FROM ((size_t)1 << 20) /* smaller blocks share pages in the heap of libc */
#define CPU_ALIGNMENT_MAX ((size_t)1 << 40)
#define CPU_BIND_POLICY 2 /* MPOL_BIND of <linux/mempolicy.h>, a header that not every system has */

loch_status lochi_cpu_fail(int error, const char *what, size_t bytes)
{
    const loch_status status = error == ENOMEM || error == EAGAIN ? LOCH_E_DEVICE_MEMORY : LOCH_E_DRIVER;
    return loch_error_set(status, "cpu", error, "%s of %s failed: %s", what, LOCHI_SIZE(bytes), strerror(error));
}

/* Binds memory to a node. Returns 0 or the error number. */
static int cpu_bind(int node, void *address, size_t bytes)
{
    unsigned long mask[16] = {0};
    const size_t bits = 8 * sizeof *mask;
    mask[(size_t)node / bits] = 1ul << ((size_t)node % bits);
    return syscall(SYS_mbind, address, bytes, CPU_BIND_POLICY, mask, 8 * sizeof mask, 0) == 0 ? 0 : errno;
}

int lochi_cpu_probe_bind(int node)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *address = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return errno;
    const int error = cpu_bind(node, address, page);
    munmap(address, page);
    return error;
}

loch_status lochi_cpu_advise(const lochi_cpu *cpu, void *address, size_t bytes)
{
    if (cpu->huge && bytes >= LOCHI_CPU_GRANULE) madvise(address, bytes, MADV_HUGEPAGE);
    const int error = cpu->node < 0 ? 0 : cpu_bind(cpu->node, address, bytes);
    return error ? lochi_cpu_fail(error, "binding to a NUMA node", bytes) : LOCH_OK;
}

/* Maps memory with an alignment above the page size: maps more and unmaps both ends. */
static void *cpu_map_aligned(size_t bytes, size_t alignment, int protection, int flags)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t slack = alignment > page ? alignment - page : 0;
    size_t whole;
    if (!lochi_add(bytes, slack, &whole)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    char *start = mmap(NULL, whole, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (start == MAP_FAILED || !slack) return start;
    const size_t head = -(uintptr_t)start & (alignment - 1);
    if (head) munmap(start, head);
    if (slack > head) munmap(start + head + bytes, slack - head);
    return start + head;
}

static bool cpu_uses_mmap(const lochi_cpu *cpu, size_t bytes)
{
    return bytes >= CPU_MMAP_FROM || cpu->node >= 0;
}

/* Rounds up to whole pages; false on overflow. */
static bool cpu_whole_pages(size_t bytes, size_t *out)
{
    return lochi_round_up(bytes, (size_t)sysconf(_SC_PAGESIZE), out);
}

loch_status lochi_cpu_raw_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    const lochi_cpu *cpu = self;
    if (alignment < LOCHI_CPU_ALIGNMENT) alignment = LOCHI_CPU_ALIGNMENT;
    if (alignment > CPU_ALIGNMENT_MAX)
        return LOCH_FAIL(UNSUPPORTED, "an alignment of %s is too large for the address space", LOCHI_SIZE(alignment));
    if (!cpu_uses_mmap(cpu, bytes)) {
        const int error = posix_memalign(out, alignment, bytes);
        return error ? lochi_cpu_fail(error, "an allocation", bytes) : LOCH_OK;
    }
    size_t whole;
    if (!cpu_whole_pages(bytes, &whole)) return LOCH_FAIL(OVERFLOW, "%zu bytes do not fit the address space", bytes);
    if (cpu->huge && whole >= LOCHI_CPU_GRANULE && alignment < LOCHI_CPU_GRANULE) alignment = LOCHI_CPU_GRANULE;
    void *address = cpu_map_aligned(whole, alignment, PROT_READ | PROT_WRITE, 0);
    if (address == MAP_FAILED) return lochi_cpu_fail(errno, "an allocation", bytes);
    const loch_status status = lochi_cpu_advise(cpu, address, whole);
    if (status != LOCH_OK) {
        munmap(address, whole);
        return status;
    }
    *out = address;
    return LOCH_OK;
}

loch_status lochi_cpu_raw_free(void *self, void *address, size_t bytes)
{
    size_t whole;
    if (!cpu_uses_mmap(self, bytes)) {
        free(address);
    } else if (!cpu_whole_pages(bytes, &whole) || munmap(address, whole) != 0) {
        return lochi_cpu_fail(errno, "giving back", bytes);
    }
    return LOCH_OK;
}

loch_status lochi_cpu_reserve(void *self, size_t bytes, size_t alignment, void **out)
{
    (void)self;
    void *address = cpu_map_aligned(bytes, alignment, PROT_NONE, MAP_NORESERVE);
    if (address == MAP_FAILED) /* EINVAL: larger than the address space; valgrind returns it */
        return lochi_cpu_fail(errno == EINVAL ? ENOMEM : errno, "a reservation of addresses", bytes);
    *out = address;
    return LOCH_OK;
}

loch_status lochi_cpu_unreserve(void *self, void *address, size_t bytes)
{
    (void)self;
    return munmap(address, bytes) == 0 ? LOCH_OK : lochi_cpu_fail(errno, "giving back reserved addresses", bytes);
}

loch_status lochi_cpu_commit(void *self, void *address, size_t bytes)
{
    if (mprotect(address, bytes, PROT_READ | PROT_WRITE) != 0) return lochi_cpu_fail(errno, "committing", bytes);
    return lochi_cpu_advise(self, address, bytes);
}

loch_status lochi_cpu_decommit(void *self, void *address, size_t bytes)
{
    (void)self;
    /* Maps fresh inaccessible memory over the old mapping: the pages are freed, and the addresses stay reserved
     * throughout. */
    void *again = mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (again == address) return LOCH_OK;
    const int error = errno;
    /* The process is at its limit of mappings. Free the pages anyway; the addresses stay accessible until the next
     * decommit. */
    if (error == ENOMEM && madvise(address, bytes, MADV_DONTNEED) == 0) return LOCH_OK;
    return lochi_cpu_fail(error, "decommitting", bytes);
}

loch_status lochi_cpu_discard(void *self, void *address, size_t bytes)
{
    (void)self;
    return madvise(address, bytes, MADV_DONTNEED) == 0 ? LOCH_OK : lochi_cpu_fail(errno, "discarding pages", bytes);
}

loch_status lochi_cpu_protect(void *self, void *address, size_t bytes, loch_access access)
{
    (void)self;
    const int protection = access == LOCH_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE;
    return mprotect(address, bytes, protection) == 0 ? LOCH_OK : lochi_cpu_fail(errno, "protecting pages", bytes);
}
