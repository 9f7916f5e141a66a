/* SPDX-License-Identifier: MIT */
/* The life of a loch_ggml, and the entry of a backend that ggml loads from a file. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {"weights", "cache", "compute"};

void lochi_ggml_retain(loch_ggml *ggml)
{
    atomic_fetch_add_explicit(&ggml->references, 1, memory_order_relaxed);
}

void lochi_ggml_release(loch_ggml *ggml)
{
    if (atomic_fetch_sub_explicit(&ggml->references, 1, memory_order_acq_rel) != 1) return;
    loch_allocator_release(ggml->pool);
    pthread_mutex_destroy(&ggml->lock);
    free(ggml);
}

void lochi_ggml_log(const loch_ggml *ggml, const char *what, size_t bytes)
{
    char text[LOCH_ERROR_SENTENCE_MAX + 128];
    ggml_log_callback callback;
    void *user;
    snprintf(text, sizeof text, "%s: cannot %s (%.2f MiB): %s\n", ggml->name, what, (double)bytes / (1 << 20),
             loch_error_get()->sentence);
    ggml_log_get(&callback, &user);
    if (callback) callback(GGML_LOG_LEVEL_ERROR, text, user);
}

/* Finds the pool of the options, and checks it. The caller releases it. */
static loch_status adapter_open_pool(const loch_ggml_options *options, loch_allocator **out)
{
    loch_pool_info info = {.size = sizeof info};
    loch_device *device;
    loch_status status;
    *out = loch_allocator_retain(options->pool);
    if (!*out) {
        status = loch_device_open("cpu", &device);
        if (status != LOCH_OK) return status;
        status = loch_device_acquire_default(device, out); /* keeps the device open */
        loch_device_release(device);
        if (status != LOCH_OK) return status;
    }
    status = loch_pool_get_info(*out, &info);
    if (status != LOCH_OK) return status;
    if (!loch_device_can(loch_allocator_get_device(*out), LOCH_CAN_HOST_ACCESS))
        return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "ggml's CPU backend cannot use memory of the device %s",
                              loch_device_get_name(loch_allocator_get_device(*out)));
    return LOCH_OK;
}

static loch_status adapter_init_names(loch_ggml *ggml, const char *name)
{
    if (!name) name = "Loch";
    if (!*name || strlen(name) >= sizeof ggml->name)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "the name of a loch_ggml has 1 to %d characters",
                              LOCHI_GGML_NAME_MAX - 1);
    snprintf(ggml->name, sizeof ggml->name, "%s", name);
    for (int i = 0; i < 3; i++) {
        char tag[LOCH_TAG_NAME_MAX];
        snprintf(tag, sizeof tag, "%s.%s", name, kind_names[i]);
        const loch_status status = loch_tag_create(tag, &ggml->tags[i]);
        if (status != LOCH_OK) return status;
    }
    return LOCH_OK;
}

loch_status loch_ggml_create(const loch_ggml_options *options, loch_ggml **out)
{
    static const loch_ggml_options defaults = {.size = sizeof defaults};
    loch_device_properties properties = {.size = sizeof properties};
    if (!out) return loch_error_set(LOCH_E_INVALID, NULL, 0, "loch_ggml_create needs `out`");
    *out = NULL;
    if (!options) options = &defaults;
    if (options->size < sizeof *options)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "set the member `size` of loch_ggml_options");
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!cpu) return loch_error_set(LOCH_E_NOT_FOUND, NULL, 0, "ggml has no CPU backend; call ggml_backend_load_all");

    loch_ggml *ggml = calloc(1, sizeof *ggml);
    if (!ggml) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for a loch_ggml");
    pthread_mutex_init(&ggml->lock, NULL);
    atomic_init(&ggml->references, 1);
    ggml->cpu = cpu;
    loch_status status = adapter_open_pool(options, &ggml->pool);
    if (status == LOCH_OK) status = adapter_init_names(ggml, options->name);
    if (status == LOCH_OK) status = loch_device_get_properties(loch_allocator_get_device(ggml->pool), &properties);
    if (status != LOCH_OK) {
        lochi_ggml_release(ggml);
        return status;
    }
    ggml->granule_bytes = properties.granule_bytes ? properties.granule_bytes : LOCHI_GGML_PAGE;
    lochi_ggml_init_types(ggml);
    lochi_ggml_init_device(ggml);
    *out = ggml;
    return LOCH_OK;
}

void loch_ggml_destroy(loch_ggml *ggml)
{
    if (ggml) lochi_ggml_release(ggml);
}

ggml_backend_dev_t loch_ggml_get_device(loch_ggml *ggml)
{
    return ggml ? &ggml->device : NULL;
}

ggml_backend_buffer_type_t loch_ggml_get_type(loch_ggml *ggml, loch_ggml_kind kind)
{
    return ggml && (unsigned)kind < 3 ? &ggml->types[kind] : NULL;
}

loch_tag loch_ggml_get_tag(const loch_ggml *ggml, loch_ggml_kind kind)
{
    return ggml && (unsigned)kind < 3 ? ggml->tags[kind] : 0;
}

loch_allocator *loch_ggml_get_pool(loch_ggml *ggml)
{
    return ggml ? ggml->pool : NULL;
}

loch_status loch_ggml_freeze(loch_ggml *ggml, loch_freeze_report *report)
{
    size_t wrong = 0;
    if (!ggml) return loch_error_set(LOCH_E_INVALID, NULL, 0, "loch_ggml_freeze needs a loch_ggml");
    pthread_mutex_lock(&ggml->lock);
    for (const lochi_ggml_buffer *one = ggml->buffers; one; one = one->next)
        if (one->kind == LOCH_GGML_WEIGHTS && one->is_guess && one->buffer->usage != GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
            wrong = one->buffer->size;
    pthread_mutex_unlock(&ggml->lock);
    if (wrong)
        return loch_error_set(LOCH_E_BUSY, NULL, 0,
                              "a buffer of %zu bytes looked like weights of %s, and ggml uses it for other things",
                              wrong, ggml->name);
    const loch_freeze_options options = {
        .size = sizeof options, .tag = ggml->tags[LOCH_GGML_WEIGHTS], .writes = LOCH_FREEZE_PROTECTED};
    return loch_pool_freeze(ggml->pool, &options, report);
}

/* --- a backend from a file: ggml_backend_load, GGML_BACKEND_PATH --- */

static loch_ggml *loaded;

static void adapter_load(void)
{
    if (loch_ggml_create(NULL, &loaded) != LOCH_OK)
        fprintf(stderr, "Loch cannot serve ggml: %s\n", loch_error_get()->sentence);
}

/* Called by ggml after it opened this library; ggml never closes it. */
LOCH_API ggml_backend_reg_t ggml_backend_init(void);
ggml_backend_reg_t ggml_backend_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, adapter_load);
    return loaded ? &loaded->reg : NULL;
}
