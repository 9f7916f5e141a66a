/* SPDX-License-Identifier: MIT */
/* Codes, devices and contexts of the CUDA driver for tests. A test double: see fake.h. */
#include "fake.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ThreadSanitizer has little room for addresses, and marks all of what is mapped. */
#ifdef __SANITIZE_THREAD__
#define WINDOW_FIRST ((size_t)1 << 36)
#else
#define WINDOW_FIRST ((size_t)1 << 43)
#endif
#define DEVICE_NAME "Loch fake CUDA device (test double)"

/* --- objects --- */

enum { TABLE_FIRST = 256 };

/* Addresses of living objects, hashed. */
static struct {
    void **places;
    size_t count, capacity;
} objects;

static size_t object_hash(const void *object)
{
    return (size_t)((uintptr_t)object * 0x9e3779b97f4a7c15u >> 20) & (objects.capacity - 1);
}

static void **object_place(const void *object)
{
    size_t i = object_hash(object);
    while (objects.places[i] && objects.places[i] != object)
        i = (i + 1) & (objects.capacity - 1);
    return &objects.places[i];
}

static bool objects_grow(void)
{
    if (objects.capacity && objects.count * 2 < objects.capacity) return true;
    void **before = objects.places;
    const size_t capacity = objects.capacity;
    void **places = calloc(capacity ? 2 * capacity : TABLE_FIRST, sizeof *places);
    if (!places) return false;
    objects.places = places;
    objects.capacity = capacity ? 2 * capacity : TABLE_FIRST;
    for (size_t i = 0; i < capacity; i++)
        if (before[i]) *object_place(before[i]) = before[i];
    free(before);
    return true;
}

void *fake_object_make(fake_kind kind, size_t bytes)
{
    fake_object *object = objects_grow() ? calloc(1, bytes) : NULL;
    if (!object) return NULL;
    object->kind = kind;
    *object_place(object) = object;
    objects.count++;
    return object;
}

/* Takes the object out; its memory stays the caller's. */
void fake_object_end(void *object)
{
    void **place = object_place(object);
    if (!*place) return;
    *place = NULL;
    objects.count--;
    /* Moves what lies behind it, so that no search ends too early. */
    for (size_t i = (size_t)(place - objects.places + 1) & (objects.capacity - 1); objects.places[i];
         i = (i + 1) & (objects.capacity - 1)) {
        void *moved = objects.places[i];
        objects.places[i] = NULL;
        *object_place(moved) = moved;
    }
}

bool fake_object_is(const void *handle, fake_kind kind)
{
    if (!handle || !objects.capacity) return false;
    const fake_object *object = *object_place(handle);
    return object && object->kind == kind;
}

size_t fake_objects_count(fake_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < objects.capacity; i++)
        count += objects.places[i] && ((fake_object *)objects.places[i])->kind == kind;
    return count;
}

/* --- starting --- */

static void device_forked(void)
{
    atomic_store_explicit(&fake.is_forked, true, memory_order_relaxed);
}

static void device_over(void)
{
    atomic_store_explicit(&fake.is_over, true, memory_order_relaxed);
}

/* Finds addresses for all devices: two windows of one size, as large as the system gives. */
static bool device_find_window(void)
{
    for (size_t bytes = WINDOW_FIRST; bytes >= (size_t)1 << 34; bytes >>= 1) {
        char *both = mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (both == MAP_FAILED) continue;
        madvise(both, 2 * bytes, MADV_DONTFORK);
        fake.window = (uintptr_t)both;
        fake.shift = bytes;
        fake.window_bytes = bytes;
        return true;
    }
    return false;
}

static bool are_switches_good = true;

/* Reads the switches when the library is loaded: faults count from the first call. */
__attribute__((constructor)) static void device_read_switches(void)
{
    const char *text = getenv("LOCH_TEST_FAKE_CUDA");
    are_switches_good = !text || fake_switches_read(text, &fake.switches);
}

static cu_result device_start(void)
{
    if (!are_switches_good) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    if (!fake.switches.devices) return LOCHI_CUDA_ERROR_NO_DEVICE;
    if (!device_find_window()) return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < FAKE_DEVICES_MAX; i++)
        fake.file[i] = -1;
    pthread_atfork(NULL, NULL, device_forked);
    atexit(device_over);
    if (!fake.switches.is_quiet)
        fprintf(stderr, "%d x %s: no GPU is used, and nothing is said about one\n", fake.switches.devices, DEVICE_NAME);
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuInit(unsigned int flags)
{
    FAKE_BEGIN(FAKE_ALWAYS);
    if (flags) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    fake_take();
    cu_result result = LOCHI_CUDA_SUCCESS;
    if (!atomic_load_explicit(&fake.is_started, memory_order_relaxed)) {
        result = device_start();
        if (result == LOCHI_CUDA_SUCCESS) atomic_store_explicit(&fake.is_started, true, memory_order_relaxed);
    }
    return fake_drop(result);
}

cu_result cuDriverGetVersion(int *version)
{
    FAKE_BEGIN(FAKE_ALWAYS);
    *version = fake.switches.version;
    return LOCHI_CUDA_SUCCESS;
}

/* --- codes --- */

static const struct {
    cu_result code;
    const char *name;
} device_codes[] = {
#define DEVICE_CODE(name, value) {(cu_result)(value), #name},
    LOCHI_CUDA_CONSTANTS(DEVICE_CODE) LOCHI_CUDA_CONSTANTS_LATER(DEVICE_CODE)
#undef DEVICE_CODE
        {FAKE_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
    {FAKE_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
    {FAKE_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
    {FAKE_NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {FAKE_INVALID_PTX, "CUDA_ERROR_INVALID_PTX"},
    {FAKE_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
    {FAKE_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
    {FAKE_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    {FAKE_COOPERATIVE_LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
    {FAKE_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {FAKE_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    {FAKE_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
    {FAKE_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
    {FAKE_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
    {FAKE_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
    {FAKE_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
    {FAKE_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
};

cu_result cuGetErrorName(cu_result error, const char **name)
{
    FAKE_BEGIN(FAKE_ALWAYS);
    for (size_t i = 0; i < sizeof device_codes / sizeof *device_codes; i++)
        if (device_codes[i].code == error && !strncmp(device_codes[i].name, "CUDA_", 5)) {
            *name = device_codes[i].name;
            return LOCHI_CUDA_SUCCESS;
        }
    *name = NULL;
    return LOCHI_CUDA_ERROR_INVALID_VALUE;
}

cu_result cuGetErrorString(cu_result error, const char **text)
{
    FAKE_BEGIN(FAKE_ALWAYS);
    (void)error;
    *text = "says the fake CUDA device, a test double";
    return LOCHI_CUDA_SUCCESS;
}

/* --- devices --- */

cu_result cuDeviceGetCount(int *count)
{
    FAKE_BEGIN(FAKE_STARTED);
    *count = fake.switches.devices;
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuDeviceGet(cu_device *device, int ordinal)
{
    FAKE_BEGIN(FAKE_STARTED);
    if (ordinal < 0 || ordinal >= fake.switches.devices) return FAKE_INVALID_DEVICE;
    *device = ordinal;
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuDeviceGetName(char *name, int bytes, cu_device device)
{
    FAKE_BEGIN(FAKE_STARTED);
    if (device < 0 || device >= fake.switches.devices) return FAKE_INVALID_DEVICE;
    snprintf(name, (size_t)bytes, "%s", DEVICE_NAME);
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuDeviceGetAttribute(int *value, cu_choice_device_attribute attribute, cu_device device)
{
    FAKE_BEGIN(FAKE_STARTED);
    const fake_switches *s = &fake.switches;
    if (device < 0 || device >= s->devices) return FAKE_INVALID_DEVICE;
    switch (attribute) {
    case LOCHI_CU_DEVICE_ATTRIBUTE_MAX_PITCH: *value = (int)s->pitch_max; break;
    case LOCHI_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; break;
    case 18: *value = s->is_integrated; break; /* INTEGRATED */
    case LOCHI_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 4 << 20; break;
    case LOCHI_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = s->compute / 10; break;
    case LOCHI_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = s->compute % 10; break;
    case LOCHI_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 100 << 10; break;
    case LOCHI_CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: *value = s->has_managed; break;
    case LOCHI_CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: *value = s->has_register; break;
    case 97: *value = 99 << 10; break; /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    case LOCHI_CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: *value = s->has_register; break;
    case LOCHI_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = s->has_virtual; break;
    case LOCHI_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: *value = s->has_descriptors; break;
    case LOCHI_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: *value = s->rdma >= 0; break;
    case LOCHI_CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = s->has_pools; break;
    case LOCHI_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: *value = s->has_fabric; break;
    default: return LOCHI_CUDA_ERROR_INVALID_VALUE;
    }
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device)
{
    FAKE_BEGIN(FAKE_STARTED);
    if (device < 0 || device >= fake.switches.devices) return FAKE_INVALID_DEVICE;
    *bytes = fake.switches.total_bytes;
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuDeviceGetPCIBusId(char *bus_id, int bytes, cu_device device)
{
    FAKE_BEGIN(FAKE_STARTED);
    if (device < 0 || device >= fake.switches.devices) return FAKE_INVALID_DEVICE;
    snprintf(bus_id, (size_t)bytes, "FFFF:F%X:00.0", (unsigned)device & 15); /* no system has it */
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuDeviceCanAccessPeer(int *can, cu_device device, cu_device peer)
{
    FAKE_BEGIN(FAKE_STARTED);
    const int count = fake.switches.devices;
    if (device < 0 || device >= count || peer < 0 || peer >= count) return FAKE_INVALID_DEVICE;
    *can = device != peer && fake.switches.has_peers;
    return LOCHI_CUDA_SUCCESS;
}

/* --- contexts --- */

/* Initial-exec: ThreadSanitizer takes the end of a lazily made copy for a race with its use. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
    cu_context *contexts[FAKE_CONTEXTS_ON_STACK];
    size_t count;
    cu_choice mode; /* of captures: 0 is global */
} thread;

cu_choice *fake_thread_mode(void)
{
    return &thread.mode;
}

cu_context *fake_current(void)
{
    return thread.count ? thread.contexts[thread.count - 1] : NULL;
}

int fake_current_device(void)
{
    const cu_context *context = fake_current();
    return context ? context->device : 0;
}

static cu_context *context_make(int device)
{
    cu_context *context = fake_object_make(FAKE_CONTEXT, sizeof *context);
    if (!context) return NULL;
    context->device = device;
    context->peers = 1u << device;
    context->legacy = fake_stream_make(context, true);
    if (context->legacy) {
        context->legacy->is_legacy = true;
        return context;
    }
    fake_object_end(context);
    free(context);
    return NULL;
}

cu_result cuDevicePrimaryCtxRetain(cu_context **context, cu_device device)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    if (device < 0 || device >= fake.switches.devices) return FAKE_INVALID_DEVICE;
    fake_take();
    if (!fake.primary[device]) {
        fake.primary[device] = context_make(device);
        if (!fake.primary[device]) return fake_drop(LOCHI_CUDA_ERROR_OUT_OF_MEMORY);
        fake.primary[device]->is_primary = true;
    }
    fake.primary[device]->retained++;
    *context = fake.primary[device];
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device device)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_UNSAFE);
    if (device < 0 || device >= fake.switches.devices) return FAKE_INVALID_DEVICE;
    fake_take();
    cu_context *context = fake.primary[device];
    if (!context || !context->retained) return fake_drop(FAKE_INVALID_CONTEXT);
    if (--context->retained == 0) context->peers = 1u << device;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

/* Tells whether a context can be made current: it exists, and a primary one is retained. */
static bool context_is_good(const cu_context *context)
{
    fake_take();
    const bool is_good = fake_object_is(context, FAKE_CONTEXT) && (!context->is_primary || context->retained);
    fake_drop(LOCHI_CUDA_SUCCESS);
    return is_good;
}

cu_result cuCtxGetCurrent(cu_context **context)
{
    FAKE_BEGIN(FAKE_STARTED);
    *context = fake_current();
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuCtxSetCurrent(cu_context *context)
{
    FAKE_BEGIN(FAKE_STARTED);
    if (!context) {
        if (thread.count) thread.count--;
        return LOCHI_CUDA_SUCCESS;
    }
    if (!context_is_good(context)) return FAKE_INVALID_CONTEXT;
    if (!thread.count) thread.count++;
    thread.contexts[thread.count - 1] = context;
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuCtxPushCurrent_v2(cu_context *context)
{
    FAKE_BEGIN(FAKE_STARTED);
    if (!context_is_good(context) || thread.count == FAKE_CONTEXTS_ON_STACK) return FAKE_INVALID_CONTEXT;
    thread.contexts[thread.count++] = context;
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuCtxPopCurrent_v2(cu_context **context)
{
    FAKE_BEGIN(FAKE_STARTED);
    if (!thread.count) return FAKE_INVALID_CONTEXT;
    *context = thread.contexts[--thread.count];
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuCtxGetDevice(cu_device *device)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    *device = fake_current_device();
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuCtxCreate_v2(cu_context **context, unsigned flags, cu_device device)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    (void)flags;
    if (device < 0 || device >= fake.switches.devices) return FAKE_INVALID_DEVICE;
    fake_take();
    *context = thread.count < FAKE_CONTEXTS_ON_STACK ? context_make(device) : NULL;
    if (*context) thread.contexts[thread.count++] = *context;
    return fake_drop(*context ? LOCHI_CUDA_SUCCESS : (cu_result)LOCHI_CUDA_ERROR_OUT_OF_MEMORY);
}

/* Other threads keep the dead context on their stacks, as with the real one. */
cu_result cuCtxDestroy_v2(cu_context *context)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_UNSAFE);
    fake_take();
    if (!fake_object_is(context, FAKE_CONTEXT) || context->is_primary) return fake_drop(FAKE_INVALID_CONTEXT);
    fake_context_await(context);
    if (fake_current() == context) thread.count--;
    fake_stream_end(context->legacy);
    fake_object_end(context);
    static cu_context *dead; /* its memory stays: it may be on the stacks of other threads */
    context->dead = dead;
    dead = context;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuCtxSynchronize(void)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    fake_context_await(fake_current());
    return fake_drop(atomic_load_explicit(&fake.lost, memory_order_relaxed));
}

cu_result cuCtxEnablePeerAccess(cu_context *peer, unsigned int flags)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    cu_context *context = fake_current();
    if (flags) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    if (!context_is_good(peer) || peer->device == context->device) return FAKE_INVALID_CONTEXT;
    if (!fake.switches.has_peers) return LOCHI_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    fake_take();
    const bool is_new = !(context->peers & 1u << peer->device);
    context->peers |= 1u << peer->device;
    return fake_drop(is_new ? LOCHI_CUDA_SUCCESS : LOCHI_CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
}
