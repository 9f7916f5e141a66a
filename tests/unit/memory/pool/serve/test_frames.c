/* SPDX-License-Identifier: MIT */
/* How deep a request is that needs memory from the device: the call stack between loch_alloc and the driver. */
#include "pool_fixture.h"

#include "base/sanitize.h"
#include <execinfo.h>
#include <loch/driver.h>

#define FRAMES_MOST 12
#define FRAMES_SEEN 64

static const loch_driver *frames_sim;
static int frames_deepest; /* call stack in the driver, at most */

static void frames_look(void)
{
    void *seen[FRAMES_SEEN];
    const int count = backtrace(seen, FRAMES_SEEN);
    if (count > frames_deepest) frames_deepest = count;
}

static loch_status frames_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                        loch_driver_handle *out)
{
    frames_look();
    return frames_sim->handle_create(self, bytes, options, out);
}

static loch_status frames_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                              size_t peers_count)
{
    frames_look();
    return frames_sim->map(self, address, bytes, handle, peers, peers_count);
}

static void a_miss_is_at_most_twelve_calls_deep(void **state)
{
    (void)state;
#if !defined(__OPTIMIZE__)
    skip(); /* nothing is inlined */
#endif
    if (LOCHI_ASAN || LOCHI_TSAN || LOCHI_MSAN) skip();
    frames_sim = loch_driver_find("sim");
    static loch_driver table;
    table = *frames_sim;
    table.name = "frames";
    table.handle_create = frames_handle_create;
    table.map = frames_map;
    CHECK_OK(loch_driver_register(&table));
    loch_device *device;
    CHECK_OK(loch_device_open("frames:1GiB", &device));
    static const size_t sizes[] = {48, 4 * TEST_KIB, 100 * TEST_KIB, 3 * TEST_MIB, 70 * TEST_MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        loch_allocator *pool = pool_make(device, NULL); /* empty: the request needs memory */
        void *block, *seen[FRAMES_SEEN];
        const int here = backtrace(seen, FRAMES_SEEN);
        frames_deepest = 0;
        CHECK_OK(loch_alloc(pool, sizes[i], &block));
        const int between = frames_deepest - here - 2; /* without the driver and frames_look */
        if (!frames_deepest || between > FRAMES_MOST) fail_msg("%zu bytes: %d calls", sizes[i], between);
        CHECK_OK(loch_free(pool, block));
        loch_allocator_release(pool);
    }
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {POOL_TEST(a_miss_is_at_most_twelve_calls_deep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
