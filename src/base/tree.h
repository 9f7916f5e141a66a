/* SPDX-License-Identifier: MIT */
/* An ordered map from addresses to the structs that embed its nodes. It is a treap whose priorities are hashes of
 * the keys: it needs no state, is deterministic, and takes O(log n) steps unless an adversary chooses the addresses.
 * Inserting and removing cannot fail. Keys are unique. The caller locks. */
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

/* Inserts a node. Neither the node nor its key may be in a tree. */
void lochi_tree_insert(lochi_tree *tree, lochi_tree_node *node);

/* Removes a node, which must be in this tree. */
void lochi_tree_remove(lochi_tree *tree, lochi_tree_node *node);

/* Returns the node with the greatest key <= `key`; NULL if there is no such node. */
lochi_tree_node *lochi_tree_at_or_below(const lochi_tree *tree, uintptr_t key);

/* Returns the node with the least key >= `key`; NULL if there is no such node. */
lochi_tree_node *lochi_tree_at_or_above(const lochi_tree *tree, uintptr_t key);

/* Converts a pointer to a node into a pointer to the struct that embeds it. */
#define LOCHI_CONTAINER(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

#endif
