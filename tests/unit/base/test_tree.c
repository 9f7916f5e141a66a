/* SPDX-License-Identifier: MIT */
/* The ordered map, held against a plain array, and its depth on the regular addresses that devices hand out. */
#include "base/tree.h"
#include "test.h"

#define COUNT 500

typedef struct item {
    int number;
    lochi_tree_node node;
    bool is_in;
} item;

static void an_empty_tree_finds_nothing(void **state)
{
    (void)state;
    lochi_tree tree = {0};
    assert_null(lochi_tree_at_or_below(&tree, 0));
    assert_null(lochi_tree_at_or_below(&tree, UINTPTR_MAX));
    assert_null(lochi_tree_at_or_above(&tree, 0));
}

static void the_ends_of_the_address_space_are_found(void **state)
{
    (void)state;
    lochi_tree tree = {0};
    item low = {.number = 1, .node.key = 0}, high = {.number = 2, .node.key = UINTPTR_MAX};
    lochi_tree_insert(&tree, &low.node);
    lochi_tree_insert(&tree, &high.node);
    assert_int_equal(tree.count, 2);
    assert_ptr_equal(lochi_tree_at_or_below(&tree, 0), &low.node);
    assert_ptr_equal(lochi_tree_at_or_below(&tree, UINTPTR_MAX - 1), &low.node);
    assert_ptr_equal(lochi_tree_at_or_above(&tree, 1), &high.node);
    assert_ptr_equal(lochi_tree_at_or_above(&tree, UINTPTR_MAX), &high.node);
    assert_ptr_equal(LOCHI_CONTAINER(lochi_tree_at_or_above(&tree, 5), item, node), &high);
    lochi_tree_remove(&tree, &low.node);
    assert_null(lochi_tree_at_or_below(&tree, 7));
    lochi_tree_remove(&tree, &high.node);
    assert_int_equal(tree.count, 0);
    assert_null(tree.root);
}

static void check_against(const lochi_tree *tree, const item *items, uintptr_t key)
{
    const item *below = NULL, *above = NULL;
    for (size_t i = 0; i < COUNT; i++) {
        if (!items[i].is_in) continue;
        uintptr_t at = items[i].node.key;
        if (at <= key && (!below || at > below->node.key)) below = &items[i];
        if (at >= key && (!above || at < above->node.key)) above = &items[i];
    }
    assert_ptr_equal(lochi_tree_at_or_below(tree, key), below ? &below->node : NULL);
    assert_ptr_equal(lochi_tree_at_or_above(tree, key), above ? &above->node : NULL);
}

static void random_changes_agree_with_a_plain_array(void **state)
{
    (void)state;
    static item items[COUNT];
    lochi_tree tree = {0};
    test_random random = {test_seed(42)};
    size_t in = 0;
    for (size_t i = 0; i < COUNT; i++)
        items[i] = (item){.number = (int)i, .node.key = 64 * i};
    for (int round = 0; round < 20000; round++) {
        item *one = &items[test_random_below(&random, COUNT)];
        if (one->is_in)
            lochi_tree_remove(&tree, &one->node);
        else
            lochi_tree_insert(&tree, &one->node);
        one->is_in = !one->is_in;
        in += one->is_in ? 1u : (size_t)-1;
        assert_int_equal(tree.count, in);
        if (round % 8 == 0) check_against(&tree, items, test_random_below(&random, 64 * COUNT + 100));
    }
    for (size_t i = 0; i < COUNT; i++)
        if (items[i].is_in) lochi_tree_remove(&tree, &items[i].node);
    assert_null(tree.root);
}

static size_t depth(const lochi_tree_node *node)
{
    if (!node) return 0;
    size_t left = depth(node->left), right = depth(node->right);
    return 1 + (left > right ? left : right);
}

static size_t count_in_order(const lochi_tree_node *node, uintptr_t from, uintptr_t to)
{
    if (!node) return 0;
    assert_true(node->key >= from && node->key <= to);
    return 1 + (node->key ? count_in_order(node->left, from, node->key - 1) : 0) +
           count_in_order(node->right, node->key + 1, to);
}

static void regular_addresses_stay_shallow(void **state)
{
    (void)state;
    enum { MANY = 1 << 14 };
    const size_t steps[] = {16, 4096, 2 * TEST_MIB, TEST_GIB};
    lochi_tree_node *nodes = calloc(MANY, sizeof *nodes);
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        lochi_tree tree = {0};
        for (size_t i = 0; i < MANY; i++) {
            nodes[i].key = 0x7f0000000000u + i * steps[s];
            lochi_tree_insert(&tree, &nodes[i]);
        }
        assert_int_equal(tree.count, MANY);
        assert_int_equal(count_in_order(tree.root, 0, UINTPTR_MAX), MANY);
        assert_true(depth(tree.root) <= 4 * 14);
    }
    free(nodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_tree_finds_nothing),
        cmocka_unit_test(the_ends_of_the_address_space_are_found),
        cmocka_unit_test(random_changes_agree_with_a_plain_array),
        cmocka_unit_test(regular_addresses_stay_shallow),
    };
    return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}
