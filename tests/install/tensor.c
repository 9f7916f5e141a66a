/* SPDX-License-Identifier: MIT */
/* A program outside the tree that uses libloch_tensor: a tensor on the host, filled and read. */
#include <loch/loch.h>
#include <loch/tensor.h>

int main(void)
{
    loch_tensor *ones = NULL;
    float read[6] = {0};
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(2, 3), NULL, &ones));
    LOCH_CHECK(loch_tensor_fill(ones, loch_scalar_of(1.0f), NULL));
    LOCH_CHECK(loch_tensor_read(ones, read, sizeof read, NULL));
    loch_tensor_release(ones);
    return read[5] == 1.0f ? 0 : 1;
}
