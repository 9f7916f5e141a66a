/* SPDX-License-Identifier: MIT */
/* Elements of tensors: conversions between all types, of single numbers and of whole arrays; elements of a tensor on a
 * device, read and written by loops on the host. */
#include <loch/loch.h>
#include <loch/tensor.h>
#include <stdio.h>
#include <string.h>

/* Returns a number as it is after a way through a small type. */
static float through(loch_dtype dtype, float value)
{
    uint16_t small;
    float back;
    LOCH_CHECK(loch_convert(dtype, &small, LOCH_F32, &value, 1, NULL));
    LOCH_CHECK(loch_convert(LOCH_F32, &back, dtype, &small, 1, NULL));
    return back;
}

/* Prints pi in every small float type. */
static int numbers(void)
{
    const float pi = 3.14159265F;
    const float half = through(LOCH_F16, pi), brain = through(LOCH_BF16, pi);
    const float fine = through(LOCH_F8E4M3, pi), wide = through(LOCH_F8E5M2, pi);
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
    float most, none;
    LOCH_CHECK(loch_convert(LOCH_F32, &most, LOCH_F8E4M3, &saturated[3], 1, NULL));
    LOCH_CHECK(loch_convert(LOCH_F32, &none, LOCH_F8E4M3, &unbounded[3], 1, NULL));
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
    const loch_tensor_options there = {.size = sizeof there, .device = device, .name = "scores"};
    LOCH_RETURN(loch_tensor_to(host, LOCH_F32, &there, &tensor));
    *out = loch_tensor_take(&tensor); /* the caller owns it now: nothing is left to release here */
    return LOCH_OK;
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
    return right == 4 ? 0 : 1;
}
