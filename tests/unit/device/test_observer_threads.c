/* SPDX-License-Identifier: MIT */
/* Observers under threads: each is called for every range, and once only, while memory and observers come and go. */
#include "observer_fixture.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define THREADS 8

/* --- a record of the calls of observers --- */

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
        while (round % 10 == 0 && !atomic_load(&brief.heard)) {} /* a thread allocates or frees all the time */
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
    CHECK_OK(loch_raw_free(taker.address)); /* no observer is left */
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
    /* newer still: called first for the end of the range */
    CHECK_OK(loch_observer_add(device, count_going, &is_going));
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

/* An observer that is added while others are called for the end of a range has received the range, and is called for
 * its end as well. */
static void a_newcomer_hears_of_the_end_of_a_range_that_goes(void **state)
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

/* While the driver maps, a new observer does not receive the mapping; the mapping thread calls it. While the driver
 * unmaps, no observer receives it. */
static void a_newcomer_hears_once_of_what_the_driver_maps(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(nobody_is_left_out_or_told_twice),
        SIM_TEST(removal_waits_for_threads_inside),
        SIM_TEST(going_waits_for_newcomers),
        SIM_TEST(a_newcomer_hears_of_the_end_of_a_range_that_goes),
        SIM_TEST(a_newcomer_hears_once_of_what_the_driver_maps),
    };
    return cmocka_run_group_tests_name("visitors", tests, install, NULL);
}
