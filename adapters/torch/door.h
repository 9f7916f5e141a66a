/* SPDX-License-Identifier: MIT */
/* The door of a PyTorch shim: one table of C functions. The Python extension loads the shim of the PyTorch that runs
 * (loch_torch_2_11.so and so on), looks up loch_torch_get_door, and calls everything else through the table.
 *
 * The table only grows at its end; a caller checks `size` before it uses a member. All functions come from any thread
 * and take no lock of Python. A function that can fail returns 0, or 1 after it wrote a sentence for people to `error`
 * (always ended by a zero, cut if longer than `error_bytes`). */
#ifndef LOCH_TORCH_DOOR_H
#define LOCH_TORCH_DOOR_H

#include <loch/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

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

    /* Lets the calling thread allocate from the pool of `tag` until region_end. Regions nest. `options` may be NULL. */
    int (*region_begin)(const char *tag, const char *options, char *error, size_t error_bytes);
    int (*region_end)(char *error, size_t error_bytes);

    /* Puts the pools of `tags` (separated by commas; NULL for all) to sleep, or wakes them. */
    int (*sleep)(const char *tags, const char *options, char *error, size_t error_bytes);
    int (*wake)(const char *tags, const char *options, char *error, size_t error_bytes);
} loch_torch_door;

/* Returns the table. It lives until the process ends. */
LOCH_API const loch_torch_door *loch_torch_get_door(void);

#ifdef __cplusplus
}
#endif

#endif
