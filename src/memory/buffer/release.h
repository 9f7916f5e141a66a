/* SPDX-License-Identifier: MIT */
/* Wholes that wait for work (release.c). */
#ifndef LOCHI_BUFFER_RELEASE_H
#define LOCHI_BUFFER_RELEASE_H

#include "memory/buffer/state.h"

/* Destroys waiting wholes whose uses have passed. Costs one load if none waits. */
void lochi_buffer_sweep(void);

#endif
