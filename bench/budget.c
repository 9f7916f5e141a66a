/* SPDX-License-Identifier: MIT */
/* Measures what a budget costs.
 *
 *     budget [DEVICE] [ROUNDS]      default: sim:64GiB,unbacked 2000
 *
 * Growth: a pool takes 2 MiB from the device and gives it back, without a budget, with one and a grant that is large
 * enough. Grant: each call raises the grant in the file and in the pool. Hot path: blocks that the pool serves from
 * memory that it holds. Kill: a process that holds three quarters of the budget is killed, and another one allocates as
 * much; time from the kill to the block. */
#include <loch/budget.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define KILLS 20
#define SETS 9 /* of interleaved measurements, of which the least counts */

static char path[64];

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static loch_budget *open_budget(size_t total)
{
    loch_budget *budget;
    const loch_budget_options options = {
        .size = sizeof options, .total_bytes = total, .chunk_bytes = MIB, .wait_ns = 10000000000u};
    LOCH_CHECK(loch_budget_open(path, &options, &budget));
    return budget;
}

/* Nanoseconds of one growth by 2 MiB and one trim. */
static double measure_growth(loch_allocator *pool, size_t rounds)
{
    void *block;
    const uint64_t start = loch_host_now_ns();
    for (size_t i = 0; i < rounds; i++) {
        LOCH_CHECK(loch_alloc(pool, 2 * MIB, &block));
        LOCH_CHECK(loch_free(pool, block));
        LOCH_CHECK(loch_allocator_trim(pool, 0, NULL));
    }
    return (double)(loch_host_now_ns() - start) / (double)rounds;
}

/* Nanoseconds of one change of the grant and back, as a request at its grant causes it, without the pool's own work. */
static double measure_grant(loch_budget_member *member, size_t rounds)
{
    const uint64_t start = loch_host_now_ns();
    for (size_t i = 0; i < rounds; i++)
        LOCH_CHECK(loch_budget_member_prepare(member, (64 + i) * MIB)); /* one more each time */
    return (double)(loch_host_now_ns() - start) / (double)rounds;
}

/* Nanoseconds of one allocation and one free that the pool serves from memory that it holds. */
static double measure_hot(loch_allocator *pool, size_t bytes)
{
    void *block;
    LOCH_CHECK(loch_alloc(pool, bytes, &block)); /* keeps the memory in the pool */
    const size_t rounds = 200000;
    const uint64_t start = loch_host_now_ns();
    for (size_t i = 0; i < rounds; i++) {
        void *other;
        LOCH_CHECK(loch_alloc(pool, bytes, &other));
        LOCH_CHECK(loch_free(pool, other));
    }
    const double took = (double)(loch_host_now_ns() - start) / (double)rounds;
    LOCH_CHECK(loch_free(pool, block));
    return took;
}

static void compare_pools(loch_device *device, size_t rounds)
{
    loch_allocator *plain, *member_pool;
    loch_budget_member *member;
    double growth[2][SETS], hot[4][SETS], grants[SETS];
    loch_budget *budget = open_budget(32 * GIB);
    LOCH_CHECK(loch_pool_create(device, "plain", NULL, &plain));
    LOCH_CHECK(loch_pool_create(device, "member", NULL, &member_pool));
    LOCH_CHECK(loch_budget_member_create(budget, member_pool, NULL, NULL, &member));
    LOCH_CHECK(loch_budget_member_prepare(member, 64 * MIB));
    for (size_t i = 0; i < SETS; i++) {
        growth[0][i] = measure_growth(plain, rounds);
        growth[1][i] = measure_growth(member_pool, rounds);
        hot[0][i] = measure_hot(plain, 1000);
        hot[1][i] = measure_hot(member_pool, 1000);
        hot[2][i] = measure_hot(plain, 3 * MIB);
        hot[3][i] = measure_hot(member_pool, 3 * MIB);
    }
    for (size_t i = 0; i < SETS; i++)
        grants[i] = measure_grant(member, rounds);
    for (size_t i = 0; i < 2; i++)
        qsort(growth[i], SETS, sizeof **growth, compare);
    for (size_t i = 0; i < 4; i++)
        qsort(hot[i], SETS, sizeof **hot, compare);
    qsort(grants, SETS, sizeof *grants, compare);
    printf("growth by 2 MiB and trim       %9.0f ns without, %9.0f ns with a budget, %+9.0f ns\n", growth[0][0],
           growth[1][0], growth[1][0] - growth[0][0]);
    printf("a new grant from the file      %9.0f ns\n", grants[0]);
    printf("alloc and free of 1000 bytes   %9.1f ns without, %9.1f ns with a budget, ratio %.3f\n", hot[0][0],
           hot[1][0], hot[1][0] / hot[0][0]);
    printf("alloc and free of 3 MiB        %9.1f ns without, %9.1f ns with a budget, ratio %.3f\n", hot[2][0],
           hot[3][0], hot[3][0] / hot[2][0]);
    loch_budget_member_destroy(member);
    loch_allocator_release(member_pool);
    loch_allocator_release(plain);
    loch_budget_close(budget);
}

/* --- kills --- */

/* The process that is killed: holds `bytes`. */
static void hold(const char *device_name, size_t total, int socket)
{
    loch_device *device;
    loch_allocator *pool;
    loch_budget_member *member;
    void *block;
    loch_budget *budget = open_budget(total);
    LOCH_CHECK(loch_device_open(device_name, &device));
    LOCH_CHECK(loch_pool_create(device, "victim", NULL, &pool));
    LOCH_CHECK(loch_budget_member_create(budget, pool, NULL, NULL, &member));
    LOCH_CHECK(loch_alloc(pool, total / 4 * 3, &block));
    if (write(socket, "x", 1) != 1) exit(1);
    for (;;)
        pause();
}

static pid_t start(const char *device_name, size_t total, int *out)
{
    int sockets[2];
    char text[2][32], letter;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) exit(1);
    snprintf(text[0], sizeof text[0], "%zu", total);
    snprintf(text[1], sizeof text[1], "%d", sockets[1]);
    const pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "budget", device_name, text[0], text[1], path, (char *)NULL);
        _exit(127);
    }
    close(sockets[1]);
    if (read(sockets[0], &letter, 1) != 1) exit(1);
    *out = sockets[0];
    return child;
}

static void measure_kills(loch_device *device, const char *device_name)
{
    loch_allocator *pool;
    loch_budget_member *member;
    loch_memory_info memory = {.size = sizeof memory};
    double served[KILLS];
    LOCH_CHECK(loch_device_calculate_memory(device, &memory));
    const size_t total = memory.free_bytes / 10 * 8;
    loch_budget *budget = open_budget(total);
    LOCH_CHECK(loch_pool_create(device, "heir", NULL, &pool));
    LOCH_CHECK(loch_budget_member_create(budget, pool, NULL, NULL, &member));
    for (size_t i = 0; i < KILLS; i++) {
        int socket;
        void *block;
        const pid_t victim = start(device_name, total, &socket);
        const uint64_t killed = loch_host_now_ns();
        kill(victim, SIGKILL);
        LOCH_CHECK(loch_alloc(pool, total / 4 * 3, &block));
        served[i] = (double)(loch_host_now_ns() - killed) / 1e6;
        waitpid(victim, NULL, 0);
        close(socket);
        LOCH_CHECK(loch_free(pool, block));
        LOCH_CHECK(loch_allocator_trim(pool, 0, NULL));
    }
    qsort(served, KILLS, sizeof *served, compare);
    printf("%.1f GiB of a killed process   %9.2f ms until they serve another one (median of %d; worst %.2f ms)\n",
           (double)total * 0.75 / (double)GIB, served[KILLS / 2], KILLS, served[KILLS - 1]);
    loch_budget_member_destroy(member);
    loch_allocator_release(pool);
    loch_budget_close(budget);
}

int main(int count, char **arguments)
{
    const char *device_name = count > 1 ? arguments[1] : "sim:64GiB,unbacked";
    const size_t rounds = count > 2 && atoi(arguments[2]) > 0 ? (size_t)atoi(arguments[2]) : 2000;
    loch_device *device;
    if (count > 4) {
        snprintf(path, sizeof path, "%s", arguments[4]);
        hold(device_name, strtoull(arguments[2], NULL, 10), atoi(arguments[3]));
    }
    snprintf(path, sizeof path, "/dev/shm/loch-bench-%ld.budget", (long)getpid());
    LOCH_CHECK(loch_device_open(device_name, &device));
    compare_pools(device, rounds);
    measure_kills(device, device_name);
    loch_device_release(device);
    return 0;
}
