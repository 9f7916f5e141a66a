/* SPDX-License-Identifier: MIT */
/* Fuzz target: .npy files. The first three bytes choose how the file is loaded, the rest is the file. What loads is
 * read to its last element, and comes back the same from a file that Loch wrote. */
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#define NPY_REFUSALS (TEST_SET(CORRUPT) | TEST_SET(UNSUPPORTED) | TEST_SET(OVERFLOW) | TEST_SET(INVALID))

static void npy_read(loch_tensor *tensor, char **out, size_t *bytes)
{
    *bytes = loch_tensor_get_bytes(tensor);
    *out = malloc(*bytes + 1);
    FUZZ_EXPECT(*out);
    CHECK_OK(loch_tensor_read(tensor, *out, *bytes, NULL));
}

/* Saves the tensor to a file of its own and loads that. */
static void npy_round(loch_tensor *tensor, const char *elements, size_t bytes)
{
    char folder[] = "/tmp/loch-fuzz-XXXXXX", path[64], *again;
    size_t again_bytes;
    FUZZ_EXPECT(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.npy", folder);
    const loch_npy_save_options save = {.size = sizeof save, .as_bits = 1};
    const loch_npy_load_options load = {.size = sizeof load, .dtype = loch_tensor_get_dtype(tensor)};
    loch_tensor *loaded = NULL;
    CHECK_OK(loch_npy_save(tensor, path, &save));
    CHECK_OK(loch_npy_load(path, &load, &loaded));
    FUZZ_EXPECT(loch_tensor_get_dtype(loaded) == loch_tensor_get_dtype(tensor));
    FUZZ_EXPECT(loch_tensor_get_dimensions(loaded) == loch_tensor_get_dimensions(tensor));
    for (size_t i = 0; i < loch_tensor_get_dimensions(tensor); i++)
        FUZZ_EXPECT(loch_tensor_get_shape(loaded)[i] == loch_tensor_get_shape(tensor)[i]);
    npy_read(loaded, &again, &again_bytes);
    FUZZ_EXPECT(again_bytes == bytes && memcmp(again, elements, bytes) == 0);
    free(again);
    loch_tensor_release(loaded);
    unlink(path);
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_input input = {data, bytes};
    const uint8_t how = fuzz_byte(&input);
    const loch_npy_load_options options = {.size = sizeof options,
                                           .mapping = (loch_npy_mapping)(how % 4),
                                           .access = (loch_access)((how >> 2) % 2),
                                           .dtype = (loch_dtype)(fuzz_byte(&input) % (LOCH_DTYPE_COUNT + 1))};
    const bool is_round = fuzz_byte(&input) % 8 == 1;
    fuzz_begin();
    loch_tensor *tensor = TEST_UNTOUCHED;
    loch_error_clear();
    const loch_status status = loch_npy_load(fuzz_file(&input), &options, &tensor);
    if (status != LOCH_OK) {
        FUZZ_FAILED(status, NPY_REFUSALS);
        FUZZ_EXPECT(!tensor);
    } else {
        char *elements;
        size_t element_bytes;
        npy_read(tensor, &elements, &element_bytes);
        FUZZ_EXPECT(element_bytes <= input.bytes);
        if (is_round) npy_round(tensor, elements, element_bytes);
        free(elements);
        loch_tensor_release(tensor);
    }
    fuzz_end();
    return 0;
}
