/* SPDX-License-Identifier: MIT */
/* Saves a tensor as an .npy file like NumPy, and maps the file. A mapped file is available at once, however large: its
 * pages are read when they are accessed, and several processes share them. */
#include <loch/loch.h>
#include <loch/tensor.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static loch_status save(const char *path)
{
    LOCH_AUTO(tensor) line = NULL;
    LOCH_AUTO(tensor) table = NULL;
    LOCH_AUTO(tensor) weights = NULL;
    LOCH_RETURN(loch_tensor_create(LOCH_F32, LOCH_SHAPE(1000), NULL, &line));
    for (int64_t i = 0; i < 1000; i++)
        LOCH_RETURN(loch_tensor_write_item(line, 1, &i, loch_scalar_of((float)i / 1000), NULL));
    LOCH_RETURN(loch_tensor_expand(line, LOCH_SHAPE(200, 1000), &table)); /* one row, seen 200 times */
    LOCH_RETURN(loch_tensor_clone(table, NULL, &weights));                /* saved as 200 rows */
    LOCH_RETURN(loch_npy_save(weights, path, NULL));
    printf("saved %zu bytes of elements\n", loch_tensor_get_bytes(weights));
    return LOCH_OK;
}

static loch_status look(const char *path, float *last)
{
    const loch_npy_load_options mapped = {
        .size = sizeof mapped, .mapping = LOCH_NPY_MAP_REQUIRE, .access = LOCH_READ_ONLY};
    LOCH_AUTO(tensor) weights = NULL;
    LOCH_AUTO(tensor) corner = NULL;
    LOCH_AUTO(tensor) part = NULL;
    LOCH_RETURN(loch_npy_load(path, &mapped, &weights));
    LOCH_RETURN(loch_tensor_print_to(weights, NULL, stdout)); /* reads only the parts that it prints */
    LOCH_RETURN(loch_tensor_slice(weights, 0, -2, LOCH_OPEN, 1, &part));
    LOCH_RETURN(loch_tensor_slice(part, 1, -3, LOCH_OPEN, 1, &corner));
    LOCH_RETURN(loch_tensor_print_to(corner, NULL, stdout));
    if (loch_tensor_fill(corner, loch_scalar_of(0), NULL) == LOCH_OK) return LOCH_E_INVALID;
    printf("writing to it: %s\n", loch_error_get()->sentence);
    loch_scalar scalar;
    LOCH_RETURN(loch_tensor_read_item(corner, 2, (const int64_t[]){-1, -1}, NULL, &scalar));
    *last = (float)scalar.value.f;
    return LOCH_OK;
}

int main(void)
{
    char path[64] = "/tmp/loch-example-XXXXXX";
    float last = 0;
    const int file = mkstemp(path);
    if (file < 0) return 1;
    close(file);
    loch_status status = save(path);
    if (status == LOCH_OK) status = look(path, &last);
    if (status != LOCH_OK) fprintf(stderr, "%s\n", loch_error_get()->sentence);
    unlink(path);
    return status == LOCH_OK && last == 0.999F ? 0 : 1;
}
