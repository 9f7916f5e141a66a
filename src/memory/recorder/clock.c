/* SPDX-License-Identifier: MIT */
/* Chooses the clock of a recording and measures the rate of the cycle counter (clock.h). */
#include "memory/recorder/clock.h"
#include "base/fail.h"
#include "device/driver.h"
#include <loch/sim.h>
#include <string.h>
#include <time.h>
#if defined __x86_64__
#include <cpuid.h>
#endif

#define CLOCK_TRIES 5
#define CLOCK_FIRST_NS 1000000u /* of measuring at the start: the rate is known to a ten-thousandth */

static uint64_t clock_raw_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t lochi_recorder_now_slow(void)
{
    const recorder_state *all = &lochi_recorder_all;
    uint64_t ns = 0;
    switch (all->source) {
    case RECORDER_SIM: return loch_sim_get_time(all->clock, &ns) == LOCH_OK ? ns : 0;
    case RECORDER_DEVICE: return lochi_device_now_ns(all->clock);
    case RECORDER_COUNTER:
    case RECORDER_HOST: break;
    }
    return clock_raw_ns();
}

/* Returns whether the cycle counter runs at one rate, in all states of all processors. */
static bool clock_has_counter(void)
{
#if defined __x86_64__
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && d & 1u << 8;
#elif defined __aarch64__
    return true;
#else
    return false;
#endif
}

/* Reads both clocks at one moment: of a few tries, the one that took least. */
static void clock_read(uint64_t *ticks, uint64_t *ns)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < CLOCK_TRIES; i++) {
        const uint64_t before = recorder_now_after(), raw = clock_raw_ns(), after = recorder_now_after();
        if (after - before >= least) continue;
        least = after - before;
        *ticks = before + least / 2;
        *ns = raw;
    }
}

void lochi_recorder_clock_mark(void)
{
    recorder_header *header = lochi_recorder_all.header;
    if (lochi_recorder_all.source != RECORDER_COUNTER) return;
    struct {
        uint64_t ticks, ns;
    } now = {0, 0};
    clock_read(&now.ticks, &now.ns);
    now.ns -= lochi_recorder_all.raw_ns;
    if (now.ticks <= header->ticks1 || now.ns <= header->ns1) return;
    memcpy(&header->ticks1, &now, sizeof now); /* one store: a process that dies leaves a pair of one moment */
}

void lochi_recorder_clock_open(loch_device *device)
{
    recorder_state *all = &lochi_recorder_all;
    recorder_header *header = all->header;
    uint64_t ns = 0;
    all->clock = device;
    const loch_error saved = lochi_error_save();
    all->source = !device                                     ? clock_has_counter() ? RECORDER_COUNTER : RECORDER_HOST
                  : loch_sim_get_time(device, &ns) == LOCH_OK ? RECORDER_SIM
                                                              : RECORDER_DEVICE;
    lochi_error_restore(&saved);
    header->ns0 = header->ns1 = 0;
    if (all->source != RECORDER_COUNTER) {
        header->ticks0 = header->ticks1 = lochi_recorder_now_slow();
        return;
    }
    clock_read(&header->ticks0, &all->raw_ns);
    header->ticks1 = header->ticks0;
    while (clock_raw_ns() - all->raw_ns < CLOCK_FIRST_NS)
        lochi_hint_pause();
    lochi_recorder_clock_mark();
}
