/* SPDX-License-Identifier: MIT */
/* Child pools: a server gives each model a quota of its pool with a guaranteed minimum, and each request a range that
 * is returned as a whole. Children may end in any order, and their blocks may outlive them. */
#include <loch/loch.h>
#include <stdio.h>

#define MIB ((size_t)1 << 20)
#define LIMIT (256 * MIB)

static loch_status make(loch_allocator *parent, const char *name, loch_child_kind kind, size_t minimum, size_t limit,
                        loch_allocator **out)
{
    const loch_child_options options = {
        .size = sizeof options, .kind = kind, .minimum_bytes = minimum, .limit_bytes = limit};
    return loch_pool_create_child(parent, name, &options, out);
}

static loch_status say(loch_allocator *child, void *user)
{
    loch_pool_info info = {.size = sizeof info};
    const loch_status status = loch_pool_get_info(child, &info);
    (void)user;
    if (status == LOCH_OK) printf("  %s holds %zu MiB\n", loch_allocator_get_name(child), info.reserved_bytes / MIB);
    return status;
}

/* One model takes all memory that it can get; the minimum of the other stays available. Returns whether both limits
 * were kept. */
static int serve(loch_allocator *server, loch_allocator *greedy, loch_allocator *modest)
{
    void *blocks[64], *weights, *none;
    size_t count = 0;
    while (count < 64 && loch_alloc(greedy, 16 * MIB, &blocks[count]) == LOCH_OK)
        count++;
    printf("the greedy model has %zu blocks, then %s\n", count, loch_status_name(loch_error_get()->status));
    LOCH_CHECK(loch_alloc(modest, 64 * MIB, &weights));
    LOCH_CHECK(loch_pool_walk_children(server, say, NULL));
    const loch_status full =
        loch_alloc(modest, 32 * MIB, &none); /* its minimum is used, and the other model has the rest */
    for (size_t i = 0; i < count; i++)
        LOCH_CHECK(loch_free(greedy, blocks[i]));
    LOCH_CHECK(loch_alloc(modest, 32 * MIB, &none)); /* idle memory of the other model is taken back */
    LOCH_CHECK(loch_free(modest, none));
    LOCH_CHECK(loch_free(modest, weights));
    return count == (LIMIT - 64 * MIB) / (16 * MIB) && full == LOCH_E_LIMIT;
}

/* Runs a request in a range: memory that it does not free is returned with the range. */
static void answer(loch_allocator *model, void **result, loch_allocator **request)
{
    LOCH_CHECK(make(model, "request", LOCH_CHILD_RANGE, 0, 8 * MIB, request));
    LOCH_CHECK(loch_alloc(*request, MIB, result));
    loch_allocator_release(*request); /* the result keeps the range and the model's pool alive */
}

int main(void)
{
    loch_device *device;
    loch_allocator *server, *greedy, *modest, *request;
    void *result;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    LOCH_CHECK(loch_device_open("sim:8GiB", &device));
    LOCH_CHECK(loch_pool_create(device, "server", &options, &server));
    LOCH_CHECK(make(server, "greedy", LOCH_CHILD_QUOTA, 0, 0, &greedy));
    LOCH_CHECK(make(server, "modest", LOCH_CHILD_QUOTA, 64 * MIB, 128 * MIB, &modest));
    const int held = serve(server, greedy, modest);
    answer(modest, &result, &request);
    loch_allocator_release(server); /* the server's reference is released before its children */
    loch_allocator_release(modest);
    loch_allocator_release(greedy);
    LOCH_CHECK(loch_free(request, result)); /* all pools end here */
    loch_device_release(device);
    return held ? 0 : 1;
}
