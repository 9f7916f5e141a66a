/* SPDX-License-Identifier: MIT */
/* Random numbers by SplitMix64: a counter and a mixing function. */
#include "fleet_random.h"
#include <math.h>

#define RANDOM_STEP UINT64_C(0x9e3779b97f4a7c15) /* odd, so that the counter visits all numbers */

static uint64_t random_mix(uint64_t bits)
{
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return bits ^ bits >> 31;
}

fleet_random fleet_random_start(uint64_t seed, uint64_t sequence)
{
    return (fleet_random){random_mix(random_mix(seed + RANDOM_STEP) + sequence * RANDOM_STEP)};
}

uint64_t fleet_random_draw(fleet_random *random)
{
    random->state += RANDOM_STEP;
    return random_mix(random->state);
}

double fleet_random_part(fleet_random *random)
{
    return (double)((fleet_random_draw(random) >> 11) + 1) * 0x1p-53;
}

double fleet_random_exponential(fleet_random *random, double mean)
{
    return -mean * log(fleet_random_part(random));
}

double fleet_random_heavy(fleet_random *random, double mean, double shape)
{
    return mean * (shape - 1) * (pow(fleet_random_part(random), -1 / shape) - 1);
}

size_t fleet_random_pick(fleet_random *random, const double *sums, size_t count)
{
    const double at = fleet_random_part(random) * sums[count - 1];
    size_t first = 0, last = count - 1;
    while (first < last) {
        const size_t middle = (first + last) / 2;
        if (at <= sums[middle])
            last = middle;
        else
            first = middle + 1;
    }
    return first;
}
