/* SPDX-License-Identifier: MIT */
/* The switches of the CUDA driver for tests, its counts of calls and its faults. A test double: see fake.h. */
#include "fake.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_state fake = {.lock = PTHREAD_MUTEX_INITIALIZER,
                   .done = PTHREAD_COND_INITIALIZER,
                   .switches = {.total_bytes = (size_t)2 << 30,
                                .granule_bytes = (size_t)2 << 20,
                                .context_bytes = (size_t)32 << 20,
                                .pitch_max = 0x7fffffff,
                                .devices = 1,
                                .version = 12080,
                                .compute = 80,
                                .has_alias = true,
                                .has_virtual = true,
                                .has_descriptors = true,
                                .has_peers = true,
                                .has_managed = true,
                                .has_pools = true,
                                .has_register = true}};

/* --- counts and faults --- */

enum { CALLS_MAX = 160, NAME_MAX_BYTES = 64 };

/* Has a lock of its own, which no other is taken under. */
static struct {
    pthread_mutex_t lock;
    struct {
        const char *name;
        uint64_t count;
    } calls[CALLS_MAX];
    uint64_t met; /* calls that the fault could have been met by, since it was set */
    bool is_set;
    char call[NAME_MAX_BYTES]; /* "": any */
    uint64_t after;
    bool is_forever;
    cu_result code;
    const char *struck; /* the last call that met it */
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void faults_count(const char *name)
{
    for (size_t i = 0; i < CALLS_MAX; i++) {
        if (!faults.calls[i].name) faults.calls[i].name = name;
        if (faults.calls[i].name != name && strcmp(faults.calls[i].name, name) != 0) continue;
        faults.calls[i].count++;
        return;
    }
}

/* Tells whether a fault without a name leaves a call out: calls that give something back, the wait for a whole context
 * before that, calls that make a context current around another, and that ask for the words of a code. */
static bool faults_spare(const char *name)
{
    static const char *const spared[] = {"cuGetErrorName",      "cuGetErrorString",
                                         "cuCtxGetCurrent",     "cuCtxSetCurrent",
                                         "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
                                         "cuMemFree_v2",        "cuThreadExchangeStreamCaptureMode",
                                         "cuMemFreeHost",       "cuMemHostUnregister",
                                         "cuMemFreeAsync",      "cuMemAddressFree",
                                         "cuMemRelease",        "cuMemUnmap",
                                         "cuStreamDestroy_v2",  "cuEventDestroy_v2",
                                         "cuModuleUnload",      "cuDevicePrimaryCtxRelease_v2",
                                         "cuCtxDestroy_v2",     "cuGraphDestroy",
                                         "cuGraphExecDestroy",  "cuCtxSynchronize"};
    for (size_t i = 0; i < sizeof spared / sizeof *spared; i++)
        if (!strcmp(name, spared[i])) return true;
    return false;
}

/* Counts a call; returns the code of a fault that it meets. */
static cu_result faults_meet(const char *name)
{
    cu_result result = LOCHI_CUDA_SUCCESS;
    pthread_mutex_lock(&faults.lock);
    faults_count(name);
    const bool is_meant = *faults.call ? !strcmp(faults.call, name) : !faults_spare(name);
    if (is_meant) {
        const uint64_t number = faults.met++;
        if (faults.is_set && (number == faults.after || (faults.is_forever && number > faults.after)))
            result = faults.code;
        if (result != LOCHI_CUDA_SUCCESS) faults.struck = name;
    }
    pthread_mutex_unlock(&faults.lock);
    return result;
}

EXPORT void fake_cuda_fail(const fake_cuda_fault *fault);
void fake_cuda_fail(const fake_cuda_fault *fault)
{
    pthread_mutex_lock(&faults.lock);
    faults.is_set = fault != NULL;
    faults.met = 0;
    *faults.call = '\0';
    if (fault) {
        snprintf(faults.call, sizeof faults.call, "%s", fault->call ? fault->call : "");
        faults.after = fault->after;
        faults.is_forever = fault->is_forever;
        faults.code = fault->code ? fault->code : FAKE_UNKNOWN;
    }
    pthread_mutex_unlock(&faults.lock);
}

EXPORT uint64_t fake_cuda_calls(void);
uint64_t fake_cuda_calls(void)
{
    pthread_mutex_lock(&faults.lock);
    const uint64_t met = faults.met;
    pthread_mutex_unlock(&faults.lock);
    return met;
}

EXPORT const char *fake_cuda_struck(void);
const char *fake_cuda_struck(void)
{
    pthread_mutex_lock(&faults.lock);
    const char *name = faults.struck;
    pthread_mutex_unlock(&faults.lock);
    return name ? name : "none";
}

EXPORT uint64_t fake_cuda_count(const char *call);
uint64_t fake_cuda_count(const char *call)
{
    uint64_t count = 0;
    pthread_mutex_lock(&faults.lock);
    for (size_t i = 0; i < CALLS_MAX && faults.calls[i].name; i++)
        if (!strcmp(faults.calls[i].name, call)) count = faults.calls[i].count;
    pthread_mutex_unlock(&faults.lock);
    return count;
}

void fake_lose(cu_result code)
{
    atomic_store_explicit(&fake.lost, code, memory_order_relaxed);
}

EXPORT void fake_cuda_lose(unsigned code);
void fake_cuda_lose(unsigned code)
{
    fake_lose(code);
}

cu_result fake_begin(const char *name, unsigned needs)
{
    if (atomic_load_explicit(&fake.is_forked, memory_order_relaxed)) return FAKE_NOT_INITIALIZED;
    const cu_result fault = faults_meet(name);
    if (fault != LOCHI_CUDA_SUCCESS) return fault;
    if (needs == FAKE_ALWAYS) return LOCHI_CUDA_SUCCESS;
    if (atomic_load_explicit(&fake.is_over, memory_order_relaxed)) return LOCHI_CUDA_ERROR_DEINITIALIZED;
    if (!atomic_load_explicit(&fake.is_started, memory_order_relaxed)) return FAKE_NOT_INITIALIZED;
    const cu_result lost = atomic_load_explicit(&fake.lost, memory_order_relaxed);
    if ((needs & (FAKE_IN_CONTEXT | FAKE_LIVE)) && lost != LOCHI_CUDA_SUCCESS) return lost;
    if ((needs & FAKE_IN_CONTEXT) && !fake_current()) return FAKE_INVALID_CONTEXT;
    if (!(needs & FAKE_UNSAFE)) return LOCHI_CUDA_SUCCESS;
    fake_take();
    return fake_drop(fake_capture_check_unsafe());
}

/* --- switches --- */

static bool read_size(const char *text, size_t *out)
{
    char *end;
    const unsigned long long number = strtoull(text, &end, 0);
    const unsigned shift = !strcmp(end, "KiB") ? 10 : !strcmp(end, "MiB") ? 20 : !strcmp(end, "GiB") ? 30 : 0;
    if (end == text || (*end && !shift)) return false;
    *out = (size_t)number << shift;
    return true;
}

static bool read_number(const char *text, int *out)
{
    size_t number;
    if (!read_size(text, &number)) return false;
    *out = (int)number;
    return true;
}

static bool read_choice(const char *text, bool *out)
{
    *out = !strcmp(text, "on");
    return *out || !strcmp(text, "off");
}

/* call:number:once or :forever, and perhaps :code */
static bool read_fault(char *text)
{
    char *rest, *call = strtok_r(text, ":", &rest), *number = strtok_r(NULL, ":", &rest);
    const char *how = strtok_r(NULL, ":", &rest), *code = strtok_r(NULL, ":", &rest);
    size_t place;
    int value = FAKE_UNKNOWN;
    if (!call || !number || !how || !read_size(number, &place) || !place) return false;
    if (code && !read_number(code, &value)) return false;
    const fake_cuda_fault fault = {.call = strcmp(call, "any") ? call : NULL,
                                   .after = place - 1,
                                   .is_forever = !strcmp(how, "forever"),
                                   .code = (unsigned)value};
    if (!fault.is_forever && strcmp(how, "once") != 0) return false;
    fake_cuda_fail(&fault);
    return true;
}

static bool read_one(const char *name, char *value, fake_switches *out)
{
    const struct {
        const char *name;
        bool *to;
    } choices[] = {{"immediate", &out->is_immediate}, {"integrated", &out->is_integrated},
                   {"alias", &out->has_alias},        {"virtual", &out->has_virtual},
                   {"fabric", &out->has_fabric},      {"descriptors", &out->has_descriptors},
                   {"peers", &out->has_peers},        {"managed", &out->has_managed},
                   {"pools", &out->has_pools},        {"register", &out->has_register},
                   {"quiet", &out->is_quiet}};
    const struct {
        const char *name;
        size_t *to;
    } sizes[] = {{"total", &out->total_bytes},
                 {"granule", &out->granule_bytes},
                 {"context", &out->context_bytes},
                 {"pitch", &out->pitch_max}};
    const struct {
        const char *name;
        int *to;
    } numbers[] = {{"devices", &out->devices},
                   {"version", &out->version},
                   {"compute", &out->compute},
                   {"pinning", &out->pinning},
                   {"rdma", &out->rdma},
                   {"unmap", &out->unmapping},
                   {"registering", &out->registering},
                   {"late", NULL},
                   {"lost", NULL}};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (!strcmp(name, choices[i].name)) return read_choice(*value ? value : "on", choices[i].to);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(name, sizes[i].name)) return read_size(value, sizes[i].to);
    if (!strcmp(name, "rdma") && !strcmp(value, "off")) {
        out->rdma = -1;
        return true;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int number;
        if (strcmp(name, numbers[i].name) != 0) continue;
        if (!read_number(value, &number)) return false;
        if (numbers[i].to)
            *numbers[i].to = number;
        else if (*name == 'l' && name[1] == 'a')
            out->late_us = (unsigned)number;
        else
            fake_lose((cu_result)number);
        return true;
    }
    return !strcmp(name, "fail") && read_fault(value);
}

bool fake_switches_read(const char *text, fake_switches *out)
{
    char copy[1024], *rest;
    if (strlen(text) >= sizeof copy) return false;
    memcpy(copy, text, strlen(text) + 1);
    for (char *one = strtok_r(copy, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(one, '=');
        if (value) *value++ = '\0';
        if (!read_one(one, value ? value : one + strlen(one), out)) {
            fprintf(stderr, "LOCH_TEST_FAKE_CUDA: there is no switch \"%s\", or it has another value\n", one);
            return false;
        }
    }
    return out->devices >= 0 && out->devices <= FAKE_DEVICES_MAX;
}

EXPORT int fake_cuda_set(const char *switches);
int fake_cuda_set(const char *switches)
{
    fake_take();
    fake_switches changed = fake.switches;
    const bool is_good = fake_switches_read(switches, &changed);
    if (is_good) fake.switches = changed;
    fake_drop(LOCHI_CUDA_SUCCESS);
    return is_good ? 0 : -1;
}

/* --- what is alive --- */

EXPORT void fake_cuda_take_census(fake_cuda_census *out);
void fake_cuda_take_census(fake_cuda_census *out)
{
    memset(out, 0, sizeof *out);
    fake_take();
    for (int i = 0; i < FAKE_DEVICES_MAX; i++) {
        if (fake.primary[i]) out->retained += fake.primary[i]->retained;
        out->contexts -= fake.primary[i] != NULL;
        out->bytes += fake.used[i];
    }
    out->contexts += fake_objects_count(FAKE_CONTEXT);
    for (const cu_stream *stream = fake.streams; stream; stream = stream->next)
        out->streams += !stream->is_legacy && !stream->is_thread_default && !stream->is_closed;
    out->events = fake_objects_count(FAKE_EVENT);
    out->graphs = fake_objects_count(FAKE_GRAPH);
    out->executables = fake_objects_count(FAKE_EXECUTABLE);
    out->modules = fake_objects_count(FAKE_MODULE);
    for (const fake_handle *handle = fake.handles; handle; handle = handle->next)
        out->handles++;
    out->mappings = fake.maps.count;
    for (size_t i = 0; i < fake.ranges.count; i++)
        switch (fake.ranges.items[i]->kind) {
        case FAKE_RESERVED: out->reservations++; break;
        case FAKE_ALLOCATED:
        case FAKE_ORDERED: out->allocations++; break;
        case FAKE_MANAGED: out->managed++; break;
        case FAKE_PINNED: out->pinned++; break;
        default: out->registered++;
        }
    fake_drop(LOCHI_CUDA_SUCCESS);
}
