/* SPDX-License-Identifier: MIT */
/* Modules and kernels of the CUDA driver for tests. A test double: see fake.h.
 *
 * It compiles nothing. It knows the texts of Loch's own kernels, which run as the host's code of
 * tests/parts/kernel/emulated.cpp, and the text of tests/gpu/kernel_door_ptx.h, whose kernels are written again here.
 * Every other text is refused, and the compiler's log says why. */
#include "fake.h"
#include "gpu/kernel_door_ptx.h"
#include "parts/kernel/emulated.h"
#include <cuda/job.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <text.h>

enum { PARAMETERS_MAX = 16, SHARED_DEFAULT = 48 << 10, SHARED_MAX = 99 << 10, THREADS_OF_PROCESSOR = 2048 };

struct fake_module {
    fake_object head;
    size_t refs; /* launches keep it */
    bool is_door;
    char name[64]; /* of Loch's own kernel */
    emulated_marks marks;
    struct fake_function *functions;
};

struct fake_function {
    struct fake_function *next;
    fake_module *module;
    char name[64];
    size_t count, bytes[PARAMETERS_MAX];
    int shared_max;
};

struct fake_launch {
    fake_module *module;
    fake_function *function;
    unsigned blocks;
    void *parameters[PARAMETERS_MAX];
    unsigned char room[];
};

/* --- texts --- */

/* Compares a text with one that has marks where the other has numbers, and reads those. */
static bool text_is(const char *text, const char *pattern, emulated_marks *marks)
{
    const size_t length = strlen(pattern);
    if (strlen(text) != length) return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == pattern[i]) continue;
        /* The numbers begin with 0x, and differ behind that. */
        size_t start = i;
        while (start && pattern[start] != 'x')
            start--;
        unsigned mark, value;
        if (!start || sscanf(pattern + start - 1, "0x10c4%4x", &mark) != 1 || mark < 1 || mark > 4) return false;
        if (sscanf(text + start - 1, "0x%8x", &value) != 1) return false;
        unsigned *const to[] = {&marks->from, &marks->to, &marks->from_bytes, &marks->to_bytes};
        *to[mark - 1] = value;
        i = start + 8;
    }
    return true;
}

/* Recognises one of Loch's own kernels: its text is made again, with the marks left in. */
static bool text_is_own(const char *text, fake_module *module)
{
    char name[32];
    const char *entry = strstr(text, ".visible .entry ");
    if (!entry || sscanf(entry, ".visible .entry %31[a-z0-9_]", name) != 1) return false;
    for (int file = LOCHI_TEXT_CHUNKS; file <= LOCHI_TEXT_ROWS; file++)
        for (unsigned sizes = 0; sizes < 16; sizes++) {
            const lochi_text_types sized = {0x10c40001, 0x10c40002, 1u << sizes / 4, 1u << sizes % 4};
            char *pattern = lochi_kernel_text_make((lochi_text_file)file, name, &sized);
            if (!pattern) break;
            /* Sizes choose among functions, and are numbers of the text themselves. */
            module->marks = (emulated_marks){0, 0, sized.from_bytes, sized.to_bytes};
            const bool is_it = text_is(text, pattern, &module->marks);
            free(pattern);
            if (!is_it) continue;
            snprintf(module->name, sizeof module->name, "%s", name);
            return true;
        }
    return false;
}

static cu_result text_check(const char *text, fake_module *module, char *log, size_t log_bytes)
{
    int version = 0, target = 0;
    const char *at = strstr(text, ".target sm_");
    if (sscanf(text, " .version %d", &version) == 1 && version > 8) {
        snprintf(log, log_bytes, "error: PTX version %d is not known to the fake CUDA device", version);
        return FAKE_UNSUPPORTED_PTX_VERSION;
    }
    if (at && sscanf(at, ".target sm_%d", &target) == 1 && target > fake.switches.compute) {
        snprintf(log, log_bytes, "error: sm_%d is newer than the fake CUDA device, sm_%d", target,
                 fake.switches.compute);
        return FAKE_NO_BINARY;
    }
    module->is_door = !strcmp(text, door_ptx);
    if (module->is_door || text_is_own(text, module)) return LOCHI_CUDA_SUCCESS;
    snprintf(log, log_bytes,
             "error: the fake CUDA device, a test double, compiles nothing and does not know this text");
    return FAKE_INVALID_PTX;
}

/* --- modules --- */

static cu_result module_load(fake_module **out, const void *image, char *log, size_t log_bytes)
{
    fake_module *found = calloc(1, sizeof *found);
    if (!found) return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    const cu_result result = text_check(image, found, log, log_bytes);
    if (result == LOCHI_CUDA_SUCCESS) {
        fake_take();
        fake_module *module = fake_object_make(FAKE_MODULE, sizeof *module);
        if (!module) abort(); /* a test double on a machine without memory */
        found->head = module->head;
        *module = *found;
        module->refs = 1;
        *out = module;
        fake_drop(LOCHI_CUDA_SUCCESS);
    }
    free(found);
    return result;
}

cu_result cuModuleLoadData(fake_module **out, const void *image)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    char log[200];
    return module_load(out, image, log, sizeof log);
}

cu_result cuModuleLoadDataEx(fake_module **out, const void *image, unsigned count, int *options, void **values)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    char unused[200], *log = unused;
    size_t bytes = sizeof unused;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == 5) log = values[i]; /* CU_JIT_ERROR_LOG_BUFFER, and the size of it */
        if (options[i] == 6) bytes = (size_t)(uintptr_t)values[i];
    }
    return module_load(out, image, log, bytes);
}

static void module_release(fake_module *module)
{
    if (--module->refs) return;
    while (module->functions) {
        fake_function *next = module->functions->next;
        free(module->functions);
        module->functions = next;
    }
    free(module);
}

cu_result cuModuleUnload(fake_module *module)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    if (!fake_object_is(module, FAKE_MODULE)) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    fake_object_end(module);
    module_release(module);
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

/* --- functions --- */

static const struct {
    const char *name;
    size_t count, bytes[PARAMETERS_MAX];
} door_functions[] = {{"axpy", 4, {8, 8, 4, 4}},
                      {"mixed", 9, {8, 8, 16, 1, 2, 8, 1, 8, 2}},
                      {"shared_sum", 2, {8, 4}},
                      {"slow_copy", 4, {8, 8, 4, 8}},
                      {"nothing", 0, {0}}};

static size_t own_bytes(const char *name)
{
    if (strstr(name, "gather") || strstr(name, "scatter")) return sizeof(kernel_rows);
    return strstr(name, "tiles") ? sizeof(kernel_tiles) : sizeof(kernel_chunks);
}

static bool function_describe(const fake_module *module, fake_function *function)
{
    if (!module->is_door) {
        function->count = 1;
        function->bytes[0] = own_bytes(module->name);
        return !strcmp(function->name, module->name);
    }
    for (size_t i = 0; i < sizeof door_functions / sizeof *door_functions; i++) {
        if (strcmp(door_functions[i].name, function->name) != 0) continue;
        function->count = door_functions[i].count;
        memcpy(function->bytes, door_functions[i].bytes, sizeof function->bytes);
        return true;
    }
    return false;
}

cu_result cuModuleGetFunction(fake_function **out, fake_module *module, const char *name)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    fake_take();
    if (!fake_object_is(module, FAKE_MODULE)) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    fake_function *function = calloc(1, sizeof *function);
    if (!function) return fake_drop(LOCHI_CUDA_ERROR_OUT_OF_MEMORY);
    snprintf(function->name, sizeof function->name, "%s", name);
    function->module = module;
    function->shared_max = SHARED_DEFAULT;
    if (!function_describe(module, function)) {
        free(function);
        return fake_drop(FAKE_NOT_FOUND);
    }
    function->next = module->functions;
    *out = module->functions = function;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuFuncGetAttribute(int *value, int attribute, fake_function *function)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    switch (attribute) {
    case 0: *value = 1024; break; /* MAX_THREADS_PER_BLOCK */
    case 1:                       /* SHARED_SIZE_BYTES */
    case 3: *value = 0; break;    /* LOCAL_SIZE_BYTES */
    case 4: *value = 32; break;   /* NUM_REGS */
    case 8: *value = function->shared_max; break;
    default: return LOCHI_CUDA_ERROR_INVALID_VALUE;
    }
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuFuncSetAttribute(fake_function *function, int attribute, int value)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    if (attribute != 8 || value < 0 || value > SHARED_MAX) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    function->shared_max = value;
    return LOCHI_CUDA_SUCCESS;
}

#ifndef FAKE_OLD
cu_result cuFuncGetParamInfo(fake_function *function, size_t index, size_t *offset, size_t *bytes)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    if (index >= function->count) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    for (size_t i = 0; i < index; i++)
        *offset += function->bytes[i];
    *bytes = function->bytes[index];
    return LOCHI_CUDA_SUCCESS;
}
#endif

cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, fake_function *function, int threads,
                                                      size_t shared_bytes)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    (void)function, (void)shared_bytes;
    if (threads < 1 || threads > 1024) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    *blocks = THREADS_OF_PROCESSOR / threads;
    return LOCHI_CUDA_SUCCESS;
}

/* --- launches --- */

static cu_result launch_queue(fake_function *function, const fake_launch_config *config, void **parameters)
{
    uint64_t threads = 1, blocks = 1;
    for (int i = 0; i < 3; i++) {
        threads *= config->block[i];
        blocks *= config->grid[i];
    }
    if (!threads || threads > 1024 || !blocks) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    if ((int)config->shared_bytes > function->shared_max) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < config->attributes_count; i++)
        if (config->attributes[i].id == 2 && blocks > 4 * (THREADS_OF_PROCESSOR / threads))
            return FAKE_COOPERATIVE_LAUNCH_TOO_LARGE;
    size_t bytes = 0;
    for (size_t i = 0; i < function->count; i++)
        bytes += (function->bytes[i] + 15) / 16 * 16;
    fake_launch *launch = calloc(1, sizeof *launch + bytes + 16);
    if (!launch) return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    unsigned char *at = launch->room + (-(uintptr_t)launch->room & 15);
    for (size_t i = 0; i < function->count; i++) {
        launch->parameters[i] = memcpy(at, parameters[i], function->bytes[i]);
        at += (function->bytes[i] + 15) / 16 * 16;
    }
    launch->function = function;
    launch->module = function->module;
    launch->blocks = (unsigned)blocks;
    fake_take();
    launch->module->refs++;
    cu_stream *stream = fake_stream_find(config->stream);
    const fake_work work = {.kind = FAKE_LAUNCH, .as.launch = launch};
    if (stream) return fake_drop(fake_queue(stream, &work, NULL, 0, NULL)); /* NOLINT: the queue has the launch */
    fake_launch_end(launch);
    return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
}

cu_result cuLaunchKernel(fake_function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, cu_stream *stream,
                         void **parameters, void **extra)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    if (extra) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    const fake_launch_config config = {.grid = {grid_x, grid_y, grid_z},
                                       .block = {block_x, block_y, block_z},
                                       .shared_bytes = shared_bytes,
                                       .stream = stream};
    return launch_queue(function, &config, parameters);
}

#ifndef FAKE_OLD
cu_result cuLaunchKernelEx(const fake_launch_config *config, fake_function *function, void **parameters, void **extra)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    return extra ? LOCHI_CUDA_ERROR_INVALID_VALUE : launch_queue(function, config, parameters);
}
#endif

void fake_launch_end(fake_launch *launch)
{
    module_release(launch->module);
    free(launch);
}

/* --- running --- */

/* Finds the memory of a parameter that is an address; NULL for NULL. */
static void *argument_memory(const fake_launch *launch, size_t index, size_t bytes)
{
    uintptr_t address;
    memcpy(&address, launch->parameters[index], sizeof address);
    fake_take();
    void *memory = address ? fake_translate(address, bytes, 0) : NULL;
    fake_drop(LOCHI_CUDA_SUCCESS);
    return memory;
}

static uint32_t argument_u32(const fake_launch *launch, size_t index)
{
    uint32_t value;
    memcpy(&value, launch->parameters[index], sizeof value);
    return value;
}

static bool run_axpy(const fake_launch *launch)
{
    const uint32_t count = argument_u32(launch, 3);
    float *y = argument_memory(launch, 0, count * sizeof *y), a;
    const float *x = argument_memory(launch, 1, count * sizeof *x);
    memcpy(&a, launch->parameters[2], sizeof a);
    if (!y || !x) return false;
    for (uint32_t i = 0; i < count; i++)
        y[i] += a * x[i];
    return true;
}

static bool run_mixed(const fake_launch *launch)
{
    struct {
        int32_t first, last;
        double scale;
    } window;
    double *out = argument_memory(launch, 0, 10 * sizeof *out), f64;
    const unsigned char *bytes = argument_memory(launch, 1, 1);
    uint16_t u16, half;
    uint64_t u64;
    memcpy(&window, launch->parameters[2], sizeof window);
    memcpy(&u16, launch->parameters[4], sizeof u16);
    memcpy(&f64, launch->parameters[5], sizeof f64);
    memcpy(&u64, launch->parameters[7], sizeof u64);
    memcpy(&half, launch->parameters[8], sizeof half);
    if (!out) return false;
    const double values[10] = {window.first,
                               window.last,
                               window.scale,
                               *(signed char *)launch->parameters[3],
                               u16,
                               f64,
                               *(unsigned char *)launch->parameters[6],
                               (double)u64,
                               half,
                               bytes ? *bytes : -1};
    memcpy(out, values, sizeof values);
    return true;
}

static bool run_shared_sum(const fake_launch *launch)
{
    const uint32_t words = argument_u32(launch, 1);
    uint32_t *out = argument_memory(launch, 0, launch->blocks * sizeof *out);
    for (unsigned i = 0; out && i < launch->blocks; i++)
        out[i] = (uint32_t)((uint64_t)words * (words - 1) / 2);
    return out;
}

static bool run_slow_copy(const fake_launch *launch)
{
    const uint32_t count = argument_u32(launch, 2);
    uint64_t cycles;
    memcpy(&cycles, launch->parameters[3], sizeof cycles);
    const struct timespec wait = {.tv_nsec = (long)(cycles % 1000000000)};
    nanosleep(&wait, NULL);
    uint32_t *to = argument_memory(launch, 0, count * sizeof *to);
    const uint32_t *from = argument_memory(launch, 1, count * sizeof *from);
    if (to && from) memcpy(to, from, count * sizeof *to);
    return to && from;
}

/* Moves an address of the device to its memory. What it reaches is not checked: strides are the kernel's. A touch of
 * what is not there ends the process, as a fault of the GPU would end the context. */
static unsigned long long moved(unsigned long long address)
{
    return address - fake.window < fake.window_bytes ? address + fake.shift : address;
}

/* All three kinds of jobs begin with the target and the source; rows have their indices behind. */
static bool run_own(const fake_launch *launch)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* the emulator has one block */
    kernel_rows *job = launch->parameters[0];
    kernel_rows before = *job; /* a graph runs a launch again */
    job->to = moved(job->to);
    job->from = moved(job->from);
    if (launch->function->bytes[0] == sizeof(kernel_rows)) job->indices = moved(job->indices);
    pthread_mutex_lock(&one_at_a_time);
    const bool is_known = emulated_run(launch->module->name, launch->module->marks, launch->blocks, job);
    pthread_mutex_unlock(&one_at_a_time);
    memcpy(job, &before, sizeof before.to + sizeof before.from + sizeof before.indices);
    return is_known;
}

cu_result fake_launch_run(fake_launch *launch)
{
    const char *name = launch->function->name;
    bool is_good = true;
    if (!launch->module->is_door)
        is_good = run_own(launch);
    else if (!strcmp(name, "axpy"))
        is_good = run_axpy(launch);
    else if (!strcmp(name, "mixed"))
        is_good = run_mixed(launch);
    else if (!strcmp(name, "shared_sum"))
        is_good = run_shared_sum(launch);
    else if (!strcmp(name, "slow_copy"))
        is_good = run_slow_copy(launch);
    return is_good ? LOCHI_CUDA_SUCCESS : LOCHI_CUDA_ERROR_ILLEGAL_ADDRESS;
}
