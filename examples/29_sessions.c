/* SPDX-License-Identifier: MIT */
/* Sessions: one call frees all blocks of a request, including forgotten ones. A thread enters a session, and other code
 * allocates as usual. Blocks that must stay are promoted. A direct allocator has the reverse: freed blocks are released
 * to the driver in one call. */
#include <loch/loch.h>
#include <stdio.h>

#define KIB ((size_t)1024)

/* Stands for a library that allocates from the given allocator and forgets to free. */
static loch_status decode(loch_allocator *allocator, size_t tokens, void **answer)
{
    void *scratch;
    for (size_t i = 0; i < tokens; i++)
        LOCH_RETURN(loch_alloc(allocator, 16 * KIB, &scratch));
    return loch_alloc(allocator, 4 * KIB, answer);
}

static int serve(loch_allocator *pool, size_t tokens)
{
    loch_session_stats stats = {.size = sizeof stats};
    loch_session *session;
    void *answer;
    size_t freed;
    LOCH_CHECK(loch_session_begin(pool, "request", &session));
    /* blocks that this thread allocates from the pool now belong to the session */
    LOCH_CHECK(loch_session_enter(session));
    const loch_status decoded = decode(pool, tokens, &answer);
    LOCH_CHECK(loch_session_leave(session));
    LOCH_CHECK(decoded);
    LOCH_CHECK(loch_session_get_stats(session, &stats));
    LOCH_CHECK(loch_session_promote(session, answer)); /* stays after the end of the session */
    LOCH_CHECK(loch_session_end(session, NULL, &freed));
    printf("a request of %zu tokens: %zu blocks, %zu KiB at most; %zu KiB were freed at its end\n", tokens,
           stats.blocks, stats.peak_bytes / KIB, freed / KIB);
    LOCH_CHECK(loch_free(pool, answer));
    return stats.blocks == tokens + 1 && stats.bytes == freed + 4 * KIB && freed == tokens * 16 * KIB;
}

/* For memory checkers: frees do not wait, and no address is handed out twice before the end. */
static int defer(loch_device *device)
{
    const loch_direct_options options = {.size = sizeof options, .when = LOCH_DIRECT_FREE_DEFERRED, .poison = 0xdd};
    loch_allocator *direct;
    void *first, *second;
    size_t released;
    LOCH_CHECK(loch_direct_create(device, NULL, &options, &direct));
    LOCH_CHECK(loch_alloc(direct, KIB, &first));
    LOCH_CHECK(loch_free(direct, first));
    LOCH_CHECK(loch_alloc(direct, KIB, &second));
    const int apart = first != second;
    LOCH_CHECK(loch_free(direct, second));
    LOCH_CHECK(loch_direct_free_deferred(direct, &released)); /* also detects writes after a free */
    printf("deferred: %zu bytes went back together; the addresses were %s\n", released, apart ? "apart" : "the same");
    loch_allocator_release(direct);
    return apart && released == 2 * KIB;
}

int main(void)
{
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(allocator) pool = NULL;
    loch_stats stats = {.size = sizeof stats};
    int right = 0;
    LOCH_CHECK(loch_device_open("cpu", &device));
    LOCH_CHECK(loch_pool_create(device, "server", NULL, &pool));
    for (size_t request = 1; request <= 3; request++)
        right += serve(pool, request * 5);
    LOCH_CHECK(loch_allocator_get_stats(pool, &stats));
    printf("behind all requests %llu blocks are in use\n", (unsigned long long)stats.blocks);
    right += stats.blocks == 0;
    right += defer(device);
    return right == 5 ? 0 : 1;
}
