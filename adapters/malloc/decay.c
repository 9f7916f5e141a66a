/* SPDX-License-Identifier: MIT */
#include "decay.h"
#include "shelf.h"
#include "source.h"
#include <loch/pool.h>
#include <loch/wrapper.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define DECAY_SECONDS 10
#define DECAY_SECONDS_MAX 1e9
#define DECAY_TICKS 20
#define DECAY_PEAKS (DECAY_TICKS - 2)  /* figures that count: memory goes back within the time, not after it */
#define DECAY_LOOK ((size_t)16 << 20)  /* bytes that a thread frees between two looks at the pool */
#define DECAY_STEP ((size_t)256 << 20) /* bytes that go back in one call, which holds the pool's lock */
#define DECAY_STACK ((size_t)256 << 10)

static struct timespec decay_pause; /* between two ticks; 0 for no thread; constant after the start */

/* Whether the thread exists. Acquire and release: the thread that starts the next one sees the end of the last. */
static atomic_bool decay_runs;

static _Thread_local size_t decay_freed __attribute__((tls_model("initial-exec")));

void front_decay_start(void)
{
    const char *text = secure_getenv("LOCH_MALLOC_DECAY");
    char *end = NULL;
    double seconds = text ? strtod(text, &end) : DECAY_SECONDS;
    if (text && (end == text || *end || !(seconds >= 0 && seconds <= DECAY_SECONDS_MAX))) seconds = DECAY_SECONDS;
    const uint64_t ns = (uint64_t)(seconds * 1e9 / DECAY_TICKS);
    decay_pause = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

/* --- the thread --- */

/* Reads the figures of `meter`, a wrapper of the pool that nothing allocates from: it has peaks of its own. */
static bool decay_read(loch_allocator *meter, loch_stats *out)
{
    *out = (loch_stats){.size = sizeof *out};
    return loch_allocator_get_stats(meter, out) == LOCH_OK;
}

/* Gives back what is free beyond `needed` bytes in use, in steps, since the program goes on meanwhile. Returns the free
 * bytes that are left. */
static size_t decay_give_back(loch_allocator *pool, loch_allocator *meter, size_t needed)
{
    for (loch_stats stats; decay_read(meter, &stats);) {
        const size_t used = stats.allocated_bytes, keep = needed > used ? needed - used : 0;
        const size_t idle = stats.reserved_bytes > used ? stats.reserved_bytes - used : 0;
        size_t released = 0;
        if (idle <= keep) return idle;
        const loch_status status =
            loch_allocator_trim(pool, idle - keep > DECAY_STEP ? idle - DECAY_STEP : keep, &released);
        if (status != LOCH_OK || !released) return keep; /* the rest lies between live blocks */
    }
    return 0;
}

/* Runs until little has been free for a while, with the thread inside Loch. */
static void decay_run(loch_allocator *pool, loch_allocator *meter)
{
    size_t peaks[DECAY_PEAKS];
    loch_stats stats;
    if (!decay_read(meter, &stats)) return;
    for (unsigned i = 0; i < DECAY_PEAKS; i++)
        peaks[i] = stats.reserved_bytes; /* what was needed before is not known */
    for (unsigned tick = 0, quiet = 0; quiet < DECAY_TICKS; tick++) {
        front_source_leave();
        (void)nanosleep(&decay_pause, NULL); /* signals are blocked */
        front_shelf_empty();
        front_source_enter();
        if (!decay_read(meter, &stats) || loch_allocator_reset_stats(meter) != LOCH_OK) return;
        peaks[tick % DECAY_PEAKS] = stats.peak_allocated_bytes;
        size_t needed = 0;
        for (unsigned i = 0; i < DECAY_PEAKS; i++)
            if (peaks[i] > needed) needed = peaks[i];
        quiet = decay_give_back(pool, meter, needed) > DECAY_MIN ? 0 : quiet + 1;
    }
}

static void *decay_main(void *unused)
{
    (void)unused;
    front_source_enter();
    loch_allocator *pool = atomic_load_explicit(&front_pool, memory_order_acquire), *meter = NULL;
    if (loch_locked_create(pool, "malloc, lately", &meter) == LOCH_OK) decay_run(pool, meter);
    loch_allocator_release(meter);
    front_source_leave();
    atomic_store_explicit(&decay_runs, false, memory_order_release);
    return NULL;
}

/* --- its start --- */

/* Starts the thread. The caller is inside Loch: what the C library allocates for a thread comes from beneath. */
static bool decay_begin_thread(void)
{
    pthread_t thread;
    pthread_attr_t settings;
    sigset_t all, before;
    if (pthread_attr_init(&settings) != 0) return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool is_begun = pthread_attr_setdetachstate(&settings, PTHREAD_CREATE_DETACHED) == 0 &&
                          pthread_attr_setstacksize(&settings, DECAY_STACK) == 0 &&
                          pthread_create(&thread, &settings, decay_main, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&settings);
    return is_begun;
}

/* Starts the thread if much is free. */
static void decay_look(void)
{
    loch_allocator *pool = atomic_load_explicit(&front_pool, memory_order_acquire);
    loch_pool_info info = {.size = sizeof info};
    if (loch_pool_get_info(pool, &info) != LOCH_OK || info.reserved_bytes - info.used_bytes <= DECAY_MIN) return;
    if (decay_pause.tv_sec || decay_pause.tv_nsec) {
        if (atomic_exchange_explicit(&decay_runs, true, memory_order_acq_rel) || decay_begin_thread()) return;
        atomic_store_explicit(&decay_runs, false, memory_order_release);
    }
    (void)front_source_trim(DECAY_MOST);
}

void front_decay_note(size_t bytes)
{
    if ((decay_freed += bytes) < DECAY_LOOK) return;
    decay_freed = 0;
    if (atomic_load_explicit(&decay_runs, memory_order_relaxed)) return;
    front_source_enter();
    decay_look();
    front_source_leave();
}

void front_decay_end_fork(void)
{
    atomic_store_explicit(&decay_runs, false, memory_order_relaxed);
}
