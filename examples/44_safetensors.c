/* SPDX-License-Identifier: MIT */
/* Saves tensors to a .safetensors file, and uses what is in it: as views of the mapped file, in new memory of a device,
 * a part at a time, and as parameters.
 *
 *   44_safetensors [DEVICE]     cpu, cuda:0, sim:1GiB, ... (default: cpu) */
#include <loch/engine.h>
#include <loch/loch.h>
#include <loch/safetensors.h>
#include <loch/tensor.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Two tensors, written with a line of metadata. */
static void save(const char *path)
{
    const float weight[6] = {1, 2, 3, 4, 5, 6}, bias[3] = {0.5f, 0.25f, 0.125f};
    loch_tensor *tensors[2];
    LOCH_CHECK(loch_tensor_create_from(LOCH_F32, LOCH_SHAPE(2, 3), weight, NULL, &tensors[0]));
    LOCH_CHECK(loch_tensor_create_from(LOCH_F32, LOCH_SHAPE(3), bias, NULL, &tensors[1]));
    const char *const names[] = {"layer.weight", "layer.bias"}, *keys[] = {"format"}, *values[] = {"loch"};
    const loch_safetensors_save_options options = {
        .size = sizeof options, .metadata_keys = keys, .metadata_values = values, .metadata_count = 1};
    LOCH_CHECK(loch_safetensors_save(path, names, tensors, 2, &options));
    loch_tensor_release(tensors[0]);
    loch_tensor_release(tensors[1]);
}

static loch_status print_tensor(const loch_safetensors_info *info, void *user)
{
    (void)user;
    printf("  %s: %s, %zu dimensions, %llu bytes at %llu\n", info->name, info->type, info->dimensions,
           (unsigned long long)info->bytes, (unsigned long long)info->offset);
    return LOCH_OK;
}

static loch_status print_metadata(const char *key, const char *value, void *user)
{
    (void)user;
    printf("  %s = %s\n", key, value);
    return LOCH_OK;
}

static void print_sum(const char *what, loch_tensor *tensor)
{
    float elements[6] = {0}, sum = 0;
    LOCH_CHECK(loch_tensor_read(tensor, elements, loch_tensor_get_bytes(tensor), NULL));
    for (size_t i = 0; i < loch_tensor_get_elements(tensor); i++)
        sum += elements[i];
    printf("%s: %zu elements, sum %g\n", what, loch_tensor_get_elements(tensor), (double)sum);
}

/* A view of the file, the second row alone on the device, a copy into a tensor that exists, and into all at once. */
static void load(const loch_safetensors *file, const char *name)
{
    static const char *const names[] = {"layer.weight", "layer.bias"};
    loch_tensor *view, *row, *weight, *bias;
    loch_device *device;
    LOCH_CHECK(loch_safetensors_acquire_tensor(file, "layer.weight", &view)); /* no copy */
    print_sum("view of the mapped file", view);
    LOCH_CHECK(loch_device_open(name, &device));
    const loch_tensor_options memory = {.size = sizeof memory, .device = device};
    const loch_safetensors_load_options second = {.size = sizeof second, .start = 1, .count = 1, .memory = &memory};
    LOCH_CHECK(loch_safetensors_load(file, "layer.weight", &second, &row)); /* reads this row alone */
    print_sum("second row on the device", row);
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(3), &memory, &bias));
    LOCH_CHECK(loch_safetensors_copy(file, "layer.bias", bias, NULL));
    print_sum("copy into a tensor", bias);
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(2, 3), &memory, &weight));
    loch_tensor *const both[] = {weight, bias};
    LOCH_CHECK(loch_safetensors_copy_many(file, names, both, 2, NULL)); /* the fastest way onto a device */
    print_sum("all in one call", weight);
    loch_tensor_release(weight);
    loch_tensor_release(bias);
    loch_tensor_release(row);
    loch_tensor_release(view);
    loch_device_release(device);
}

/* A weight that is cut over two seats: each gets its own part of the file. */
static void load_parameters(const loch_safetensors *file, const char *name)
{
    const loch_engine_device devices[] = {{.size = sizeof devices[0], .name = name},
                                          {.size = sizeof devices[0], .name = name}};
    const loch_engine_options options = {.size = sizeof options, .devices = devices, .devices_count = 2};
    loch_engine *engine;
    loch_context *context;
    loch_parameter *weight;
    LOCH_CHECK(loch_engine_open(&options, &engine));
    LOCH_CHECK(loch_context_open(engine, NULL, &context));
    LOCH_CHECK(
        loch_context_declare(context, "layer.weight", LOCH_F32, LOCH_SHAPE(2, 3), LOCH_SPREAD_PARTS, 0, 0, &weight));
    LOCH_CHECK(loch_safetensors_load_parameters(file, context, &weight, 1));
    for (unsigned seat = 0; seat < 2; seat++) {
        loch_tensor *part;
        LOCH_CHECK(loch_parameter_acquire_tensor(weight, LOCH_SEAT(seat), &part));
        print_sum(seat ? "part on seat 1" : "part on seat 0", part);
        loch_tensor_release(part);
    }
    loch_parameter_release(weight);
    LOCH_CHECK(loch_context_close(context));
    LOCH_CHECK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "cpu";
    char path[] = "/tmp/loch-example-XXXXXX";
    loch_safetensors *file;
    const int made = mkstemp(path);
    if (made < 0) return 1;
    close(made);
    save(path);

    LOCH_CHECK(loch_safetensors_open(path, NULL, &file)); /* checks all of it */
    LOCH_CHECK(loch_safetensors_walk(file, print_tensor, NULL));
    LOCH_CHECK(loch_safetensors_walk_metadata(file, print_metadata, NULL));
    loch_safetensors_info bias = {.size = sizeof bias};
    LOCH_CHECK(loch_safetensors_find(file, "layer.bias", &bias));
    printf("%s has %lld elements; the file is for %s\n", bias.name, (long long)bias.shape[0],
           loch_safetensors_get_metadata(file, "format"));
    load(file, name);
    load_parameters(file, name);
    loch_safetensors_close(file);
    unlink(path);
    return 0;
}
