/* SPDX-License-Identifier: MIT */
/* A snapshot of a running program: what every allocator holds at this moment, as JSON. `LOCH_SNAPSHOT=file` writes one
 * by itself when a request for memory fails; `LOCH_TOP=on` lets `loch top` look at the program while it runs. */
#include <loch/loch.h>
#include <stdio.h>
#include <string.h>

static loch_status print_piece(const loch_memory_piece *piece, void *user)
{
    static const char *const states[] = {"used", "free", "waiting", "asleep"};
    printf("%10zu bytes %s\n", piece->bytes, states[piece->state]);
    *(size_t *)user += piece->bytes;
    return LOCH_OK;
}

int main(void)
{
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(allocator) pool = NULL;
    const char *path = "loch-example-snapshot.json";
    loch_tag weights;
    void *blocks[3];
    LOCH_CHECK(loch_device_open("sim:1GiB", &device));
    LOCH_CHECK(loch_pool_create(device, "pool", NULL, &pool));
    LOCH_CHECK(loch_tag_create("weights", &weights));
    for (size_t i = 0; i < 3; i++) {
        const loch_request request = {.size = sizeof request, .bytes = (i + 1) << 20, .tag = weights};
        LOCH_CHECK(loch_allocator_alloc(pool, &request, &blocks[i]));
    }
    LOCH_CHECK(loch_free(pool, blocks[1])); /* a hole between two blocks */
    LOCH_CHECK(loch_snapshot_save(path));

    FILE *file = fopen(path, "r");
    int used = 0;
    for (char line[512]; file && fgets(line, sizeof line, file);)
        if (strstr(line, "\"state\": \"used\"")) used += printf("%s", line) > 0;
    if (file) fclose(file);
    remove(path);

    loch_pool_info info = {.size = sizeof info};
    size_t bytes = 0;
    LOCH_CHECK(loch_pool_walk_memory(pool, print_piece, &bytes)); /* one pool, without a file */
    LOCH_CHECK(loch_pool_get_info(pool, &info));
    LOCH_CHECK(loch_free(pool, blocks[0]));
    LOCH_CHECK(loch_free(pool, blocks[2]));
    return used >= 2 && bytes == info.reserved_bytes ? 0 : 1;
}
