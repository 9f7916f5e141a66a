/* SPDX-License-Identifier: MIT */
/* Finds out where memory went: the peak of a step, the blocks that it left behind by tag and by id, the sizes of its
 * requests and their durations, and the time of each allocation and free. All of it works in release builds. */
#include <loch/engine.h>
#include <loch/loch.h>
#include <stdio.h>

#define KIB ((size_t)1024)
#define STEPS 8

static loch_status take(loch_allocator *allocator, loch_tag tag, size_t bytes, void **out)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .tag = tag};
    return loch_allocator_alloc(allocator, &request, out);
}

/* Runs a step: allocates and frees activations, and adds a block to the cache that stays. */
static loch_status step(loch_allocator *allocator, loch_tag activations, loch_tag cache, size_t number, void **kept)
{
    void *a, *b;
    LOCH_RETURN(take(allocator, activations, (number + 1) * 64 * KIB, &a));
    LOCH_RETURN(take(allocator, activations, 256 * KIB, &b));
    LOCH_RETURN(take(allocator, cache, 32 * KIB, kept));
    LOCH_RETURN(loch_free(allocator, a));
    return loch_free(allocator, b);
}

static loch_status show_block(const loch_block *block, void *count)
{
    printf("  block %llu: %zu bytes of %s\n", (unsigned long long)block->id, block->requested_bytes,
           loch_tag_name(block->tag));
    ++*(size_t *)count;
    return LOCH_OK;
}

static loch_status show_sum(const loch_census_tag *sum, void *user)
{
    (void)user;
    printf("  %s: %llu blocks, %llu KiB\n", loch_tag_name(sum->tag), (unsigned long long)sum->blocks,
           (unsigned long long)(sum->requested_bytes / KIB));
    return LOCH_OK;
}

static loch_status sum_record(const loch_tracking_record *record, void *sum)
{
    *(int64_t *)sum += record->bytes; /* positive for an allocation, negative for a free */
    return LOCH_OK;
}

/* Tags belong to the whole process. */
static loch_status show_tag(loch_tag tag, const char *name, void *user)
{
    loch_stats stats = {.size = sizeof stats};
    LOCH_RETURN(loch_allocator_get_tag_stats(user, tag, &stats));
    printf("  %s: %llu allocations, at most %llu KiB in use\n", name, (unsigned long long)stats.allocs,
           (unsigned long long)(stats.peak_requested_bytes / KIB));
    return LOCH_OK;
}

int main(void)
{
    const loch_tracking_options records = {.size = sizeof records, .records = 64};
    loch_profile_report now = {.size = sizeof now}, report = {.size = sizeof report};
    loch_measurements measured = {.size = sizeof measured};
    loch_stats stats = {.size = sizeof stats};
    loch_profile *profile;
    loch_census *before, *after;
    loch_tag activations, cache;
    void *kept[STEPS];
    char text[512];
    size_t left = 0;
    int64_t sum = 0;
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(allocator) pool = NULL;
    LOCH_AUTO(allocator) tracked = NULL;
    LOCH_CHECK(loch_tag_create("activations", &activations));
    LOCH_CHECK(loch_tag_create("cache", &cache));
    LOCH_CHECK(loch_device_open("cpu", &device));
    LOCH_CHECK(loch_pool_create(device, "model", NULL, &pool));
    LOCH_CHECK(loch_tracking_create(pool, "tracked", &records, &tracked));

    LOCH_CHECK(loch_allocator_measure(tracked, LOCH_MEASURE_ON));
    LOCH_CHECK(loch_profile_begin(tracked, "eight steps", &profile));
    LOCH_CHECK(loch_census_create(tracked, &before));
    for (size_t i = 0; i < STEPS; i++) {
        LOCH_CHECK(step(tracked, activations, cache, i, &kept[i]));
        LOCH_CHECK(loch_profile_read(profile, &now));
        printf("step %zu: %llu KiB live\n", i + 1, (unsigned long long)(now.requested_bytes / KIB));
    }
    LOCH_CHECK(loch_profile_read(profile, &report));
    LOCH_CHECK(loch_profile_print(&report, LOCH_FORMAT_TEXT, text, sizeof text, NULL));
    loch_profile_end(profile, NULL);
    fputs(text, stdout);

    LOCH_CHECK(loch_census_create(tracked, &after));
    puts("left behind:");
    LOCH_CHECK(loch_census_walk_tags(after, before, show_sum, NULL));
    LOCH_CHECK(loch_census_walk(after, before, show_block, &left));
    loch_census_destroy(before);
    loch_census_destroy(after);
    puts("by tag:");
    LOCH_CHECK(loch_tag_walk(show_tag, tracked));

    LOCH_CHECK(loch_allocator_get_measurements(tracked, &measured));
    LOCH_CHECK(loch_tracking_walk(tracked, sum_record, &sum));
    printf("half of the requests were for %llu KiB or less; the records sum up to %lld KiB\n",
           (unsigned long long)(loch_histogram_percentile(&measured.bytes, 0.5) / KIB),
           (long long)(sum / (int64_t)KIB));
    LOCH_CHECK(loch_allocator_get_stats(pool, &stats));
    const double broken_up = loch_stats_fragmentation(&stats);
    printf("of the memory that the pool keeps, %.0f%% are not in its largest piece\n", 100 * broken_up);
    for (size_t i = 0; i < STEPS; i++)
        LOCH_CHECK(loch_free(tracked, kept[i]));
    return report.delta_bytes == (int64_t)(STEPS * 32 * KIB) && report.delta_blocks == STEPS && left == STEPS &&
                   report.peak_bytes == (512 + 256 + 8 * 32) * KIB && sum == report.delta_bytes &&
                   measured.bytes.count == 3 * STEPS && broken_up >= 0 && broken_up < 1
               ? 0
               : 1;
}
