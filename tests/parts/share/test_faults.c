/* SPDX-License-Identifier: MIT */
/* Every driver call of an export and of an import fails in turn. Nothing is held afterwards, and the next attempt
 * succeeds. */
#include "second_process.h"

#define DEVICE "faulty:cpu"
#define CALLS_MAX 500

static loch_device *device;
static loch_allocator *pool;

static void importers_survive_a_failing_driver(void **state)
{
    (void)state;
    loch_buffer *buffer;
    loch_parcel *parcel;
    CHECK_OK(loch_buffer_create(pool, 20 * TEST_MIB, NULL, &buffer)); /* several handles */
    CHECK_OK(loch_parcel_create(buffer, NULL, &parcel));
    partner p = partner_start(DEVICE);
    partner_import(&p, 0, parcel);
    partner_do_it(&p, PARTNER_RELEASE, 0, 0);
    const size_t files = partner_do_it(&p, PARTNER_FILES, 0, 0), holds = partner_do_it(&p, PARTNER_HOLDS, 0, 0);
    size_t after = 0;
    for (;; after++) {
        assert_true(after < CALLS_MAX);
        partner_do_it(&p, PARTNER_FAULT, 0, after);
        const partner_answer answer = partner_try_import(&p, 0, parcel);
        partner_do_it(&p, PARTNER_FAULT, 0, SIZE_MAX);
        if (answer.status == LOCH_OK) break;
        if (!answer.sentence[0]) fail_msg("call %zu failed without a sentence", after);
        partner_await_imports(parcel, 0);
        assert_int_equal(partner_do_it(&p, PARTNER_FILES, 0, 0), files);
        assert_int_equal(partner_do_it(&p, PARTNER_HOLDS, 0, 0), holds);
    }
    assert_true(after > 3);
    partner_do_it(&p, PARTNER_RELEASE, 0, 0);
    assert_int_equal(partner_do_it(&p, PARTNER_HOLDS, 0, 0), holds);
    partner_stop(&p);
    loch_parcel_destroy(parcel);
    loch_buffer_release(buffer);
}

static void owners_survive_a_failing_driver(void **state)
{
    (void)state;
    loch_buffer *buffer;
    loch_parcel *parcel;
    CHECK_OK(loch_buffer_create(pool, 20 * TEST_MIB, NULL, &buffer));
    CHECK_OK(loch_parcel_create(buffer, NULL, &parcel));
    partner p = partner_start(DEVICE);
    partner_import(&p, 0, parcel);
    partner_do_it(&p, PARTNER_RELEASE, 0, 0);
    partner_await_imports(parcel, 0);
    const size_t files = partner_count_files();
    size_t after = 0;
    for (;; after++) {
        assert_true(after < CALLS_MAX);
        test_faulty_set(TEST_FAILING_ONCE, after);
        const partner_answer answer = partner_try_import(&p, 0, parcel);
        test_faulty_set(TEST_FAILING_ONCE, SIZE_MAX);
        if (answer.status == LOCH_OK) break;
        if (!strstr(answer.sentence, "cannot export")) fail_msg("call %zu: %s", after, answer.sentence);
        partner_await_imports(parcel, 0);
        assert_int_equal(partner_count_files(), files);
    }
    assert_true(after > 0);
    partner_stop(&p);
    loch_parcel_destroy(parcel);
    loch_buffer_release(buffer);
}

int main(int count, char **arguments)
{
    CHECK_OK(test_faulty_register());
    partner_main(count, arguments);
    CHECK_OK(loch_device_open(DEVICE, &device));
    pool = partner_pool(device, 2 * TEST_MIB);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(importers_survive_a_failing_driver),
        cmocka_unit_test(owners_survive_a_failing_driver),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    partner_await_empty(pool);
    loch_allocator_release(pool);
    loch_device_release(device);
    return failed;
}
