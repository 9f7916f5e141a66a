/* SPDX-License-Identifier: MIT */
/* Fuzz target: .safetensors files and indexes of models. The first byte chooses how the file is opened, the rest is the
 * file. What opens covers its data exactly, every tensor that Loch can have is read to its last element, and what is
 * saved again opens with equal contents. */
#include "fuzz.h"

#include <loch/safetensors.h>
#include <unistd.h>

/* An index may name files that do not exist, or a folder; a tensor may be more than the machine has. */
#define REFUSALS (TEST_SET(CORRUPT) | TEST_SET(UNSUPPORTED) | TEST_SET(OVERFLOW) | TEST_SET(NOT_FOUND) | TEST_SET(IO))
#define LOADS_MAX 64

typedef struct fuzz_file {
    const loch_safetensors *file;
    uint64_t bytes; /* of all tensors so far */
    const char *names[LOADS_MAX];
    loch_tensor *tensors[LOADS_MAX];
    size_t loads;
} fuzz_file_state;

static void read_all(loch_tensor *tensor, char **out, size_t *bytes)
{
    *bytes = loch_tensor_get_bytes(tensor);
    *out = malloc(*bytes + 1);
    FUZZ_EXPECT(*out);
    CHECK_OK(loch_tensor_read(tensor, *out, *bytes, NULL));
}

static void expect_equal(loch_tensor *one, loch_tensor *other)
{
    char *bytes[2];
    size_t counts[2];
    read_all(one, &bytes[0], &counts[0]);
    read_all(other, &bytes[1], &counts[1]);
    FUZZ_EXPECT(loch_tensor_get_dtype(one) == loch_tensor_get_dtype(other));
    FUZZ_EXPECT(counts[0] == counts[1] && memcmp(bytes[0], bytes[1], counts[0]) == 0);
    free(bytes[0]);
    free(bytes[1]);
}

static loch_status visit(const loch_safetensors_info *info, void *user)
{
    fuzz_file_state *state = user;
    loch_safetensors_info found = {.size = sizeof found};
    loch_tensor *tensor = TEST_UNTOUCHED, *loaded;
    state->bytes += info->bytes;
    CHECK_OK(loch_safetensors_find(state->file, info->name, &found));
    FUZZ_EXPECT(found.shape == info->shape && found.offset == info->offset && found.bytes == info->bytes);
    loch_error_clear();
    const loch_status status = loch_safetensors_acquire_tensor(state->file, info->name, &tensor);
    if (status != LOCH_OK) {
        FUZZ_FAILED(status, REFUSALS);
        FUZZ_EXPECT(!tensor);
        return LOCH_OK;
    }
    FUZZ_EXPECT(loch_tensor_get_bytes(tensor) == info->bytes);
    CHECK_OK(loch_safetensors_load(state->file, info->name, NULL, &loaded));
    expect_equal(tensor, loaded);
    loch_tensor_release(loaded);
    if (state->loads < LOADS_MAX) {
        state->names[state->loads] = info->name;
        state->tensors[state->loads++] = tensor;
    } else {
        loch_tensor_release(tensor);
    }
    return LOCH_OK;
}

static loch_status count_one(const loch_safetensors_info *info, void *user)
{
    (void)info;
    ++*(size_t *)user;
    return LOCH_OK;
}

/* Saves the tensors to a file of their own and opens that. */
static void save_again(const fuzz_file_state *state)
{
    char folder[] = "/tmp/loch-fuzz-XXXXXX", path[64];
    loch_safetensors *again;
    FUZZ_EXPECT(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a", folder);
    CHECK_OK(loch_safetensors_save(path, state->names, state->tensors, state->loads, NULL));
    CHECK_OK(loch_safetensors_open(path, NULL, &again));
    size_t count = 0;
    CHECK_OK(loch_safetensors_walk(again, count_one, &count));
    FUZZ_EXPECT(count == state->loads);
    for (size_t i = 0; i < state->loads; i++) {
        loch_tensor *tensor;
        CHECK_OK(loch_safetensors_acquire_tensor(again, state->names[i], &tensor));
        expect_equal(tensor, state->tensors[i]);
        loch_tensor_release(tensor);
    }
    loch_safetensors_close(again);
    unlink(path);
    rmdir(folder);
}

static loch_status visit_metadata(const char *key, const char *value, void *user)
{
    FUZZ_EXPECT(loch_safetensors_get_metadata(user, key) == value);
    return LOCH_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_input input = {data, bytes};
    const uint8_t how = fuzz_byte(&input);
    const loch_safetensors_options options = {.size = sizeof options, .access = (loch_access)(how % 2)};
    loch_safetensors *file = TEST_UNTOUCHED;
    fuzz_begin();
    loch_error_clear();
    const loch_status status = loch_safetensors_open(fuzz_file(&input), &options, &file);
    if (status != LOCH_OK) {
        FUZZ_FAILED(status, REFUSALS);
        FUZZ_EXPECT(!file);
    } else {
        fuzz_file_state state = {.file = file};
        CHECK_OK(loch_safetensors_walk(file, visit, &state));
        CHECK_OK(loch_safetensors_walk_metadata(file, visit_metadata, file));
        FUZZ_EXPECT(state.bytes <= input.bytes);
        if (how / 2 % 8 == 1) save_again(&state);
        while (state.loads)
            loch_tensor_release(state.tensors[--state.loads]);
        loch_safetensors_close(file);
    }
    fuzz_end();
    return 0;
}
