/* SPDX-License-Identifier: MIT */
/* A program outside the tree that reads a recording: prints the peak of the trace that is its argument. */
#include <loch/insight.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    loch_recording *recording;
    loch_recording_info info = {.size = sizeof info};
    LOCH_CHECK(loch_recording_load(count > 1 ? arguments[1] : "-", NULL, &recording));
    LOCH_CHECK(loch_recording_get_info(recording, &info));
    printf("%llu\n", (unsigned long long)info.peak_requested);
    loch_recording_destroy(recording);
    return 0;
}
