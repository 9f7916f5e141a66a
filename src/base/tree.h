/* SPDX-License-Identifier: MIT */
/* An ordered map from addresses to whatever a node is embedded in: a treap whose priorities are hashed from the keys, so
 * it needs no state, is deterministic, and is O(log n) unless an adversary chooses the addresses. Inserting and removing
 * cannot fail. Keys are unique. The caller locks. */
#ifndef LOCHI_TREE_H
#define LOCHI_TREE_H

#include <stddef.h>
#include <stdint.h>

typedef struct lochi_tree_node {
    uintptr_t key;
    struct lochi_tree_node *left, *right;
} lochi_tree_node;

typedef struct lochi_tree {
    lochi_tree_node *root;
    size_t count;
} lochi_tree;

/* The node must not be in a tree, nor its key. */
void lochi_tree_insert(lochi_tree *tree, lochi_tree_node *node);

/* The node must be in this tree. */
void lochi_tree_remove(lochi_tree *tree, lochi_tree_node *node);

/* The node with the greatest key <= `key`, or NULL. */
lochi_tree_node *lochi_tree_at_or_below(const lochi_tree *tree, uintptr_t key);

/* The node with the least key >= `key`, or NULL. */
lochi_tree_node *lochi_tree_at_or_above(const lochi_tree *tree, uintptr_t key);

/* From a node pointer to what it is embedded in. */
#define LOCHI_CONTAINER(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

#endif
