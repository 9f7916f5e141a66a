/* SPDX-License-Identifier: MIT */
/* A thread of real-time priority trims a pool on the processor on which ordinary threads allocate. It interrupts them
 * anywhere, also inside of the gate, and has to let them run then. A loop on sched_yield does not: the thread keeps the
 * processor until the kernel takes it away, after a second or never. Skipped where a thread may not have such a
 * priority. */
#include "test.h"
#include "worker.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define ORDINARY 2
#define TRIMS 500
#define MEAN_MS 10     /* of a trim. A single one may take longer if other processes want the processor */
#define MOST_CPU_MS 10 /* that any trim may keep the processor; the kernel takes it away after 950 */

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

typedef struct trimmer {
    double sum_ms, worst_ms, worst_cpu_ms;
    int trims;
    char failure[256];
} trimmer;

static void trimmer_work(trimmer *w)
{
    for (; w->trims < TRIMS && w->worst_cpu_ms <= MOST_CPU_MS; w->trims++) {
        const struct timespec nap = {0, 1000000};
        nanosleep(&nap, NULL);
        const double start = now_ms(CLOCK_MONOTONIC), cpu = now_ms(CLOCK_THREAD_CPUTIME_ID);
        TRY(loch_allocator_trim(pool, 0, NULL));
        const double ms = now_ms(CLOCK_MONOTONIC) - start, cpu_ms = now_ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
        w->sum_ms += ms;
        if (ms > w->worst_ms) w->worst_ms = ms;
        if (cpu_ms > w->worst_cpu_ms) w->worst_cpu_ms = cpu_ms;
    }
}

static void *trimmer_run(void *user)
{
    set_priority(SCHED_FIFO);
    trimmer_work(user);
    return NULL;
}

static void trims_let_ordinary_threads_run(void **state)
{
    (void)state;
    loch_device *device;
    pthread_t ordinary[ORDINARY], urgent;
    trimmer it = {0};
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_pool_create(device, "shared", NULL, &pool));
    for (size_t i = 0; i < ORDINARY; i++)
        assert_int_equal(pthread_create(&ordinary[i], NULL, allocate, NULL), 0);
    assert_int_equal(pthread_create(&urgent, NULL, trimmer_run, &it), 0);
    pthread_join(urgent, NULL);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < ORDINARY; i++)
        pthread_join(ordinary[i], NULL);
    if (it.failure[0]) fail_msg("%s", it.failure);
    print_message("%d trims: mean %.3f ms, worst %.3f ms, at most %.3f ms on the processor\n", it.trims,
                  it.sum_ms / it.trims, it.worst_ms, it.worst_cpu_ms);
    assert_true(it.worst_cpu_ms <= MOST_CPU_MS);
    assert_true(it.sum_ms <= TRIMS * (double)MEAN_MS);
    loch_allocator_release(pool);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(trims_let_ordinary_threads_run)};
    int error = set_priority(SCHED_FIFO);
    if (!error) error = set_priority(SCHED_OTHER);
    if (!error) error = stay_here();
    if (error) {
        printf("skipped: this process may not have a thread with SCHED_FIFO on one processor: %s\n", strerror(error));
        return TEST_SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
