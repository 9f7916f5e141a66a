/* SPDX-License-Identifier: MIT */
/* Maps PyTorch's devices and streams to Loch's: a pool for each device number, created on first use, and a wrapped
 * stream for each cudaStream_t.
 *
 * Look-ups take no lock. Devices and streams are only added, under one lock, and published when they are complete. */
#include "loch_torch.h"
#include "kit/parse.h"

#include <loch/driver.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CUDA's handle of the per-thread default stream: one value that means a different stream in each thread. */
#define STREAM_OF_THREAD ((void *)2)

static struct {
    pthread_mutex_t lock; /* held to add a device or stream; guards the settings too */
    int is_read;          /* the settings were read */
    const char *name;     /* name of a device, with %d for its number */
    const char *limit;    /* limit of each pool, as text; NULL for none */
    _Atomic(lochi_torch_device *) devices[LOCHI_TORCH_DEVICES];
} torch_all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- forks --- */

static void torch_take(void)
{
    pthread_mutex_lock(&torch_all.lock);
}

static void torch_drop(void)
{
    pthread_mutex_unlock(&torch_all.lock);
}

/* The lock is held around calls of Loch. A fork must take it before Loch's locks, so the handlers are registered after
 * Loch's. */
static void torch_register_fork(void)
{
    (void)loch_driver_find("cpu"); /* Loch registers its handlers when it takes its first lock */
    (void)pthread_atfork(torch_take, torch_drop, torch_drop);
}

/* --- settings --- */

static const char *torch_environment(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? strdup(value) : NULL;
}

/* Reads the settings once, lock held: later changes of the environment have no effect. */
static void torch_read_settings(void)
{
    if (torch_all.is_read) return;
    torch_all.name = torch_environment("LOCH_TORCH_DEVICE");
    if (!torch_all.name) torch_all.name = "cuda:%d";
    torch_all.limit = torch_environment("LOCH_TORCH_LIMIT");
    torch_all.is_read = 1;
}

static loch_status torch_read_limit(size_t *out)
{
    *out = 0;
    const char *text = torch_all.limit;
    if (!text) return LOCH_OK;
    if (lochi_parse_bytes(text, out)) return LOCH_OK;
    return loch_error_set(LOCH_E_INVALID, NULL, 0, "LOCH_TORCH_LIMIT takes a size like 40GiB, not \"%.80s\"", text);
}

/* Builds the name of device `number`: the setting with its first %d replaced. The setting comes from the environment,
 * so it is not used as a format. */
static loch_status torch_device_name(int number, char name[LOCH_DEVICE_NAME_MAX])
{
    const char *setting = torch_all.name, *place = strstr(setting, "%d");
    if (!place && number != 0)
        return loch_error_set(LOCH_E_NOT_FOUND, NULL, 0,
                              "LOCH_TORCH_DEVICE=%.80s names one device: write %%d into it for number %d", setting,
                              number);
    int length;
    if (place)
        length = snprintf(name, LOCH_DEVICE_NAME_MAX, "%.*s%d%s", (int)(place - setting), setting, number, place + 2);
    else
        length = snprintf(name, LOCH_DEVICE_NAME_MAX, "%s", setting);
    if (length >= LOCH_DEVICE_NAME_MAX)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "LOCH_TORCH_DEVICE=%.80s... is too long for a device's name",
                              setting);
    return LOCH_OK;
}

/* --- devices --- */

static loch_status torch_make_pool(int number, loch_allocator **out)
{
    char device_name[LOCH_DEVICE_NAME_MAX], name[32];
    loch_pool_options options = {.size = sizeof options};
    loch_device *device = NULL;
    *out = NULL;
    snprintf(name, sizeof name, "torch cuda:%d", number);
    torch_read_settings();
    loch_status status = torch_read_limit(&options.limit_bytes);
    if (status == LOCH_OK) status = torch_device_name(number, device_name);
    if (status == LOCH_OK) status = loch_device_open(device_name, &device);
    if (status == LOCH_OK) status = loch_pool_create(device, name, &options, out);
    loch_device_release(device); /* the pool holds a reference */
    return status;
}

/* Opens a device. Lock held. */
static loch_status torch_add_device(int number, lochi_torch_device **out)
{
    lochi_torch_device *device = calloc(1, sizeof *device);
    if (!device) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for device %d", number);
    const loch_status status = torch_make_pool(number, &device->pool);
    if (status != LOCH_OK) {
        free(device);
        return status;
    }
    atomic_store_explicit(&torch_all.devices[number], device, memory_order_release);
    *out = device;
    return LOCH_OK;
}

lochi_torch_device *lochi_torch_get(int number)
{
    if (number < 0 || number >= LOCHI_TORCH_DEVICES) return NULL;
    return atomic_load_explicit(&torch_all.devices[number], memory_order_acquire);
}

loch_status lochi_torch_open(int number, lochi_torch_device **out)
{
    *out = lochi_torch_get(number);
    if (*out) return LOCH_OK;
    if (number < 0 || number >= LOCHI_TORCH_DEVICES)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "there is no device number %d", number);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, torch_register_fork);
    pthread_mutex_lock(&torch_all.lock);
    *out = lochi_torch_get(number);
    const loch_status status = *out ? LOCH_OK : torch_add_device(number, out);
    pthread_mutex_unlock(&torch_all.lock);
    return status;
}

/* --- streams --- */

/* The stream that the thread used last: programs stay on one stream for long. */
static _Thread_local struct {
    const lochi_torch_device *device;
    void *native;
    loch_stream *stream;
} torch_last;

static size_t torch_bucket(const void *native)
{
    return (size_t)(((uintptr_t)native >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 58) % LOCHI_TORCH_BUCKETS;
}

static loch_stream *torch_seen_stream(lochi_torch_device *device, const void *native)
{
    const lochi_torch_stream *seen = atomic_load_explicit(&device->streams[torch_bucket(native)], memory_order_acquire);
    while (seen && seen->native != native)
        seen = seen->next;
    return seen ? seen->stream : NULL;
}

/* Adds a stream. Lock held. */
static loch_status torch_add_stream(lochi_torch_device *device, void *native, loch_stream **out)
{
    lochi_torch_stream *seen = malloc(sizeof *seen);
    if (!seen) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for a stream");
    const loch_status status = loch_stream_wrap(loch_allocator_get_device(device->pool), native, out);
    if (status != LOCH_OK) {
        free(seen);
        return status;
    }
    _Atomic(lochi_torch_stream *) *bucket = &device->streams[torch_bucket(native)];
    *seen = (lochi_torch_stream){native, *out, atomic_load_explicit(bucket, memory_order_relaxed)};
    atomic_store_explicit(bucket, seen, memory_order_release);
    return LOCH_OK;
}

/* Finds a stream other than the one that the thread used last. */
static loch_status torch_look_up_stream(lochi_torch_device *device, void *native, loch_stream **out)
{
    if (native == STREAM_OF_THREAD) return loch_stream_wrap(loch_allocator_get_device(device->pool), native, out);
    *out = torch_seen_stream(device, native);
    if (*out) return LOCH_OK;
    pthread_mutex_lock(&torch_all.lock);
    *out = torch_seen_stream(device, native);
    const loch_status status = *out ? LOCH_OK : torch_add_stream(device, native, out);
    pthread_mutex_unlock(&torch_all.lock);
    return status;
}

loch_status lochi_torch_find_stream(lochi_torch_device *device, void *native, loch_stream **out)
{
    *out = NULL;
    if (!native) return LOCH_OK; /* the default stream of CUDA and of Loch */
    if (torch_last.native != native || torch_last.device != device) {
        loch_stream *stream;
        const loch_status status = torch_look_up_stream(device, native, &stream);
        if (status != LOCH_OK) return status;
        torch_last.device = device;
        torch_last.native = native;
        torch_last.stream = stream;
    }
    *out = torch_last.stream;
    return LOCH_OK;
}
