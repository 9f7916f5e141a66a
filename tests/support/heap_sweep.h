/* SPDX-License-Identifier: MIT */
/* Makes each allocation of the library's bookkeeping fail in turn, once and for good, under a small scenario. The test
 * program has called test_heap_install first. */
#ifndef LOCH_TEST_HEAP_SWEEP_H
#define LOCH_TEST_HEAP_SWEEP_H

#include "failing_heap.h"
#include "test.h"

/* `run` gives back all that it took, whatever failed, and returns its first failure. */
__attribute__((unused)) static void heap_sweep(loch_status (*run)(void))
{
    uint64_t places = 0, felt = 0;
    assert_int_equal(run(), LOCH_OK);
    for (test_failing mode = TEST_FAILING_ONCE; mode <= TEST_FAILING_FOREVER; mode++) {
        for (uint64_t after = 0;; after++) {
            const uint64_t live = test_heap_live();
            test_heap_set(mode, after);
            loch_error_clear();
            const loch_status status = run();
            const bool is_reached = test_heap_count() > after;
            test_heap_set(TEST_FAILING_NEVER, 0);
            assert_int_equal(test_heap_live(), live);
            assert_int_equal(test_heap_wrong(), 0);
            if (!is_reached) {
                CHECK_OK(status);
                break;
            }
            if (status != LOCH_OK) {
                assert_int_equal(status, LOCH_E_HOST_MEMORY);
                assert_int_equal(loch_error_get()->status, status);
                assert_true(loch_error_get()->sentence[0] != '\0');
                felt++;
            }
            CHECK_OK(run());
            places++;
        }
    }
    print_message("%llu faults, %llu of them felt\n", (unsigned long long)places, (unsigned long long)felt);
    assert_true(felt > 4);
}

#endif
