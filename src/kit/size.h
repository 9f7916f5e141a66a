/* SPDX-License-Identifier: MIT */
/* Sizes and times for people. No text depends on the locale. */
#ifndef LOCHI_SIZE_H
#define LOCHI_SIZE_H

#include <stdint.h>

typedef struct lochi_size {
    char text[16];
} lochi_size;

/* The text of a number of bytes for a sentence, rounded down: "64 MiB", "1.5 GiB", "700 B". */
lochi_size lochi_size_of(uint64_t bytes);
#define LOCHI_SIZE(bytes) (lochi_size_of(bytes).text) /* valid until the end of the full expression */

/* The text for a table, rounded to 1 or 2 decimals above bytes: "64.00 MiB", "1.50 GiB", "700 B". */
lochi_size lochi_size_round(uint64_t bytes, unsigned decimals);
#define LOCHI_SIZE_ROUND(bytes, decimals) (lochi_size_round((bytes), (decimals)).text) /* valid as long */

/* The text of a time, rounded down: "1.250 s", "12.000 ms", "3.141 us", "700 ns". */
typedef struct lochi_time {
    char text[32];
} lochi_time;
lochi_time lochi_time_of(uint64_t ns);
#define LOCHI_TIME(ns) (lochi_time_of(ns).text) /* valid as long */

#endif
