/* SPDX-License-Identifier: MIT */
/* What the library uses of its process, and how a program changes it: memory for records comes from the program's heap,
 * messages go to its log, and the last error of a thread can be read. */
#include <loch/loch.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Counts the pieces in use. Functions of a host allocator are called from any thread. */
typedef struct heap {
    atomic_size_t bytes, blocks;
} heap;

static void *heap_alloc(size_t bytes, size_t alignment, void *user)
{
    heap *h = user;
    void *address = NULL;
    if (posix_memalign(&address, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) != 0) return NULL;
    atomic_fetch_add(&h->bytes, bytes);
    atomic_fetch_add(&h->blocks, 1);
    return address;
}

static void heap_free(void *address, size_t bytes, void *user)
{
    heap *h = user;
    atomic_fetch_sub(&h->bytes, bytes);
    atomic_fetch_sub(&h->blocks, 1);
    free(address);
}

/* Receives one line without a line end, from any thread. Must not call Loch. */
static void log_line(loch_log_level level, const char *line, void *user)
{
    printf("  [%s] %s\n", level <= LOCH_LOG_WARNING ? "look here" : "for your information", line);
    atomic_fetch_add((atomic_int *)user, 1);
}

static loch_status work(void)
{
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(allocator) pool = NULL;
    void *block;
    LOCH_RETURN(loch_device_open("sim:64MiB", &device)); /* logged at level info */
    LOCH_RETURN(loch_pool_create(device, "pool", NULL, &pool));
    LOCH_RETURN(loch_alloc(pool, 1 << 20, &block));
    return loch_free(pool, block);
}

int main(void)
{
    heap h = {0};
    atomic_int lines = 0;
    const loch_host_allocator mine = {.size = sizeof mine, .alloc = heap_alloc, .free = heap_free, .user = &h};
    loch_host_usage usage = {.size = sizeof usage};
    LOCH_CHECK(loch_host_set_allocator(&mine)); /* before anything else: E_BUSY while pieces are in use */
    loch_log_set_hook(log_line, &lines, LOCH_LOG_INFO);
    puts("the log:");
    LOCH_CHECK(work());
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF);

    LOCH_CHECK(loch_host_get_usage(&usage));
    printf("behind the work %zu bytes of bookkeeping are out; the heap says %zu\n", usage.bytes, atomic_load(&h.bytes));
    LOCH_CHECK(loch_host_set_allocator(NULL)); /* no piece is in use: back to libc */
    loch_error_clear();                        /* clears the error record */
    loch_device *none;
    const loch_status missing = loch_device_open("quantum:0", &none);
    const loch_error *error = loch_error_get(); /* the record of this thread; valid until its next failure */
    printf("%s means: %s. Here: %s\n", loch_status_name(error->status), loch_status_text(error->status),
           error->sentence);
    return missing == LOCH_E_NOT_FOUND && error->status == missing && lines > 0 && usage.bytes == h.bytes &&
                   usage.blocks == h.blocks
               ? 0
               : 1;
}
