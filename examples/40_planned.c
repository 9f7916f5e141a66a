/* SPDX-License-Identifier: MIT */
/* A program that repeats itself: four steps are recorded and planned, later steps are served from the plan.
 *
 *     build/examples/40_planned [DEVICE] */
#include <loch/plan.h>
#include <loch/planned.h>
#include <stdio.h>

/* Runs one step of a small model: each layer needs its input, its output and scratch memory. */
static void run(loch_allocator *allocator, size_t layers)
{
    void *input, *output, *scratch;
    LOCH_CHECK(loch_alloc(allocator, 1 << 20, &input));
    for (size_t i = 0; i < layers; i++) {
        LOCH_CHECK(loch_alloc(allocator, (1 + i % 3) << 20, &scratch));
        LOCH_CHECK(loch_alloc(allocator, 1 << 20, &output));
        LOCH_CHECK(loch_free(allocator, scratch));
        LOCH_CHECK(loch_free(allocator, input));
        input = output;
    }
    LOCH_CHECK(loch_free(allocator, input));
}

int main(int count, char **arguments)
{
    loch_device *device;
    loch_allocator *pool;
    loch_planned *planned;
    loch_planned_info info = {.size = sizeof info};
    LOCH_CHECK(loch_device_open(count > 1 ? arguments[1] : "cpu", &device));
    LOCH_CHECK(loch_pool_create(device, "model", NULL, &pool));
    LOCH_CHECK(loch_planned_create(pool, NULL, NULL, &planned));
    for (size_t step = 0; step < 10; step++) {
        LOCH_CHECK(loch_planned_step(planned));
        run(loch_planned_get_allocator(planned), step == 8 ? 11 : 12); /* one step is shorter */
    }
    LOCH_CHECK(loch_planned_get_info(planned, &info));
    printf("a plan of %zu allocations in %llu KiB\n", info.period, (unsigned long long)(info.height >> 10));
    printf("%llu allocations served from it, %llu by the pool because they deviated\n", (unsigned long long)info.served,
           (unsigned long long)info.deviations);
    LOCH_CHECK(loch_planned_record(planned)); /* the program has changed: record again */
    for (size_t step = 0; step < 10; step++) {
        LOCH_CHECK(loch_planned_step(planned));
        run(loch_planned_get_allocator(planned), 20);
    }
    LOCH_CHECK(loch_planned_get_info(planned, &info));
    printf("a plan of %zu allocations in %llu KiB\n", info.period, (unsigned long long)(info.height >> 10));
    loch_planned_destroy(planned);
    loch_allocator_release(pool);
    loch_device_release(device);
    return 0;
}
