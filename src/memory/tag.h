/* SPDX-License-Identifier: MIT */
/* The number of tags, for loops over all of them. */
#ifndef LOCHI_TAG_H
#define LOCHI_TAG_H

#include <loch/tag.h>

/* Returns how many tags there are: they are 0 to that number less one. */
size_t lochi_tag_count(void);

#endif
