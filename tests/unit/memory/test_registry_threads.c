/* SPDX-License-Identifier: MIT */
/* The registry of allocators under threads: factories run once, may ask for each other, and are waited for by a
 * removal. */
#include "registry_fixture.h"
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 8

/* --- threads --- */

typedef struct racer {
    pthread_t thread;
    loch_device *device;
    const char *name; /* to look for; NULL for the device's allocator */
    loch_attributes attributes;
    pthread_barrier_t *start;
    loch_allocator *found;
    loch_status status;
} racer;

static void *race(void *user)
{
    racer *r = user;
    if (r->start) pthread_barrier_wait(r->start);
    r->status = r->name ? loch_registry_acquire(r->name, r->device, &r->found)
                        : loch_device_acquire_allocator(r->device, r->attributes, LOCH_FALLBACK_NONE, &r->found);
    return NULL;
}

/* All at once; they must find one and the same. */
static void race_for(loch_device *device, loch_attributes attributes, size_t count)
{
    racer racers[THREADS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)count);
    for (size_t i = 0; i < count; i++)
        racers[i] = (racer){.device = device, .attributes = attributes, .start = &start};
    test_threads_run(race, racers, sizeof *racers, count);
    pthread_barrier_destroy(&start);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(racers[i].status, LOCH_OK);
        assert_ptr_equal(racers[i].found, racers[0].found);
    }
    for (size_t i = 0; i < count; i++)
        loch_allocator_release(racers[i].found);
}

static void made_once_under_any_race(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    const loch_attributes kinds[] = {
        own, pinned, on_host, {0, 7}, {LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE, 7}};
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            race_for(device, kinds[i], THREADS);
        shut_down(0);
        workshop shop = {.wraps = round % 2 ? "" : NULL};
        CHECK_OK(loch_registry_add_factory("shop", 1, work, &shop));
        race_for(device, own, THREADS);
        assert_int_equal(shop.calls, 1);
        shut_down(0);
    }
    loch_device_release(device);
}

/* Each factory looks for what the other is making. */
static void factories_that_ask_for_each_other_do_not_hang(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    pthread_barrier_t meet;
    pthread_barrier_init(&meet, NULL, 2);
    workshop one = {.wraps = "two", .meet = &meet}, two = {.wraps = "one", .meet = &meet};
    CHECK_OK(loch_registry_add_factory("one", 1, work, &one));
    CHECK_OK(loch_registry_add_factory("two", 1, work, &two));
    racer racers[2] = {{.device = device, .name = "one"}, {.device = device, .name = "two"}};
    TEST_THREADS_RUN(race, racers);
    assert_int_equal(racers[0].status, LOCH_OK);
    assert_int_equal(racers[1].status, LOCH_OK);
    const bool first_wraps = loch_allocator_get_wrapped(racers[0].found) == racers[1].found;
    const bool second_wraps = loch_allocator_get_wrapped(racers[1].found) == racers[0].found;
    assert_true(first_wraps != second_wraps);
    assert_int_equal(one.calls + two.calls, 2);
    for (int i = 0; i < 2; i++)
        loch_allocator_release(racers[i].found);
    pthread_barrier_destroy(&meet);
    shut_down(0);
    loch_device_release(device);
}

typedef struct slow_shop {
    pthread_barrier_t entered, leave;
    atomic_bool has_left, was_inside;
} slow_shop;

static loch_status work_slowly(loch_device *device, loch_attributes attributes, void *user, loch_allocator **out)
{
    (void)attributes;
    slow_shop *shop = user;
    pthread_barrier_wait(&shop->entered);
    pthread_barrier_wait(&shop->leave);
    const loch_status status = loch_direct_create(device, "slow", NULL, out);
    atomic_store(&shop->has_left, true);
    return status;
}

static void *remove_slow(void *user)
{
    slow_shop *shop = user;
    const loch_status status = loch_registry_remove("slow", 1);
    atomic_store(&shop->was_inside, status != LOCH_OK || !atomic_load(&shop->has_left));
    return NULL;
}

static loch_status is_slow_there(const loch_registry_entry *entry, void *user)
{
    *(bool *)user |= !strcmp(entry->name, "slow");
    return LOCH_OK;
}

static void removal_waits_for_the_factory(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    slow_shop shop = {0};
    pthread_barrier_init(&shop.entered, NULL, 2);
    pthread_barrier_init(&shop.leave, NULL, 2);
    CHECK_OK(loch_registry_add_factory("slow", 1, work_slowly, &shop));
    racer r = {.device = device, .name = "slow"};
    pthread_t remover;
    assert_int_equal(pthread_create(&r.thread, NULL, race, &r), 0);
    pthread_barrier_wait(&shop.entered);
    assert_int_equal(pthread_create(&remover, NULL, remove_slow, &shop), 0);
    for (bool is_there = true; is_there;) { /* until the remover waits: the entry has left the list by then */
        is_there = false;
        CHECK_OK(loch_registry_walk(is_slow_there, &is_there));
    }
    pthread_barrier_wait(&shop.leave);
    pthread_join(remover, NULL);
    pthread_join(r.thread, NULL);
    assert_false(atomic_load(&shop.was_inside));
    assert_int_equal(r.status, LOCH_OK); /* the allocator belongs to the caller that asked for it */
    void *block;
    CHECK_OK(loch_alloc(r.found, 100, &block));
    CHECK_OK(loch_free(r.found, block));
    loch_allocator_release(r.found);
    pthread_barrier_destroy(&shop.entered);
    pthread_barrier_destroy(&shop.leave);
    loch_device_release(device);
}

typedef struct stormer {
    pthread_t thread;
    test_random random;
    loch_device *device;
    int index;
    char failure[200];
} stormer;

static loch_status count_entry(const loch_registry_entry *entry, void *user)
{
    *(size_t *)user += *entry->name != '\0';
    return LOCH_OK;
}

static void storm_step(stormer *w, int step)
{
    loch_allocator *found = NULL;
    size_t count = 0;
    char name[32];
    loch_status status = LOCH_OK;
    snprintf(name, sizeof name, "own %d", w->index);
    const size_t what = test_random_below(&w->random, 7);
    if (what == 0) {
        status = loch_direct_create(w->device, name, NULL, &found);
        if (status == LOCH_OK) status = loch_registry_add(found, NULL, (int)test_random_below(&w->random, 3));
        if (status == LOCH_E_EXISTS) status = LOCH_OK;
    } else if (what == 1) {
        status = loch_registry_remove(name, (int)test_random_below(&w->random, 3));
        if (status == LOCH_E_NOT_FOUND) status = LOCH_OK;
    } else if (what == 2) {
        status = loch_registry_walk(count_entry, &count);
    } else if (what == 3) {
        status = loch_registry_acquire(name, w->device, &found);
        if (status == LOCH_E_NOT_FOUND) status = LOCH_OK;
    } else if (what == 4 && step % 64 == 0) {
        status = loch_registry_clear(NULL, NULL, NULL);
    } else if (what == 5 && step % 16 == 0) {
        status = loch_device_set_allocator(w->device, NULL);
    } else {
        const loch_attributes attributes = {test_random_below(&w->random, 2) ? pinned.bits : 0,
                                            (int32_t)test_random_below(&w->random, 2)};
        void *block = NULL;
        status = loch_device_acquire_allocator(w->device, attributes, LOCH_FALLBACK_NONE, &found);
        if (status == LOCH_OK) status = loch_alloc(found, 512, &block);
        if (status == LOCH_OK) status = loch_free(found, block);
    }
    loch_allocator_release(found);
    if (status != LOCH_OK)
        snprintf(w->failure, sizeof w->failure, "step %d of kind %zu: %.150s", step, what, loch_error_get()->sentence);
}

static void *storm(void *user)
{
    stormer *w = user;
    for (int step = 0; step < 400 && !w->failure[0]; step++)
        storm_step(w, step);
    return NULL;
}

static void the_registry_stays_whole_under_threads(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(20);
    loch_device *device = sim_open(DEVICE);
    stormer workers[THREADS];
    for (int i = 0; i < THREADS; i++)
        workers[i] = (stormer){.random = {seed + (uint64_t)i}, .device = device, .index = i};
    TEST_THREADS_RUN(storm, workers);
    for (int i = 0; i < THREADS; i++)
        if (workers[i].failure[0]) fail_msg("%s", workers[i].failure);
    shut_down(0);
    assert_int_equal(sim_stats(device).physical_bytes, 0);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(made_once_under_any_race),
        SIM_TEST(factories_that_ask_for_each_other_do_not_hang),
        SIM_TEST(removal_waits_for_the_factory),
        SIM_TEST(the_registry_stays_whole_under_threads),
    };
    return cmocka_run_group_tests_name("registry", tests, install, NULL);
}
