/* SPDX-License-Identifier: MIT */
/* A program outside the tree: compiled against the installed headers, it runs with the installed library. */
#include <loch/loch.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    if (strcmp(loch_version(), LOCH_VERSION_STRING) != 0) {
        fprintf(stderr, "compiled against %s, running with %s\n", LOCH_VERSION_STRING, loch_version());
        return 1;
    }
    loch_device *device = NULL;
    if (loch_device_open("cpu", &device) != LOCH_OK) {
        fprintf(stderr, "%s\n", loch_error_get()->sentence);
        return 1;
    }
    printf("%s %s\n", loch_version(), loch_device_get_name(device));
    loch_device_release(device);
    return 0;
}
