/* SPDX-License-Identifier: MIT */
/* A program to look at with `loch top`: two pools and two tags. It allocates and frees until its input ends, with a
 * pause after each. Its standard output gets a line when everything is there. */
#include <loch/loch.h>
#include <poll.h>
#include <stdio.h>

int main(void)
{
    loch_device *device;
    loch_allocator *pools[2];
    loch_tag tags[2];
    void *blocks[16] = {NULL};
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = (size_t)64 << 20};
    struct pollfd input = {.fd = 0, .events = POLLIN};
    LOCH_CHECK(loch_device_open("sim:1GiB", &device));
    LOCH_CHECK(loch_pool_create(device, "weights", &options, &pools[0]));
    LOCH_CHECK(loch_pool_create(device, "evil\033[31m", NULL, &pools[1])); /* a terminal must not obey it */
    LOCH_CHECK(loch_tag_create("cache", &tags[0]));
    LOCH_CHECK(loch_tag_create("scratch", &tags[1]));
    for (unsigned i = 0; poll(&input, 1, i < 64 ? 0 : 1) == 0; i++) {
        const loch_request request = {
            .size = sizeof request, .bytes = (size_t)(1 + i % 5) << 18, .tag = tags[i / 2 % 2]};
        LOCH_CHECK(loch_free(pools[i % 2], blocks[i % 16]));
        LOCH_CHECK(loch_allocator_alloc(pools[i % 2], &request, &blocks[i % 16]));
        if (i == 64) puts("ready");
        if (i == 64) fflush(stdout);
    }
    for (unsigned i = 0; i < 16; i++)
        LOCH_CHECK(loch_free(pools[i % 2], blocks[i]));
    loch_allocator_release(pools[0]);
    loch_allocator_release(pools[1]);
    loch_device_release(device);
    return 0;
}
