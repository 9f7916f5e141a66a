/* SPDX-License-Identifier: MIT */
/* Elements of tensors: conversions between all types, of single numbers and of whole arrays; elements of a tensor on a
 * device, read and written by loops on the host; and a tensor whose buffer is replaced. */
#include <loch/loch.h>
#include <loch/tensor.h>
#include <stdio.h>
#include <string.h>

/* Prints pi in every small float type. */
static int numbers(void)
{
    const float pi = 3.14159265F;
    const float half = loch_f16_to_float(loch_f16_from_float(pi));
    const float brain = loch_bf16_to_float(loch_bf16_from_float(pi));
    const float fine = loch_f8e4m3_to_float(loch_f8e4m3_from_float(pi));
    const float wide = loch_f8e5m2_to_float(loch_f8e5m2_from_float(pi));
    printf("pi: f16 %g, bf16 %g, f8e4m3 %g, f8e5m2 %g\n", (double)half, (double)brain, (double)fine, (double)wide);
    return half == 3.140625F && brain == 3.140625F && fine == 3.25F && wide == 3.0F;
}

/* Converts weights of 32 bits to 8 bits. A number that is too large becomes the largest number of the type, or NaN. */
static int arrays(void)
{
    const float from[] = {1, -0.5F, 448, 1e6F};
    const loch_convert_options special = {.size = sizeof special, .overflow = LOCH_OVERFLOW_SPECIAL};
    loch_f8e4m3 saturated[4], unbounded[4];
    int8_t whole[4];
    LOCH_CHECK(loch_convert(LOCH_F8E4M3, saturated, LOCH_F32, from, 4, NULL));
    LOCH_CHECK(loch_convert(LOCH_F8E4M3, unbounded, LOCH_F32, from, 4, &special));
    LOCH_CHECK(loch_convert(loch_dtype_of(whole[0]), whole, loch_dtype_of(from[0]), from, 4, NULL)); /* clipped */
    const float most = loch_f8e4m3_to_float(saturated[3]), none = loch_f8e4m3_to_float(unbounded[3]);
    printf("a million: %g or %g as f8e4m3, %d as %s\n", (double)most, (double)none, whole[3], loch_dtype_name(LOCH_I8));
    return most == 448 && none != none && whole[3] == 127;
}

/* Reads and writes the elements of a tensor on a device, in place or in a copy that is written back: the loop is the
 * same. */
static int map(loch_tensor *tensor)
{
    const int64_t rows = loch_tensor_get_size(tensor, 0), columns = loch_tensor_get_size(tensor, 1);
    loch_mapping mapping;
    LOCH_CHECK(loch_tensor_map(tensor, LOCH_MAP_READ_WRITE, NULL, &mapping));
    float *elements = mapping.address;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            elements[i * mapping.strides[0] + j * mapping.strides[1]] += (float)(10 * i + j);
    LOCH_CHECK(loch_tensor_unmap(&mapping, NULL));
    loch_scalar last;
    LOCH_CHECK(loch_tensor_read_item(tensor, 2, (const int64_t[]){-1, -1}, NULL, &last));
    printf("mapped: the last element is %g\n", last.value.f);
    return last.value.f == 0.5 + 12;
}

/* Creates a tensor and returns it; on a failure it is released. */
static loch_status make(loch_device *device, loch_tensor **out)
{
    LOCH_AUTO(tensor) host = NULL;
    LOCH_AUTO(tensor) tensor = NULL;
    *out = NULL;
    LOCH_RETURN(loch_tensor_create(LOCH_F32, LOCH_SHAPE(2, 3), NULL, &host));
    LOCH_RETURN(loch_tensor_fill(host, loch_scalar_of(0.5), NULL));
    LOCH_RETURN(loch_tensor_to_device(host, device, NULL, &tensor));
    LOCH_RETURN(loch_tensor_set_name(tensor, "scores"));
    *out = loch_tensor_take(&tensor); /* the caller owns it now: nothing is left to release here */
    return LOCH_OK;
}

/* Exchanges two buffers under one tensor, as an engine does between steps: no copy, no new tensor. */
static int exchange(void)
{
    loch_buffer *buffers[2] = {NULL, NULL};
    loch_tensor *state;
    loch_scalar item[2];
    for (size_t i = 0; i < 2; i++)
        LOCH_CHECK(loch_buffer_create_for_device(NULL, 4 * sizeof(float), NULL, &buffers[i]));
    LOCH_CHECK(loch_tensor_create_in(buffers[0], 0, LOCH_F32, LOCH_SHAPE(4), NULL, &state));
    for (size_t i = 0; i < 2; i++) {
        LOCH_CHECK(loch_tensor_bind(state, buffers[i], 0));
        LOCH_CHECK(loch_tensor_fill(state, loch_scalar_of(i + 1), NULL));
    }
    for (size_t i = 0; i < 2; i++) {
        LOCH_CHECK(loch_tensor_bind(state, buffers[i], 0));
        LOCH_CHECK(loch_tensor_read_item(state, 1, (const int64_t[]){0}, NULL, &item[i]));
    }
    printf("bound: %g in one buffer, %g in the other\n", item[0].value.f, item[1].value.f);
    loch_tensor_release(state);
    loch_buffer_release(buffers[0]);
    loch_buffer_release(buffers[1]);
    return item[0].value.f == 1 && item[1].value.f == 2;
}

int main(void)
{
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(tensor) scores = NULL;
    char line[128];
    int right = 0;
    LOCH_CHECK(loch_device_open("sim:64MiB", &device));
    right += numbers();
    right += arrays();
    LOCH_CHECK(make(device, &scores));
    LOCH_CHECK(loch_tensor_describe(scores, line, sizeof line, NULL));
    puts(line);
    right += !strcmp(loch_tensor_get_name(scores), "scores");
    right += map(scores);
    right += exchange();
    return right == 5 ? 0 : 1;
}
