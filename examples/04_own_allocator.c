/* SPDX-License-Identifier: MIT */
/* An allocator of your own needs three functions. This one cuts pieces off a slab and starts again when the last piece
 * is freed. The library does the rest: sizes, ids and tags of live blocks, statistics, and the detection of wrong
 * frees, in release builds too. */
#include <loch/loch.h>
#include <stdio.h>
#include <stdlib.h>

#define SLAB_BYTES ((size_t)1 << 20)

typedef struct slab {
    loch_allocator *source; /* the allocator that the slab comes from */
    void *start;
    size_t used, pieces;
} slab;

/* Cuts a piece off the slab. The library has checked the arguments: bytes are not 0, an alignment is a power of two or
 * 0. */
static loch_status slab_alloc(void *self, const loch_request *request, void **out)
{
    slab *s = self;
    const size_t alignment = request->alignment ? request->alignment : 16;
    const size_t start = (s->used + alignment - 1) & ~(alignment - 1);
    if (start > SLAB_BYTES || request->bytes > SLAB_BYTES - start)
        return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "the slab has %zu bytes left, not %zu",
                              SLAB_BYTES - s->used, request->bytes);
    *out = (char *)s->start + start;
    s->used = start + request->bytes;
    s->pieces++;
    return LOCH_OK;
}

/* Frees a piece. The library passes only addresses of live blocks. */
static loch_status slab_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    (void)address, (void)bytes,
        (void)stream; /* on the CPU all work is done when a call returns, so there is nothing to wait for */
    slab *s = self;
    if (--s->pieces == 0) s->used = 0;
    return LOCH_OK;
}

/* Called when the last reference and the last block are gone. */
static void slab_destroy(void *self)
{
    slab *s = self;
    if (loch_free(s->source, s->start) != LOCH_OK) fprintf(stderr, "%s\n", loch_error_get()->sentence);
    loch_allocator_release(s->source);
    free(s);
}

static loch_status slab_create(loch_device *device, loch_allocator **out)
{
    /* LOCH_TRAIT_THREAD_SAFE is not among the traits: wrap it by loch_locked_create for several threads. */
    const loch_allocator_ops ops = {
        .size = sizeof ops, .kind = "slab", .alloc = slab_alloc, .free = slab_free, .destroy = slab_destroy};
    *out = NULL;
    slab *s = calloc(1, sizeof *s);
    if (!s) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for a slab");
    loch_status status = loch_direct_create(device, "slab source", NULL, &s->source);
    if (status == LOCH_OK) status = loch_alloc(s->source, SLAB_BYTES, &s->start);
    if (status == LOCH_OK) status = loch_allocator_create(device, "my slab", &ops, s, out);
    if (status == LOCH_OK) return LOCH_OK;
    if (s->start)
        slab_destroy(s);
    else {
        loch_allocator_release(s->source);
        free(s);
    }
    return status;
}

int main(void)
{
    loch_device *device;
    loch_allocator *mine;
    void *a, *b, *c;
    char figures[2048];
    loch_stats stats = {.size = sizeof stats};
    const loch_request aligned = {.size = sizeof aligned, .bytes = 5000, .alignment = 4096};

    LOCH_CHECK(loch_device_open("cpu", &device));
    LOCH_CHECK(slab_create(device, &mine));
    LOCH_CHECK(loch_alloc(mine, 1000, &a));
    LOCH_CHECK(loch_allocator_alloc(mine, &aligned, &b));
    LOCH_CHECK(loch_free(mine, a));
    LOCH_CHECK(loch_allocator_get_stats(mine, &stats));

    const loch_status twice = loch_free(mine, a), inside = loch_free(mine, (char *)b + 8);
    printf("freed twice: %s; freed inside: %s\n", loch_status_name(twice), loch_status_name(inside));
    const loch_status full = loch_alloc(mine, 2 * SLAB_BYTES, &c);
    printf("too much: %s (%s)\n", loch_status_name(full), loch_error_get()->sentence);
    LOCH_CHECK(loch_stats_print(&stats, LOCH_FORMAT_TEXT, figures, sizeof figures, NULL));
    printf("%s", figures);

    LOCH_CHECK(loch_free(mine, b));
    loch_allocator *shared; /* the same allocator for several threads, one at a time */
    LOCH_CHECK(loch_locked_create(mine, NULL, &shared));
    const int is_safe = (loch_allocator_get_traits(shared) & LOCH_TRAIT_THREAD_SAFE) != 0;
    loch_allocator_release(shared);
    loch_allocator_release(mine);
    loch_device_release(device);
    return twice == LOCH_E_DOUBLE_FREE && inside == LOCH_E_INTERIOR && full == LOCH_E_DEVICE_MEMORY &&
                   stats.requested_bytes == 5000 && is_safe
               ? 0
               : 1;
}
