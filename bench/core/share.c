/* SPDX-License-Identifier: MIT */
/* `core share`: measures how long it takes to share a buffer with another process.
 *
 * The program runs itself again as the owner of the buffers (hidden option --as), and imports what that process offers.
 * Each round has a new buffer: it is offered, imported for the first time, imported again while it is mapped, and
 * released twice. The median of each step counts. */
#include "core.h"
#include "tools/json.h"

#include <loch/share.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARE_ROUNDS 101
#define SHARE_ROUNDS_QUICK 5
#define SHARE_WARM_ROUNDS 3 /* are not counted */

static const struct {
    const char *name;
    size_t bytes, handle_bytes;
} share_cases[] = {{"64 KiB", (size_t)64 << 10, (size_t)2 << 20},
                   {"2 MiB", (size_t)2 << 20, (size_t)2 << 20},
                   {"64 MiB", (size_t)64 << 20, (size_t)64 << 20},
                   {"64 MiB in 32 handles", (size_t)64 << 20, (size_t)2 << 20}};
#define SHARE_CASES (sizeof share_cases / sizeof *share_cases)

typedef enum share_step { SHARE_EXPORT, SHARE_FIRST, SHARE_AGAIN, SHARE_RELEASE, SHARE_LAST, SHARE_STEPS } share_step;

static const char *const share_names[SHARE_STEPS] = {"export", "first import", "import again", "release",
                                                     "last release"};

/* What the owner says of one buffer. */
typedef struct share_offer {
    loch_status status;
    uint64_t export_ns;
    size_t token_bytes;
    uint8_t token[LOCH_PARCEL_TOKEN_MAX];
    char sentence[LOCH_ERROR_SENTENCE_MAX];
} share_offer;

/* --- the owner --- */

/* Offers one buffer, and waits until the importer has released it. */
static loch_status share_offer_one(loch_allocator *pool, size_t bytes, int socket)
{
    loch_buffer *buffer = NULL;
    loch_parcel *parcel = NULL;
    share_offer offer;
    memset(&offer, 0, sizeof offer);
    loch_status status = loch_buffer_create(pool, bytes, NULL, &buffer);
    const uint64_t start_ns = loch_host_now_ns();
    if (status == LOCH_OK) status = loch_parcel_create(buffer, NULL, &parcel);
    offer.export_ns = loch_host_now_ns() - start_ns;
    offer.status = status;
    if (status == LOCH_OK) {
        const void *token = loch_parcel_get_token(parcel, &offer.token_bytes);
        memcpy(offer.token, token, offer.token_bytes);
    } else {
        memcpy(offer.sentence, loch_error_get()->sentence, sizeof offer.sentence);
    }
    char is_done;
    if (write(socket, &offer, sizeof offer) != (ssize_t)sizeof offer || read(socket, &is_done, 1) != 1)
        status = LOCH_E_IO;
    loch_parcel_destroy(parcel);
    loch_buffer_release(buffer);
    return status;
}

static int share_own(const char *name, int socket)
{
    loch_device *device = NULL;
    loch_allocator *pools[SHARE_CASES] = {NULL};
    size_t number;
    loch_status status = loch_device_open(name, &device);
    for (size_t i = 0; i < SHARE_CASES && status == LOCH_OK; i++) {
        const loch_pool_options options = {.size = sizeof options,
                                           .handle = {.size = sizeof options.handle, .share = LOCH_SHARE_FD},
                                           .handle_bytes = share_cases[i].handle_bytes};
        status = loch_pool_create(device, "shared", &options, &pools[i]);
    }
    while (status == LOCH_OK && read(socket, &number, sizeof number) == (ssize_t)sizeof number && number < SHARE_CASES)
        status = share_offer_one(pools[number], share_cases[number].bytes, socket);
    for (size_t i = 0; i < SHARE_CASES; i++)
        loch_allocator_release(pools[i]);
    loch_device_release(device);
    return status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
}

/* Runs this program again as the owner. Returns its process, or -1. */
static pid_t share_start(const char *device, int *socket)
{
    int ends[2];
    char as[16];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
    fflush(NULL);
    const pid_t owner = fork();
    if (owner == 0) {
        const int copy = dup(ends[1]); /* without the flag that closes it */
        snprintf(as, sizeof as, "%d", copy);
        execl("/proc/self/exe", tool_program, "share", "--device", device, "--as", as, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *socket = ends[0];
    if (owner < 0) close(ends[0]);
    return owner;
}

/* --- the importer --- */

static uint64_t share_since(uint64_t start_ns)
{
    return loch_host_now_ns() - start_ns;
}

/* Imports one buffer twice and releases it twice. */
static loch_status share_measure_one(loch_device *device, const share_offer *offer, uint64_t ns[SHARE_STEPS])
{
    loch_buffer *first = NULL, *again = NULL;
    ns[SHARE_EXPORT] = offer->export_ns;
    uint64_t start_ns = loch_host_now_ns();
    loch_status status = loch_parcel_import(device, offer->token, offer->token_bytes, NULL, &first);
    ns[SHARE_FIRST] = share_since(start_ns);
    start_ns = loch_host_now_ns();
    if (status == LOCH_OK) status = loch_parcel_import(device, offer->token, offer->token_bytes, NULL, &again);
    ns[SHARE_AGAIN] = share_since(start_ns);
    start_ns = loch_host_now_ns();
    loch_buffer_release(again);
    ns[SHARE_RELEASE] = share_since(start_ns);
    start_ns = loch_host_now_ns();
    loch_buffer_release(first);
    ns[SHARE_LAST] = share_since(start_ns);
    return status;
}

static int share_compare(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

/* Measures one case. `out` are the medians. */
static int share_measure(loch_device *device, size_t number, int rounds, int socket, uint64_t out[SHARE_STEPS])
{
    uint64_t all[SHARE_STEPS][SHARE_ROUNDS], one[SHARE_STEPS];
    for (int i = -SHARE_WARM_ROUNDS; i < rounds; i++) {
        share_offer offer;
        if (write(socket, &number, sizeof number) != (ssize_t)sizeof number ||
            recv(socket, &offer, sizeof offer, MSG_WAITALL) != (ssize_t)sizeof offer)
            return tool_fail("the process that owns the buffers has ended");
        if (offer.status != LOCH_OK) return tool_fail("%s", offer.sentence);
        const loch_status status = share_measure_one(device, &offer, one);
        if (status != LOCH_OK) return tool_fail_status(status);
        if (write(socket, "", 1) != 1) return tool_fail("the process that owns the buffers has ended");
        for (int step = 0; step < SHARE_STEPS && i >= 0; step++)
            all[step][i] = one[step];
    }
    for (int step = 0; step < SHARE_STEPS; step++) {
        qsort(all[step], (size_t)rounds, sizeof **all, share_compare);
        out[step] = all[step][rounds / 2];
    }
    return TOOL_DONE;
}

static void share_print(loch_device *device, int rounds, bool is_json, uint64_t rows[SHARE_CASES][SHARE_STEPS])
{
    json_writer writer = {.file = stdout}, *json = is_json ? &writer : NULL;
    if (json) {
        json_open_object(json, NULL);
        json_text(json, "benchmark", "share");
        json_text(json, "device", loch_device_get_name(device));
        json_number(json, "repetitions", (uint64_t)rounds);
        json_open_array(json, "results");
    } else {
        printf("%s, buffers of another process, medians of %d in us\n\n%-22s", loch_device_get_name(device), rounds,
               "bytes");
        for (int step = 0; step < SHARE_STEPS; step++)
            printf(" %14s", share_names[step]);
        printf("\n");
    }
    for (size_t i = 0; i < SHARE_CASES; i++) {
        if (json) {
            json_open_object(json, NULL);
            json_number(json, "bytes", share_cases[i].bytes);
            json_number(json, "handle_bytes", share_cases[i].handle_bytes);
            json_number(json, "export_ns", rows[i][SHARE_EXPORT]);
            json_number(json, "first_import_ns", rows[i][SHARE_FIRST]);
            json_number(json, "import_again_ns", rows[i][SHARE_AGAIN]);
            json_number(json, "release_ns", rows[i][SHARE_RELEASE]);
            json_number(json, "last_release_ns", rows[i][SHARE_LAST]);
            json_close_object(json);
            continue;
        }
        printf("%-22s", share_cases[i].name);
        for (int step = 0; step < SHARE_STEPS; step++)
            printf(" %14.1f", (double)rows[i][step] / 1000);
        printf("\n");
    }
    if (json) {
        json_close_array(json);
        json_close_object(json);
    }
}

int core_share(const tool_bench_options *options)
{
    if (options->as) return share_own(options->device, atoi(options->as));
    uint64_t rows[SHARE_CASES][SHARE_STEPS];
    const int rounds = options->is_quick ? SHARE_ROUNDS_QUICK : SHARE_ROUNDS;
    loch_device *device;
    const loch_status status = loch_device_open(options->device, &device);
    if (status != LOCH_OK) return tool_fail_status(status);
    if (!strncmp(options->device, "sim", 3) || !loch_device_can(device, LOCH_CAN_SHARE_FD)) {
        loch_device_release(device);
        return tool_fail("%s cannot share memory with another process", options->device);
    }
    int socket = -1, code = TOOL_DONE;
    const pid_t owner = share_start(options->device, &socket);
    if (owner < 0) code = tool_fail("no second process can be started");
    for (size_t i = 0; i < SHARE_CASES && code == TOOL_DONE; i++)
        code = share_measure(device, i, rounds, socket, rows[i]);
    if (code == TOOL_DONE) share_print(device, rounds, options->is_json, rows);
    if (owner >= 0) {
        close(socket);
        waitpid(owner, NULL, 0);
    }
    loch_device_release(device);
    return code;
}
