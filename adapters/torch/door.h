/* SPDX-License-Identifier: MIT */
/* The door of a PyTorch shim: one table of C functions. The Python extension loads the shim of the PyTorch that runs
 * (loch_torch_2_11.so and so on), looks up loch_torch_get_door, and calls everything else through the table.
 *
 * The table only grows at its end; a caller checks `size` before it uses a member. All functions come from any thread
 * and take no lock of Python. A function that can fail returns 0, or 1 after it wrote a sentence for people to `error`
 * (always ended by a zero, cut if longer than `error_bytes`). */
#ifndef LOCH_TORCH_DOOR_H
#define LOCH_TORCH_DOOR_H

#include <loch/planned.h>
#include <loch/sleep.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the memory of one tag sleeps. */
typedef struct loch_torch_sleep_part {
    const char *tag; /* tag of a region; "" for memory outside of regions */
    loch_sleep_contents contents;
    const char *directory; /* LOCH_SLEEP_FILE: folder for the files, which have no names; NULL for TMPDIR */
} loch_torch_sleep_part;

typedef struct loch_torch_door {
    size_t size;         /* sizeof(loch_torch_door) of the shim */
    const char *version; /* version of PyTorch that the shim was compiled for: "2.11" */

    /* Installs Loch as PyTorch's allocator for CUDA. To be called before PyTorch's first use of CUDA. `options` is text
     * of "name=value" pairs, separated by newlines; names left out have their defaults:
     *   device=cuda:%d   name of Loch's device for a number of PyTorch; default LOCH_TORCH_DEVICE or "cuda:%d"
     *   limit=40GiB      most bytes that each device's pool may hold; default LOCH_TORCH_LIMIT or none
     *   pinned=on|off    pinned host memory from Loch, too; default on
     *   sharing=on|off   memory that other processes can open (IPC); default on
     * A second call with the same options does nothing; with others it fails. */
    int (*install)(const char *options, char *error, size_t error_bytes);

    /* Returns whether PyTorch's allocator is Loch's. */
    int (*is_installed)(void);

    /* Returns the pool of device `number`; NULL if the device was not used yet. Borrowed; it lives until the process
     * ends. */
    loch_allocator *(*get_pool)(int number);

    /* Writes the figures of one device, or of all devices for -1, as one JSON object. `length` (may be NULL) receives
     * the length of the whole text. */
    int (*print_stats)(int number, char *text, size_t bytes, size_t *length, char *error, size_t error_bytes);

    /* Writes what the pools hold, for people. */
    int (*print_report)(char *text, size_t bytes, size_t *length, char *error, size_t error_bytes);

    /* Gives memory that the calling thread allocates a tag, until region_end. Regions nest. "" and NULL: memory outside
     * of regions. Private pools that are made meanwhile belong to the tag. A tag is not longer than 63 characters. */
    int (*region_begin)(const char *tag, char *error, size_t error_bytes);
    int (*region_end)(char *error, size_t error_bytes);

    /* Puts the memory of some tags to sleep: all of their pools on all devices, or none. `released` receives the bytes
     * given back. Fails if a tag is not known, sleeps already or is named twice. */
    int (*sleep)(const loch_torch_sleep_part *parts, size_t count, size_t *released, char *error, size_t error_bytes);

    /* Wakes the memory of some tags, all or nothing; NULL for all tags. Tags that are awake are left alone. Host memory
     * for the contents is kept for the next sleep if `keeps_host` is not 0; else a thread gives it back after the call,
     * for which the next sleep, wake and print_pools wait. `restored` receives the bytes of contents restored. */
    int (*wake)(const char *const *tags, size_t count, int keeps_host, size_t *restored, char *error,
                size_t error_bytes);

    /* Returns the tag of the block at `address`: "" for memory outside of regions, NULL for memory that is not Loch's.
     * Valid until the process ends. */
    const char *(*find_tag)(const void *address);

    /* Writes tags, and pools with their figures by device, as one JSON object:
     * {"tags": {"weights": false}, "host_bytes": {"0": 0}, "devices": {"0": [{"name": ..., "tag": ..., "id": [0, 0],
     * ...}]}}. The value of a tag says whether it sleeps; host_bytes is the pinned memory held for saved contents. */
    int (*print_pools)(char *text, size_t bytes, size_t *length, char *error, size_t error_bytes);

    /* Lets a planned pool serve device `number` (-1: the current one): allocations of all threads that go to no private
     * pool and no region. It serves until plan_end; blocks may be freed later. `options->threads` has no effect.
     * `served` receives the number of the device. Fails if a plan serves the device already. */
    int (*plan_begin)(int number, const loch_planned_options *options, int *served, char *error, size_t error_bytes);
    int (*plan_step)(int number, char *error, size_t error_bytes);   /* marks the start of a step */
    int (*plan_record)(int number, char *error, size_t error_bytes); /* records the following steps anew */
    int (*plan_info)(int number, loch_planned_info *out, char *error, size_t error_bytes);
    int (*plan_end)(int number, char *error, size_t error_bytes);

    /* Gives each block of 1 MiB and more of the innermost region of the calling thread a handle of its own
     * (LOCH_ALLOC_ONE_HANDLE), or ends that. */
    int (*region_set_one_handle)(int is_on, char *error, size_t error_bytes);
} loch_torch_door;

/* Returns the table. It lives until the process ends. */
LOCH_API const loch_torch_door *loch_torch_get_door(void);

#ifdef __cplusplus
}
#endif

#endif
