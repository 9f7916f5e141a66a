/* SPDX-License-Identifier: MIT */
/* The small parts of a simulated fleet: the queue of events, the room of the devices, random numbers. */
#include "test.h"
#include "tool_heap.h"
#include "fleet_places.h"
#include "fleet_queue.h"
#include "fleet_random.h"
#include <math.h>

/* --- the queue --- */

static int compare_events(const void *a, const void *b)
{
    const fleet_event *left = a, *right = b;
    if (left->time_ns != right->time_ns) return left->time_ns < right->time_ns ? -1 : 1;
    if (left->kind != right->kind) return left->kind < right->kind ? -1 : 1;
    return left->number < right->number ? -1 : left->number > right->number;
}

/* A queue beside a sorted list. Few different times, so that many events are of one time. */
static void test_events_come_out_in_order(void **state)
{
    (void)state;
    test_random random = {test_seed(11)};
    for (int round = 0; round < 50; round++) {
        fleet_queue queue = {.events = NULL};
        fleet_event model[400], taken;
        size_t count = 0;
        uint64_t number = 0;
        for (int step = 0; step < 2000; step++) {
            if (count < 400 && test_random_below(&random, 5) < 3) {
                model[count].time_ns = test_random_below(&random, 20);
                model[count].number = number++;
                model[count].kind = (uint32_t)test_random_below(&random, 4);
                model[count].subject = (uint32_t)test_random_next(&random);
                assert_true(fleet_queue_put(&queue, model[count].time_ns, model[count].kind, model[count].subject));
                count++;
            } else if (count) {
                qsort(model, count, sizeof *model, compare_events);
                assert_true(fleet_queue_take(&queue, &taken));
                assert_memory_equal(&taken, &model[0], sizeof taken);
                memmove(model, model + 1, --count * sizeof *model);
            }
        }
        while (count--)
            assert_true(fleet_queue_take(&queue, &taken));
        assert_false(fleet_queue_take(&queue, &taken));
        fleet_queue_free(&queue);
    }
}

static void test_a_queue_without_memory_keeps_its_events(void **state)
{
    (void)state;
    fleet_queue queue = {.events = NULL};
    fleet_event event;
    uint32_t kept = 0;
    tool_heap_left = 2;
    while (fleet_queue_put(&queue, 1000 - kept, 0, kept))
        kept++;
    tool_heap_left = UINT64_MAX;
    assert_true(kept >= 64);
    for (uint32_t i = kept; i--;) {
        assert_true(fleet_queue_take(&queue, &event));
        assert_int_equal(event.subject, i);
    }
    assert_false(fleet_queue_take(&queue, &event));
    fleet_queue_free(&queue);
    fleet_queue_free(&queue);
}

/* --- room --- */

static size_t find_first(const fleet_room *rooms, size_t count, fleet_room need)
{
    for (size_t i = 0; i < count; i++)
        if (rooms[i].bytes >= need.bytes && rooms[i].compute >= need.compute) return i;
    return FLEET_PLACES_NONE;
}

static void test_the_first_device_with_room_is_found(void **state)
{
    (void)state;
    test_random random = {test_seed(12)};
    for (size_t count = 1; count < 70; count++) {
        fleet_places places;
        fleet_room rooms[70];
        size_t found = 0;
        assert_true(fleet_places_make(&places, count, (fleet_room){10, 10}));
        for (size_t i = 0; i < count; i++)
            rooms[i] = (fleet_room){10, 10};
        for (int step = 0; step < 500; step++) {
            const size_t device = test_random_below(&random, count);
            rooms[device] = (fleet_room){test_random_below(&random, 12), test_random_below(&random, 12)};
            fleet_places_set(&places, device, rooms[device]);
            assert_int_equal(fleet_places_get(&places, device).bytes, rooms[device].bytes);
            const fleet_room need = {test_random_below(&random, 14), test_random_below(&random, 14)};
            const size_t expected = find_first(rooms, count, need);
            assert_int_equal(fleet_places_find(&places, need), expected);
            found += expected != FLEET_PLACES_NONE;
        }
        assert_true(found > 0 && found < 500);
        fleet_places_free(&places);
    }
}

static void test_places_without_memory(void **state)
{
    (void)state;
    fleet_places places;
    tool_heap_left = 0;
    assert_false(fleet_places_make(&places, 5, (fleet_room){1, 1}));
    tool_heap_left = UINT64_MAX;
    fleet_places_free(&places);
}

/* --- random numbers --- */

#define DRAWS 200000

/* Compares mean and shares with the distribution's own. The bounds are six times the standard error or more: a right
 * generator passes with all seeds. */
static void test_exponential_gaps(void **state)
{
    (void)state;
    fleet_random random = fleet_random_start(test_seed(13), 5);
    double sum = 0, squares = 0;
    size_t above = 0;
    for (size_t i = 0; i < DRAWS; i++) {
        const double gap = fleet_random_exponential(&random, 2.5);
        assert_true(gap >= 0 && isfinite(gap));
        sum += gap;
        squares += gap * gap;
        above += gap > 2.5;
    }
    const double mean = sum / DRAWS, variance = squares / DRAWS - mean * mean;
    assert_true(fabs(mean - 2.5) < 0.04);
    assert_true(fabs(variance - 6.25) < 0.35);
    assert_true(fabs((double)above / DRAWS - exp(-1)) < 0.008);
}

static void test_heavy_gaps(void **state)
{
    (void)state;
    const double shape = 3, mean = 4;
    fleet_random random = fleet_random_start(test_seed(14), 5);
    const double median = mean * (shape - 1) * (pow(2, 1 / shape) - 1), far = 10 * mean;
    double sum = 0;
    size_t above = 0, beyond = 0;
    for (size_t i = 0; i < DRAWS; i++) {
        const double gap = fleet_random_heavy(&random, mean, shape);
        assert_true(gap >= 0 && isfinite(gap));
        sum += gap;
        above += gap > median;
        beyond += gap > far;
    }
    assert_true(fabs(sum / DRAWS - mean) < 0.4);
    assert_true(fabs((double)above / DRAWS - 0.5) < 0.01);
    /* the tail: (1 + far / scale) to the power of -shape = 1/216; exponential gaps would have 1/22026 */
    assert_true(fabs((double)beyond / DRAWS - 1.0 / 216) < 0.0015);
}

static void test_programs_are_picked_by_weight(void **state)
{
    (void)state;
    const double sums[] = {1, 1.5, 4.5, 10};
    size_t counts[4] = {0};
    fleet_random random = fleet_random_start(test_seed(15), 1);
    for (size_t i = 0; i < DRAWS; i++)
        counts[fleet_random_pick(&random, sums, 4)]++;
    for (int i = 0; i < 4; i++) {
        const double expected = (sums[i] - (i ? sums[i - 1] : 0)) / 10;
        assert_true(fabs((double)counts[i] / DRAWS - expected) < 0.008);
    }
}

static void test_sequences_are_repeatable_and_different(void **state)
{
    (void)state;
    fleet_random a = fleet_random_start(7, 1), same = fleet_random_start(7, 1);
    fleet_random other = fleet_random_start(7, 2), another = fleet_random_start(8, 1);
    for (int i = 0; i < 1000; i++) {
        const uint64_t bits = fleet_random_draw(&a);
        assert_true(bits == fleet_random_draw(&same));
        assert_true(bits != fleet_random_draw(&other) && bits != fleet_random_draw(&another));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_come_out_in_order),
        cmocka_unit_test(test_a_queue_without_memory_keeps_its_events),
        cmocka_unit_test(test_the_first_device_with_room_is_found),
        cmocka_unit_test(test_places_without_memory),
        cmocka_unit_test(test_exponential_gaps),
        cmocka_unit_test(test_heavy_gaps),
        cmocka_unit_test(test_programs_are_picked_by_weight),
        cmocka_unit_test(test_sequences_are_repeatable_and_different),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
