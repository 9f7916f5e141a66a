/* SPDX-License-Identifier: MIT */
/* Every allocation and every driver call of a giver and of a receiver fails in turn. Both sides get a status, nothing
 * is held afterwards, and the giver has its memory. The two are threads of one process. */
#include "faulty_driver.h"
#include "handover_partner.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define DEVICE "faulty:cpu"
#define PLACES_MAX 3000
#define BYTES ((size_t)200000)
#define TIMEOUT_NS 20000000000u

/* --- allocations that fail; the linker puts these in the place of the functions --- */

static _Thread_local bool fault_is_mine; /* only the thread under test fails */
static atomic_int fault_mode;
static _Atomic uint64_t fault_after, fault_calls;

static bool fault_strikes(void)
{
    if (!fault_is_mine || !atomic_load(&fault_mode)) return false;
    const uint64_t number = atomic_fetch_add(&fault_calls, 1), after = atomic_load(&fault_after);
    const bool is_hit = atomic_load(&fault_mode) == TEST_FAILING_ONCE ? number == after : number >= after;
    if (is_hit) errno = ENOMEM;
    return is_hit;
}

#define FAULT(name, parameters, arguments)                                                                             \
    void *__real_##name parameters;                                                                                    \
    void *__wrap_##name parameters;                                                                                    \
    void *__wrap_##name parameters                                                                                     \
    {                                                                                                                  \
        return fault_strikes() ? NULL : __real_##name arguments;                                                       \
    }

FAULT(malloc, (size_t bytes), (bytes))
FAULT(calloc, (size_t count, size_t bytes), (count, bytes))
FAULT(realloc, (void *address, size_t bytes), (address, bytes))

static void set_heap(test_failing mode, uint64_t after)
{
    atomic_store(&fault_mode, 0);
    atomic_store(&fault_calls, 0);
    atomic_store(&fault_after, after);
    atomic_store(&fault_mode, mode);
}

static uint64_t count_heap(void)
{
    return atomic_load(&fault_calls);
}

/* --- a hand-over between two threads --- */

typedef struct scene {
    loch_device *device;
    loch_allocator *pool, *room; /* of the giver and of the receiver */
    loch_handover_way send_way, receive_way;
    bool is_paged;
    bool giver_fails; /* which side is under test */
    int sockets[2];
    loch_status received;
    loch_handover *taken;
} scene;

static void *run_receiver(void *user)
{
    scene *s = user;
    const loch_handover_peer peer = {.size = sizeof peer, .socket = s->sockets[1]};
    const loch_handover_receive_options options = {
        .size = sizeof options, .way = s->receive_way, .allocator = s->room, .timeout_ns = TIMEOUT_NS};
    fault_is_mine = !s->giver_fails;
    s->received = loch_handover_receive(&peer, s->device, NULL, &options, &s->taken);
    fault_is_mine = false;
    return NULL;
}

/* Returns the giver's status; the receiver's is in the scene. */
static loch_status run_both(scene *s, loch_buffer *const *buffers)
{
    static const size_t pages[] = {3, 0, 1};
    const partner_note note = {.seed = 11};
    loch_handover_send_options options = {
        .size = sizeof options, .way = s->send_way, .note = &note, .note_bytes = sizeof note, .timeout_ns = TIMEOUT_NS};
    if (s->is_paged) options.pages = pages, options.pages_count = 3, options.page_bytes = 50000;
    pthread_t thread;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s->sockets), 0);
    assert_int_equal(pthread_create(&thread, NULL, run_receiver, s), 0);
    const loch_handover_peer peer = {.size = sizeof peer, .socket = s->sockets[0]};
    loch_handover *given;
    fault_is_mine = s->giver_fails;
    const loch_status status = loch_handover_send(&peer, buffers, 2, NULL, &options, &given);
    fault_is_mine = false;
    close(s->sockets[0]); /* as a caller does after a failure */
    pthread_join(thread, NULL);
    close(s->sockets[1]);
    loch_handover_destroy(given);
    return status;
}

/* Where faults come from. */
typedef struct source {
    const char *name;
    void (*set)(test_failing mode, uint64_t after);
    uint64_t (*count)(void);
} source;

static const source heap_source = {"allocation", set_heap, count_heap};
static const source driver_source = {"driver call", test_faulty_set, test_faulty_count};

/* Lets every place fail. Returns the number of places at which a call failed. */
static size_t sweep(scene *s, loch_buffer *const *buffers, const source *from, test_failing mode)
{
    size_t felt = 0;
    for (uint64_t after = 0;; after++) {
        assert_true(after < PLACES_MAX);
        from->set(mode, after);
        const loch_status given = run_both(s, buffers);
        const uint64_t met = from->count();
        from->set(TEST_FAILING_NEVER, 0);
        felt += given != LOCH_OK;
        if ((given == LOCH_OK) != (s->received == LOCH_OK))
            fail_msg("%s %u: the giver has %s, the receiver %s", from->name, (unsigned)after, loch_status_name(given),
                     loch_status_name(s->received));
        if (given == LOCH_OK && !partner_is_right(s->taken))
            fail_msg("%s %u: other contents", from->name, (unsigned)after);
        if (given == LOCH_E_BUSY || s->received == LOCH_E_BUSY)
            fail_msg("%s %u: a side waited", from->name, (unsigned)after);
        loch_handover_destroy(s->taken);
        CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, NULL));
        assert_int_equal(partner_used_bytes(s->room), 0);
        for (size_t i = 0; i < 2; i++)
            assert_int_equal(loch_buffer_get_references(buffers[i]), 1);
        if (met <= after) return felt;
    }
}

static void everything_fails_in_turn(const source *from, uint32_t share, loch_handover_way receive_way, bool is_paged)
{
    scene s = {.receive_way = receive_way, .is_paged = is_paged};
    CHECK_OK(loch_device_open(DEVICE, &s.device));
    s.pool = partner_pool(s.device, 0, share);
    s.room = partner_pool(s.device, 0, 0);
    loch_buffer *buffers[2] = {partner_buffer(s.pool, BYTES, 11), partner_buffer(s.pool, BYTES, 12)};
    static const size_t pages[] = {3, 0, 1};
    for (size_t k = 0; is_paged && k < 6; k++)
        CHECK_OK(partner_put(buffers[k / 3], pages[k % 3] * 50000, 50000, 11 + k / 3 + 1000 * (k % 3)));
    size_t felt = 0;
    for (int side = 0; side < 2; side++)
        for (test_failing mode = TEST_FAILING_ONCE; mode <= TEST_FAILING_FOREVER; mode++) {
            s.giver_fails = side == 0;
            felt += sweep(&s, buffers, from, mode);
        }
    print_message("%zu places of a failing %s\n", felt, from->name);
    assert_true(felt > 2);
    loch_buffer_release(buffers[0]);
    loch_buffer_release(buffers[1]);
    partner_end_pool(s.pool);
    partner_end_pool(s.room);
    loch_device_release(s.device);
}

static void mapped_without_host_memory(void **state)
{
    (void)state;
    everything_fails_in_turn(&heap_source, LOCH_SHARE_FD, LOCH_HANDOVER_MAPPED, false);
}

static void sent_without_host_memory(void **state)
{
    (void)state;
    everything_fails_in_turn(&heap_source, 0, LOCH_HANDOVER_AUTO, true);
}

static void copied_without_host_memory(void **state)
{
    (void)state;
    everything_fails_in_turn(&heap_source, LOCH_SHARE_FD, LOCH_HANDOVER_COPIED, true);
}

static void sent_by_a_failing_driver(void **state)
{
    (void)state;
    everything_fails_in_turn(&driver_source, 0, LOCH_HANDOVER_AUTO, true);
}

static void copied_by_a_failing_driver(void **state)
{
    (void)state;
    everything_fails_in_turn(&driver_source, LOCH_SHARE_FD, LOCH_HANDOVER_COPIED, true);
}

int main(void)
{
    CHECK_OK(test_faulty_register());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mapped_without_host_memory), cmocka_unit_test(sent_without_host_memory),
        cmocka_unit_test(copied_without_host_memory), cmocka_unit_test(sent_by_a_failing_driver),
        cmocka_unit_test(copied_by_a_failing_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
