/* SPDX-License-Identifier: MIT */
/* Random numbers of a simulated fleet. A seed and the number of a sequence name a sequence of numbers: each use
 * (arrivals, programs, the failures of each device) has a sequence of its own, so that a fleet with one more device has
 * the same arrivals. */
#ifndef LOCH_TOOL_FLEET_RANDOM_H
#define LOCH_TOOL_FLEET_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct fleet_random {
    uint64_t state;
} fleet_random;

/* Starts a sequence. */
fleet_random fleet_random_start(uint64_t seed, uint64_t sequence);

/* Draws 64 random bits. */
uint64_t fleet_random_draw(fleet_random *random);

/* Draws a number above 0 and up to 1, all of them equally likely. */
double fleet_random_part(fleet_random *random);

/* Draws a duration. The durations are exponential: events that come independently of each other have such gaps. */
double fleet_random_exponential(fleet_random *random, double mean);

/* Draws a duration with a heavy tail (Lomax, the shifted Pareto distribution). `shape` is above 1; the nearer to 1, the
 * more the durations differ. The variance is infinite from 2 downwards. */
double fleet_random_heavy(fleet_random *random, double mean, double shape);

/* Draws an index below `count`. `sums[i]` is the sum of the weights up to and including that of `i`. */
size_t fleet_random_pick(fleet_random *random, const double *sums, size_t count);

#endif
