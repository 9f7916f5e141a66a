/* SPDX-License-Identifier: MIT */
/* Eight threads use the device layer at the same time, each with memory and addresses of its own, and open and release
 * the devices under each other's feet. Contents are checked; at the end nothing may be left. What each thread does
 * follows from the seed; how the threads mix does not, so a failure names the step and not the moment. */
#include "test.h"
#include "worker.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 8
#define STEPS 1200
#define BLOCKS 6
#define BLOCK_BYTES (96 * TEST_KIB)
#define PLACES 4

typedef struct piece {
    char *address;
    size_t bytes;
    uint64_t seed; /* of its contents */
} piece;

typedef struct worker {
    const char *name; /* of the device */
    test_random random;
    uint64_t stamp; /* no two contents alike */
    loch_device *device;
    loch_device_properties properties;
    loch_stream *stream;
    loch_event *event;
    piece blocks[BLOCKS];
    char *addresses; /* PLACES granules */
    loch_handle *mapped[PLACES];
    uint64_t contents[PLACES];
    char *host, *back;
    char failure[400]; /* empty when all is well */
} worker;

/* --- steps: each is small, and leaves the worker as whole as it found it --- */

static void step_reopen(worker *w)
{
    loch_device *again = NULL, *apart = NULL;
    char name[64];
    TRY(loch_device_open(w->name, &again));
    EXPECT(again == w->device);
    EXPECT(strcmp(loch_device_get_name(again), w->name) == 0);
    loch_device_release(again);
    /* a device that several threads open and close over and over */
    snprintf(name, sizeof name, "sim:16MiB,backed,id=%d", (int)test_random_below(&w->random, 2));
    TRY(loch_device_open(name, &apart));
    void *block = NULL;
    TRY(loch_raw_alloc(apart, LOCH_MEMORY_DEVICE, 4096, 0, &block));
    loch_device_release(apart);
    TRY(loch_fill(block, 4096, "q", 1));
    TRY(loch_raw_free(block));
}

static void step_check_block(worker *w, const piece *b)
{
    TRY(loch_copy(w->back, b->address, b->bytes));
    EXPECT(test_pattern_differs(w->back, b->bytes, b->seed) == b->bytes);
}

static void step_block(worker *w)
{
    piece *b = &w->blocks[test_random_below(&w->random, BLOCKS)];
    if (b->address) {
        step_check_block(w, b);
        if (w->failure[0]) return;
        TRY(loch_raw_free(b->address));
        b->address = NULL;
        return;
    }
    void *address = NULL;
    size_t bytes = 1 + test_random_below(&w->random, BLOCK_BYTES);
    TRY(loch_raw_alloc(w->device, LOCH_MEMORY_DEVICE, bytes, 0, &address));
    *b = (piece){.address = address, .bytes = bytes, .seed = ++w->stamp};
    test_pattern_write(w->host, b->bytes, b->seed);
    TRY(loch_copy(b->address, w->host, b->bytes));
}

/* Through a stream from one block to another, ordered by an event. */
static void step_stream_copy(worker *w)
{
    piece *from = &w->blocks[test_random_below(&w->random, BLOCKS)];
    piece *to = &w->blocks[test_random_below(&w->random, BLOCKS)];
    if (!from->address || !to->address || from == to) return;
    size_t bytes = from->bytes < to->bytes ? from->bytes : to->bytes;
    loch_stream *thread = NULL;
    TRY(loch_stream_require_thread_default(w->device, &thread));
    TRY(loch_copy_on(to->address, from->address, bytes, w->stream));
    TRY(loch_event_record(w->event, w->stream));
    TRY(loch_stream_wait(thread, w->event));
    TRY(loch_copy_on(w->back, to->address, bytes, thread));
    TRY(loch_stream_sync(thread));
    EXPECT(test_pattern_differs(w->back, bytes, from->seed) == bytes);
    EXPECT(loch_event_query(w->event) == LOCH_OK);
    to->seed = from->seed;
    if (to->bytes > bytes) { /* the rest is old: write it all anew */
        to->seed = ++w->stamp;
        test_pattern_write(w->host, to->bytes, to->seed);
        TRY(loch_copy(to->address, w->host, to->bytes));
    }
}

static void step_new_stream(worker *w)
{
    loch_stream *fresh = NULL;
    loch_event *event = NULL;
    TRY(loch_stream_create(w->device, NULL, &fresh));
    EXPECT(loch_stream_get_id(fresh) != loch_stream_get_id(w->stream));
    TRY(loch_event_create(w->device, LOCH_EVENT_PLAIN, &event));
    TRY(loch_event_record(event, w->stream));
    TRY(loch_stream_wait(fresh, event));
    loch_event_destroy(event);
    TRY(loch_stream_sync(w->stream));
    loch_stream_close(w->stream);
    w->stream = fresh;
}

static void step_map(worker *w)
{
    if (!w->addresses) return;
    const size_t granule = w->properties.granule_bytes, place = test_random_below(&w->random, PLACES);
    const size_t bytes = granule < BLOCK_BYTES ? granule : BLOCK_BYTES;
    char *address = w->addresses + place * granule;
    loch_address_info info = {.size = sizeof info};
    if (w->mapped[place]) {
        TRY(loch_copy(w->back, address, bytes));
        EXPECT(test_pattern_differs(w->back, bytes, w->contents[place]) == bytes);
        TRY(loch_virtual_unmap(address));
        EXPECT(loch_address_query(address, &info) == LOCH_E_NOT_FOUND);
        loch_handle *handle = w->mapped[place];
        size_t other = test_random_below(&w->random, PLACES);
        w->mapped[place] = NULL;
        if (!w->mapped[other] && test_random_below(&w->random, 2)) { /* elsewhere, with its contents */
            w->mapped[other] = handle;
            w->contents[other] = w->contents[place];
            TRY(loch_virtual_map(w->addresses + other * granule, handle, NULL, 0));
        } else {
            loch_handle_destroy(handle);
        }
        return;
    }
    TRY(loch_handle_create(w->device, granule, NULL, &w->mapped[place]));
    loch_status status = loch_virtual_map(address, w->mapped[place], NULL, 0);
    if (status != LOCH_OK) {
        loch_handle_destroy(w->mapped[place]);
        w->mapped[place] = NULL;
    }
    TRY(status);
    w->contents[place] = ++w->stamp;
    test_pattern_write(w->host, bytes, w->contents[place]);
    TRY(loch_copy(address, w->host, bytes));
    TRY(loch_address_query(address + granule - 1, &info));
    EXPECT(info.base == address && info.device == w->device);
}

static void step_wrong(worker *w)
{
    static char foreign[16];
    piece *b = &w->blocks[test_random_below(&w->random, BLOCKS)];
    EXPECT(loch_raw_free(foreign) == LOCH_E_FOREIGN);
    EXPECT(loch_error_get()->status == LOCH_E_FOREIGN);
    if (!b->address || b->bytes < 2) return;
    EXPECT(loch_raw_free(b->address + 1) == LOCH_E_INTERIOR);
    EXPECT(loch_copy(w->back, b->address + 1, b->bytes) == LOCH_E_OUT_OF_RANGE);
    step_check_block(w, b);
}

/* --- a worker's life --- */

static void worker_start(worker *w)
{
    void *addresses = NULL;
    TRY(loch_device_open(w->name, &w->device));
    w->properties.size = sizeof w->properties;
    TRY(loch_device_get_properties(w->device, &w->properties));
    TRY(loch_stream_create(w->device, NULL, &w->stream));
    TRY(loch_event_create(w->device, LOCH_EVENT_PLAIN, &w->event));
    if (loch_device_can(w->device, LOCH_CAN_VIRTUAL))
        TRY(loch_virtual_reserve(w->device, PLACES * w->properties.granule_bytes, 0, &addresses));
    w->addresses = addresses;
    w->host = malloc(BLOCK_BYTES);
    w->back = malloc(BLOCK_BYTES);
    EXPECT(w->host && w->back);
}

static void worker_give_back(worker *w)
{
    TRY(loch_stream_sync(w->stream));
    for (size_t i = 0; i < BLOCKS; i++)
        TRY(loch_raw_free(w->blocks[i].address));
    for (size_t i = 0; i < PLACES; i++) {
        if (!w->mapped[i]) continue;
        loch_handle_destroy(w->mapped[i]);
        TRY(loch_virtual_unmap(w->addresses + i * w->properties.granule_bytes));
    }
    TRY(loch_virtual_unreserve(w->addresses));
}

static void *worker_run(void *argument)
{
    static void (*const steps[])(worker *) = {step_block, step_block,      step_stream_copy, step_stream_copy, step_map,
                                              step_map,   step_new_stream, step_reopen,      step_wrong};
    worker *w = argument;
    worker_start(w);
    for (int i = 0; i < STEPS && !w->failure[0]; i++)
        steps[test_random_below(&w->random, sizeof steps / sizeof *steps)](w);
    if (!w->failure[0]) worker_give_back(w);
    loch_event_destroy(w->event);
    loch_stream_close(w->stream);
    loch_device_release(w->device);
    free(w->host);
    free(w->back);
    return NULL;
}

static uint64_t seed;

static void run_workers(const char *name)
{
    static worker workers[THREADS];
    bool failed = false;

    memset(workers, 0, sizeof workers);
    for (size_t i = 0; i < THREADS; i++) {
        workers[i].name = name;
        workers[i].random.state = seed * 1000 + i;
        workers[i].stamp = i << 32;
    }
    TEST_THREADS_RUN(worker_run, workers);
    for (size_t i = 0; i < THREADS; i++)
        if (workers[i].failure[0]) {
            print_error("thread %zu: %s\n", i, workers[i].failure);
            failed = true;
        }
    assert_false(failed);
}

static loch_host_usage usage_before = {.size = sizeof usage_before};

static int note_usage(void **state)
{
    (void)state;
    CHECK_OK(loch_host_get_usage(&usage_before));
    return 0;
}

static int compare_usage(void **state)
{
    (void)state;
    loch_host_usage after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&after));
    if (after.blocks == usage_before.blocks && after.bytes == usage_before.bytes) return 0;
    print_error("the bookkeeping holds %zu bytes in %zu pieces, before it were %zu in %zu\n", after.bytes, after.blocks,
                usage_before.bytes, usage_before.blocks);
    return -1;
}

static void threads_share_the_cpu(void **state)
{
    (void)state;
    run_workers("cpu");
}

/* Held open by the test, so that what is left and what the checker found can be seen. */
static void run_on_sim(const char *name)
{
    loch_device *device = NULL;
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_device_open(name, &device));
    for (int round = 0; round < 2; round++) {
        run_workers(name);
        CHECK_OK(loch_sim_get_stats(device, &stats));
        assert_int_equal(stats.physical_bytes, 0);
        assert_int_equal(stats.reserved_bytes, 0);
        assert_int_equal(stats.handles, 0);
        assert_int_equal(stats.mappings, 0);
        assert_int_equal(stats.events, 0);
        assert_int_equal(stats.violations, 0);
    }
    loch_device_release(device);
}

static void threads_share_a_simulated_device(void **state)
{
    (void)state;
    run_on_sim("sim:256MiB,granule=64KiB,backed");
}

static void threads_share_a_stepped_device(void **state)
{
    (void)state;
    run_on_sim("sim:256MiB,granule=64KiB,backed,clock=stepped");
}

static void threads_share_named_devices(void **state)
{
    (void)state;
    char list[1024], *rest = NULL;
    const char *wanted = getenv("LOCH_TEST_DEVICES");
    snprintf(list, sizeof list, "%s", wanted ? wanted : "");
    for (char *name = strtok_r(list, ";", &rest); name; name = strtok_r(NULL, ";", &rest)) {
        loch_device *device = NULL;
        loch_status status = loch_device_open(name, &device);
        if (status != LOCH_OK) print_message("%s: skipped: %s\n", name, loch_error_get()->sentence);
        loch_device_release(device);
        if (status == LOCH_OK) run_workers(name);
    }
}

/* --- threads that come and go --- */

typedef struct passer {
    loch_device *device;
    uint64_t id;
    loch_status status;
} passer;

static void *pass_by(void *argument)
{
    passer *p = argument;
    loch_stream *stream = NULL;
    void *block = NULL;
    p->status = loch_stream_require_thread_default(p->device, &stream);
    if (p->status == LOCH_OK) p->status = loch_raw_alloc(p->device, LOCH_MEMORY_DEVICE, 4096, 0, &block);
    if (p->status == LOCH_OK) p->status = loch_fill_on(block, 4096, "p", 1, stream);
    if (p->status == LOCH_OK) p->id = loch_stream_get_id(stream);
    if (p->status == LOCH_OK) p->status = loch_stream_sync(stream);
    if (loch_raw_free(block) != LOCH_OK) p->status = LOCH_E_CORRUPT;
    return NULL;
}

static void check_passers(const char *name)
{
    enum { WAVES = 25 };
    loch_device *device = NULL;
    uint64_t ids[WAVES * THREADS];
    size_t count = 0;
    CHECK_OK(loch_device_open(name, &device));
    for (int wave = 0; wave < WAVES; wave++) {
        passer passers[THREADS];
        for (size_t i = 0; i < THREADS; i++)
            passers[i] = (passer){.device = device};
        TEST_THREADS_RUN(pass_by, passers);
        for (size_t i = 0; i < THREADS; i++) {
            CHECK_STATUS(passers[i].status, LOCH_OK);
            ids[count++] = passers[i].id;
        }
    }
    if (loch_device_can(device, LOCH_CAN_ASYNC))
        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < i; k++)
                assert_true(ids[i] != ids[k]);
    loch_device_release(device);
}

static void threads_that_end_leave_nothing_on_a_device(void **state)
{
    (void)state;
    check_passers("cpu");
    check_passers("sim:256MiB,backed");
}

/* The last release and the next open of one name, again and again. */
static void *open_and_release(void *argument)
{
    worker *w = argument;
    for (int i = 0; i < 500; i++) {
        loch_device *device = NULL;
        loch_status status = loch_device_open(w->name, &device);
        if (status != LOCH_OK || strcmp(loch_device_get_name(device), w->name) != 0) {
            snprintf(w->failure, sizeof w->failure, "open gave %s", loch_status_name(status));
            return NULL;
        }
        loch_device_release(device);
    }
    return NULL;
}

static void devices_are_opened_and_closed_by_many_threads(void **state)
{
    (void)state;
    const char *names[] = {"cpu", "sim:16MiB", "sim:16MiB,id=1"};
    worker workers[THREADS] = {0};
    for (size_t i = 0; i < THREADS; i++)
        workers[i].name = names[i % 3];
    TEST_THREADS_RUN(open_and_release, workers);
    for (size_t i = 0; i < THREADS; i++)
        assert_string_equal(workers[i].failure, "");
}

#define STRESS(name) cmocka_unit_test_setup_teardown(name, note_usage, compare_usage)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STRESS(threads_share_the_cpu),
        STRESS(threads_share_a_simulated_device),
        STRESS(threads_share_a_stepped_device),
        STRESS(threads_share_named_devices),
        STRESS(threads_that_end_leave_nothing_on_a_device),
        STRESS(devices_are_opened_and_closed_by_many_threads),
    };
    seed = test_seed(20);
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
