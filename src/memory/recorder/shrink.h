/* SPDX-License-Identifier: MIT */
/* Cutting a complete file to what it uses (shrink.c). */
#ifndef LOCHI_RECORDER_SHRINK_H
#define LOCHI_RECORDER_SHRINK_H

/* Cuts the file of a recording that has ended. No thread writes, and no chunk is mapped. Returns 0 or errno. */
int lochi_recorder_shrink(void);

#endif
