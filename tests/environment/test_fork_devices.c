/* SPDX-License-Identifier: MIT */
/* Devices after a fork: those that do not survive refuse, and what others were doing on them is forgotten. */
#include "fork_fixture.h"
#include "faulty_driver.h"
#include "memory/pool/state/structs.h"
#include <fcntl.h>
#include <loch/driver.h>
#include <loch/engine.h>
#include <loch/raw.h>
#include <loch/sim.h>
#include <loch/virtual.h>
#include <loch/observer.h>

#define SIM "sim:256MiB,backed"

/* Whether the process can read an address: the system says it without a signal. */
static bool can_read(const void *address)
{
    int ends[2];
    NEED(pipe2(ends, O_CLOEXEC) == 0);
    const bool can = write(ends[1], address, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return can;
}

/* --- devices that do not survive --- */

typedef struct gone {
    const char *name;
    loch_device *device;
    loch_allocator *pool, *direct, *limit;
    loch_stream *stream;
    loch_event *event;
    void *raw, *small, *large, *pinned, *of_direct, *of_limit, *reserved;
    loch_handle *handle;
    bool is_outside;
} gone;

static void gone_open(gone *g, const char *name)
{
    *g = (gone){.name = name};
    DO_OK(loch_device_open(name, &g->device));
    DO_OK(loch_pool_create(g->device, "pool", NULL, &g->pool));
    DO_OK(loch_direct_create(g->device, "direct", NULL, &g->direct));
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = TEST_GIB};
    DO_OK(loch_limit_create(g->pool, "limit", &limit, &g->limit));
    DO_OK(loch_stream_create(g->device, NULL, &g->stream));
    DO_OK(loch_event_create(g->device, LOCH_EVENT_PLAIN, &g->event));
    DO_OK(loch_event_record(g->event, g->stream));
    DO_OK(loch_raw_alloc(g->device, LOCH_MEMORY_DEVICE, TEST_MIB, 0, &g->raw));
    DO_OK(loch_alloc(g->pool, 100, &g->small));
    DO_OK(loch_alloc(g->pool, 3 * TEST_MIB, &g->large));
    DO_OK(
        loch_allocator_record_use(g->pool, g->large, g->stream)); /* freed behind work that the child cannot wait for */
    DO_OK(loch_alloc(g->direct, 5000, &g->of_direct));
    DO_OK(loch_alloc(g->limit, 5000, &g->of_limit));
    loch_device_properties properties = {.size = sizeof properties};
    DO_OK(loch_device_get_properties(g->device, &properties));
    if (properties.capabilities & LOCH_CAN_VIRTUAL) {
        DO_OK(loch_virtual_reserve(g->device, properties.granule_bytes, 0, &g->reserved));
        DO_OK(loch_handle_create(g->device, properties.granule_bytes, NULL, &g->handle));
        DO_OK(loch_virtual_map(g->reserved, g->handle, NULL, 0));
    }
    DO_OK(loch_fill(g->raw, TEST_MIB, "\xaa", 1));
    void *kept; /* threads keep something to hand out */
    DO_OK(loch_alloc(g->pool, 100, &kept));
    DO_OK(loch_free(g->pool, kept));
}

static void gone_close(gone *g)
{
    if (g->reserved) {
        DO_OK(loch_virtual_unmap(g->reserved));
        loch_handle_destroy(g->handle);
        DO_OK(loch_virtual_unreserve(g->reserved));
    }
    DO_OK(loch_raw_free(g->raw));
    DO_OK(loch_free(g->pool, g->small));
    DO_OK(loch_free(g->pool, g->large));
    DO_OK(loch_free(g->direct, g->of_direct));
    DO_OK(loch_free(g->limit, g->of_limit));
    loch_event_destroy(g->event);
    loch_stream_close(g->stream);
    loch_allocator_release(g->limit);
    loch_allocator_release(g->direct);
    loch_allocator_release(g->pool);
    loch_device_release(g->device);
}

static void child_is_refused(gone *g)
{
    void *block = TEST_UNTOUCHED;
    char bytes[16];
    loch_memory_info info = {.size = sizeof info};
    loch_stream *stream;
    loch_event *event;
    NEED_FORKED(loch_raw_alloc(g->device, LOCH_MEMORY_DEVICE, 4096, 0, &block));
    NEED_FORKED(loch_alloc(g->pool, 100, &block)); /* not even what the thread keeps */
    NEED_FORKED(loch_alloc(g->pool, 50 * TEST_MIB, &block));
    NEED_FORKED(loch_alloc(g->direct, 100, &block));
    NEED_FORKED(loch_alloc(g->limit, 100, &block));
    NEED_FORKED(loch_device_calculate_memory(g->device, &info));
    NEED_FORKED(loch_device_sync(g->device));
    NEED_FORKED(loch_stream_create(g->device, NULL, &stream));
    NEED_FORKED(loch_stream_require_thread_default(g->device, &stream));
    NEED_FORKED(loch_stream_query(g->stream));
    NEED_FORKED(loch_stream_sync(g->stream));
    NEED_FORKED(loch_event_create(g->device, LOCH_EVENT_PLAIN, &event));
    NEED_FORKED(loch_event_record(g->event, g->stream));
    NEED_FORKED(loch_fill(g->raw, 16, "", 1));
    NEED_FORKED(loch_copy(bytes, g->raw, sizeof bytes));
    NEED_FORKED(loch_copy(g->raw, bytes, sizeof bytes));
    if (g->reserved) NEED_FORKED(loch_handle_create(g->device, TEST_MIB * 2, NULL, &g->handle));
}

static void child_gives_back(gone *g)
{
    NEED_OK(loch_raw_free(g->raw));
    NEED_OK(loch_free(g->pool, g->small));
    NEED_OK(loch_free(g->pool, g->large));
    NEED_OK(loch_free(g->direct, g->of_direct));
    NEED_OK(loch_free(g->limit, g->of_limit));
    NEED_OK(loch_allocator_trim(g->pool, 0, NULL));
    loch_event_destroy(g->event);
    loch_stream_close(g->stream);
    loch_allocator_release(g->limit);
    loch_allocator_release(g->direct);
    loch_allocator_release(g->pool);
    if (g->reserved) NEED_OK(loch_virtual_unmap(g->reserved));
    if (g->reserved) NEED_OK(loch_virtual_unreserve(g->reserved));
}

/* The CPU works on beside it. */
static void child_uses_cpu(void)
{
    loch_device *cpu;
    loch_allocator *pool;
    void *block;
    NEED_OK(loch_device_open("cpu", &cpu));
    NEED_OK(loch_pool_create(cpu, "pool", NULL, &pool));
    NEED_OK(loch_alloc(pool, 3 * TEST_MIB, &block));
    memset(block, 1, 3 * TEST_MIB);
    char bytes[16];
    NEED_OK(loch_copy(bytes, block, sizeof bytes)); /* asks drivers whose memory the array is */
    NEED_OK(loch_free(pool, block));
    loch_allocator_release(pool);
    loch_device_release(cpu);
}

static void child_of_gone(void *user)
{
    gone *g = user;
    NEED(!can_read(g->raw)); /* nothing is shared */
    loch_handle *handle = g->handle;
    child_is_refused(g);
    child_uses_cpu();
    g->handle = handle;
    child_gives_back(g);
    loch_handle_destroy(g->handle);
    loch_device_release(g->device);
    if (g->is_outside) _exit(0); /* its driver is not called any more, and keeps its own bookkeeping */
    exit(0);                     /* as quiet as the parent's end */
}

static void child_opens_anew(void *user)
{
    const gone *old = user;
    gone g;
    NEED(!can_read(old->raw));
    NEED(!can_read(old->reserved));
    gone_open(&g, old->name);
    NEED(g.device != old->device);
    NEED(can_read(g.raw) && *(unsigned char *)g.raw == 0xaa);
    NEED_OK(loch_fill(g.raw, TEST_MIB, "\x55", 1));
    NEED_FORKED(loch_device_sync(old->device));
    gone_close(&g);
}

static void a_child_is_refused_simulated_devices(void **state)
{
    (void)state;
    gone g;
    gone_open(&g, SIM);
    memset(g.reserved, 0xbb, TEST_MIB);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(fork_run(child_of_gone, &g), 0);
        assert_int_equal(fork_run(child_opens_anew, &g), 0);
        const unsigned char *raw = g.raw, *mapped = g.reserved;
        for (size_t at = 0; at < TEST_MIB; at += 4096) {
            assert_int_equal(raw[at], 0xaa); /* the child gave back what was its own alone */
            assert_int_equal(mapped[at], 0xbb);
        }
    }
    gone_close(&g);
}

static void a_child_is_refused_unbacked_devices(void **state)
{
    (void)state;
    gone g;
    gone_open(&g, "sim:256MiB");
    assert_int_equal(fork_run(child_of_gone, &g), 0);
    gone_close(&g);
}

/* Drivers from outside do not survive unless they say so. */
static void a_child_is_refused_devices_of_other_drivers(void **state)
{
    (void)state;
    gone g;
    CHECK_OK(test_faulty_register());
    test_faulty_set(TEST_FAILING_NEVER, 0);
    gone_open(&g, "faulty:" SIM);
    g.is_outside = true;
    const uint64_t calls = test_faulty_count();
    assert_int_equal(fork_run(child_of_gone, &g), 0);
    assert_int_equal(test_faulty_count(), calls);
    gone_close(&g);
}

static loch_status outside_forked(void *self)
{
    (void)self;
    return LOCH_OK;
}

static void child_survives(void *user)
{
    gone *g = user;
    void *block;
    NEED_OK(loch_alloc(g->pool, 100, &block));
    NEED_OK(loch_free(g->pool, block));
    NEED_OK(loch_device_sync(g->device));
    child_gives_back(g);
}

static void drivers_that_say_so_survive_a_fork(void **state)
{
    (void)state;
    gone g;
    loch_driver driver = *loch_driver_find("cpu");
    driver.name = "surviving";
    driver.forked = outside_forked;
    CHECK_OK(loch_driver_register(&driver));
    gone_open(&g, "surviving");
    assert_int_equal(fork_run(child_survives, &g), 0);
    gone_close(&g);
}

/* --- work on a simulated device, in another thread --- */

typedef struct running {
    loch_device *device;
    loch_stream *stream;
    atomic_int is_in, may_go;
} running;

static void run_function(void *user)
{
    running *r = user;
    atomic_store(&r->is_in, 1);
    fork_await(&r->may_go, 1);
}

static void *run_stream(void *user)
{
    running *r = user;
    if (loch_stream_call(r->stream, run_function, r) != LOCH_OK) return user;
    return loch_stream_sync(r->stream) == LOCH_OK ? NULL : user;
}

static void child_of_running(void *user)
{
    running *r = user;
    NEED_FORKED(loch_stream_sync(r->stream)); /* waits for no function that runs in the parent */
    loch_stream_close(r->stream);
    loch_device_release(r->device);
}

static void a_child_forgets_functions_that_run(void **state)
{
    (void)state;
    running r = {0};
    CHECK_OK(loch_device_open(SIM, &r.device));
    CHECK_OK(loch_stream_create(r.device, NULL, &r.stream));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_stream, &r), 0);
    fork_await(&r.is_in, 1);
    const int bad = fork_run(child_of_running, &r);
    atomic_store(&r.may_go, 1);
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(bad, 0);
    loch_stream_close(r.stream);
    loch_device_release(r.device);
}

/* --- visitors --- */

static void visit_slowly(loch_range_event event, const loch_range *range, void *user)
{
    (void)event, (void)range;
    running *r = user;
    atomic_store(&r->is_in, 1);
    fork_await(&r->may_go, 1);
}

static void *take_range(void *user)
{
    running *r = user;
    void *block;
    if (loch_raw_alloc(r->device, LOCH_MEMORY_DEVICE, TEST_MIB, 0, &block) != LOCH_OK) return user;
    return loch_raw_free(block) == LOCH_OK ? NULL : user;
}

static void child_removes_visitor(void *user)
{
    running *r = user;
    NEED_OK(loch_observer_remove(r->device, visit_slowly, r)); /* does not wait for visitors of other threads */
    NEED(take_range(r) == NULL);
}

static void a_child_forgets_threads_that_visit(void **state)
{
    (void)state;
    running r = {0};
    CHECK_OK(loch_device_open("cpu", &r.device));
    CHECK_OK(loch_observer_add(r.device, visit_slowly, &r));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_range, &r), 0);
    fork_await(&r.is_in, 1);
    const int bad = fork_run(child_removes_visitor, &r);
    atomic_store(&r.may_go, 1);
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(bad, 0);
    CHECK_OK(loch_observer_remove(r.device, visit_slowly, &r));
    loch_device_release(r.device);
}

/* --- a guard's block that another thread looks at, and buffers that another thread has in its hands --- */

static atomic_int slow_is_in, slow_may_go; /* of slots without a `user` */

static void slow_wait(void)
{
    if (fork_is_child) return;
    atomic_store(&slow_is_in, 1);
    fork_await(&slow_may_go, 1);
}

static loch_status slow_alloc(void *self, const loch_request *request, void **out)
{
    return loch_allocator_alloc(self, request, out);
}

static loch_status slow_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    (void)bytes, (void)stream;
    return loch_free(self, address);
}

static loch_status slow_record_use(void *self, void *address, loch_stream *stream)
{
    slow_wait();
    return loch_allocator_record_use(self, address, stream);
}

static const loch_allocator_ops slow_ops = {.size = sizeof slow_ops,
                                            .kind = "slow",
                                            .traits = LOCH_TRAIT_THREAD_SAFE,
                                            .alloc = slow_alloc,
                                            .free = slow_free,
                                            .record_use = slow_record_use};

typedef struct looking {
    loch_allocator *guard;
    void *block;
} looking;

static void *look_at_block(void *user)
{
    looking *l = user;
    return loch_allocator_record_use(l->guard, l->block, NULL) == LOCH_OK ? NULL : user;
}

static void child_frees_block(void *user)
{
    looking *l = user;
    NEED_OK(loch_free(l->guard, l->block)); /* does not wait for threads that look at it */
}

static void a_child_frees_what_others_look_at(void **state)
{
    (void)state;
    loch_device *device;
    loch_allocator *pool, *slow;
    looking l;
    atomic_store(&slow_is_in, 0);
    atomic_store(&slow_may_go, 0);
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_pool_create(device, "pool", NULL, &pool));
    CHECK_OK(loch_wrapper_create(pool, "slow", &slow_ops, pool, &slow));
    CHECK_OK(loch_redzone_create(slow, "redzone", NULL, &l.guard));
    CHECK_OK(loch_alloc(l.guard, 1000, &l.block));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look_at_block, &l), 0);
    fork_await(&slow_is_in, 1);
    const int bad = fork_run(child_frees_block, &l);
    atomic_store(&slow_may_go, 1);
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(bad, 0);
    CHECK_OK(loch_free(l.guard, l.block));
    loch_allocator_release(l.guard);
    loch_allocator_release(slow);
    loch_allocator_release(pool);
    loch_device_release(device);
}

static loch_status slow_event_query(void *self, void *event)
{
    slow_wait();
    return loch_driver_find("sim")->event_query(self, event);
}

static void *collect_some(void *user)
{
    return loch_buffer_collect(LOCH_WAIT_DEFAULT, NULL) == LOCH_OK ? NULL : user;
}

static void child_collects_all(void *user)
{
    size_t waiting = 1;
    (void)user;
    NEED_OK(loch_buffer_collect(LOCH_WAIT_END, &waiting)); /* what another thread has in its hands is not waited for */
    NEED(waiting == 0);
}

static void a_child_collects_without_other_threads(void **state)
{
    (void)state;
    loch_device *cpu, *device;
    loch_stream *stream;
    loch_buffer *buffer;
    loch_driver driver = *loch_driver_find("sim");
    driver.name = "slow";
    driver.event_query = slow_event_query;
    CHECK_OK(loch_driver_register(&driver));
    atomic_store(&slow_is_in, 0);
    atomic_store(&slow_may_go, 1);
    CHECK_OK(loch_device_open("cpu", &cpu));
    CHECK_OK(loch_device_open("slow:64MiB,clock=stepped", &device));
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    void *raw;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 4096, 0, &raw));
    CHECK_OK(loch_fill_on(raw, 4096, "", 1, stream)); /* goes on until the clock is moved */
    CHECK_OK(loch_buffer_create_for_device(cpu, 4096, NULL, &buffer));
    CHECK_OK(loch_buffer_record_use(buffer, stream));
    loch_buffer_release(buffer);
    size_t waiting;
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_DEFAULT, &waiting));
    assert_int_equal(waiting, 1);
    atomic_store(&slow_is_in, 0);
    atomic_store(&slow_may_go, 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, collect_some, cpu), 0);
    fork_await(&slow_is_in, 1);
    const int bad = fork_run(child_collects_all, NULL);
    atomic_store(&slow_may_go, 1);
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(bad, 0);
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, NULL));
    CHECK_OK(loch_raw_free(raw));
    loch_stream_close(stream);
    loch_device_release(device);
    loch_device_release(cpu);
    CHECK_OK(loch_registry_clear(NULL, NULL, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_refused_simulated_devices),
        cmocka_unit_test(a_child_is_refused_unbacked_devices),
        cmocka_unit_test(a_child_is_refused_devices_of_other_drivers),
        cmocka_unit_test(drivers_that_say_so_survive_a_fork),
        cmocka_unit_test(a_child_forgets_functions_that_run),
        cmocka_unit_test(a_child_forgets_threads_that_visit),
        cmocka_unit_test(a_child_frees_what_others_look_at),
        cmocka_unit_test(a_child_collects_without_other_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
