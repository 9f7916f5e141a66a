/* SPDX-License-Identifier: MIT */
/* The devices' default allocators: what serves which attributes, how options shape them, and what replaces them. */
#include "memory/allocator_state.h"
#include "registry_fixture.h"

/* --- the devices' defaults --- */

static void attributes_are_served_by_the_memory_that_has_them(void **state)
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

/* A search that succeeds leaves the last error alone, and costs no sentence, although the registry has nothing. */
static void a_default_is_found_without_a_sentence(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_error_set(LOCH_E_BUSY, NULL, 0, "what failed last");
    loch_allocator *found = get(device, own);
    assert_int_equal(loch_error_get()->status, LOCH_E_BUSY);
    assert_string_equal(loch_error_get()->sentence, "what failed last");
    loch_allocator_release(found);
    test_end_defaults();
    loch_device_release(device);
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
    assert_string_equal(found->ops.kind, "direct");
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
    assert_string_equal(found->ops.kind, "pool");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(attributes_are_served_by_the_memory_that_has_them),
        SIM_TEST(a_default_is_found_without_a_sentence),
        SIM_TEST(pinned_memory_has_a_switch_and_a_limit),
        SIM_TEST(options_shape_the_defaults),
        SIM_TEST(scopes_have_allocators_of_their_own),
        SIM_TEST(defaults_can_be_replaced),
    };
    return cmocka_run_group_tests_name("registry", tests, install, NULL);
}
