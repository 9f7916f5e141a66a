/* SPDX-License-Identifier: MIT */
/* A program outside the tree that offers a buffer and imports it in its own process. */
#include <loch/share.h>

int main(void)
{
    loch_device *cpu;
    loch_allocator *pool;
    loch_buffer *buffer, *again;
    loch_parcel *parcel;
    size_t bytes;
    const loch_pool_options options = {.size = sizeof options,
                                       .handle = {.size = sizeof options.handle, .share = LOCH_SHARE_FD}};
    LOCH_CHECK(loch_device_open("cpu", &cpu));
    LOCH_CHECK(loch_pool_create(cpu, "shared", &options, &pool));
    LOCH_CHECK(loch_buffer_create(pool, 1000, NULL, &buffer));
    LOCH_CHECK(loch_parcel_create(buffer, NULL, &parcel));
    const void *token = loch_parcel_get_token(parcel, &bytes);
    LOCH_CHECK(loch_parcel_import(cpu, token, bytes, NULL, &again));
    const int is_wrong = again != buffer;
    loch_buffer_release(again);
    loch_parcel_destroy(parcel);
    loch_buffer_release(buffer);
    loch_allocator_release(pool);
    loch_device_release(cpu);
    return is_wrong;
}
