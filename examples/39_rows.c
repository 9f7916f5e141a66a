/* SPDX-License-Identifier: MIT */
/* Rows of a table by index, on any device: three rows are gathered, doubled in size by a conversion, and scattered
 * back.
 *
 *   39_rows [DEVICE]     cpu, cuda:0, sim:64MiB, ... (default: cpu) */
#include <loch/kernel.h>
#include <loch/loch.h>
#include <loch/rows.h>
#include <loch/tensor.h>
#include <stdio.h>

#define ROWS 5
#define COLUMNS 4
#define TAKEN 3

int main(int count, char **arguments)
{
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(tensor) table = NULL;
    LOCH_AUTO(tensor) tokens = NULL;
    LOCH_AUTO(tensor) taken = NULL;
    LOCH_AUTO(tensor) wide = NULL;
    const float numbers[ROWS][COLUMNS] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}, {4, 4, 4, 4}, {5, 5, 5, 5}};
    const int32_t indices[TAKEN] = {4, 99, 0}; /* there is no row 99 */
    double back[TAKEN][COLUMNS];
    float after[ROWS][COLUMNS];

    LOCH_CHECK(loch_device_open(count > 1 ? arguments[1] : "cpu", &device));
    const loch_tensor_options on = {.size = sizeof on, .device = device};
    LOCH_CHECK(loch_tensor_create_from(LOCH_F32, LOCH_SHAPE(ROWS, COLUMNS), numbers, &on, &table));
    LOCH_CHECK(loch_tensor_create_from(LOCH_I32, LOCH_SHAPE(TAKEN), indices, &on, &tokens));
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(TAKEN, COLUMNS), &on, &taken));
    LOCH_CHECK(loch_rows_gather(taken, table, tokens, NULL));

    LOCH_CHECK(loch_tensor_to(taken, LOCH_F64, &on, &wide)); /* a kernel on a CUDA device */
    LOCH_CHECK(loch_tensor_read(wide, back, sizeof back, NULL));
    for (int i = 0; i < TAKEN; i++)
        printf("row %2d: %g %g %g %g\n", (int)indices[i], back[i][0], back[i][1], back[i][2], back[i][3]);

    LOCH_CHECK(loch_tensor_fill(taken, loch_scalar_of(-1.0), NULL));
    LOCH_CHECK(loch_rows_scatter(table, taken, tokens, NULL));
    LOCH_CHECK(loch_tensor_read(table, after, sizeof after, NULL));
    printf("the table now begins with %g and ends with %g\n", (double)after[0][0],
           (double)after[ROWS - 1][COLUMNS - 1]);
    return back[0][0] != 5 || back[1][0] != 0 || after[0][0] != -1 || after[1][0] != 2 || after[4][3] != -1;
}
