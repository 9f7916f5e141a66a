/* SPDX-License-Identifier: MIT */
/* Visitors on driver memory: who hears of which range, in which order, and that nobody is left out or told twice while
 * memory and visitors come and go in several threads. */
#include "sim_fixture.h"
#include "sweep.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define DEVICE "sim:64MiB,granule=64KiB,backed"
#define GRANULE (64 * TEST_KIB)
#define THREADS 8

/* --- a diary of what visitors hear --- */

typedef struct page {
    char visitor; /* which one heard it */
    loch_range_event event;
    loch_range range;
} page;

static page diary[64];
static size_t diary_length;

static void write_down(loch_range_event event, const loch_range *range, void *user)
{
    assert_true(diary_length < sizeof diary / sizeof *diary);
    diary[diary_length++] = (page){*(const char *)user, event, *range};
}

/* Compares the diary with "a+b+" (visitor and event) and one range for all its pages, and empties it. */
static void expect_diary(const char *expected, loch_device *device, loch_memory_kind kind, const void *address,
                         size_t bytes)
{
    char text[160] = "";
    for (size_t i = 0; i < diary_length; i++)
        snprintf(text + 2 * i, 3, "%c%c", diary[i].visitor, diary[i].event == LOCH_RANGE_TAKEN ? '+' : '-');
    assert_string_equal(text, expected);
    for (size_t i = 0; i < diary_length; i++) {
        assert_ptr_equal(diary[i].range.device, device);
        assert_int_equal(diary[i].range.kind, kind);
        assert_ptr_equal(diary[i].range.address, address);
        assert_int_equal(diary[i].range.bytes, bytes);
    }
    diary_length = 0;
}

static void raw_blocks_in_order_and_in_reverse(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE), *other = sim_open(DEVICE ",id=1");
    void *block, *elsewhere;
    CHECK_OK(loch_observer_add(device, write_down, "a"));
    CHECK_OK(loch_observer_add(NULL, write_down, "b"));
    CHECK_OK(loch_observer_add(device, write_down, "c"));
    CHECK_OK(loch_observer_add(other, write_down, "o"));
    const loch_memory_kind kinds[] = {LOCH_MEMORY_DEVICE, LOCH_MEMORY_PINNED, LOCH_MEMORY_MANAGED};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(loch_raw_alloc(device, kinds[i], 1000, 0, &block));
        expect_diary("a+b+c+", device, kinds[i], block, 1000);
        CHECK_FAILS(loch_raw_free((char *)block + 1), INTERIOR);
        assert_int_equal(diary_length, 0);
        CHECK_OK(loch_raw_free(block));
        expect_diary("c-b-a-", device, kinds[i], block, 1000);
        CHECK_FAILS(loch_raw_free(block), FOREIGN);
        assert_int_equal(diary_length, 0);
    }
    CHECK_OK(loch_raw_alloc(other, LOCH_MEMORY_DEVICE, 50, 0, &elsewhere));
    expect_diary("b+o+", other, LOCH_MEMORY_DEVICE, elsewhere, 50);
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, TEST_GIB, 0, &block), DEVICE_MEMORY);
    assert_int_equal(diary_length, 0);
    CHECK_OK(loch_observer_remove(NULL, write_down, "b"));
    CHECK_OK(loch_raw_free(elsewhere));
    expect_diary("o-", other, LOCH_MEMORY_DEVICE, elsewhere, 50);
    CHECK_OK(loch_observer_remove(device, write_down, "c"));
    CHECK_OK(loch_observer_remove(other, write_down, "o"));
    CHECK_OK(loch_observer_remove(device, write_down, "a"));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 1000, 0, &block));
    CHECK_OK(loch_raw_free(block));
    assert_int_equal(diary_length, 0);
    loch_device_release(device);
    loch_device_release(other);
}

static void registered_memory_is_the_callers(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    static char mine[4096];
    CHECK_OK(loch_observer_add(NULL, write_down, "a"));
    CHECK_OK(loch_raw_register(device, mine, sizeof mine));
    CHECK_OK(loch_raw_unregister(mine));
    assert_int_equal(diary_length, 0);
    CHECK_OK(loch_observer_remove(NULL, write_down, "a"));
    loch_device_release(device);
}

static void mappings(void **state)
{
    (void)state;
    const char *names[] = {DEVICE, "cpu"};
    for (int i = 0; i < 2; i++) {
        loch_device *device = sim_open(names[i]);
        loch_device_properties properties = {.size = sizeof properties};
        CHECK_OK(loch_device_get_properties(device, &properties));
        const size_t granule = properties.granule_bytes;
        char *addresses;
        loch_handle *handle;
        CHECK_OK(loch_observer_add(device, write_down, "a"));
        CHECK_OK(loch_observer_add(device, write_down, "b"));
        CHECK_OK(loch_virtual_reserve(device, 8 * granule, 0, (void **)&addresses));
        CHECK_OK(loch_handle_create(device, 2 * granule, NULL, &handle));
        assert_int_equal(diary_length, 0); /* neither addresses nor handles can be used yet */
        CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
        expect_diary("a+b+", device, LOCH_MEMORY_DEVICE, addresses, 2 * granule);
        CHECK_FAILS(loch_virtual_map(addresses + granule, handle, NULL, 0), EXISTS);
        assert_int_equal(diary_length, 0);
        if (loch_device_can(device, LOCH_CAN_REMAP)) {
            CHECK_OK(loch_virtual_remap(addresses, addresses + 4 * granule));
            assert_int_equal(diary_length, 4);
            assert_ptr_equal(diary[0].range.address, addresses);
            assert_ptr_equal(diary[3].range.address, addresses + 4 * granule);
            diary[2].range = diary[3].range = diary[0].range;
            expect_diary("b-a-a+b+", device, LOCH_MEMORY_DEVICE, addresses, 2 * granule);
            CHECK_FAILS(loch_virtual_remap(addresses + 4 * granule, addresses + 5 * granule), EXISTS);
            assert_int_equal(diary_length, 0);
            CHECK_OK(loch_virtual_remap(addresses + 4 * granule, addresses));
            diary_length = 0;
        }
        CHECK_FAILS(loch_virtual_unmap(addresses + granule), INTERIOR);
        CHECK_OK(loch_virtual_unmap(addresses));
        expect_diary("b-a-", device, LOCH_MEMORY_DEVICE, addresses, 2 * granule);
        CHECK_FAILS(loch_virtual_unmap(addresses), NOT_FOUND);
        loch_handle_destroy(handle);
        CHECK_OK(loch_virtual_unreserve(addresses));
        assert_int_equal(diary_length, 0);
        CHECK_OK(loch_observer_remove(device, write_down, "a"));
        CHECK_OK(loch_observer_remove(device, write_down, "b"));
        loch_device_release(device);
    }
}

static void committed_memory_goes_in_parts(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_device_properties properties = {.size = sizeof properties};
    CHECK_OK(loch_device_get_properties(device, &properties));
    const size_t granule = properties.granule_bytes;
    char *base;
    CHECK_OK(loch_virtual_reserve(device, 200 * granule, 0, (void **)&base));
    CHECK_OK(loch_observer_add(device, write_down, "a"));
    CHECK_OK(loch_virtual_commit(base + 2 * granule, 2 * granule));
    expect_diary("a+", device, LOCH_MEMORY_DEVICE, base + 2 * granule, 2 * granule);
    CHECK_OK(loch_virtual_commit(base + 2 * granule, 2 * granule)); /* nothing new */
    assert_int_equal(diary_length, 0);
    CHECK_OK(loch_virtual_commit(base, 6 * granule)); /* new on both sides */
    assert_int_equal(diary_length, 2);
    assert_ptr_equal(diary[1].range.address, base + 4 * granule);
    diary[1].range.address = base;
    expect_diary("a+a+", device, LOCH_MEMORY_DEVICE, base, 2 * granule);
    CHECK_OK(loch_virtual_decommit(base + granule, granule));
    expect_diary("a-", device, LOCH_MEMORY_DEVICE, base + granule, granule);
    CHECK_OK(loch_observer_add(device, write_down, "b")); /* finds the two runs */
    assert_int_equal(diary_length, 2);
    assert_int_equal(diary[0].range.bytes, granule);
    assert_ptr_equal(diary[1].range.address, base + 2 * granule);
    assert_int_equal(diary[1].range.bytes, 4 * granule);
    diary_length = 0;
    CHECK_OK(loch_virtual_decommit(base, 200 * granule));
    assert_int_equal(diary_length, 4);
    assert_ptr_equal(diary[0].range.address, base);
    assert_ptr_equal(diary[2].range.address, base + 2 * granule);
    diary[2].range = diary[3].range = diary[0].range;
    expect_diary("b-a-b-a-", device, LOCH_MEMORY_DEVICE, base, granule);
    CHECK_OK(loch_virtual_commit(base + 60 * granule, 100 * granule)); /* over several words of bits */
    expect_diary("a+b+", device, LOCH_MEMORY_DEVICE, base + 60 * granule, 100 * granule);
    CHECK_OK(loch_virtual_decommit(base + 60 * granule, 100 * granule));
    diary_length = 0;
    CHECK_OK(loch_virtual_unreserve(base));
    CHECK_OK(loch_observer_remove(device, write_down, "a"));
    CHECK_OK(loch_observer_remove(device, write_down, "b"));
    loch_device_release(device);
}

/* A range is usable when it is taken, and still when it goes. */
static void use(loch_range_event event, const loch_range *range, void *user)
{
    char byte = 0;
    loch_address_info info = {.size = sizeof info};
    CHECK_OK(loch_address_query(range->address, &info));
    assert_ptr_equal(info.base, range->address);
    assert_int_equal(info.bytes, range->bytes);
    if (event == LOCH_RANGE_TAKEN) CHECK_OK(loch_fill(range->address, range->bytes, "v", 1));
    CHECK_OK(loch_copy(&byte, range->address, 1));
    assert_int_equal(byte, 'v');
    CHECK_FAILS(loch_raw_free((char *)range->address + 1), INTERIOR);
    ++*(int *)user;
}

static void second_free(loch_range_event event, const loch_range *range, void *user)
{
    if (event == LOCH_RANGE_GOING) CHECK_FAILS(loch_raw_free(range->address), FOREIGN);
    ++*(int *)user;
}

static void usable_during_the_call(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    int calls = 0, others = 0;
    void *block;
    CHECK_OK(loch_observer_add(device, use, &calls));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 4096, 0, &block));
    CHECK_OK(loch_observer_remove(device, use, &calls));
    CHECK_OK(loch_observer_add(device, second_free, &others)); /* a second free meanwhile does not reach the driver */
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_observer_remove(device, second_free, &others));
    assert_int_equal(calls, 1);
    assert_int_equal(others, 2);
    loch_device_release(device);
}

static void newcomers_hear_of_what_is_there(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE), *other = sim_open(DEVICE ",id=1");
    void *blocks[40], *elsewhere;
    for (int i = 0; i < 40; i++)
        CHECK_OK(loch_raw_alloc(device, i % 2 ? LOCH_MEMORY_PINNED : LOCH_MEMORY_DEVICE, 100, 0, &blocks[i]));
    CHECK_OK(loch_raw_alloc(other, LOCH_MEMORY_DEVICE, 100, 0, &elsewhere));
    CHECK_OK(loch_observer_add(device, write_down, "a"));
    assert_int_equal(diary_length, 40);
    for (int i = 0; i < 40; i++) {
        int found = 0;
        for (int k = 0; k < 40; k++)
            found += diary[k].range.address == blocks[i] && diary[k].event == LOCH_RANGE_TAKEN;
        assert_int_equal(found, 1);
    }
    diary_length = 0;
    CHECK_OK(loch_observer_remove(device, write_down, "a"));
    CHECK_OK(loch_observer_add(NULL, write_down, "a"));
    assert_int_equal(diary_length, 41);
    diary_length = 0;
    CHECK_OK(loch_observer_remove(NULL, write_down, "a"));
    for (int i = 0; i < 40; i++)
        CHECK_OK(loch_raw_free(blocks[i]));
    CHECK_OK(loch_raw_free(elsewhere));
    loch_device_release(device);
    loch_device_release(other);
}

static void wrong_calls(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    CHECK_FAILS(loch_observer_add(device, NULL, NULL), INVALID);
    CHECK_FAILS(loch_observer_remove(device, write_down, "a"), NOT_FOUND);
    CHECK_OK(loch_observer_add(device, write_down, diary));
    CHECK_FAILS(loch_observer_add(device, write_down, diary), EXISTS);
    CHECK_OK(loch_observer_add(NULL, write_down, diary)); /* for all devices: another one */
    CHECK_FAILS(loch_observer_remove(device, write_down, "b"), NOT_FOUND);
    CHECK_OK(loch_observer_remove(device, write_down, diary));
    CHECK_FAILS(loch_observer_remove(device, write_down, diary), NOT_FOUND);
    CHECK_OK(loch_observer_remove(NULL, write_down, diary));
    loch_device_release(device);
}

/* Memory that a driver could not give is not told of. */
static void a_driver_that_cannot(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE ",id=2");
    char *addresses;
    loch_handle *handle;
    CHECK_OK(loch_virtual_reserve(device, 4 * GRANULE, 0, (void **)&addresses));
    CHECK_OK(loch_handle_create(device, GRANULE, NULL, &handle));
    CHECK_OK(loch_observer_add(device, write_down, "a"));
    const loch_sim_fault fault = {.size = sizeof fault, .call = "map", .mode = LOCH_SIM_FAULT_ONCE};
    CHECK_OK(loch_sim_set_fault(device, &fault));
    CHECK_FAILS(loch_virtual_map(addresses, handle, NULL, 0), DRIVER);
    assert_int_equal(diary_length, 0);
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    expect_diary("a+", device, LOCH_MEMORY_DEVICE, addresses, GRANULE);
    CHECK_OK(loch_virtual_unmap(addresses));
    diary_length = 0;
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
    CHECK_OK(loch_observer_remove(device, write_down, "a"));
    loch_device_release(device);
}

/* The CPU's driver, but for giving back, which it refuses while told to. */
static const loch_driver *willing;
static bool is_stubborn;

/* Two threads meet twice: while one is inside something, the other does what it has to. */
typedef struct meeting {
    pthread_barrier_t entered, leave;
} meeting;

static meeting *inside_driver; /* where map and unmap wait, unless NULL */

static void meet(meeting *m)
{
    if (!m) return;
    pthread_barrier_wait(&m->entered);
    pthread_barrier_wait(&m->leave);
}

static void meeting_init(meeting *m)
{
    pthread_barrier_init(&m->entered, NULL, 2);
    pthread_barrier_init(&m->leave, NULL, 2);
}

static void meeting_fini(meeting *m)
{
    pthread_barrier_destroy(&m->entered);
    pthread_barrier_destroy(&m->leave);
}

static loch_status meeting_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                               size_t peers_count)
{
    meet(inside_driver);
    return willing->map(self, address, bytes, handle, peers, peers_count);
}

static loch_status stubborn_raw_free(void *self, void *address, size_t bytes)
{
    if (is_stubborn) return loch_error_set(LOCH_E_DRIVER, "stubborn", 1, "no");
    return willing->raw_free(self, address, bytes);
}

static loch_status stubborn_unmap(void *self, void *address, size_t bytes, loch_driver_handle handle)
{
    if (is_stubborn) return loch_error_set(LOCH_E_DRIVER, "stubborn", 2, "no");
    meet(inside_driver);
    return willing->unmap(self, address, bytes, handle);
}

static loch_status stubborn_decommit(void *self, void *address, size_t bytes)
{
    if (is_stubborn) return loch_error_set(LOCH_E_DRIVER, "stubborn", 3, "no");
    return willing->decommit(self, address, bytes);
}

static void fail_something(loch_range_event event, const loch_range *range, void *user)
{
    (void)event, (void)range, (void)user;
    CHECK_FAILS(loch_tag_create("", &(loch_tag){0}), INVALID);
}

/* What the driver refuses to take back was not given back: visitors hear of it again. */
static void a_driver_that_refuses(void **state)
{
    (void)state;
    loch_device *device = sim_open("stubborn");
    loch_device_properties properties = {.size = sizeof properties};
    CHECK_OK(loch_device_get_properties(device, &properties));
    const size_t granule = properties.granule_bytes;
    char *block, *addresses;
    loch_handle *handle;
    CHECK_OK(loch_virtual_reserve(device, 4 * granule, 0, (void **)&addresses));
    CHECK_OK(loch_handle_create(device, granule, NULL, &handle));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, (void **)&block));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(loch_virtual_commit(addresses + 2 * granule, 2 * granule));
    CHECK_OK(loch_observer_add(device, write_down, "a"));
    CHECK_OK(loch_observer_add(device, fail_something, NULL)); /* the record stays the library's */
    diary_length = 0;
    is_stubborn = true;
    CHECK_FAILS(loch_raw_free(block), DRIVER);
    expect_diary("a-a+", device, LOCH_MEMORY_DEVICE, block, 100);
    CHECK_FAILS(loch_virtual_unmap(addresses), DRIVER);
    expect_diary("a-a+", device, LOCH_MEMORY_DEVICE, addresses, granule);
    CHECK_FAILS(loch_virtual_decommit(addresses, 4 * granule), DRIVER);
    expect_diary("a-a+", device, LOCH_MEMORY_DEVICE, addresses + 2 * granule, 2 * granule);
    is_stubborn = false;
    CHECK_FAILS(loch_virtual_unreserve(addresses), BUSY);
    CHECK_OK(loch_raw_free(block));
    expect_diary("a-", device, LOCH_MEMORY_DEVICE, block, 100);
    CHECK_OK(loch_virtual_unmap(addresses));
    expect_diary("a-", device, LOCH_MEMORY_DEVICE, addresses, granule);
    CHECK_OK(loch_virtual_decommit(addresses, 4 * granule));
    expect_diary("a-", device, LOCH_MEMORY_DEVICE, addresses + 2 * granule, 2 * granule);
    CHECK_OK(loch_observer_remove(device, fail_something, NULL));
    CHECK_OK(loch_observer_remove(device, write_down, "a"));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
    loch_device_release(device);
}

/* --- threads --- */

/* Knows by address what it has heard of: each range once taken, then once going. */
typedef struct watcher {
    pthread_mutex_t mutex;
    void *known[512];
    size_t count, wrong;
    atomic_size_t heard;
} watcher;

static void watch(loch_range_event event, const loch_range *range, void *user)
{
    watcher *w = user;
    pthread_mutex_lock(&w->mutex);
    atomic_fetch_add(&w->heard, 1);
    size_t at = 0;
    while (at < w->count && w->known[at] != range->address)
        at++;
    if (event == LOCH_RANGE_TAKEN) {
        if (at < w->count || w->count == sizeof w->known / sizeof *w->known)
            w->wrong++;
        else
            w->known[w->count++] = range->address;
    } else if (at == w->count) {
        w->wrong++;
    } else {
        w->known[at] = w->known[--w->count];
    }
    pthread_mutex_unlock(&w->mutex);
}

typedef struct churner {
    pthread_t thread;
    loch_device *device;
    atomic_bool *stop;
    test_random random;
    loch_status status;
} churner;

static loch_status churn_virtual(churner *c, char *addresses, loch_handle *handle)
{
    char *place = addresses + test_random_below(&c->random, 4) * GRANULE;
    loch_status status = loch_virtual_map(place, handle, NULL, 0);
    if (status == LOCH_OK) status = loch_virtual_unmap(place);
    return status;
}

static void *churn(void *user)
{
    churner *c = user;
    void *blocks[8] = {0}, *addresses = NULL;
    loch_handle *handle = NULL;
    c->status = loch_virtual_reserve(c->device, 4 * GRANULE, 0, &addresses);
    if (c->status == LOCH_OK) c->status = loch_handle_create(c->device, GRANULE, NULL, &handle);
    while (c->status == LOCH_OK && !atomic_load(c->stop)) {
        const size_t at = test_random_below(&c->random, 8);
        if (blocks[at]) {
            c->status = loch_raw_free(blocks[at]);
            blocks[at] = NULL;
        } else {
            c->status = loch_raw_alloc(c->device, LOCH_MEMORY_DEVICE, 64, 0, &blocks[at]);
        }
        if (c->status == LOCH_OK) c->status = churn_virtual(c, addresses, handle);
    }
    for (int i = 0; i < 8; i++)
        if (loch_raw_free(blocks[i]) != LOCH_OK) c->status = LOCH_E_CORRUPT;
    loch_handle_destroy(handle);
    if (loch_virtual_unreserve(addresses) != LOCH_OK) c->status = LOCH_E_CORRUPT;
    return NULL;
}

static void nobody_is_left_out_or_told_twice(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(7);
    loch_device *device = sim_open(DEVICE);
    static watcher whole, brief;
    pthread_mutex_init(&whole.mutex, NULL);
    pthread_mutex_init(&brief.mutex, NULL);
    CHECK_OK(loch_observer_add(NULL, watch, &whole));
    atomic_bool stop = false;
    churner churners[THREADS - 1];
    for (size_t i = 0; i < THREADS - 1; i++) {
        churners[i] = (churner){.device = device, .stop = &stop, .random = {seed + i}};
        assert_int_equal(pthread_create(&churners[i].thread, NULL, churn, &churners[i]), 0);
    }
    size_t wrong = 0, heard = 0;
    for (int round = 0; round < 300; round++) { /* visitors come and go under the others */
        brief.count = brief.wrong = 0;
        atomic_store(&brief.heard, 0);
        CHECK_OK(loch_observer_add(round % 2 ? device : NULL, watch, &brief));
        while (round % 10 == 0 && !atomic_load(&brief.heard)) {} /* somebody takes or gives back all the time */
        CHECK_OK(loch_observer_remove(round % 2 ? device : NULL, watch, &brief));
        wrong += brief.wrong;
        heard += atomic_load(&brief.heard);
    }
    brief.count = 0;
    CHECK_OK(loch_observer_add(device, watch, &brief));
    atomic_store(&stop, true);
    for (size_t i = 0; i < THREADS - 1; i++) {
        pthread_join(churners[i].thread, NULL);
        assert_int_equal(churners[i].status, LOCH_OK);
    }
    assert_int_equal(wrong, 0);
    assert_true(heard > 0);
    assert_int_equal(whole.wrong, 0);
    assert_int_equal(whole.count, 0); /* all that was taken has gone */
    assert_int_equal(brief.wrong, 0);
    assert_int_equal(brief.count, 0);
    CHECK_OK(loch_observer_remove(device, watch, &brief));
    CHECK_OK(loch_observer_remove(NULL, watch, &whole));
    pthread_mutex_destroy(&whole.mutex);
    pthread_mutex_destroy(&brief.mutex);
    loch_device_release(device);
}

/* A call in a thread of its own. */
typedef struct call {
    pthread_t thread;
    loch_device *device;
    void *address;
    loch_handle *handle;
    meeting *room;
    atomic_int heard, gone, wrong;
    loch_status status;
} call;

static void start(call *c, void *(*function)(void *))
{
    assert_int_equal(pthread_create(&c->thread, NULL, function, c), 0);
}

static void *call_alloc(void *user)
{
    call *c = user;
    c->status = loch_raw_alloc(c->device, LOCH_MEMORY_DEVICE, 100, 0, &c->address);
    return NULL;
}

static void *call_free(void *user)
{
    call *c = user;
    c->status = loch_raw_free(c->address);
    return NULL;
}

static void *call_map(void *user)
{
    call *c = user;
    c->status = loch_virtual_map(c->address, c->handle, NULL, 0);
    return NULL;
}

static void *call_unmap(void *user)
{
    call *c = user;
    c->status = loch_virtual_unmap(c->address);
    return NULL;
}

static void hear_slowly(loch_range_event event, const loch_range *range, void *user)
{
    (void)range;
    call *c = user;
    if (event == LOCH_RANGE_TAKEN) {
        meet(c->room);
        atomic_fetch_add(&c->heard, 1);
    } else {
        atomic_fetch_add(&c->gone, 1);
        if (!atomic_load(&c->heard)) atomic_fetch_add(&c->wrong, 1);
    }
}

static void *call_add(void *user)
{
    call *c = user;
    c->status = loch_observer_add(c->device, hear_slowly, c);
    return NULL;
}

static void *call_remove(void *user)
{
    call *c = user;
    c->status = loch_observer_remove(c->device, hear_slowly, c);
    atomic_fetch_add(&c->wrong, !atomic_load(&c->heard)); /* back before the other has left */
    return NULL;
}

static void removal_waits_for_threads_inside(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    meeting room;
    meeting_init(&room);
    call visitor = {.device = device, .room = &room}, taker = {.device = device};
    CHECK_OK(loch_observer_add(device, hear_slowly, &visitor));
    start(&taker, call_alloc);
    pthread_barrier_wait(&room.entered);
    start(&visitor, call_remove);
    for (int i = 0; i < 1000; i++)
        sched_yield(); /* wherever the remover is by now, it may not return before the next line */
    pthread_barrier_wait(&room.leave);
    pthread_join(taker.thread, NULL);
    pthread_join(visitor.thread, NULL);
    CHECK_OK(taker.status);
    CHECK_OK(visitor.status);
    assert_int_equal(visitor.wrong, 0);
    CHECK_OK(loch_raw_free(taker.address)); /* nobody listens any more */
    assert_int_equal(visitor.gone, 0);
    meeting_fini(&room);
    loch_device_release(device);
}

static void count_going(loch_range_event event, const loch_range *range, void *user)
{
    (void)range;
    if (event == LOCH_RANGE_GOING) atomic_fetch_add((atomic_int *)user, 1);
}

/* A range that a newcomer is just hearing of does not go before it has. */
static void going_waits_for_newcomers(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    meeting room;
    meeting_init(&room);
    call newcomer = {.device = device, .room = &room}, freer = {0};
    atomic_int is_going = 0;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &freer.address));
    start(&newcomer, call_add);
    pthread_barrier_wait(&room.entered);
    CHECK_OK(loch_observer_add(device, count_going, &is_going)); /* newer still: hears of the end first */
    start(&freer, call_free);
    while (!atomic_load(&is_going))
        sched_yield();
    for (int i = 0; i < 1000; i++)
        sched_yield(); /* the newcomer would be next */
    pthread_barrier_wait(&room.leave);
    pthread_join(newcomer.thread, NULL);
    pthread_join(freer.thread, NULL);
    CHECK_OK(newcomer.status);
    CHECK_OK(freer.status);
    assert_int_equal(newcomer.wrong, 0);
    assert_int_equal(newcomer.heard, 1);
    assert_int_equal(newcomer.gone, 1);
    CHECK_OK(loch_observer_remove(device, count_going, &is_going));
    CHECK_OK(loch_observer_remove(device, hear_slowly, &newcomer));
    meeting_fini(&room);
    loch_device_release(device);
}

static void meet_at_the_end(loch_range_event event, const loch_range *range, void *user)
{
    (void)range;
    if (event == LOCH_RANGE_GOING) meet(user);
}

/* Who is added while others hear of the end has found the range, and hears of its end as well. */
static void newcomers_while_a_range_goes(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    meeting room;
    meeting_init(&room);
    call newcomer = {0}, freer = {0};
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &freer.address));
    CHECK_OK(loch_observer_add(device, meet_at_the_end, &room));
    start(&freer, call_free);
    pthread_barrier_wait(&room.entered);
    CHECK_OK(loch_observer_add(NULL, hear_slowly, &newcomer));
    assert_int_equal(newcomer.heard, 1);
    pthread_barrier_wait(&room.leave);
    pthread_join(freer.thread, NULL);
    CHECK_OK(freer.status);
    assert_int_equal(newcomer.gone, 1);
    CHECK_OK(loch_observer_remove(NULL, hear_slowly, &newcomer));
    CHECK_OK(loch_observer_remove(device, meet_at_the_end, &room));
    meeting_fini(&room);
    loch_device_release(device);
}

/* While the driver maps, a newcomer does not hear of the mapping; the mapper tells it. While it unmaps, nobody does. */
static void newcomers_while_the_driver_works(void **state)
{
    (void)state;
    loch_device *device = sim_open("stubborn");
    loch_device_properties properties = {.size = sizeof properties};
    CHECK_OK(loch_device_get_properties(device, &properties));
    meeting room;
    meeting_init(&room);
    call newcomer = {.device = device}, late = {.device = device}, mapper = {0};
    CHECK_OK(loch_virtual_reserve(device, properties.granule_bytes, 0, &mapper.address));
    CHECK_OK(loch_handle_create(device, properties.granule_bytes, NULL, &mapper.handle));
    inside_driver = &room;
    start(&mapper, call_map);
    pthread_barrier_wait(&room.entered);
    CHECK_OK(loch_observer_add(device, hear_slowly, &newcomer));
    assert_int_equal(newcomer.heard, 0);
    CHECK_FAILS(loch_virtual_unmap(mapper.address), NOT_FOUND); /* nothing there yet */
    pthread_barrier_wait(&room.leave);
    pthread_join(mapper.thread, NULL);
    CHECK_OK(mapper.status);
    assert_int_equal(newcomer.heard, 1);
    start(&mapper, call_unmap);
    pthread_barrier_wait(&room.entered);
    assert_int_equal(newcomer.gone, 1);
    CHECK_OK(loch_observer_add(device, hear_slowly, &late));
    assert_int_equal(late.heard, 0);
    pthread_barrier_wait(&room.leave);
    pthread_join(mapper.thread, NULL);
    CHECK_OK(mapper.status);
    inside_driver = NULL;
    assert_int_equal(newcomer.heard + newcomer.gone, 2);
    assert_int_equal(late.heard + late.gone, 0);
    CHECK_OK(loch_observer_remove(device, hear_slowly, &newcomer));
    CHECK_OK(loch_observer_remove(device, hear_slowly, &late));
    loch_handle_destroy(mapper.handle);
    CHECK_OK(loch_virtual_unreserve(mapper.address));
    meeting_fini(&room);
    loch_device_release(device);
}

/* --- without host memory --- */

static void ignore(loch_range_event event, const loch_range *range, void *user)
{
    (void)event, (void)range, (void)user;
}

static loch_status scarce(const void *user)
{
    (void)user;
    loch_device *device = NULL;
    void *block = NULL;
    loch_status status = loch_device_open(DEVICE, &device);
    if (status == LOCH_OK) status = loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &block);
    if (status == LOCH_OK) status = loch_observer_add(device, ignore, NULL);
    const loch_error first = *loch_error_get();
    loch_status ended = status == LOCH_OK ? loch_observer_remove(device, ignore, NULL) : LOCH_OK;
    if (loch_raw_free(block) != LOCH_OK) ended = LOCH_E_CORRUPT;
    loch_device_release(device);
    if (ended != LOCH_OK) return ended;
    return status == LOCH_OK ? status : loch_error_set(first.status, NULL, 0, "%s", first.sentence);
}

static void host_memory_fails_anywhere(void **state)
{
    (void)state;
    test_host_sweep(scarce, NULL);
}

static int install(void **state)
{
    (void)state;
    willing = loch_driver_find("cpu");
    loch_driver stubborn = *willing;
    stubborn.name = "stubborn";
    stubborn.raw_free = stubborn_raw_free;
    stubborn.map = meeting_map;
    stubborn.unmap = stubborn_unmap;
    stubborn.decommit = stubborn_decommit;
    if (test_heap_install() != LOCH_OK) return -1;
    return loch_driver_register(&stubborn) == LOCH_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(raw_blocks_in_order_and_in_reverse),
        SIM_TEST(registered_memory_is_the_callers),
        SIM_TEST(mappings),
        SIM_TEST(committed_memory_goes_in_parts),
        SIM_TEST(usable_during_the_call),
        SIM_TEST(newcomers_hear_of_what_is_there),
        SIM_TEST(wrong_calls),
        SIM_TEST(a_driver_that_cannot),
        SIM_TEST(a_driver_that_refuses),
        SIM_TEST(nobody_is_left_out_or_told_twice),
        SIM_TEST(removal_waits_for_threads_inside),
        SIM_TEST(going_waits_for_newcomers),
        SIM_TEST(newcomers_while_a_range_goes),
        SIM_TEST(newcomers_while_the_driver_works),
        SIM_TEST(host_memory_fails_anywhere),
    };
    return cmocka_run_group_tests_name("visitors", tests, install, NULL);
}
