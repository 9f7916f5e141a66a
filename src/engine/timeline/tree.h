/* SPDX-License-Identifier: MIT */
/* A timeline as a tree (tree.c). */
#ifndef LOCHI_TIMELINE_TREE_H
#define LOCHI_TIMELINE_TREE_H

#include "kit/text.h"
#include "engine/timeline/state.h"

/* Prints a timeline as a tree. Call it inside a walk. */
void lochi_timeline_print_tree(loch_timeline *timeline, lochi_text *out);

#endif
