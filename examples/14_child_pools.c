/* SPDX-License-Identifier: MIT */
/* Child pools: a server gives each model a quota of its pool, with memory that is there for sure, and each request a range
 * that goes back as a whole. Children end in any order, and their blocks may outlive them. */
#include <loch/loch.h>
#include <loch/driver.h>
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

/* One model takes all that it can get; the other's minimum is still there. */
static loch_status serve(loch_allocator *server, loch_allocator *greedy, loch_allocator *modest)
{
    void *blocks[64], *weights, *none = NULL;
    size_t count = 0;
    while (count < 64 && loch_alloc(greedy, 16 * MIB, &blocks[count]) == LOCH_OK)
        count++;
    printf("the greedy model has %zu blocks, then %s\n", count, loch_status_name(loch_error_get()->status));
    loch_status status = loch_alloc(modest, 64 * MIB, &weights);
    if (status == LOCH_OK) status = loch_pool_walk_children(server, say, NULL);
    if (loch_alloc(modest, 32 * MIB, &none) == LOCH_OK) puts("this should not fit");
    for (size_t i = 0; i < count && status == LOCH_OK; i++)
        status = loch_free(greedy, blocks[i]);
    if (status == LOCH_OK) status = loch_alloc(modest, 32 * MIB, &none); /* what the other keeps idle is taken back */
    if (status == LOCH_OK) status = loch_free(modest, none);
    if (status == LOCH_OK) status = loch_free(modest, weights);
    return status;
}

/* A request has a range: whatever it leaves behind goes with it. */
static loch_status answer(loch_allocator *model, void **result, loch_allocator **request)
{
    loch_status status = make(model, "request", LOCH_CHILD_RANGE, 0, 8 * MIB, request);
    if (status == LOCH_OK) status = loch_alloc(*request, MIB, result);
    loch_allocator_release(*request); /* the result keeps it, and the model's pool */
    return status;
}

int main(void)
{
    loch_device *device = NULL;
    loch_allocator *server = NULL, *greedy = NULL, *modest = NULL, *request = NULL;
    void *result = NULL;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    loch_status status = loch_device_open("sim:8GiB", &device);
    if (status == LOCH_OK) status = loch_pool_create(device, "server", &options, &server);
    if (status == LOCH_OK) status = make(server, "greedy", LOCH_CHILD_QUOTA, 0, 0, &greedy);
    if (status == LOCH_OK) status = make(server, "modest", LOCH_CHILD_QUOTA, 64 * MIB, 128 * MIB, &modest);
    if (status == LOCH_OK) status = serve(server, greedy, modest);
    if (status == LOCH_OK) status = answer(modest, &result, &request);
    if (status != LOCH_OK) fprintf(stderr, "%s\n", loch_error_get()->sentence);
    loch_allocator_release(server); /* before its children */
    loch_allocator_release(modest);
    loch_allocator_release(greedy);
    if (result && status == LOCH_OK) status = loch_free(request, result); /* the end of all but the device */
    loch_device_release(device);
    return status == LOCH_OK ? 0 : 1;
}
