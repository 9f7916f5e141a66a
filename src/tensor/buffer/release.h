/* SPDX-License-Identifier: MIT */
/* Wholes that wait for work. */
#ifndef LOCHI_BUFFER_RELEASE_H
#define LOCHI_BUFFER_RELEASE_H

#include "tensor/buffer/state.h"

/* Gives back what waited and need not wait any longer. One load when nothing waits. */
void lochi_buffer_sweep(void);

#endif
