/* SPDX-License-Identifier: MIT */
/* One budget for two processes: the program runs itself again as a batch job, which borrows memory that the server does
 * not use. The server has a minimum. When it needs it, the job gives free memory back; when the job is killed, all its
 * bytes are there again.
 *
 *   43_budget [DEVICE]     cpu, cuda:0, sim:1GiB (default: cpu) */
#include <loch/budget.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define TOTAL (256 * MIB)

typedef struct process {
    loch_device *device;
    loch_allocator *pool;
    loch_budget *budget;
    loch_budget_member *member;
} process;

/* Opens the device and makes a pool in the budget. */
static void join(process *p, const char *device, const char *path, const char *name, size_t minimum)
{
    const loch_budget_options options = {.size = sizeof options, .total_bytes = TOTAL, .wait_ns = 1000000000};
    const loch_budget_member_options mine = {.size = sizeof mine, .minimum_bytes = minimum};
    LOCH_CHECK(loch_device_open(device, &p->device));
    LOCH_CHECK(loch_pool_create(p->device, name, NULL, &p->pool));
    LOCH_CHECK(loch_budget_open(path, &options, &p->budget));
    LOCH_CHECK(loch_budget_member_create(p->budget, p->pool, NULL, &mine, &p->member));
}

static void leave(process *p)
{
    loch_budget_member_destroy(p->member);
    loch_budget_close(p->budget);
    loch_allocator_release(p->pool);
    loch_device_release(p->device);
}

static loch_status print_member(const loch_budget_member_info *info, void *user)
{
    (void)user;
    printf("  %-6s minimum %3zu MiB, may hold %s\n", info->name, (size_t)info->minimum_bytes / MIB,
           info->granted_bytes >= 150 * MIB ? "150 MiB and more" : "less than 150 MiB");
    return LOCH_OK;
}

static void tell(int socket)
{
    if (write(socket, "x", 1) != 1) exit(1);
}

static void hear(int socket)
{
    char letter;
    if (read(socket, &letter, 1) != 1) exit(1);
}

/* The batch job: takes what no other process uses, frees most of it, and sleeps until it is killed. */
static void run_job(const char *device, const char *path, int socket)
{
    process p;
    void *blocks[4];
    join(&p, device, path, "job", 0);
    for (int i = 0; i < 4; i++)
        LOCH_CHECK(loch_alloc(p.pool, 40 * MIB, &blocks[i]));
    tell(socket);
    hear(socket);
    for (int i = 1; i < 4; i++)
        LOCH_CHECK(loch_free(p.pool, blocks[i])); /* free for this pool; the device does not have it back */
    tell(socket);
    for (;;)
        pause();
}

/* Starts the job before a device is opened, because CUDA does not survive a fork. */
static pid_t start_job(const char *device, const char *path, int *out)
{
    char number[16];
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) exit(1);
    snprintf(number, sizeof number, "%d", sockets[1]);
    const pid_t child = fork();
    if (child == 0) {
        close(sockets[0]);
        execl("/proc/self/exe", "43_budget", device, path, number, (char *)NULL);
        _exit(127);
    }
    close(sockets[1]);
    *out = sockets[0];
    return child;
}

int main(int count, char **arguments)
{
    const char *device = count > 1 ? arguments[1] : "cpu";
    char path[64];
    int socket;
    process p;
    void *block;
    if (count > 3) run_job(device, arguments[2], atoi(arguments[3]));
    snprintf(path, sizeof path, "/dev/shm/loch-example-%ld.budget", (long)getpid());
    const pid_t job = start_job(device, path, &socket);
    hear(socket);
    join(&p, device, path, "server", 160 * MIB); /* the job has borrowed a part of it */
    printf("the job has borrowed:\n");
    LOCH_CHECK(loch_budget_walk_members(p.budget, print_member, NULL));
    if (loch_alloc(p.pool, 150 * MIB, &block) == LOCH_E_LIMIT)
        printf("the job uses the memory: the server has to wait\n");
    tell(socket);
    hear(socket);
    LOCH_CHECK(loch_alloc(p.pool, 150 * MIB, &block)); /* the job gives free memory back */
    printf("the server has its minimum:\n");
    LOCH_CHECK(loch_budget_walk_members(p.budget, print_member, NULL));
    LOCH_CHECK(loch_free(p.pool, block));
    kill(job, SIGKILL);
    waitpid(job, NULL, 0);
    LOCH_CHECK(loch_budget_member_prepare(p.member, 80 * MIB)); /* more than it holds: its grant is there in advance */
    LOCH_CHECK(loch_alloc(p.pool, 230 * MIB, &block));
    loch_budget_member_info info = {.size = sizeof info};
    loch_budget_info sums = {.size = sizeof sums};
    LOCH_CHECK(loch_budget_member_get_info(p.member, &info));
    LOCH_CHECK(loch_budget_get_info(p.budget, &sums));
    printf("the job was killed: %zu member has %s of the budget\n", sums.members,
           info.granted_bytes > 220 * MIB ? "most" : "a part");
    LOCH_CHECK(loch_free(p.pool, block));
    leave(&p);
    printf("the file is %s\n", access(path, F_OK) == 0 ? "left" : "gone");
    return 0;
}
