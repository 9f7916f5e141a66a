/* SPDX-License-Identifier: MIT */
/* The number of tags, for loops over all of them. */
#ifndef LOCHI_TAG_H
#define LOCHI_TAG_H

#include "base/shared.h"
#include <loch/tag.h>

/* Returns the number of tags. Tags are 0 to that number minus 1. */
LOCHI_SHARED size_t lochi_tag_count(void);

#endif
