/* SPDX-License-Identifier: MIT */
/* A timeline: nested spans of work on the host and on a device, with the operations done and the memory used, printed
 * as a tree and saved as a file for chrome://tracing and Perfetto. */
#include <loch/engine.h>
#include <loch/loch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES ((size_t)1 << 20)

static loch_status layer(loch_timeline *timeline, loch_allocator *pool, loch_stream *stream, loch_buffer **kept)
{
    LOCH_SPAN(timeline, "layer", .allocator = pool); /* ends with this function, on every way out */
    {
        LOCH_SPAN(timeline, "attention", .level = 1, .stream = stream, .flops = 2e6);
        LOCH_RETURN(loch_buffer_create(pool, BYTES, NULL, kept));
        LOCH_RETURN(loch_buffer_fill(*kept, "a", 1, stream));
    }
    /* a pair of calls, for compilers without cleanup */
    const loch_span_options work = {.size = sizeof work, .flops = 3e6, .bytes = 3 * 4096};
    loch_span span = loch_span_begin(timeline, "feed-forward", &work);
    loch_span_end(&span);
    LOCH_SPAN(timeline, "details", .level = 2); /* above the timeline's level: not recorded */
    return LOCH_OK;
}

typedef struct sums {
    double flops;
    uint64_t grown;
    unsigned deepest;
} sums;

static loch_status add(const loch_span_record *record, void *user)
{
    sums *s = user;
    s->flops += record->flops;
    s->grown += record->used_end - record->used_begin;
    if (record->depth > s->deepest) s->deepest = record->depth;
    return LOCH_OK;
}

static loch_status print(loch_timeline *timeline)
{
    size_t length;
    LOCH_RETURN(loch_timeline_print(timeline, LOCH_TIMELINE_TREE, 0, NULL, 0, &length)); /* asks for the length */
    char *text = malloc(length + 1);
    if (!text) return LOCH_E_HOST_MEMORY;
    const loch_status status = loch_timeline_print(timeline, LOCH_TIMELINE_TREE, 0, text, length + 1, NULL);
    if (status == LOCH_OK) fputs(text, stdout);
    free(text);
    return status;
}

int main(void)
{
    char path[] = "/tmp/loch-example-XXXXXX", start[16] = "";
    const int file = mkstemp(path);
    if (file < 0) return 1;
    close(file);
    uint64_t lost = 1;
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(stream) stream = NULL;
    LOCH_AUTO(allocator) pool = NULL;
    loch_buffer *kept[4];
    loch_timeline *timeline;
    const loch_timeline_options options = {.size = sizeof options, .level = 0};
    sums s = {0, 0, 0};
    size_t spans = 0, forgotten = 1;
    LOCH_CHECK(loch_device_open("sim:64MiB", &device));
    LOCH_CHECK(loch_stream_create(device, NULL, &stream));
    LOCH_CHECK(loch_pool_create(device, "model", NULL, &pool));
    LOCH_CHECK(loch_timeline_create(&options, &timeline));
    loch_timeline_set_level(timeline, 1); /* more than the options say */
    for (size_t i = 0; i < 4; i++)
        LOCH_CHECK(layer(timeline, pool, stream, &kept[i]));
    loch_timeline_count(timeline, &spans, &lost);
    LOCH_CHECK(loch_timeline_walk(timeline, add, &s));
    LOCH_CHECK(print(timeline));
    LOCH_CHECK(loch_timeline_save(timeline, path, LOCH_TIMELINE_TRACE, 0));
    loch_timeline_forget(timeline); /* continue with the next steps */
    loch_timeline_count(timeline, &forgotten, NULL);
    loch_timeline_destroy(timeline);
    printf("%zu spans, %g operations, %llu MiB more in use\n", spans, s.flops, (unsigned long long)(s.grown >> 20));
    for (size_t i = 0; i < 4; i++)
        loch_buffer_release(kept[i]);

    FILE *trace = fopen(path, "r");
    const int saved = trace && fgets(start, sizeof start, trace) && strchr("[{", start[0]);
    if (trace) fclose(trace);
    unlink(path);
    return spans == 12 && lost == 0 && forgotten == 0 && saved && s.flops == 4 * (2e6 + 3e6) && s.grown == 4 * BYTES &&
                   s.deepest == 1
               ? 0
               : 1;
}
