/* SPDX-License-Identifier: MIT */
/* Prints a timeline as a tree: all spans with one name inside one span are one line. Nodes are found by parent and name
 * in a hash table of indices. Children are linked in the order in which they first began. If host memory runs out, the
 * spans without a node are counted, and the text says that they are missing. */
#include "engine/timeline/tree.h"
#include "base/checked.h"
#include "base/heap.h"
#include "engine/timeline/line.h"
#include "engine/timeline/walk.h"
#include <string.h>

#define TREE_NONE UINT32_MAX
#define TREE_NAME_MOST 60 /* columns */
#define TREE_NAME_LEAST 8

typedef struct tree_node {
    const char *name; /* of its first span */
    uint32_t parent, first_child, last_child, sibling;
    unsigned thread, depth; /* a root stands for a thread and has depth 0 */
    uint64_t count;         /* spans */
    uint64_t open;          /* open spans among them */
    uint64_t on_device;     /* spans with device times among them */
    uint64_t ns, bytes;
    double flops;
    int64_t used;
    bool has_memory;
} tree_node;

typedef struct tree {
    tree_node *nodes;
    uint32_t count, capacity;
    uint32_t *table; /* index + 1 of a node; the size is a power of two, at most half full */
    uint32_t table_size;
    uint32_t *path; /* nodes of the current span and the spans around it; [0]: the thread */
    size_t path_capacity;
    uint64_t missing;
} tree;

/* --- nodes --- */

static uint64_t tree_hash(uint32_t parent, const char *name)
{
    uint64_t hash = 14695981039346656037u ^ parent;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return hash ^ (hash >> 32);
}

static bool tree_grow(tree *t)
{
    if (t->count < t->capacity) return true;
    if (t->capacity >= TREE_NONE / 8) return false;
    const uint32_t capacity = t->capacity ? t->capacity * 2 : 64;
    tree_node *nodes = lochi_realloc(t->nodes, capacity * sizeof *nodes);
    if (!nodes) return false;
    t->nodes = nodes;
    uint32_t *table = lochi_zalloc((size_t)capacity * 2 * sizeof *table);
    if (!table) return false;
    lochi_free(t->table);
    t->table = table;
    t->table_size = capacity * 2;
    t->capacity = capacity;
    for (uint32_t i = 0; i < t->count; i++) {
        if (nodes[i].parent == TREE_NONE) continue; /* threads are not looked up by name */
        uint64_t at = tree_hash(nodes[i].parent, nodes[i].name);
        while (table[at & (t->table_size - 1)])
            at++;
        table[at & (t->table_size - 1)] = i + 1;
    }
    return true;
}

static uint32_t tree_add(tree *t, uint32_t parent, const char *name)
{
    const uint32_t index = t->count++;
    t->nodes[index] = (tree_node){
        .name = name, .parent = parent, .first_child = TREE_NONE, .last_child = TREE_NONE, .sibling = TREE_NONE};
    if (parent == TREE_NONE) return index;
    tree_node *above = &t->nodes[parent];
    t->nodes[index].depth = above->depth + 1;
    if (above->last_child == TREE_NONE)
        above->first_child = index;
    else
        t->nodes[above->last_child].sibling = index;
    above->last_child = index;
    return index;
}

static uint32_t tree_get(tree *t, uint32_t parent, const char *name)
{
    if (parent == TREE_NONE || !tree_grow(t)) return TREE_NONE;
    uint64_t at = tree_hash(parent, name);
    for (uint32_t found; (found = t->table[at & (t->table_size - 1)]); at++)
        if (t->nodes[found - 1].parent == parent && !strcmp(t->nodes[found - 1].name, name)) return found - 1;
    const uint32_t index = tree_add(t, parent, name);
    t->table[at & (t->table_size - 1)] = index + 1;
    return index;
}

/* --- building --- */

static bool tree_set_path(tree *t, size_t place, uint32_t node)
{
    if (place >= t->path_capacity) {
        const size_t capacity = place < 32 ? 64 : place * 2;
        uint32_t *path = lochi_realloc(t->path, capacity * sizeof *path);
        if (!path) return false;
        t->path = path;
        t->path_capacity = capacity;
    }
    t->path[place] = node;
    return true;
}

static void node_add(tree_node *node, const timeline_view *view)
{
    node->count++;
    node->open += view->is_open;
    node->on_device += view->has_device;
    node->ns += view->length_ns;
    node->flops += view->record.flops;
    node->bytes += view->record.bytes;
    node->used += (int64_t)(view->record.used_end - view->record.used_begin);
    node->has_memory |= view->memory != NULL;
}

/* Adds the root of a thread. Spans arrive thread by thread. */
static bool tree_enter_thread(tree *t, uint32_t *root, unsigned thread)
{
    if (*root != TREE_NONE && t->nodes[*root].thread == thread) return true;
    if (!tree_grow(t) || !tree_set_path(t, 0, TREE_NONE)) return false;
    const uint32_t index = tree_add(t, TREE_NONE, "");
    t->nodes[index].thread = thread;
    if (*root != TREE_NONE) t->nodes[*root].sibling = index;
    t->path[0] = index;
    *root = index;
    return true;
}

static void tree_build(tree *t, loch_timeline *timeline)
{
    uint32_t root = TREE_NONE;
    size_t known = 0; /* entries of the path that are set */
    timeline_cursor cursor = lochi_timeline_cursor(timeline);
    for (timeline_view view; lochi_timeline_next(&cursor, &view);) {
        const size_t place = (size_t)view.record.depth + 1;
        const uint32_t before = root;
        uint32_t node = TREE_NONE;
        if (tree_enter_thread(t, &root, view.record.thread)) {
            if (root != before) known = 1;
            if (place <= known) node = tree_get(t, t->path[place - 1], view.record.name);
        }
        if (node != TREE_NONE && tree_set_path(t, place, node)) {
            known = place + 1;
            node_add(&t->nodes[node], &view);
            if (place == 1) t->nodes[root].ns += view.length_ns;
        } else {
            if (known > place) known = place;
            t->missing++;
        }
    }
}

/* --- lines --- */

static void put_memory(lochi_text *out, int64_t bytes)
{
    const uint64_t size = bytes < 0 ? -(uint64_t)bytes : (uint64_t)bytes;
    lochi_text_write(out, "  %c%s", bytes < 0 ? '-' : '+', LOCHI_SIZE_ROUND(size, 2));
}

static void put_share(lochi_text *out, uint64_t ns, uint64_t of_ns)
{
    if (!of_ns) {
        lochi_text_write(out, "%10s", "-");
        return;
    }
    const double tenths = (double)ns / (double)of_ns * 1000 + 0.5;
    const uint64_t share = tenths < 1e9 ? (uint64_t)tenths : 1000000000;
    lochi_text_write(out, "%7llu.%u%%", (unsigned long long)(share / 10), (unsigned)(share % 10));
}

static void tree_line(const tree *t, const tree_node *node, size_t columns, lochi_text *out)
{
    const char *where = !node->on_device ? "host" : node->on_device == node->count ? "device" : "both";
    lochi_timeline_put_name(out, node->name, node->depth, columns);
    lochi_text_write(out, " %9llu ", (unsigned long long)node->count);
    lochi_timeline_put_time(out, node->ns);
    lochi_text_write(out, "  %-6s", where);
    put_share(out, node->ns, t->nodes[node->parent].ns);
    if (node->ns && node->flops > 0) {
        lochi_text_write(out, "  ");
        lochi_timeline_put_fixed(out, node->flops / (double)node->ns);
        lochi_text_write(out, " GFLOP/s");
    }
    if (node->ns && node->bytes) {
        lochi_text_write(out, "  ");
        lochi_timeline_put_fixed(out, (double)node->bytes / (double)node->ns);
        lochi_text_write(out, " GB/s");
    }
    if (node->has_memory) put_memory(out, node->used);
    if (node->open) lochi_text_write(out, "  %llu open", (unsigned long long)node->open);
    lochi_text_write(out, "\n");
}

/* Returns the node after `index`, from top to bottom. */
static uint32_t tree_following(const tree *t, uint32_t index)
{
    if (t->nodes[index].first_child != TREE_NONE) return t->nodes[index].first_child;
    while (index != TREE_NONE && t->nodes[index].sibling == TREE_NONE)
        index = t->nodes[index].parent;
    return index == TREE_NONE ? TREE_NONE : t->nodes[index].sibling;
}

static size_t tree_columns(const tree *t)
{
    size_t most = TREE_NAME_LEAST;
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->nodes[i].parent == TREE_NONE) continue;
        const size_t columns = lochi_timeline_name_columns(t->nodes[i].name, t->nodes[i].depth);
        if (columns > most) most = columns;
    }
    return most < TREE_NAME_MOST ? most : TREE_NAME_MOST;
}

void lochi_timeline_print_tree(loch_timeline *timeline, lochi_text *out)
{
    tree t = {0};
    tree_build(&t, timeline);
    const size_t columns = tree_columns(&t);
    if (t.count) {
        lochi_timeline_put_name(out, "span", 0, columns);
        lochi_text_write(out, " %9s %13s  %-6s%10s\n", "count", "time", "on", "share");
    } else if (!t.missing) {
        lochi_text_write(out, "no spans\n");
    }
    for (uint32_t i = t.count ? 0 : TREE_NONE; i != TREE_NONE; i = tree_following(&t, i)) {
        if (t.nodes[i].parent == TREE_NONE)
            lochi_text_write(out, "thread %u\n", t.nodes[i].thread);
        else
            tree_line(&t, &t.nodes[i], columns, out);
    }
    if (t.missing)
        lochi_text_write(out, "%llu spans are not shown: no host memory for the tree\n", (unsigned long long)t.missing);
    lochi_timeline_put_lost(timeline, out);
    lochi_free(t.nodes);
    lochi_free(t.table);
    lochi_free(t.path);
}
