/* SPDX-License-Identifier: MIT */
/* make_model FILE: writes a model of 29 MB with random weights, whose cache takes 8 KiB a token. */
#include <model.h>

int main(int count, char **arguments)
{
    const model_shape shape = {
        .layers = 4, .width = 512, .heads = 8, .hidden = 1024, .words = 4096, .type = GGML_TYPE_F16};
    return count != 2 || !model_write(arguments[1], shape, 1);
}
