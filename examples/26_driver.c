/* SPDX-License-Identifier: MIT */
/* A device driver of your own: "budget:64MiB" is CPU memory with a limit. The driver calls the functions of the CPU
 * driver and adds only what differs. Pools, buffers and tensors work on it as on any device. */
#include <loch/loch.h>
#include <loch/driver.h>
#include <loch/tensor.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

typedef struct budget {
    const loch_driver *cpu; /* the driver that does the work */
    void *self;             /* its state of the device */
    size_t total_bytes;
    atomic_size_t used_bytes; /* functions of a driver may be called by several threads at a time */
} budget;

/* Parses "64MiB": the part of the device name after the colon. */
static loch_status budget_open(const char *arguments, void **self)
{
    char *end;
    const unsigned long mib = strtoul(arguments, &end, 10);
    if (mib == 0 || mib > 1024 || strcmp(end, "MiB") != 0)
        return loch_error_set(LOCH_E_INVALID, "budget", 0, "\"budget:%s\" has no size: budget:64MiB", arguments);
    budget *b = malloc(sizeof *b);
    if (!b) return loch_error_set(LOCH_E_HOST_MEMORY, "budget", 0, "no memory for a device");
    b->cpu = loch_driver_find("cpu");
    b->total_bytes = mib * MIB;
    atomic_init(&b->used_bytes, 0);
    const loch_status status = b->cpu->open("", &b->self);
    if (status != LOCH_OK) {
        free(b);
        return status;
    }
    *self = b;
    return LOCH_OK;
}

static void budget_close(void *self)
{
    budget *b = self;
    b->cpu->close(b->self);
    free(b);
}

static loch_status budget_get_properties(void *self, loch_device_properties *out)
{
    budget *b = self;
    LOCH_RETURN(b->cpu->get_properties(b->self, out));
    snprintf(out->model, sizeof out->model, "a budget of the CPU's memory");
    out->capabilities = LOCH_CAN_HOST_ACCESS; /* only capabilities that the table below has functions for */
    out->granule_bytes = 0;
    out->total_bytes = b->total_bytes;
    return LOCH_OK;
}

static loch_status budget_memory_info(void *self, loch_memory_info *out)
{
    budget *b = self;
    out->total_bytes = b->total_bytes;
    out->free_bytes = b->total_bytes - atomic_load(&b->used_bytes);
    return LOCH_OK;
}

static loch_status budget_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    budget *b = self;
    if (atomic_fetch_add(&b->used_bytes, bytes) + bytes > b->total_bytes) {
        atomic_fetch_sub(&b->used_bytes, bytes);
        return loch_error_set(LOCH_E_DEVICE_MEMORY, "budget", 0, "%zu bytes do not fit into the budget of %zu", bytes,
                              b->total_bytes);
    }
    const loch_status status = b->cpu->raw_alloc(b->self, bytes, alignment, out);
    if (status != LOCH_OK) atomic_fetch_sub(&b->used_bytes, bytes);
    return status;
}

static loch_status budget_free(void *self, void *address, size_t bytes)
{
    budget *b = self;
    LOCH_RETURN(b->cpu->raw_free(b->self, address, bytes));
    atomic_fetch_sub(&b->used_bytes, bytes);
    return LOCH_OK;
}

static loch_status budget_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes,
                               void *peer, void *stream)
{
    budget *b = self;
    return b->cpu->copy(b->self, direction, to, from, bytes, peer, stream);
}

static loch_status budget_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream)
{
    budget *b = self;
    return b->cpu->fill(b->self, to, bytes, pattern, pattern_bytes, stream);
}

int main(void)
{
    const loch_driver driver = {.size = sizeof driver, /* copied; empty slots are filled */
                                .name = "budget",
                                .summary = "the CPU's memory with a bound",
                                .open = budget_open,
                                .close = budget_close,
                                .get_properties = budget_get_properties,
                                .memory_info = budget_memory_info,
                                .raw_alloc = budget_alloc,
                                .raw_free = budget_free,
                                .copy = budget_copy,
                                .fill = budget_fill};
    loch_memory_info memory = {.size = sizeof memory};
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(allocator) pool = NULL;
    LOCH_AUTO(tensor) tensor = NULL;
    loch_device *none;
    void *block;
    LOCH_CHECK(loch_driver_register(&driver));
    const loch_status unreadable = loch_device_open("budget:much", &none);
    printf("%s\n", loch_error_get()->sentence);
    LOCH_CHECK(loch_device_open("budget:64MiB", &device));
    LOCH_CHECK(loch_pool_create(device, "pool", NULL, &pool));
    const loch_tensor_options options = {.size = sizeof options, .allocator = pool};
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(2, 3), &options, &tensor));
    LOCH_CHECK(loch_tensor_fill(tensor, loch_scalar_of(0.25), NULL));
    LOCH_CHECK(loch_tensor_print_to(tensor, NULL, stdout));
    const loch_status full = loch_alloc(pool, 65 * MIB, &block);
    printf("%s\n", loch_error_get()->sentence);
    LOCH_CHECK(loch_device_calculate_memory(device, &memory));
    printf("%zu of %zu MiB are free\n", memory.free_bytes / MIB, memory.total_bytes / MIB);
    return unreadable == LOCH_E_INVALID && full == LOCH_E_DEVICE_MEMORY && memory.free_bytes < 64 * MIB ? 0 : 1;
}
