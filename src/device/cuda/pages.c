/* SPDX-License-Identifier: MIT */
/* Pages of the host for pinned memory.
 *
 * Registering memory with the driver pins its pages, and faults those in that are not present: one after the other,
 * in one thread, with the page cleared by the processor that happens to run it. So the pages are made present before,
 * near the GPU and by several threads. The pages near the GPU are a question of bandwidth; the threads are one of
 * time, because clearing is most of the work.
 *
 *   mmap ── huge pages, no fork ── near the node ── check that the host has the memory ── make present ── (register)
 *
 * A fault that finds no memory ends the process (the kernel's OOM killer), where the driver's own allocator returns
 * a code. So the memory that is available is compared with the size first. The node is a wish: pages come from it
 * strictly if it has room for all of them, and otherwise from other nodes too.
 *
 * A fork would copy every pinned page into the child at once, because a pinned page cannot be shared for a later
 * copy. Pinned memory is of no use in the child, so it is left out there. */
#include "device/cuda/pages.h"
#include "kit/cancel.h"
#include "base/checked.h"
#include "base/fail.h"
#include "kit/text.h"
#include "device/cpu/cpu.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGES_HUGE ((size_t)2 << 20)
#define PAGES_CHECKED_FROM ((size_t)16 << 20) /* smaller blocks are not worth reading the system's files */
#define PAGES_PART ((size_t)16 << 20)         /* of the memory that one thread makes present at a time */
#define PAGES_PARALLEL_FROM ((size_t)64 << 20)
#define PAGES_FOR_THREAD ((size_t)32 << 20) /* a further thread for this much: starting one takes 20 us, this 5 ms */
#define PAGES_THREADS_MAX 8                 /* more threads than that wait for memory, not for processors */
#define PAGES_NODE_MARGIN 16                /* a node is taken strictly if this part of it stays free */
#define PAGES_NODES_MAX 1024
#define PAGES_POPULATE_WRITE 23 /* MADV_POPULATE_WRITE of Linux 5.14 */
#define PAGES_PREFERRED 1       /* MPOL_PREFERRED and MPOL_BIND of <linux/mempolicy.h> */
#define PAGES_BIND 2

/* --- making present --- */

/* Memory that several threads make present. */
typedef struct pages_work {
    char *start;
    size_t bytes, page;
    int (*populate)(void *address, size_t bytes, int advice);
    atomic_size_t next; /* offset of the first part that no thread has taken; relaxed: it is all there is to share */
    atomic_int error;   /* first error number; 0 for none. Relaxed: read after the threads were joined */
} pages_work;

/* Writes to every page. For kernels that cannot make pages present by themselves. */
static void pages_touch(char *start, size_t bytes, size_t page)
{
    for (size_t at = 0; at < bytes; at += page)
        *(volatile char *)(start + at) = 0;
}

static int pages_populate(const pages_work *work, char *start, size_t bytes)
{
    int answer = work->populate(start, bytes, PAGES_POPULATE_WRITE);
    while (answer != 0 && errno == EAGAIN) /* a page was taken away again meanwhile */
        answer = work->populate(start, bytes, PAGES_POPULATE_WRITE);
    if (answer == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
    pages_touch(start, bytes, work->page);
    return 0;
}

/* Takes parts until none is left. */
static void *pages_run(void *user)
{
    pages_work *work = user;
    for (;;) {
        const size_t at = atomic_fetch_add_explicit(&work->next, PAGES_PART, memory_order_relaxed);
        if (at >= work->bytes || atomic_load_explicit(&work->error, memory_order_relaxed)) return NULL;
        const size_t left = work->bytes - at, bytes = left < PAGES_PART ? left : PAGES_PART;
        const int error = pages_populate(work, work->start + at, bytes);
        if (error) atomic_store_explicit(&work->error, error, memory_order_relaxed);
    }
}

/* Returns how many threads share the work, the calling one included. */
static unsigned pages_choose_threads(size_t bytes)
{
    if (bytes < PAGES_PARALLEL_FROM) return 1;
    cpu_set_t allowed;
    const int processors = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    const size_t most = bytes / PAGES_FOR_THREAD < PAGES_THREADS_MAX ? bytes / PAGES_FOR_THREAD : PAGES_THREADS_MAX;
    return processors < 1 ? 1 : (size_t)processors < most ? (unsigned)processors : (unsigned)most;
}

/* Makes memory present. The calling thread takes part, so that a thread which cannot be started costs time only. The
 * threads have all signals blocked: handlers of the program never run in them. Returns 0 or an error number. */
static int pages_make_present(char *start, size_t bytes, size_t page, const lochi_cuda_pages_way *way)
{
    pages_work work = {.start = start, .bytes = bytes, .page = page, .populate = madvise};
    if (way && way->populate) work.populate = way->populate;
    int (*start_thread)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = pthread_create;
    if (way && way->start) start_thread = way->start;
    pthread_t threads[PAGES_THREADS_MAX];
    unsigned wanted = way && way->threads ? way->threads : pages_choose_threads(bytes), count = 0;
    if (wanted > PAGES_THREADS_MAX) wanted = PAGES_THREADS_MAX;
    if (wanted > 1) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        while (count + 1 < wanted && start_thread(&threads[count], NULL, pages_run, &work) == 0)
            count++;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pages_run(&work);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return atomic_load_explicit(&work.error, memory_order_relaxed);
}

/* --- the node --- */

/* Asks for pages of a node. Where that is not possible the pages come from anywhere. */
static void pages_place(void *address, size_t bytes, int node)
{
    if (node < 0 || node >= PAGES_NODES_MAX) return;
    loch_memory_info info = {.size = sizeof info};
    if (bytes >= PAGES_CHECKED_FROM) lochi_cpu_read_memory("", node, &info);
    const bool has_room = info.free_bytes >= bytes && info.free_bytes - bytes >= info.total_bytes / PAGES_NODE_MARGIN;
    unsigned long mask[PAGES_NODES_MAX / (8 * sizeof(unsigned long))] = {0};
    const size_t bits = 8 * sizeof *mask;
    mask[(size_t)node / bits] = 1ul << ((size_t)node % bits);
    (void)syscall(SYS_mbind, address, bytes, has_room ? PAGES_BIND : PAGES_PREFERRED, mask, 8 * sizeof mask, 0);
}

/* --- mapping --- */

static loch_status pages_refuse(int error, size_t bytes)
{
    return loch_error_set(LOCH_E_HOST_MEMORY, "cuda", error, "the host has no %s left that can be page-locked: %s",
                          LOCHI_SIZE(bytes), strerror(error));
}

/* Refuses a size that the host does not have. */
static loch_status pages_check_room(size_t bytes)
{
    if (bytes < PAGES_CHECKED_FROM) return LOCH_OK;
    loch_memory_info info = {.size = sizeof info};
    lochi_cpu_read_memory("", -1, &info);
    if (!info.total_bytes || bytes <= info.free_bytes) return LOCH_OK;
    return loch_error_set(LOCH_E_HOST_MEMORY, "cuda", ENOMEM,
                          "the host has no %s left that can be page-locked: %s of %s are available to this process",
                          LOCHI_SIZE(bytes), LOCHI_SIZE(info.free_bytes), LOCHI_SIZE(info.total_bytes));
}

/* Maps with an alignment above the page size: maps more, and unmaps both ends. */
static char *pages_map(size_t bytes, size_t alignment, size_t page)
{
    const size_t slack = alignment > page ? alignment - page : 0;
    size_t whole;
    if (!lochi_add(bytes, slack, &whole)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    char *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || !slack) return start;
    const size_t head = -(uintptr_t)start & (alignment - 1);
    if (head) munmap(start, head);
    if (slack > head) munmap(start + head + bytes, slack - head);
    return start + head;
}

loch_status lochi_cuda_map_pages(size_t bytes, size_t alignment, int node, const lochi_cuda_pages_way *way, void **out)
{
    LOCHI_NOT_CANCELLED;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t whole;
    if (!lochi_round_up(bytes, page, &whole)) return pages_refuse(ENOMEM, bytes);
    LOCH_TRY_RETURN(pages_check_room(whole));
    if (whole >= PAGES_HUGE && alignment < PAGES_HUGE) alignment = PAGES_HUGE;
    char *start = pages_map(whole, alignment, page);
    if (start == MAP_FAILED) return pages_refuse(errno, bytes);
    /* Huge pages are a hint. They are cleared and pinned in a fraction of the time, and the end of a block that is no
     * whole huge page gets small ones, so they cost no memory. */
    if (whole >= PAGES_HUGE) madvise(start, whole, MADV_HUGEPAGE);
    int error = madvise(start, whole, MADV_DONTFORK) == 0 ? 0 : errno;
    if (!error) {
        pages_place(start, whole, node);
        error = pages_make_present(start, whole, page, way);
    }
    if (error) {
        munmap(start, whole);
        return pages_refuse(error, bytes);
    }
    *out = start;
    return LOCH_OK;
}

void lochi_cuda_unmap_pages(void *address, size_t bytes)
{
    size_t whole;
    if (!lochi_round_up(bytes, (size_t)sysconf(_SC_PAGESIZE), &whole)) return;
    /* Unmapping the middle of what the kernel has merged fails at the limit of mappings. The pages are freed anyway. */
    if (munmap(address, whole) != 0) madvise(address, whole, MADV_DONTNEED);
}
