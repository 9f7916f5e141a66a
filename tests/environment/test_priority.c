/* SPDX-License-Identifier: MIT */
/* A thread of real-time priority uses a pool on the processor on which ordinary threads allocate. It interrupts them
 * anywhere, also inside of the gate, and has to let them run then. A loop that spins or calls sched_yield does not: the
 * thread keeps the processor until the kernel takes it away, after a second or never. Skipped where a thread may not
 * have such a priority. */
#include "test.h"
#include "worker.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define ORDINARY 2
#define CALLS 500
#define PARKED 256     /* threads that take all slots, so that later ones share one */
#define MEAN_MS 10     /* of a call. A single one may take longer if other processes want the processor */
#define MOST_CPU_MS 10 /* that any call may keep the processor; the kernel takes it away after 950 */

static loch_allocator *pool;
static atomic_bool is_over;

static double now_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Returns 0 or an error. */
static int set_priority(int policy)
{
    const struct sched_param param = {.sched_priority = policy == SCHED_FIFO ? 10 : 0};
    return pthread_setschedparam(pthread_self(), policy, &param);
}

/* Leaves this process one processor. */
static int stay_here(void)
{
    cpu_set_t here;
    const int cpu = sched_getcpu();
    if (cpu < 0) return errno;
    CPU_ZERO(&here);
    CPU_SET(cpu, &here);
    return sched_setaffinity(0, sizeof here, &here) == 0 ? 0 : errno;
}

static void *allocate(void *user)
{
    (void)user;
    while (!atomic_load(&is_over)) {
        void *block;
        LOCH_CHECK(loch_alloc(pool, 100, &block));
        LOCH_CHECK(loch_free(pool, block));
    }
    return NULL;
}

/* A thread that calls something again and again. */
typedef struct caller {
    loch_status (*call)(void);
    double sum_ms, worst_ms, worst_cpu_ms;
    int calls;
    char failure[256];
} caller;

static void caller_work(caller *w)
{
    for (; w->calls < CALLS && w->worst_cpu_ms <= MOST_CPU_MS; w->calls++) {
        const struct timespec nap = {0, 1000000};
        nanosleep(&nap, NULL);
        const double start = now_ms(CLOCK_MONOTONIC), cpu = now_ms(CLOCK_THREAD_CPUTIME_ID);
        TRY(w->call());
        const double ms = now_ms(CLOCK_MONOTONIC) - start, cpu_ms = now_ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
        w->sum_ms += ms;
        if (ms > w->worst_ms) w->worst_ms = ms;
        if (cpu_ms > w->worst_cpu_ms) w->worst_cpu_ms = cpu_ms;
    }
}

static void *caller_run(void *user)
{
    set_priority(SCHED_FIFO);
    caller_work(user);
    return NULL;
}

/* Lets an urgent thread make its calls beside ordinary threads. */
static void call_beside_ordinary_threads(loch_status (*call)(void))
{
    pthread_t ordinary[ORDINARY], urgent;
    caller it = {.call = call};
    atomic_store(&is_over, false);
    for (size_t i = 0; i < ORDINARY; i++)
        assert_int_equal(pthread_create(&ordinary[i], NULL, allocate, NULL), 0);
    assert_int_equal(pthread_create(&urgent, NULL, caller_run, &it), 0);
    pthread_join(urgent, NULL);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < ORDINARY; i++)
        pthread_join(ordinary[i], NULL);
    if (it.failure[0]) fail_msg("%s", it.failure);
    print_message("%d calls: mean %.3f ms, worst %.3f ms, at most %.3f ms on the processor\n", it.calls,
                  it.sum_ms / it.calls, it.worst_ms, it.worst_cpu_ms);
    assert_true(it.worst_cpu_ms <= MOST_CPU_MS);
    assert_true(it.sum_ms <= CALLS * (double)MEAN_MS);
}

static loch_status trim(void)
{
    return loch_allocator_trim(pool, 0, NULL);
}

static void trims_let_ordinary_threads_run(void **state)
{
    (void)state;
    call_beside_ordinary_threads(trim);
}

/* --- recordings --- */

static pthread_barrier_t parked;

/* Has a slot until all other threads have ended. */
static void *park(void *user)
{
    (void)user;
    void *block;
    LOCH_CHECK(loch_alloc(pool, 100, &block));
    LOCH_CHECK(loch_free(pool, block));
    pthread_barrier_wait(&parked);
    pthread_barrier_wait(&parked);
    return NULL;
}

static loch_status allocate_once(void)
{
    void *block;
    const loch_status status = loch_alloc(pool, 100, &block);
    return status == LOCH_OK ? loch_free(pool, block) : status;
}

/* Threads without a slot of their own wait for each other whenever they record. */
static void recorded_calls_let_ordinary_threads_run(void **state)
{
    (void)state;
    pthread_t threads[PARKED];
    CHECK_OK(loch_recorder_start(NULL));
    pthread_barrier_init(&parked, NULL, PARKED + 1);
    for (size_t i = 0; i < PARKED; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, park, NULL), 0);
    pthread_barrier_wait(&parked);
    call_beside_ordinary_threads(allocate_once);
    pthread_barrier_wait(&parked);
    for (size_t i = 0; i < PARKED; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&parked);
    CHECK_OK(loch_recorder_stop());
}

static int begin(void **state)
{
    (void)state;
    loch_device *device;
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_pool_create(device, "shared", NULL, &pool));
    loch_device_release(device);
    return 0;
}

static int end(void **state)
{
    (void)state;
    loch_allocator_release(pool);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trims_let_ordinary_threads_run),
        cmocka_unit_test(recorded_calls_let_ordinary_threads_run),
    };
    int error = set_priority(SCHED_FIFO);
    if (!error) error = set_priority(SCHED_OTHER);
    if (!error) error = stay_here();
    if (error) {
        printf("skipped: this process may not have a thread with SCHED_FIFO on one processor: %s\n", strerror(error));
        return TEST_SKIPPED;
    }
    return cmocka_run_group_tests(tests, begin, end);
}
