/* SPDX-License-Identifier: MIT */
/* A mix: the programs that a fleet runs, and how often each of them is asked for.
 *
 *   # one program a line; a # starts a comment
 *   serve.trace.gz   weight=8 compute=20%
 *   "my train.trace" weight=1 limit=30GiB name=train
 *
 * Names of files are relative to the folder of the mix. */
#ifndef LOCH_TOOL_FLEET_MIX_H
#define LOCH_TOOL_FLEET_MIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLEET_PROGRAMS_MAX 64
#define FLEET_NAME_MAX 64
#define FLEET_PATH_MAX 4096
#define FLEET_MIX_BYTES_MAX ((size_t)1 << 20)

typedef struct fleet_entry {
    char path[FLEET_PATH_MAX];
    char name[FLEET_NAME_MAX]; /* unique in the mix */
    double weight;             /* above 0 */
    uint64_t limit_bytes;      /* most that it holds when it shares a device; 0: as it was measured */
    uint64_t compute;          /* thousandths of a device's compute that it needs; 0: not counted */
} fleet_entry;

typedef struct fleet_mix {
    fleet_entry *entries;
    size_t count;
    char error[512]; /* one sentence after a failure, with file and line */
} fleet_mix;

/* Reads a mix from a file. Returns false with a sentence in `error`. Call fleet_mix_free in either case. */
bool fleet_mix_load(fleet_mix *mix, const char *path);

/* Reads a mix from memory. `path` is the name in errors, and names the folder of its files. Entries are appended. */
bool fleet_mix_parse(fleet_mix *mix, const char *text, size_t bytes, const char *path);

/* Appends a program: "TRACE" or "TRACE:WEIGHT". */
bool fleet_mix_add(fleet_mix *mix, const char *program);

void fleet_mix_free(fleet_mix *mix);

/* Parses a positive number such as "2.5", up to `most`. */
bool fleet_parse_real(const char *text, double least, double most, double *out);

/* Parses bytes with an optional unit: "512", "30GiB". */
bool fleet_parse_bytes(const char *text, uint64_t *out);

#endif
