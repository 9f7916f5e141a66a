/* SPDX-License-Identifier: MIT */
/* Files that recordings are saved to: what becomes of the old file, its links and its permissions, also when a program
 * compresses the new one. */
#include "recordings.h"
#include "replaced.h"

static loch_status save(const char *path, void *user)
{
    return loch_recording_save(user, path, NULL);
}

static void a_recording_replaces_a_file_as_a_whole(void **state)
{
    (void)state;
    loch_recording *recording = recordings_from_text("a 1 64 0 0\nf 1 0 5\n");
    test_replaces_files(save, recording, "a.trace");
    test_replaces_files(save, recording, "a.trace.gz");
    loch_recording_destroy(recording);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_recording_replaces_a_file_as_a_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
