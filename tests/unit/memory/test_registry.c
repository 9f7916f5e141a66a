/* SPDX-License-Identifier: MIT */
/* The registry of allocators: which entry wins, what factories are called for and how often, and the end. */
#include "memory/allocator_state.h"
#include "registry_fixture.h"

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

/* --- which entry wins --- */

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
static void without_a_device_the_best_of_all_is_found(void **state)
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

static void entries_are_found_by_name(void **state)
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

static void a_factory_that_fails_is_told_and_asked_again(void **state)
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
    assert_string_equal(innermost->ops.kind, "pool");
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

    /* handles that outlive it work, and so do blocks of allocators without a reference */
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

static void an_allocator_stays_after_its_removal_while_held(void **state)
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

static void the_registry_survives_failing_host_memory(void **state)
{
    (void)state;
    test_host_sweep(scarce, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(highest_priority_wins_and_the_first_of_equals),
        SIM_TEST(wrong_registrations_are_refused),
        SIM_TEST(entries_have_names_of_their_own),
        SIM_TEST(without_a_device_the_best_of_all_is_found),
        SIM_TEST(entries_are_found_by_name),
        SIM_TEST(attributes_are_never_bent),
        SIM_TEST(entries_are_walked_in_order),
        SIM_TEST(factories_are_asked_once),
        SIM_TEST(a_factory_that_fails_is_told_and_asked_again),
        SIM_TEST(factories_wrap_what_would_be_found_without_them),
        SIM_TEST(shutdown_lists_what_is_live_and_harms_nobody),
        SIM_TEST(an_allocator_stays_after_its_removal_while_held),
        SIM_TEST(the_registry_survives_failing_host_memory),
    };
    return cmocka_run_group_tests_name("registry", tests, install, NULL);
}
