/* SPDX-License-Identifier: MIT */
/* A program outside the tree that writes a file of tensors without tensors, and opens it. */
#include <loch/safetensors.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    char path[] = "/tmp/loch-install-XXXXXX";
    loch_safetensors *file;
    const int made = mkstemp(path);
    if (made < 0 || close(made) != 0) return 1;
    if (loch_safetensors_save(path, NULL, NULL, 0, NULL) != LOCH_OK) return 1;
    const loch_status status = loch_safetensors_open(path, NULL, &file);
    loch_safetensors_close(file);
    return unlink(path) != 0 || status != LOCH_OK;
}
