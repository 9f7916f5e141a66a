/* SPDX-License-Identifier: MIT */
/* The treap. The priority of a node is a hash of its key, computed when needed. Heap order by priority keeps the
 * tree balanced in expectation, as if the keys were inserted in random order. */
#include "base/tree.h"

/* Returns the priority: the key with its bits mixed (the last steps of a multiply-xorshift hash). */
static uint64_t tree_priority(const lochi_tree_node *node)
{
    uint64_t x = (uint64_t)node->key + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Splits a subtree into the keys below `key` and the rest. */
static void tree_split(lochi_tree_node *node, uintptr_t key, lochi_tree_node **below, lochi_tree_node **rest)
{
    while (node) {
        if (node->key < key) {
            *below = node;
            below = &node->right;
            node = node->right;
        } else {
            *rest = node;
            rest = &node->left;
            node = node->left;
        }
    }
    *below = NULL;
    *rest = NULL;
}

void lochi_tree_insert(lochi_tree *tree, lochi_tree_node *node)
{
    const uint64_t priority = tree_priority(node);
    lochi_tree_node **link = &tree->root;
    while (*link && tree_priority(*link) >= priority)
        link = node->key < (*link)->key ? &(*link)->left : &(*link)->right;
    lochi_tree_node *below, *rest;
    tree_split(*link, node->key, &below, &rest);
    node->left = below;
    node->right = rest;
    *link = node;
    tree->count++;
}

void lochi_tree_remove(lochi_tree *tree, lochi_tree_node *node)
{
    lochi_tree_node **link = &tree->root;
    while (*link != node)
        link = node->key < (*link)->key ? &(*link)->left : &(*link)->right;
    lochi_tree_node *left = node->left, *right = node->right;
    while (left && right) { /* join the two subtrees along their inner edges */
        if (tree_priority(left) >= tree_priority(right)) {
            *link = left;
            link = &left->right;
            left = left->right;
        } else {
            *link = right;
            link = &right->left;
            right = right->left;
        }
    }
    *link = left ? left : right;
    tree->count--;
}

lochi_tree_node *lochi_tree_at_or_below(const lochi_tree *tree, uintptr_t key)
{
    lochi_tree_node *best = NULL;
    for (lochi_tree_node *node = tree->root; node;) {
        if (node->key > key) {
            node = node->left;
        } else {
            best = node;
            node = node->right;
        }
    }
    return best;
}

lochi_tree_node *lochi_tree_at_or_above(const lochi_tree *tree, uintptr_t key)
{
    lochi_tree_node *best = NULL;
    for (lochi_tree_node *node = tree->root; node;) {
        if (node->key < key) {
            node = node->right;
        } else {
            best = node;
            node = node->left;
        }
    }
    return best;
}
