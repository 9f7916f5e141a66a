/* SPDX-License-Identifier: MIT */
/* The registry of allocators: who wins, what factories are asked for and how often, the devices' defaults, and the
 * end. */
#include "sim_fixture.h"
#include "sweep.h"

#include <pthread.h>
#include <stdatomic.h>

#define DEVICE "sim:64MiB,backed"
#define THREADS 8

static const loch_attributes own = {0, 0};
static const loch_attributes on_host = {LOCH_ATTRIBUTE_ON_HOST, 0};
static const loch_attributes pinned = {LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE, 0};

static loch_allocator *direct(loch_device *device, const char *name)
{
    loch_allocator *allocator;
    CHECK_OK(loch_direct_create(device, name, NULL, &allocator));
    return allocator;
}

static loch_allocator *get(loch_device *device, loch_attributes attributes)
{
    loch_allocator *allocator;
    CHECK_OK(loch_device_acquire_allocator(device, attributes, LOCH_FALLBACK_NONE, &allocator));
    return allocator;
}

/* Registers a new allocator and gives the reference up. */
static void add(loch_device *device, const char *name, int priority)
{
    loch_allocator *allocator = direct(device, name);
    CHECK_OK(loch_registry_add(allocator, NULL, priority));
    loch_allocator_release(allocator);
}

static void expect_best(loch_device *device, loch_attributes attributes, const char *name)
{
    loch_allocator *found;
    CHECK_OK(loch_registry_acquire_best(device, attributes, &found));
    assert_string_equal(loch_allocator_get_name(found), name);
    loch_allocator_release(found);
}

static void expect_none(loch_device *device, loch_attributes attributes, unsigned set)
{
    loch_allocator *found = TEST_UNTOUCHED;
    CHECK_FAILS_SET(loch_registry_acquire_best(device, attributes, &found), set);
    assert_null(found);
}

static void shut_down(size_t expected)
{
    size_t leaks = 99;
    CHECK_OK(loch_registry_clear(NULL, NULL, &leaks));
    assert_int_equal(leaks, expected);
}

/* --- who wins --- */

static void highest_priority_wins_and_the_first_of_equals(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE), *other = sim_open(DEVICE ",id=1");
    expect_none(device, own, TEST_SET(NOT_FOUND));
    add(device, "first", 5);
    add(device, "second", 5);
    add(device, "low", 0);
    expect_best(device, own, "first");
    add(device, "high", 7);
    expect_best(device, own, "high");
    add(other, "elsewhere", 100);
    expect_best(device, own, "high");
    expect_best(other, own, "elsewhere");
    CHECK_OK(loch_registry_remove("high", 7));
    expect_best(device, own, "first");
    CHECK_OK(loch_registry_remove("first", 5));
    expect_best(device, own, "second");
    add(device, "first", 5); /* later now */
    expect_best(device, own, "second");
    CHECK_OK(loch_registry_remove("second", 5));
    CHECK_OK(loch_registry_remove("first", 5));
    expect_best(device, own, "low");
    shut_down(0);
    expect_none(device, own, TEST_SET(NOT_FOUND));
    loch_device_release(device);
    loch_device_release(other);
}

static loch_status never_called(loch_device *device, loch_attributes attributes, void *user, loch_allocator **out)
{
    (void)device, (void)attributes, (void)out;
    ++*(int *)user;
    return loch_error_set(LOCH_E_INVALID, NULL, 0, "this factory is not to be asked");
}

/* An entry's name is its own: one allocator under several, and several under one. */
static loch_status note_names(const loch_registry_entry *entry, void *user)
{
    char *text = user;
    const size_t used = strlen(text);
    snprintf(text + used, 128 - used, "%s=%s ", entry->name, loch_allocator_get_name(entry->allocator));
    return LOCH_OK;
}

static void entries_have_names_of_their_own(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_allocator *a = direct(device, "a"), *b = direct(device, "b"), *found;
    char names[128] = "", copied[] = "weights";
    CHECK_OK(loch_registry_add(a, copied, 5));
    copied[0] = 'x';
    CHECK_OK(loch_registry_add(a, "cache", 4));
    CHECK_OK(loch_registry_add(b, "weights", 3));
    CHECK_OK(loch_registry_add(b, NULL, 2));
    CHECK_FAILS(loch_registry_add(b, "weights", 5), EXISTS);
    CHECK_OK(loch_registry_walk(note_names, names));
    assert_string_equal(names, "weights=a cache=a weights=b b=b ");
    CHECK_OK(loch_registry_acquire("cache", NULL, &found));
    assert_ptr_equal(found, a);
    loch_allocator_release(found);
    CHECK_FAILS(loch_registry_acquire("a", NULL, &found), NOT_FOUND);
    CHECK_FAILS(loch_registry_remove("a", 5), NOT_FOUND);
    CHECK_OK(loch_registry_remove("weights", 5));
    CHECK_OK(loch_registry_acquire("weights", device, &found));
    assert_ptr_equal(found, b);
    loch_allocator_release(found);
    shut_down(0);
    loch_allocator_release(a);
    loch_allocator_release(b);
    loch_device_release(device);
}

/* Without a device the whole registry is searched, and no factory is asked. */
static void the_best_of_all_devices(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE), *other = sim_open(DEVICE ",id=1"), *cpu = sim_open("cpu");
    const loch_direct_options of_pinned = {.size = sizeof of_pinned, .kind = LOCH_MEMORY_PINNED};
    const loch_attributes for_gpu = {LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE, 0},
                          for_host = {LOCH_ATTRIBUTE_ON_HOST, 0};
    loch_allocator *allocator;
    int calls = 0;
    expect_none(NULL, own, TEST_SET(NOT_FOUND));
    CHECK_OK(loch_registry_add_factory("factory", 100, never_called, &calls));
    expect_none(NULL, own, TEST_SET(NOT_FOUND));
    CHECK_OK(loch_direct_create(other, "pinned", &of_pinned, &allocator));
    CHECK_OK(loch_registry_add(allocator, NULL, 50));
    loch_allocator_release(allocator);
    expect_none(NULL, own, TEST_SET(UNSUPPORTED)); /* pinned memory has to be asked for */
    add(device, "one", 5);
    add(other, "two", 7);
    add(cpu, "host", 6);
    expect_best(NULL, own, "two");
    expect_best(NULL, for_host, "pinned");
    expect_best(NULL, for_gpu, "pinned");
    CHECK_OK(loch_registry_remove("pinned", 50));
    expect_best(NULL, for_host, "host");
    expect_none(NULL, for_gpu, TEST_SET(UNSUPPORTED));
    CHECK_OK(loch_registry_remove("two", 7));
    expect_best(NULL, own, "host"); /* its device is the host */
    assert_int_equal(calls, 0);
    CHECK_OK(loch_registry_remove("factory", 100));
    expect_best(device, own, "one");
    shut_down(0);
    loch_device_release(device);
    loch_device_release(other);
    loch_device_release(cpu);
}

static void wrong_registrations_are_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_allocator *allocator = direct(device, "a"), *found;
    char name[65];
    int calls = 0;
    CHECK_FAILS(loch_registry_add(NULL, NULL, 1), INVALID);
    CHECK_FAILS(loch_registry_add(allocator, NULL, -1), INVALID);
    CHECK_OK(loch_registry_add(allocator, NULL, 3));
    CHECK_FAILS(loch_registry_add(allocator, NULL, 3), EXISTS);
    CHECK_FAILS(loch_registry_add_factory("a", 3, never_called, &calls), EXISTS);
    CHECK_OK(loch_registry_add(allocator, NULL, 4)); /* the same name at another priority is another entry */
    CHECK_FAILS(loch_registry_add_factory("", 1, never_called, &calls), INVALID);
    CHECK_FAILS(loch_registry_add_factory(NULL, 1, never_called, &calls), INVALID);
    CHECK_FAILS(loch_registry_add_factory("f", 1, NULL, NULL), INVALID);
    CHECK_FAILS(loch_registry_add_factory("f", -1, never_called, &calls), INVALID);
    memset(name, 'n', sizeof name);
    name[64] = '\0';
    CHECK_FAILS(loch_registry_add_factory(name, 1, never_called, &calls), INVALID);
    CHECK_FAILS(loch_registry_add(allocator, name, 1), INVALID);
    name[63] = '\0';
    CHECK_OK(loch_registry_add_factory(name, 1, never_called, &calls));
    CHECK_FAILS(loch_registry_remove("a", 5), NOT_FOUND);
    CHECK_FAILS(loch_registry_remove("b", 3), NOT_FOUND);
    CHECK_FAILS(loch_registry_remove(NULL, 3), INVALID);
    CHECK_FAILS(loch_registry_acquire(NULL, device, &found), INVALID);
    CHECK_FAILS(loch_registry_acquire("a", device, NULL), INVALID);
    CHECK_FAILS(loch_registry_acquire_best(device, own, NULL), INVALID);
    CHECK_FAILS(loch_registry_add(allocator, "", 9), INVALID);
    CHECK_FAILS(loch_registry_walk(NULL, NULL), INVALID);
    CHECK_FAILS(loch_device_acquire_allocator(NULL, own, LOCH_FALLBACK_NONE, &found), INVALID);
    CHECK_FAILS(loch_device_acquire_allocator(device, own, (loch_fallback)2, &found), INVALID);
    CHECK_FAILS(loch_device_acquire_allocator(device, (loch_attributes){1 << 12, 0}, LOCH_FALLBACK_NONE, &found),
                INVALID);
    shut_down(0);
    assert_int_equal(calls, 0);
    loch_allocator_release(allocator);
    loch_device_release(device);
}

static void found_by_name(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE), *other = sim_open(DEVICE ",id=1");
    loch_allocator *low = direct(device, "x"), *high = direct(other, "x"), *found;
    int calls = 0;
    CHECK_OK(loch_registry_add(low, NULL, 1));
    CHECK_OK(loch_registry_add(high, NULL, 2));
    CHECK_OK(loch_registry_add_factory("x", 9, never_called, &calls));
    CHECK_OK(loch_registry_acquire("x", NULL, &found)); /* no device: no factory is asked */
    assert_ptr_equal(found, high);
    loch_allocator_release(found);
    CHECK_FAILS(loch_registry_acquire("x", device, &found), INVALID); /* the factory's own failure ends the search */
    assert_null(found);
    assert_int_equal(calls, 1);
    CHECK_OK(loch_registry_remove("x", 9));
    CHECK_OK(loch_registry_acquire("x", device, &found));
    assert_ptr_equal(found, low);
    loch_allocator_release(found);
    CHECK_FAILS(loch_registry_acquire("y", device, &found), NOT_FOUND);
    assert_non_null(strstr(loch_error_get()->sentence, "y"));
    shut_down(0);
    CHECK_FAILS(loch_registry_acquire("x", NULL, &found), NOT_FOUND);
    loch_allocator_release(low);
    loch_allocator_release(high);
    loch_device_release(device);
    loch_device_release(other);
}

static void attributes_are_never_bent(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE), *cpu = sim_open("cpu");
    loch_allocator *allocator;
    const loch_direct_options options = {.size = sizeof options, .kind = LOCH_MEMORY_PINNED};
    CHECK_OK(loch_direct_create(device, "pins", &options, &allocator));
    CHECK_OK(loch_registry_add(allocator, NULL, 10));
    loch_allocator_release(allocator);
    expect_best(device, pinned, "pins");
    expect_best(device, on_host, "pins"); /* pinned memory is on the host */
    expect_best(device, loch_attributes_with(pinned, LOCH_ATTRIBUTE_TRACK_SIZES), "pins");
    expect_none(device, own, TEST_SET(UNSUPPORTED)); /* but not the device's own */
    expect_none(device, (loch_attributes){pinned.bits, 4}, TEST_SET(UNSUPPORTED));
    expect_none(device, loch_attributes_with(pinned, 1u << 24), TEST_SET(UNSUPPORTED));
    add(device, "mine", 1);
    expect_best(device, own, "mine");
    expect_best(device, (loch_attributes){LOCH_ATTRIBUTE_GPU_COMPATIBLE, 0}, "mine");
    add(cpu, "plain", 1);
    expect_best(cpu, own, "plain");
    expect_best(cpu, on_host, "plain");
    expect_none(cpu, pinned, TEST_SET(UNSUPPORTED));
    shut_down(0);
    loch_device_release(device);
    loch_device_release(cpu);
}

typedef struct seen {
    size_t count;
    int priorities[8];
    char names[8][64];
    size_t factories;
    loch_status stop;
} seen;

static loch_status see(const loch_registry_entry *entry, void *user)
{
    seen *all = user;
    snprintf(all->names[all->count], sizeof all->names[0], "%s", entry->name);
    all->factories += !entry->allocator;
    all->priorities[all->count++] = entry->priority;
    if (entry->priority == 7) { /* the registry may be used, and changed, meanwhile */
        const loch_status status = loch_registry_remove(entry->name, 7);
        if (status != LOCH_OK) return status;
        assert_true(!entry->allocator || *loch_allocator_get_name(entry->allocator));
    }
    return entry->priority == 0 ? all->stop : LOCH_OK;
}

static void entries_are_walked_in_order(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    int calls = 0;
    add(device, "zero", 0);
    add(device, "b", 5);
    add(device, "a", 5);
    add(device, "top", 7);
    CHECK_OK(loch_registry_add_factory("made", 6, never_called, &calls));
    seen all = {0};
    CHECK_OK(loch_registry_walk(see, &all));
    assert_int_equal(all.count, 5);
    const char *names[] = {"top", "made", "b", "a", "zero"};
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(all.names[i], names[i]);
    assert_int_equal(all.factories, 1);
    seen again = {.stop = LOCH_E_CANCELLED};
    CHECK_STATUS(loch_registry_walk(see, &again), LOCH_E_CANCELLED);
    assert_int_equal(again.count, 4);
    assert_int_equal(calls, 0);
    shut_down(0);
    loch_device_release(device);
}

/* --- factories --- */

typedef struct workshop {
    atomic_int calls;
    loch_status status;      /* what it returns */
    bool gives_nothing;      /* and yet LOCH_OK */
    const char *wraps;       /* the name that it looks for and wraps; "" for the device's best */
    pthread_barrier_t *meet; /* waited at before it looks */
} workshop;

static loch_status work(loch_device *device, loch_attributes attributes, void *user, loch_allocator **out)
{
    workshop *shop = user;
    atomic_fetch_add(&shop->calls, 1);
    if (attributes.bits & LOCH_ATTRIBUTES_OF_DEVICE) return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "no such bits");
    if (shop->status != LOCH_OK) return loch_error_set(shop->status, NULL, 0, "the workshop is closed");
    if (shop->gives_nothing) return LOCH_OK;
    if (!shop->wraps) return loch_direct_create(device, "made", NULL, out);
    if (shop->meet) pthread_barrier_wait(shop->meet);
    loch_allocator *inner;
    loch_status status = *shop->wraps ? loch_registry_acquire(shop->wraps, device, &inner)
                                      : loch_device_acquire_allocator(device, attributes, LOCH_FALLBACK_NONE, &inner);
    if (status == LOCH_E_NOT_FOUND) return loch_direct_create(device, "alone", NULL, out);
    if (status == LOCH_OK) {
        status = loch_tracking_create(inner, "around", NULL, out);
        loch_allocator_release(inner);
    }
    return status;
}

static void factories_are_asked_once(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE), *other = sim_open(DEVICE ",id=1");
    workshop shop = {0};
    loch_allocator *a, *b;
    CHECK_OK(loch_registry_add_factory("shop", 10, work, &shop));
    assert_int_equal(shop.calls, 0);
    CHECK_OK(loch_registry_acquire_best(device, own, &a));
    CHECK_OK(loch_registry_acquire("shop", device, &b));
    assert_ptr_equal(a, b);
    assert_int_equal(shop.calls, 1);
    loch_allocator_release(b);
    loch_allocator_release(a);
    a = get(device, own); /* a device's allocator is the registered one */
    assert_ptr_equal(a, b);
    loch_allocator_release(a);
    CHECK_OK(loch_registry_acquire_best(device, (loch_attributes){0, 3}, &b)); /* other attributes, another allocator */
    assert_ptr_not_equal(a, b);
    loch_allocator_release(b);
    CHECK_OK(loch_registry_acquire_best(other, own, &b));
    assert_ptr_not_equal(a, b);
    loch_allocator_release(b);
    assert_int_equal(shop.calls, 3);
    add(device, "rest", 1);
    expect_best(device, own, "made");
    expect_none(device, (loch_attributes){1u << 31, 0},
                TEST_SET(UNSUPPORTED)); /* asked, refused, and the search went on */
    assert_int_equal(shop.calls, 4);
    CHECK_OK(loch_registry_remove("shop", 10));
    expect_best(device, own, "rest");
    shut_down(0);
    loch_device_release(device);
    loch_device_release(other);
}

static void factories_that_fail(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    workshop shop = {.status = LOCH_E_DEVICE_MEMORY};
    loch_allocator *found;
    add(device, "rest", 1);
    CHECK_OK(loch_registry_add_factory("shop", 10, work, &shop));
    expect_none(device, own, TEST_SET(DEVICE_MEMORY)); /* no silent substitute */
    CHECK_FAILS(loch_device_acquire_allocator(device, own, LOCH_FALLBACK_NONE, &found), DEVICE_MEMORY);
    assert_null(found);
    shop.status = LOCH_E_UNSUPPORTED;
    expect_best(device, own, "rest");
    CHECK_FAILS(loch_registry_acquire("shop", device, &found), UNSUPPORTED);
    shop.status = LOCH_OK;
    shop.gives_nothing = true;
    expect_none(device, own, TEST_SET(INVALID));
    shop.gives_nothing = false;
    expect_best(device, own, "made"); /* a failure is not remembered */
    assert_int_equal(shop.calls, 6);
    shut_down(0);
    loch_device_release(device);
}

static loch_status meddle(loch_device *device, loch_attributes attributes, void *user, loch_allocator **out)
{
    (void)attributes;
    loch_status *statuses = user;
    statuses[0] = loch_registry_remove("meddler", 1);
    statuses[1] = loch_registry_clear(NULL, NULL, NULL);
    return loch_direct_create(device, "made", NULL, out);
}

static void factories_wrap_what_would_be_found_without_them(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    workshop inner = {.wraps = ""}, outer = {.wraps = ""};
    CHECK_OK(loch_registry_add_factory("inner", 5, work, &inner));
    CHECK_OK(loch_registry_add_factory("outer", 6, work, &outer));
    loch_allocator *found = get(device, own);
    loch_allocator *middle = loch_allocator_get_wrapped(found);
    assert_non_null(middle);
    loch_allocator *innermost = loch_allocator_get_wrapped(middle);
    assert_non_null(innermost);
    assert_null(loch_allocator_get_wrapped(innermost));
    assert_string_equal(loch_allocator_get_kind(innermost), "pool");
    loch_allocator_release(found);
    CHECK_OK(loch_registry_acquire("inner", device, &found));
    assert_ptr_equal(found, middle);
    loch_allocator_release(found);
    assert_int_equal(inner.calls + outer.calls, 2);
    shut_down(0);
    loch_status statuses[2] = {LOCH_OK, LOCH_OK};
    CHECK_OK(loch_registry_add_factory("meddler", 1, meddle, statuses));
    expect_best(device, own, "made");
    assert_int_equal(statuses[0], LOCH_E_BUSY);
    assert_int_equal(statuses[1], LOCH_E_BUSY);
    shut_down(0);
    loch_device_release(device);
}

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
    for (size_t i = 0; i < count; i++) {
        racers[i] = (racer){.device = device, .attributes = attributes, .start = &start};
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(racers[i].thread, NULL);
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
static void factories_that_ask_for_each_other(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    pthread_barrier_t meet;
    pthread_barrier_init(&meet, NULL, 2);
    workshop one = {.wraps = "two", .meet = &meet}, two = {.wraps = "one", .meet = &meet};
    CHECK_OK(loch_registry_add_factory("one", 1, work, &one));
    CHECK_OK(loch_registry_add_factory("two", 1, work, &two));
    racer racers[2] = {{.device = device, .name = "one"}, {.device = device, .name = "two"}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(racers[i].thread, NULL);
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
    assert_int_equal(r.status, LOCH_OK); /* what was made belongs to who asked for it */
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

static void everything_at_once(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(20);
    loch_device *device = sim_open(DEVICE);
    stormer workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (stormer){.random = {seed + (uint64_t)i}, .device = device, .index = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, storm, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        if (workers[i].failure[0]) fail_msg("%s", workers[i].failure);
    shut_down(0);
    assert_int_equal(sim_stats(device).physical_bytes, 0);
    loch_device_release(device);
}

/* --- the devices' defaults --- */

static void what_serves_which_attributes(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE), *cpu = sim_open("cpu"), *asked[] = {device, cpu};
    const uint32_t device_bit = 1u << 24;
    const struct {
        uint32_t bits;
        int of;         /* asked of device 0 (simulated) or 1 (cpu) */
        const char *is; /* "own", "pinned", "host", NULL for E_UNSUPPORTED */
        bool falls;     /* with the fallback: plain host memory */
    } cases[] = {
        {0, 0, "own", false},
        {LOCH_ATTRIBUTE_TRACK_SIZES, 0, "own", false},
        {LOCH_ATTRIBUTE_GPU_COMPATIBLE, 0, "own", false},
        {LOCH_ATTRIBUTE_GPU_COMPATIBLE | LOCH_ATTRIBUTE_TRACK_SIZES, 0, "own", false},
        {LOCH_ATTRIBUTE_NIC_COMPATIBLE, 0, NULL, false},
        {LOCH_ATTRIBUTE_NIC_COMPATIBLE | LOCH_ATTRIBUTE_GPU_COMPATIBLE, 0, NULL, false},
        {LOCH_ATTRIBUTE_ON_HOST, 0, "host", false},
        {LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_TRACK_SIZES, 0, "host", false},
        {LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE, 0, "pinned", false},
        {LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_NIC_COMPATIBLE, 0, "pinned", false},
        {LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_NIC_COMPATIBLE | LOCH_ATTRIBUTE_GPU_COMPATIBLE |
             LOCH_ATTRIBUTE_TRACK_SIZES,
         0, "pinned", false},
        {device_bit, 0, NULL, false},
        {LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE | device_bit, 0, NULL, false},
        {LOCH_ATTRIBUTES_OF_DEVICE, 0, NULL, false},
        {0, 1, "host", false},
        {LOCH_ATTRIBUTE_ON_HOST, 1, "host", false},
        {LOCH_ATTRIBUTE_TRACK_SIZES, 1, "host", false},
        {LOCH_ATTRIBUTE_GPU_COMPATIBLE, 1, NULL, true},
        {LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE, 1, NULL, true},
        {LOCH_ATTRIBUTE_NIC_COMPATIBLE, 1, NULL, true},
        {device_bit, 1, NULL, false},
    };
    loch_allocator *kinds[3] = {get(device, own), get(device, pinned), get(cpu, own)};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(kinds[i], kinds[k]);
    assert_true(loch_attributes_has(loch_allocator_get_attributes(kinds[1]), pinned.bits | LOCH_ATTRIBUTE_TRACK_SIZES));
    assert_false(loch_attributes_has(loch_allocator_get_attributes(kinds[0]), LOCH_ATTRIBUTE_ON_HOST));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const loch_attributes attributes = {cases[i].bits, 0};
        for (loch_fallback fallback = LOCH_FALLBACK_NONE; fallback <= LOCH_FALLBACK_PAGEABLE; fallback++) {
            loch_allocator *found = TEST_UNTOUCHED;
            const char *is = fallback && cases[i].falls ? "host" : cases[i].is;
            if (!is) {
                CHECK_FAILS(loch_device_acquire_allocator(asked[cases[i].of], attributes, fallback, &found),
                            UNSUPPORTED);
                assert_null(found);
                continue;
            }
            CHECK_OK(loch_device_acquire_allocator(asked[cases[i].of], attributes, fallback, &found));
            assert_ptr_equal(found, kinds[*is == 'o' ? 0 : *is == 'p' ? 1 : 2]);
            if (*is == 'p')
                assert_true(loch_attributes_at_most_as_strict(attributes, loch_allocator_get_attributes(found)));
            loch_allocator_release(found);
        }
    }
    void *block;
    loch_address_info info = {.size = sizeof info};
    const loch_memory_kind expected[3] = {LOCH_MEMORY_DEVICE, LOCH_MEMORY_PINNED, LOCH_MEMORY_DEVICE};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(loch_alloc(kinds[i], 4096, &block));
        CHECK_OK(loch_address_query(block, &info));
        assert_int_equal(info.kind, expected[i]);
        assert_ptr_equal(info.device, i == 2 ? cpu : device);
        CHECK_OK(loch_free(kinds[i], block));
        loch_allocator_release(kinds[i]);
    }
    shut_down(0);
    loch_device_release(device);
    loch_device_release(cpu);
}

static void pinned_memory_has_a_switch_and_a_limit(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE), *cpu = sim_open("cpu");
    loch_allocator *found, *scoped;
    void *block, *more;
    CHECK_OK(loch_option_set("pinned", "off"));
    CHECK_FAILS(loch_device_acquire_allocator(device, pinned, LOCH_FALLBACK_NONE, &found), UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "pinned"));
    CHECK_OK(loch_device_acquire_allocator(device, pinned, LOCH_FALLBACK_PAGEABLE, &found));
    assert_ptr_equal(loch_allocator_get_device(found), cpu);
    loch_allocator_release(found);
    CHECK_OK(loch_option_set("pinned", NULL));
    CHECK_OK(loch_option_set("pinned_limit", "4MiB"));
    found = get(device, pinned);
    scoped = get(device, (loch_attributes){pinned.bits, 5});
    CHECK_OK(loch_alloc(found, 3 * TEST_MIB, &block));
    CHECK_FAILS(loch_alloc(scoped, 2 * TEST_MIB, &more), LIMIT); /* scopes share the device's limit */
    CHECK_OK(loch_alloc(scoped, TEST_MIB / 2, &more));
    CHECK_OK(loch_free(scoped, more));
    CHECK_OK(loch_free(found, block));
    CHECK_OK(loch_option_set("pinned", "off")); /* what was handed out goes on */
    CHECK_OK(loch_alloc(found, 1, &block));
    CHECK_OK(loch_free(found, block));
    CHECK_OK(loch_option_set("pinned", NULL));
    CHECK_OK(loch_option_set("pinned_limit", NULL));
    loch_allocator_release(scoped);
    loch_allocator_release(found);
    shut_down(0);
    loch_device_release(device);
    loch_device_release(cpu);
}

static void options_shape_the_defaults(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_option_set("pool_limit", "8MiB"));
    CHECK_OK(loch_option_set("pool_idle", "2MiB"));
    loch_allocator *found = get(device, own), *pins = get(device, pinned);
    CHECK_OK(loch_pool_get_info(found, &info));
    assert_int_equal(info.limit_bytes, 8 * TEST_MIB);
    assert_int_equal(info.idle_bytes, 2 * TEST_MIB);
    CHECK_OK(loch_pool_get_info(pins, &info));
    assert_int_equal(info.limit_bytes, 0);
    assert_int_equal(info.idle_bytes, 2 * TEST_MIB);
    loch_allocator_release(found);
    loch_allocator_release(pins);
    shut_down(0);
    CHECK_FAILS(loch_option_set("default_allocator", "heap"), INVALID);
    CHECK_OK(loch_option_set("default_allocator", "direct"));
    found = get(device, own);
    assert_string_equal(loch_allocator_get_kind(found), "direct");
    CHECK_FAILS(loch_pool_get_info(found, &info), INVALID);
    void *block;
    CHECK_OK(loch_alloc(found, 16 * TEST_MIB, &block)); /* the pool's limit is the pool's */
    CHECK_OK(loch_free(found, block));
    loch_allocator_release(found);
    CHECK_OK(loch_option_set("default_allocator", NULL));
    CHECK_OK(loch_option_set("pool_limit", NULL));
    CHECK_OK(loch_option_set("pool_idle", NULL));
    shut_down(0);
    loch_device_release(device);
}

static void scopes_have_allocators_of_their_own(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_allocator *plain = get(device, own), *five = get(device, (loch_attributes){0, 5}),
                   *six = get(device, (loch_attributes){LOCH_ATTRIBUTE_TRACK_SIZES, 6}),
                   *again = get(device, (loch_attributes){0, 5});
    assert_ptr_equal(five, again);
    assert_ptr_not_equal(five, six);
    assert_ptr_not_equal(five, plain);
    assert_int_equal(loch_allocator_get_attributes(five).scope, 5);
    assert_int_equal(loch_allocator_get_attributes(six).scope, 6);
    assert_int_equal(loch_allocator_get_attributes(plain).scope, 0);
    void *block;
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_alloc(five, 1000, &block));
    CHECK_OK(loch_allocator_get_stats(six, &stats));
    assert_int_equal(stats.requested_bytes, 0);
    CHECK_OK(loch_allocator_get_stats(five, &stats));
    assert_int_equal(stats.requested_bytes, 1000);
    CHECK_FAILS(loch_free(six, block), FOREIGN);
    CHECK_OK(loch_free(five, block));
    loch_allocator_release(plain);
    loch_allocator_release(five);
    loch_allocator_release(again);
    loch_allocator_release(six);
    shut_down(0);
    loch_device_release(device);
}

static void defaults_can_be_replaced(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE), *other = sim_open(DEVICE ",id=1");
    loch_allocator *first = get(device, own), *mine, *found;
    void *old_block, *new_block;
    CHECK_OK(loch_alloc(first, 100, &old_block));
    CHECK_OK(loch_tracking_create(first, "mine", NULL, &mine));
    CHECK_FAILS(loch_device_set_allocator(other, mine), INVALID);
    CHECK_FAILS(loch_device_set_allocator(NULL, mine), INVALID);
    CHECK_OK(loch_device_set_allocator(device, mine));
    add(device, "registered", 100);
    found = get(device, own); /* what was set for this very device goes first */
    assert_ptr_equal(found, mine);
    loch_allocator_release(found);
    found = get(device, pinned); /* which it does not serve */
    assert_string_equal(loch_allocator_get_kind(found), "pool");
    loch_allocator_release(found);
    CHECK_OK(loch_alloc(mine, 100, &new_block));
    CHECK_OK(loch_device_set_allocator(device, NULL));
    CHECK_OK(loch_registry_remove("registered", 100));
    found = get(device, own);
    assert_ptr_not_equal(found, mine);
    assert_ptr_not_equal(found, first); /* the library's own were given up too */
    CHECK_FAILS(loch_free(found, old_block), FOREIGN);
    loch_allocator_release(found);
    CHECK_OK(loch_free(first, old_block));
    CHECK_OK(loch_free(mine, new_block));
    loch_allocator_release(mine);
    loch_allocator_release(first);
    CHECK_OK(loch_device_set_allocator(device, NULL));
    loch_device_release(device); /* nothing keeps it open now: the next one is new, and the usage at the end shows it */
    loch_device_release(other);
}

/* --- the end --- */

typedef struct leak_list {
    size_t count, bytes, named;
    loch_tag tag;
} leak_list;

static loch_status note_leak(loch_allocator *allocator, const loch_block *block, void *user)
{
    leak_list *list = user;
    list->count++;
    list->bytes += block->requested_bytes;
    list->named += *loch_allocator_get_name(allocator) != '\0' && block->id != 0 && block->address != NULL;
    if (block->tag) list->tag = block->tag;
    return LOCH_OK;
}

static void shutdown_lists_what_is_live_and_harms_nobody(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_allocator *first = get(device, own), *pins = get(device, pinned),
                   *scoped = get(device, (loch_attributes){0, 9}), *around, *registered = direct(device, "registered");
    loch_tag tag;
    CHECK_OK(loch_tag_create("registry test", &tag));
    CHECK_OK(loch_tracking_create(first, "around", NULL, &around));
    CHECK_OK(loch_registry_add(around, NULL,
                               3)); /* around one that the registry holds as well: its blocks are told of once */
    CHECK_OK(loch_registry_add(registered, NULL, 2));
    CHECK_OK(loch_registry_add(registered, NULL, 1)); /* and the same one twice */
    loch_allocator *holders[5] = {first, pins, scoped, around, registered};
    void *blocks[5];
    for (size_t i = 0; i < 5; i++) {
        const loch_request request = {.size = sizeof request, .bytes = 1000 + i, .tag = i == 3 ? tag : 0};
        CHECK_OK(loch_allocator_alloc(holders[i], &request, &blocks[i]));
    }
    loch_allocator_release(pins); /* its block alone keeps it from now on, and the registry */
    leak_list list = {0};
    size_t leaks = 0;
    CHECK_OK(loch_registry_clear(note_leak, &list, &leaks));
    assert_int_equal(leaks, 5);
    assert_int_equal(list.count, 5);
    assert_int_equal(list.named, 5);
    assert_int_equal(list.bytes, 5 * 1000 + 10);
    assert_int_equal(list.tag, tag);
    CHECK_OK(loch_registry_clear(note_leak, &list, &leaks));
    assert_int_equal(leaks, 0);

    /* handles that outlive it work, and so do blocks whose allocator nobody holds any more */
    void *late;
    CHECK_OK(loch_alloc(first, 50, &late));
    CHECK_OK(loch_free(first, late));
    loch_allocator *fresh = get(device, own);
    assert_ptr_not_equal(fresh, first);
    loch_allocator_release(fresh);
    loch_device_release(device);
    for (size_t i = 0; i < 5; i++)
        CHECK_OK(loch_free(holders[i], blocks[i]));
    for (size_t i = 0; i < 5; i++)
        if (i != 1) loch_allocator_release(holders[i]);
    shut_down(0);
}

static void removal_while_held(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    workshop shop = {0};
    CHECK_OK(loch_registry_add_factory("shop", 1, work, &shop));
    loch_allocator *held;
    CHECK_OK(loch_registry_acquire("shop", device, &held));
    void *block;
    CHECK_OK(loch_alloc(held, 4096, &block));
    CHECK_OK(loch_registry_remove("shop", 1));
    CHECK_OK(loch_free(held, block));
    CHECK_OK(loch_alloc(held, 4096, &block));
    loch_allocator_release(held);
    CHECK_OK(loch_free(held, block)); /* the block has kept it; this is its end */
    loch_device_release(device);
}

/* --- without host memory --- */

static loch_status scarce(const void *user)
{
    (void)user;
    workshop shop = {.wraps = ""};
    loch_device *device = NULL;
    loch_allocator *best = NULL, *scoped = NULL, *set = NULL;
    void *block = NULL;
    loch_status status = loch_device_open(DEVICE, &device);
    if (status == LOCH_OK) status = loch_registry_add_factory("shop", 1, work, &shop);
    if (status == LOCH_OK) status = loch_device_acquire_allocator(device, own, LOCH_FALLBACK_NONE, &best);
    if (status == LOCH_OK)
        status = loch_device_acquire_allocator(device, (loch_attributes){LOCH_ATTRIBUTE_ON_HOST, 3}, LOCH_FALLBACK_NONE,
                                               &scoped);
    if (status == LOCH_OK) status = loch_direct_create(device, "set", NULL, &set);
    if (status == LOCH_OK) status = loch_registry_add(set, NULL, 2);
    if (status == LOCH_OK) status = loch_device_set_allocator(device, set);
    if (status == LOCH_OK) status = loch_alloc(best, 128, &block);
    const loch_error first = *loch_error_get();
    const loch_status freed = loch_free(best ? best : set, block);
    loch_allocator_release(best);
    loch_allocator_release(scoped);
    loch_allocator_release(set);
    const loch_status ended = loch_registry_clear(NULL, NULL, NULL);
    loch_device_release(device);
    if (best && (freed != LOCH_OK || ended != LOCH_OK)) return LOCH_E_CORRUPT;
    if (status != LOCH_OK) return loch_error_set(first.status, NULL, 0, "%s", first.sentence);
    return status;
}

static void host_memory_fails_anywhere(void **state)
{
    (void)state;
    test_host_sweep(scarce, NULL);
}

static int install(void **state)
{
    (void)state;
    return test_heap_install() == LOCH_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(highest_priority_wins_and_the_first_of_equals),
        SIM_TEST(wrong_registrations_are_refused),
        SIM_TEST(entries_have_names_of_their_own),
        SIM_TEST(the_best_of_all_devices),
        SIM_TEST(found_by_name),
        SIM_TEST(attributes_are_never_bent),
        SIM_TEST(entries_are_walked_in_order),
        SIM_TEST(factories_are_asked_once),
        SIM_TEST(factories_that_fail),
        SIM_TEST(factories_wrap_what_would_be_found_without_them),
        SIM_TEST(made_once_under_any_race),
        SIM_TEST(factories_that_ask_for_each_other),
        SIM_TEST(removal_waits_for_the_factory),
        SIM_TEST(everything_at_once),
        SIM_TEST(what_serves_which_attributes),
        SIM_TEST(pinned_memory_has_a_switch_and_a_limit),
        SIM_TEST(options_shape_the_defaults),
        SIM_TEST(scopes_have_allocators_of_their_own),
        SIM_TEST(defaults_can_be_replaced),
        SIM_TEST(shutdown_lists_what_is_live_and_harms_nobody),
        SIM_TEST(removal_while_held),
        SIM_TEST(host_memory_fails_anywhere),
    };
    return cmocka_run_group_tests_name("registry", tests, install, NULL);
}
