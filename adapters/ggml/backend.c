/* SPDX-License-Identifier: MIT */
/* The device and its backend. Every operation runs on ggml's CPU backend, after the caches have the memory that it
 * uses.
 *
 * llama.cpp gives layers to a device and asks the device for all their memory: weights, caches and intermediate
 * results. So the memory of a whole model can be Loch's without a change of llama.cpp. The results are those of the CPU
 * backend, bit for bit, since the same functions run in the same order on as many threads. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

typedef struct lochi_ggml_backend {
    struct ggml_backend base; /* first: ggml sees this */
    loch_ggml *ggml;
    ggml_backend_t cpu;
} lochi_ggml_backend;

/* --- memory for the caches that a graph uses --- */

/* Returns how far into its cache a tensor reaches. */
static size_t extent_of(const struct ggml_tensor *tensor, const lochi_ggml_part *part)
{
    return (size_t)((const char *)tensor->data - part->address) + ggml_nbytes(tensor);
}

/* Returns how far into its cache a node writes that sets rows by number. */
static size_t extent_of_rows(const struct ggml_tensor *node, const lochi_ggml_part *part)
{
    const struct ggml_tensor *rows = node->src[1];
    const size_t whole = extent_of(node, part);
    int64_t last = 0;
    if (whole <= part->bytes) return whole;
    if (rows->op != GGML_OP_NONE || !rows->buffer || !ggml_backend_buffer_is_host(rows->buffer) ||
        !ggml_is_contiguous(rows))
        return whole; /* numbers that are computed: any row */
    for (int64_t i = 0; i < ggml_nelements(rows); i++) {
        const int64_t row =
            rows->type == GGML_TYPE_I64 ? ((const int64_t *)rows->data)[i] : ((const int32_t *)rows->data)[i];
        if (row > last) last = row;
    }
    return whole - (size_t)(node->ne[1] - 1 - last) * node->nb[1];
}

/* Gives memory to the cache that a node reads or writes as `tensor`. */
static bool graph_provide(loch_ggml *ggml, const struct ggml_tensor *node, const struct ggml_tensor *tensor)
{
    const lochi_ggml_buffer *own = lochi_ggml_find(tensor->buffer);
    if (!own || !own->grows) return true;
    lochi_ggml_part *part = (tensor->view_src ? tensor->view_src : tensor)->extra;
    if (atomic_load_explicit(&own->lost, memory_order_acquire)) {
        (void)loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "an earlier write found no memory; clear the cache");
        lochi_ggml_log(ggml, "use a cache", own->buffer->size);
        return false;
    }
    const bool is_rows = node->op == GGML_OP_SET_ROWS && (tensor == node || tensor == node->src[2]);
    return lochi_ggml_grow(own->ggml, part, is_rows ? extent_of_rows(node, part) : extent_of(tensor, part));
}

static bool graph_touches_memory(const struct ggml_tensor *node)
{
    return node->op != GGML_OP_NONE && node->op != GGML_OP_VIEW && node->op != GGML_OP_RESHAPE &&
           node->op != GGML_OP_PERMUTE && node->op != GGML_OP_TRANSPOSE && ggml_nelements(node);
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    const lochi_ggml_backend *own = backend->context;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        if (!graph_touches_memory(node)) continue;
        if (!graph_provide(own->ggml, node, node)) return GGML_STATUS_ALLOC_FAILED;
        for (int j = 0; j < GGML_MAX_SRC; j++)
            if (node->src[j] && !graph_provide(own->ggml, node, node->src[j])) return GGML_STATUS_ALLOC_FAILED;
    }
    return ggml_backend_graph_compute(own->cpu, graph);
}

/* --- the backend --- */

static const char *backend_get_name(ggml_backend_t backend)
{
    return ((const lochi_ggml_backend *)backend->context)->ggml->name;
}

static void backend_free(ggml_backend_t backend)
{
    lochi_ggml_backend *own = backend->context;
    ggml_backend_free(own->cpu);
    lochi_ggml_release(own->ggml);
    free(own);
}

static ggml_guid guid = {0x4c, 0x6f, 0x63, 0x68, 0x9d, 0x21, 0x4e, 0x77,
                         0xa0, 0x58, 0x13, 0x6b, 0xe2, 0x90, 0x5f, 0x31};

static ggml_backend_t device_init_backend(ggml_backend_dev_t device, const char *params)
{
    loch_ggml *ggml = device->context;
    lochi_ggml_backend *own = calloc(1, sizeof *own);
    if (!own) return NULL;
    own->cpu = ggml_backend_dev_init(ggml->cpu, params);
    if (!own->cpu) {
        free(own);
        return NULL;
    }
    lochi_ggml_retain(ggml);
    own->ggml = ggml;
    own->base = (struct ggml_backend){
        .guid = &guid,
        .iface = {.get_name = backend_get_name, .free = backend_free, .graph_compute = backend_compute},
        .device = device,
        .context = own,
    };
    return &own->base;
}

/* --- the device --- */

static const char *device_get_name(ggml_backend_dev_t device)
{
    return ((const loch_ggml *)device->context)->name;
}

static const char *device_get_description(ggml_backend_dev_t device)
{
    (void)device;
    return "CPU with memory of a Loch pool";
}

/* Reports the limit of the pool, or the memory of the device of a pool without a limit. */
static void device_get_memory(ggml_backend_dev_t device, size_t *free_bytes, size_t *total_bytes)
{
    const loch_ggml *ggml = device->context;
    loch_pool_info info = {.size = sizeof info};
    loch_memory_info memory = {.size = sizeof memory};
    *free_bytes = *total_bytes = 0;
    if (loch_device_calculate_memory(loch_allocator_get_device(ggml->pool), &memory) == LOCH_OK) {
        *free_bytes = memory.free_bytes;
        *total_bytes = memory.total_bytes;
    }
    if (loch_pool_get_info(ggml->pool, &info) == LOCH_OK && info.limit_bytes) {
        *total_bytes = info.limit_bytes;
        *free_bytes = info.limit_bytes > info.used_bytes ? info.limit_bytes - info.used_bytes : 0;
    }
}

/* An integrated GPU is what has memory of the host. llama.cpp leaves it out by itself where there is a true GPU. */
static enum ggml_backend_dev_type device_get_type(ggml_backend_dev_t device)
{
    (void)device;
    return GGML_BACKEND_DEVICE_TYPE_IGPU;
}

/* No mapping of files: weights are read into the pool. */
static void device_get_props(ggml_backend_dev_t device, struct ggml_backend_dev_props *props)
{
    *props = (struct ggml_backend_dev_props){
        .name = device_get_name(device),
        .description = device_get_description(device),
        .type = device_get_type(device),
        .caps = {.host_buffer = true},
    };
    device_get_memory(device, &props->memory_free, &props->memory_total);
}

static ggml_backend_buffer_type_t device_get_buffer_type(ggml_backend_dev_t device)
{
    return &((loch_ggml *)device->context)->types[LOCHI_GGML_BY_TENSORS];
}

static ggml_backend_buffer_type_t device_get_host_type(ggml_backend_dev_t device)
{
    return &((loch_ggml *)device->context)->types[LOCH_GGML_COMPUTE];
}

static bool device_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op)
{
    return ggml_backend_dev_supports_op(((const loch_ggml *)device->context)->cpu, op);
}

static bool device_supports_type(ggml_backend_dev_t device, ggml_backend_buffer_type_t type)
{
    const loch_ggml *ggml = device->context;
    return type->device == device || ggml_backend_dev_supports_buft(ggml->cpu, type);
}

/* --- functions that llama.cpp finds by name --- */

static void *backend_find_cpu(ggml_backend_t backend, const char *name)
{
    const lochi_ggml_backend *own = backend->context;
    return ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(own->ggml->cpu), name);
}

static void backend_set_threads(ggml_backend_t backend, int threads)
{
    ggml_backend_set_n_threads_t function =
        (ggml_backend_set_n_threads_t)backend_find_cpu(backend, "ggml_backend_set_n_threads");
    if (function) function(((const lochi_ggml_backend *)backend->context)->cpu, threads);
}

static void backend_set_abort(ggml_backend_t backend, ggml_abort_callback callback, void *user)
{
    ggml_backend_set_abort_callback_t function =
        (ggml_backend_set_abort_callback_t)backend_find_cpu(backend, "ggml_backend_set_abort_callback");
    if (function) function(((const lochi_ggml_backend *)backend->context)->cpu, callback, user);
}

static void *reg_find(ggml_backend_reg_t reg, const char *name)
{
    (void)reg;
    if (strcmp(name, "ggml_backend_set_n_threads") == 0) return (void *)backend_set_threads;
    if (strcmp(name, "ggml_backend_set_abort_callback") == 0) return (void *)backend_set_abort;
    return NULL;
}

static const char *reg_get_name(ggml_backend_reg_t reg)
{
    return ((const loch_ggml *)reg->context)->name;
}

static size_t reg_count(ggml_backend_reg_t reg)
{
    (void)reg;
    return 1;
}

static ggml_backend_dev_t reg_get_device(ggml_backend_reg_t reg, size_t index)
{
    return index == 0 ? &((loch_ggml *)reg->context)->device : NULL;
}

void lochi_ggml_init_device(loch_ggml *ggml)
{
    ggml->reg = (struct ggml_backend_reg){
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = {.get_name = reg_get_name,
                  .get_device_count = reg_count,
                  .get_device = reg_get_device,
                  .get_proc_address = reg_find},
        .context = ggml,
    };
    ggml->device = (struct ggml_backend_device){
        .iface = {.get_name = device_get_name,
                  .get_description = device_get_description,
                  .get_memory = device_get_memory,
                  .get_type = device_get_type,
                  .get_props = device_get_props,
                  .init_backend = device_init_backend,
                  .get_buffer_type = device_get_buffer_type,
                  .get_host_buffer_type = device_get_host_type,
                  .supports_op = device_supports_op,
                  .supports_buft = device_supports_type},
        .reg = &ggml->reg,
        .context = ggml,
    };
}
