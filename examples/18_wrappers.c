/* SPDX-License-Identifier: MIT */
/* Wrappers find mistakes: red zones detect writes beyond a block, injected faults show whether a program handles a
 * shortage, a log records all requests, an arena drops many blocks together, and a wrapper of your own adds a rule.
 * Wrappers stack in any order. */
#include <loch/loch.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A wrapper of your own: refuses blocks above a size. Calls of empty slots go to the wrapped allocator. */
typedef struct picky {
    loch_allocator *wrapped;
    size_t max_bytes;
} picky;

static loch_status picky_alloc(void *self, const loch_request *request, void **out)
{
    picky *p = self;
    if (request->bytes > p->max_bytes)
        return loch_error_set(LOCH_E_LIMIT, NULL, 0, "%zu bytes in one block: %zu are the most", request->bytes,
                              p->max_bytes);
    return loch_allocator_alloc(p->wrapped, request, out);
}

static void picky_destroy(void *self)
{
    free(self); /* the library releases the wrapped allocator */
}

static loch_status picky_create(loch_allocator *wrapped, size_t max_bytes, loch_allocator **out)
{
    const loch_allocator_ops ops = {
        .size = sizeof ops, .kind = "picky", .alloc = picky_alloc, .destroy = picky_destroy};
    picky *p = malloc(sizeof *p);
    *out = NULL;
    if (!p) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for a wrapper");
    *p = (picky){wrapped, max_bytes};
    const loch_status status = loch_wrapper_create(wrapped, NULL, &ops, p, out);
    if (status != LOCH_OK) free(p);
    return status;
}

/* Writes one byte beyond the block. */
static int overrun(loch_allocator *redzone)
{
    void *block;
    LOCH_CHECK(loch_alloc(redzone, 100, &block));
    LOCH_CHECK(loch_redzone_check(redzone));
    ((volatile char *)block)[100] = 'x';
    const loch_status found = loch_redzone_check(redzone);
    printf("red zone: %s\n", loch_error_get()->sentence);
    const loch_status freed = loch_free(redzone, block); /* the block is freed anyway */
    return found == LOCH_E_CORRUPT && freed == LOCH_E_CORRUPT;
}

/* The third allocation from here fails, however much memory is free. */
static int survive(loch_allocator *fault)
{
    const loch_fault_options third = {.size = sizeof third, .after = 2, .count = 1};
    loch_status seen[4];
    void *blocks[4];
    LOCH_CHECK(loch_fault_set(fault, &third));
    for (int i = 0; i < 4; i++) {
        const loch_request request = {.size = sizeof request, .bytes = 64, .flags = LOCH_ALLOC_NO_RETRY};
        seen[i] = loch_allocator_alloc(fault, &request, &blocks[i]);
        printf("allocation %d: %s\n", i + 1, loch_status_name(seen[i]));
        LOCH_CHECK(loch_free(fault, blocks[i])); /* NULL after a failure; freeing NULL succeeds */
    }
    LOCH_CHECK(loch_fault_set(fault, NULL));
    return seen[1] == LOCH_OK && seen[2] == LOCH_E_DEVICE_MEMORY && seen[3] == LOCH_OK;
}

static void above(loch_allocator *limit, uint64_t requested_bytes, void *user)
{
    printf("%s: %llu bytes are in use\n", loch_allocator_get_name(limit), (unsigned long long)requested_bytes);
    ++*(int *)user;
}

static loch_status count_block(const loch_block *block, void *bytes)
{
    *(size_t *)bytes += block->requested_bytes;
    return LOCH_OK;
}

/* Changes the limits while blocks are allocated. */
static int tighten(loch_allocator *limit, const int *warnings)
{
    void *block, *more;
    size_t bytes = 0;
    LOCH_CHECK(loch_alloc(limit, 3000, &block)); /* above the soft limit */
    LOCH_CHECK(loch_limit_set(limit, 4000, 0));
    const loch_status refused = loch_alloc(limit, 2000, &more);
    LOCH_CHECK(loch_limit_set(limit, 10000, 0));
    LOCH_CHECK(loch_allocator_walk(limit, count_block, &bytes));
    LOCH_CHECK(loch_free(limit, block));
    return refused == LOCH_E_LIMIT && *warnings == 1 && bytes == 3000;
}

/* Many blocks for a while: each costs a few nanoseconds, and all are dropped together. */
static int drop_together(loch_allocator *base)
{
    LOCH_AUTO(allocator) arena = NULL;
    void *block, *first = NULL;
    int same = 0;
    LOCH_CHECK(loch_arena_create(base, "request", LOCH_OPTIONS(arena, .piece_bytes = 64 << 10), &arena));
    for (int request = 0; request < 3; request++) {
        for (int i = 0; i < 1000; i++) {
            LOCH_CHECK(loch_alloc(arena, 48, &block));
            if (i == 0) same += block == first;
            if (i == 0) first = block;
        }
        LOCH_CHECK(loch_arena_reset(arena, NULL));
    }
    printf("arena: %d requests began where the one before did\n", same);
    return same == 2;
}

int main(void)
{
    char path[] = "/tmp/loch-example-XXXXXX", line[256];
    const int file = mkstemp(path);
    int warnings = 0, right = 0, lines = 0;
    if (file < 0) return 1;
    close(file);
    const loch_logging_options csv = {.size = sizeof csv, .format = LOCH_LOGGING_CSV, .path = path};
    const loch_limit_options limits = {
        .size = sizeof limits, .hard_bytes = 10000, .soft_bytes = 2500, .above = above, .user = &warnings};
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(allocator) base = NULL;
    LOCH_AUTO(allocator) small = NULL;
    LOCH_AUTO(allocator) redzone = NULL;
    LOCH_AUTO(allocator) fault = NULL;
    LOCH_AUTO(allocator) limit = NULL;
    LOCH_AUTO(allocator) logging = NULL;
    LOCH_CHECK(loch_device_open("cpu", &device));
    LOCH_CHECK(loch_device_acquire_default(device, &base));
    LOCH_CHECK(picky_create(base, 4096, &small));
    LOCH_CHECK(loch_redzone_create(small, NULL, NULL, &redzone));
    LOCH_CHECK(loch_fault_create(redzone, NULL, NULL, &fault));
    LOCH_CHECK(loch_limit_create(fault, "limited", &limits, &limit));
    LOCH_CHECK(loch_logging_create(limit, "logged", &csv, &logging));
    for (loch_allocator *a = logging; a; a = loch_allocator_get_wrapped(a))
        printf("%s%s", loch_allocator_get_name(a), loch_allocator_get_wrapped(a) ? " around " : "\n");
    /* all of them are thread safe, so the stack is too */
    right += (loch_allocator_get_traits(logging) & LOCH_TRAIT_THREAD_SAFE) != 0;

    right += overrun(redzone);
    right += survive(fault);
    right += tighten(limit, &warnings);
    right += drop_together(base);
    void *block, *huge;
    LOCH_CHECK(loch_alloc(logging, 1000, &block));
    right += loch_alloc(logging, 5000, &huge) == LOCH_E_LIMIT;
    printf("of one's own: %s\n", loch_error_get()->sentence);
    LOCH_CHECK(loch_free(logging, block));
    LOCH_CHECK(loch_logging_flush(logging));
    FILE *log = fopen(path, "r");
    while (log && fgets(line, sizeof line, log))
        lines++;
    if (log) fclose(log);
    printf("the log has %d lines\n", lines);
    unlink(path);
    return right == 6 && lines == 4 ? 0 : 1; /* a header, two allocations of which one failed, and a free */
}
