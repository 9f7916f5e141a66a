/* SPDX-License-Identifier: MIT */
/* Progress of long commands: one line on standard error that is drawn again and again, only on a terminal. */
#include "tool.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_AFTER_NS 1000000000u
#define PROGRESS_STEP_NS 50000000u /* between two drawings */
#define PROGRESS_WIDTH 40
#define PROGRESS_PARTS 1000

bool tool_progress_is_wanted(void)
{
    return isatty(STDERR_FILENO);
}

/* Decides whether to draw now. */
static bool progress_is_due(tool_progress *progress, bool is_end)
{
    const uint64_t now_ns = loch_host_now_ns();
    if (!progress->start_ns) progress->start_ns = now_ns;
    if (now_ns - progress->start_ns < PROGRESS_AFTER_NS || !tool_progress_is_wanted()) return false;
    if (!is_end && progress->is_drawn && now_ns - progress->drawn_ns < PROGRESS_STEP_NS) return false;
    progress->drawn_ns = now_ns;
    return true;
}

static void progress_draw(tool_progress *progress, size_t done, size_t total, bool is_part)
{
    char bar[PROGRESS_WIDTH + 1];
    const size_t filled = done < total ? done * PROGRESS_WIDTH / total : PROGRESS_WIDTH;
    memset(bar, '.', PROGRESS_WIDTH);
    memset(bar, '#', filled);
    bar[PROGRESS_WIDTH] = 0;
    if (is_part)
        fprintf(stderr, "\r%s [%s] %zu %%", progress->label, bar, 100 * done / total);
    else
        fprintf(stderr, "\r%s [%s] %zu/%zu", progress->label, bar, done, total);
    progress->is_drawn = true;
}

void tool_progress_show(tool_progress *progress, size_t done)
{
    if (progress->total && progress_is_due(progress, done >= progress->total))
        progress_draw(progress, done, progress->total, false);
}

loch_status tool_progress_part(double done, void *user)
{
    tool_progress *progress = user;
    if (progress_is_due(progress, false))
        progress_draw(progress, (size_t)((double)PROGRESS_PARTS * done), PROGRESS_PARTS, true);
    return LOCH_OK;
}

void tool_progress_end(tool_progress *progress)
{
    if (progress->is_drawn) fputs("\r\033[K", stderr);
    progress->is_drawn = false;
    progress->start_ns = 0;
}

/* --- steps of a benchmark --- */

static tool_progress steps;
static size_t steps_done;

void tool_steps_begin(const char *label, size_t total)
{
    steps = (tool_progress){.label = label, .total = total};
    steps_done = 0;
    (void)progress_is_due(&steps, false); /* the time starts now */
}

void tool_steps_next(void)
{
    steps_done++;
    if (!progress_is_due(&steps, true)) return;
    if (steps.total) {
        progress_draw(&steps, steps_done, steps.total, false);
    } else {
        fprintf(stderr, "\r%s: %zu measured", steps.label, steps_done);
        steps.is_drawn = true;
    }
}

void tool_steps_hide(void)
{
    if (steps.is_drawn) fputs("\r\033[K", stderr);
    steps.is_drawn = false;
}

void tool_steps_end(void)
{
    tool_progress_end(&steps);
}
