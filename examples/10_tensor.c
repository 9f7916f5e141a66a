/* SPDX-License-Identifier: MIT */
/* Tensors: creates one, makes views of parts of it, copies it to another device and back, and prints it. */
#include <loch/loch.h>
#include <loch/tensor.h>
#include <stdio.h>

static loch_status show(const char *what, loch_tensor *tensor)
{
    char line[256];
    LOCH_RETURN(loch_tensor_describe(tensor, line, sizeof line, NULL));
    printf("%s: %s\n", what, line);
    return loch_tensor_print_to(tensor, NULL, stdout);
}

static loch_status views(loch_tensor *table)
{
    LOCH_AUTO(tensor) column = NULL;
    LOCH_AUTO(tensor) turned = NULL;
    LOCH_AUTO(tensor) backwards = NULL;
    LOCH_RETURN(loch_tensor_index(table, 1, -1, &column)); /* the last column */
    LOCH_RETURN(loch_tensor_fill(column, loch_scalar_of(0.5), NULL));
    LOCH_RETURN(show("its last column was filled through a view", table));
    LOCH_RETURN(loch_tensor_transpose(table, 0, 1, &turned));
    LOCH_RETURN(
        loch_tensor_slice(turned, 0, LOCH_OPEN, LOCH_OPEN, -2, &backwards)); /* every second row, from the end */
    return show("turned, every second row, backwards", backwards);
}

/* Copies to the other device with another type and the same strides, works there, and copies back. */
static loch_status elsewhere(loch_tensor *table, float *sum)
{
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(tensor) there = NULL;
    LOCH_AUTO(tensor) row = NULL;
    LOCH_RETURN(loch_device_open("sim:1GiB", &device)); /* "cuda:0" if there is one */
    const loch_tensor_options options = {.size = sizeof options, .device = device, .name = "table"};
    LOCH_RETURN(loch_tensor_to(table, LOCH_F16, &options, &there));
    LOCH_RETURN(loch_tensor_index(there, 0, 0, &row));
    LOCH_RETURN(loch_tensor_fill(row, loch_scalar_of(-1), NULL));
    LOCH_RETURN(show("on another device", there));
    LOCH_RETURN(loch_tensor_copy(table, there, NULL)); /* converted back */
    float numbers[12];
    LOCH_RETURN(loch_tensor_read(table, numbers, sizeof numbers, NULL));
    for (size_t i = 0; i < 12; i++)
        *sum += numbers[i];
    return LOCH_OK;
}

static loch_status run(float *sum)
{
    const float numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    LOCH_AUTO(tensor) table = NULL;
    LOCH_RETURN(loch_tensor_create_from(LOCH_F32, LOCH_SHAPE(3, 4), numbers, NULL, &table));
    LOCH_RETURN(show("a table", table));
    LOCH_RETURN(views(table));
    return elsewhere(table, sum);
}

int main(void)
{
    float sum = 0;
    const loch_status status = run(&sum);
    if (status != LOCH_OK) fprintf(stderr, "%s\n", loch_error_get()->sentence);
    printf("the sum is %g\n", (double)sum);
    return status == LOCH_OK && sum == -4 + 15.5 + 27.5 ? 0 : 1;
}
