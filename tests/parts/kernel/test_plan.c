/* SPDX-License-Identifier: MIT */
/* Plans of Loch's own kernels, and the kernels themselves, run on the host: random layouts, types and addresses,
 * against one element after the other. The bytes around every target stay as they were. */
#include "emulated.h"
#include "plan.h"
#include "support/test.h"

#define ARENA ((size_t)1 << 20)
#define ELEMENTS_MAX 20000

typedef struct layout {
    size_t bytes, reach, start; /* all bytes from the lowest to the end; start: of the element with all indices 0 */
    ptrdiff_t strides[LOCH_DIMENSIONS_MAX];
} layout;

static test_random randomness;
static unsigned char *to_arena, *from_arena, *expected;
static size_t launches[LOCHI_PLAN_SCATTER + 1];

static uint64_t below(uint64_t limit)
{
    return test_random_below(&randomness, limit);
}

/* Chooses strides: axes in a random order, with gaps, some backwards, for a source some 0. */
static layout choose(const size_t *sizes, size_t axes, size_t element_bytes, bool is_source)
{
    size_t order[LOCH_DIMENSIONS_MAX];
    layout it = {.bytes = element_bytes};
    for (size_t i = 0; i < axes; i++)
        order[i] = axes - 1 - i;
    if (below(3))
        for (size_t i = axes; i > 1; i--) {
            const size_t other = below(i), kept = order[i - 1];
            order[i - 1] = order[other];
            order[other] = kept;
        }
    size_t next = element_bytes;
    if (!below(6)) next *= 1 + below(4);
    for (size_t i = 0; i < axes; i++) {
        const size_t axis = order[i];
        it.strides[axis] = (ptrdiff_t)next;
        if (is_source && !below(10)) {
            it.strides[axis] = 0;
            continue;
        }
        if (!below(8)) {
            it.start += (sizes[axis] - 1) * next;
            it.strides[axis] = -it.strides[axis];
        }
        next *= sizes[axis];
        if (!below(4)) next += element_bytes * (1 + below(9));
        if (!below(4)) next = (next + 15) / 16 * 16;
    }
    it.reach = next;
    return it;
}

/* Brings the target's strides into the order that loch_strided has: not negative, falling. */
static void order_axes(loch_strided *work)
{
    char *to = work->to;
    const char *from = work->from;
    for (size_t i = 0; i < work->axes; i++)
        if (work->to_strides[i] < 0) {
            to += (ptrdiff_t)(work->sizes[i] - 1) * work->to_strides[i];
            if (from) from += (ptrdiff_t)(work->sizes[i] - 1) * work->from_strides[i];
            work->to_strides[i] = -work->to_strides[i];
            work->from_strides[i] = -work->from_strides[i];
        }
    work->to = to;
    work->from = from;
    for (size_t i = 1; i < work->axes; i++)
        for (size_t j = i; j > 0 && work->to_strides[j - 1] < work->to_strides[j]; j--) {
            const size_t size = work->sizes[j];
            const ptrdiff_t a = work->to_strides[j], b = work->from_strides[j];
            work->sizes[j] = work->sizes[j - 1];
            work->to_strides[j] = work->to_strides[j - 1];
            work->from_strides[j] = work->from_strides[j - 1];
            work->sizes[j - 1] = size;
            work->to_strides[j - 1] = a;
            work->from_strides[j - 1] = b;
        }
}

/* Does the work element by element, on a copy of the target's arena. */
static void do_naively(const loch_strided *work)
{
    size_t at[LOCH_DIMENSIONS_MAX] = {0};
    const size_t to_bytes = loch_dtype_bytes(work->to_type);
    const loch_convert_options options = {.size = sizeof options, .overflow = work->overflow};
    for (;;) {
        ptrdiff_t to = (char *)work->to - (char *)to_arena, from = 0;
        for (size_t i = 0; i < work->axes; i++) {
            to += (ptrdiff_t)at[i] * work->to_strides[i];
            from += (ptrdiff_t)at[i] * work->from_strides[i];
        }
        const char *source = work->from ? (const char *)work->from + from : NULL;
        if (!work->from)
            memcpy(expected + to, work->element, to_bytes);
        else if (work->to_type == work->from_type)
            memcpy(expected + to, source, to_bytes);
        else
            CHECK_OK(loch_convert(work->to_type, expected + to, work->from_type, source, 1, &options));
        size_t axis = work->axes;
        while (axis-- > 0) {
            if (++at[axis] < work->sizes[axis]) break;
            at[axis] = 0;
        }
        if (axis == SIZE_MAX) return;
    }
}

/* Plans and runs the work. Returns false if there is no kernel for it. */
static bool do_by_kernels(const loch_strided *work)
{
    size_t done = 0;
    lochi_plan plan;
    do {
        char name[32];
        memset(&plan, 0xa5, sizeof plan);
        if (!lochi_kernel_plan_make(work, &done, &plan)) return false;
        lochi_kernel_plan_name(&plan, 0, name);
        launches[plan.kind]++;
        if (!emulated_run(name, (emulated_marks){plan.from, plan.to, plan.from_bytes, plan.to_bytes}, plan.blocks,
                          &plan.job))
            fail_msg("there is no kernel %s", name);
    } while (!plan.is_last);
    return true;
}

static void expect_equal(const loch_strided *work, size_t round)
{
    if (!memcmp(to_arena, expected, ARENA)) return;
    size_t at = 0;
    while (to_arena[at] == expected[at])
        at++;
    fprintf(stderr, "round %zu, %s to %s, target %p, source %p, differs at byte %td of the target\n", round,
            loch_dtype_name(work->from_type), loch_dtype_name(work->to_type), work->to, work->from,
            (char *)to_arena + at - (char *)work->to);
    for (size_t i = 0; i < work->axes; i++)
        fprintf(stderr, "    %zu: %td %td\n", work->sizes[i], work->to_strides[i], work->from_strides[i]);
    fail_msg("%02x instead of %02x", to_arena[at], expected[at]);
}

static loch_dtype any_type(void)
{
    return (loch_dtype)(1 + below(LOCH_DTYPE_COUNT - 1));
}

static void choose_work(loch_strided *work, bool is_fill)
{
    for (;;) {
        *work = (loch_strided){.size = sizeof *work, .axes = 1 + below(5), .overflow = (loch_overflow)below(2)};
        work->to_type = any_type();
        work->from_type = is_fill || !below(3) ? work->to_type : any_type();
        size_t count = 1;
        for (size_t i = 0; i < work->axes; i++)
            count *= work->sizes[i] = 1 + below(below(4) ? 12 : 200);
        if (count > ELEMENTS_MAX) continue;
        const size_t to_bytes = loch_dtype_bytes(work->to_type), from_bytes = loch_dtype_bytes(work->from_type);
        const layout to = choose(work->sizes, work->axes, to_bytes, false);
        const layout from = choose(work->sizes, work->axes, from_bytes, true);
        if (to.reach + 64 > ARENA || from.reach + 64 > ARENA) continue;
        /* elements of equal types may lie at any address */
        const size_t odd = work->to_type == work->from_type && !below(4) ? 1 : 0;
        work->to = to_arena + to.start + below(4) * (odd ? 1 : to_bytes);
        work->from = is_fill ? NULL : from_arena + from.start + below(4) * (odd ? 1 : from_bytes);
        memcpy(work->to_strides, to.strides, sizeof to.strides);
        memcpy(work->from_strides, from.strides, sizeof from.strides);
        for (size_t i = 0; i < sizeof work->element; i++)
            work->element[i] = (unsigned char)below(256);
        order_axes(work);
        return;
    }
}

static void begin(void)
{
    for (size_t i = 0; i < ARENA; i++) {
        to_arena[i] = expected[i] = (unsigned char)(i * 7);
        from_arena[i] = (unsigned char)(test_random_next(&randomness) >> 11);
    }
}

static void layouts_and_types_give_what_the_host_does(void **state)
{
    (void)state;
    size_t fills = 0;
    begin();
    for (size_t round = 0; round < 1500; round++) {
        loch_strided work;
        choose_work(&work, round % 5 == 4);
        do_naively(&work);
        if (!do_by_kernels(&work)) {
            if (work.from) fail_msg("round %zu: there is no kernel", round);
            memcpy(expected, to_arena, ARENA); /* a fill of elements at odd addresses is left to the host */
            continue;
        }
        fills += !work.from;
        expect_equal(&work, round);
    }
    for (size_t kind = 0; kind <= LOCHI_PLAN_FILL; kind++)
        if (!launches[kind]) fail_msg("kernels of kind %zu were never used", kind);
    assert_true(fills > 200);
}

/* Planes of all sizes around those of a tile, turned, in every pair of sizes of elements. Some targets have gaps
 * between all elements, which tiles do not. */
static void planes_are_turned(void **state)
{
    (void)state;
    static const loch_dtype types[] = {LOCH_U8,  LOCH_F8E5M2, LOCH_F16, LOCH_BF16,
                                       LOCH_F32, LOCH_I32,    LOCH_F64, LOCH_I64};
    begin();
    const size_t before = launches[LOCHI_PLAN_TILES];
    for (size_t round = 0; round < 200; round++) {
        const loch_dtype to = types[below(8)], from = below(2) ? to : types[below(8)];
        const size_t to_bytes = loch_dtype_bytes(to), from_bytes = loch_dtype_bytes(from);
        const size_t x = 16 + below(150), y = 16 + below(150), gap = below(3), planes = 1 + below(2);
        const size_t to_step = (below(4) ? 1 : 2) * to_bytes;
        const ptrdiff_t to_row = (ptrdiff_t)((y + gap) * to_step), from_row = (ptrdiff_t)((x + gap) * from_bytes);
        if (planes * (x + 3) * (y + 3) * 16 + 64 > ARENA) continue;
        loch_strided work = {.size = sizeof work,
                             .to = to_arena + below(3) * to_bytes,
                             .from = from_arena + below(3) * from_bytes,
                             .to_type = to,
                             .from_type = from,
                             .axes = 3,
                             .sizes = {planes, x, y},
                             .to_strides = {(ptrdiff_t)x * to_row, to_row, (ptrdiff_t)to_step},
                             .from_strides = {(ptrdiff_t)y * from_row, (ptrdiff_t)from_bytes, from_row}};
        do_naively(&work);
        assert_true(do_by_kernels(&work));
        expect_equal(&work, round);
    }
    assert_true(launches[LOCHI_PLAN_TILES] > before + 20);
}

/* Runs of 16 bytes that change places are elements of 16 bytes of a turned plane. */
static void runs_of_16_bytes_are_turned_as_elements(void **state)
{
    (void)state;
    begin();
    loch_strided work = {.size = sizeof work,
                         .to = to_arena,
                         .from = from_arena,
                         .to_type = LOCH_F32,
                         .from_type = LOCH_F32,
                         .axes = 3,
                         .sizes = {40, 50, 4},
                         .to_strides = {50 * 16, 16, 4},
                         .from_strides = {16, 40 * 16, 4}};
    size_t done = 0;
    lochi_plan plan;
    assert_true(lochi_kernel_plan_make(&work, &done, &plan));
    assert_int_equal(plan.kind, LOCHI_PLAN_TILES);
    assert_int_equal(plan.to_bytes, 16);
    do_naively(&work);
    assert_true(do_by_kernels(&work));
    expect_equal(&work, 0);
}

/* Elements of other types at odd addresses have no kernel: the host converts them. */
static void conversions_at_odd_addresses_have_no_kernel(void **state)
{
    (void)state;
    loch_strided work = {.size = sizeof work,
                         .to = to_arena + 2,
                         .from = from_arena,
                         .to_type = LOCH_F32,
                         .from_type = LOCH_F16,
                         .axes = 1,
                         .sizes = {40},
                         .to_strides = {4},
                         .from_strides = {2}};
    size_t done = 0;
    lochi_plan plan;
    assert_false(lochi_kernel_plan_make(&work, &done, &plan));
    work.to = to_arena;
    work.from = from_arena + 1;
    done = 0;
    assert_false(lochi_kernel_plan_make(&work, &done, &plan));
}

/* Indices at odd addresses have no kernel: the rows are copied one by one. */
static void indices_at_odd_addresses_have_no_kernel(void **state)
{
    (void)state;
    loch_strided work = {.size = sizeof work,
                         .to = to_arena,
                         .from = from_arena,
                         .to_type = LOCH_F32,
                         .from_type = LOCH_F32,
                         .axes = 2,
                         .sizes = {8, 4},
                         .to_strides = {16, 4},
                         .from_strides = {16, 4},
                         .indexing = LOCH_INDEXING_GATHER,
                         .index_type = LOCH_I64,
                         .indices = from_arena + 1024,
                         .index_stride = 8,
                         .index_limit = 8};
    size_t done = 0;
    lochi_plan plan;
    assert_true(lochi_kernel_plan_make(&work, &done, &plan));
    work.indices = from_arena + 1028;
    done = 0;
    assert_false(lochi_kernel_plan_make(&work, &done, &plan));
    work.indices = from_arena + 1024;
    work.index_stride = 12;
    done = 0;
    assert_false(lochi_kernel_plan_make(&work, &done, &plan));
}

/* Work of more elements than a launch counts is cut into parts that together are the whole, each once. */
static void long_work_is_cut(void **state)
{
    (void)state;
    static const struct {
        size_t axes, sizes[3];
    } shapes[] = {{1, {(size_t)5 << 30}},
                  {2, {3, ((size_t)1 << 30) + 5}},
                  {3, {2, 5, (size_t)1 << 29}},
                  {2, {(size_t)3 << 29, 7}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        loch_strided work = {.size = sizeof work, .to_type = LOCH_U16, .from_type = LOCH_F32, .axes = shapes[i].axes};
        work.to = (void *)(uintptr_t)4096;
        work.from = (const void *)((uintptr_t)1 << 46);
        size_t stride = 1;
        for (size_t axis = work.axes; axis-- > 0;) {
            work.sizes[axis] = shapes[i].sizes[axis];
            work.to_strides[axis] = (ptrdiff_t)(2 * stride);
            work.from_strides[axis] = (ptrdiff_t)(4 * stride);
            stride *= work.sizes[axis];
            if (axis) stride = (stride + 31) / 16 * 16; /* so that axes are not one run */
        }
        uint64_t elements = 0;
        size_t done = 0, parts = 0;
        lochi_plan plan;
        unsigned long long last = 0;
        do {
            assert_true(lochi_kernel_plan_make(&work, &done, &plan));
            assert_int_equal(plan.kind, LOCHI_PLAN_CHUNKS);
            assert_true(plan.job.chunks.count <= KERNEL_COUNT_MAX);
            uint64_t rows = 1;
            for (unsigned axis = 1; axis < plan.job.chunks.axes; axis++)
                rows *= plan.job.chunks.axis[axis].size;
            elements += rows * plan.job.chunks.run;
            assert_true(!parts || plan.job.chunks.to > last);
            last = plan.job.chunks.to;
            parts++;
        } while (!plan.is_last);
        uint64_t all = 1;
        for (size_t axis = 0; axis < work.axes; axis++)
            all *= work.sizes[axis];
        assert_true(elements == all);
        assert_true(parts > 1);
    }
}

static void gather_and_scatter(size_t round, loch_dtype type, size_t row, bool is_gather, loch_dtype index_type)
{
    enum { ROWS = 37, COUNT = 60 };
    const size_t bytes = loch_dtype_bytes(type), row_bytes = row * bytes, index_bytes = loch_dtype_bytes(index_type);
    const size_t to_row = row_bytes + below(3) * bytes, from_row = row_bytes + below(3) * bytes;
    static unsigned char indices[COUNT * 2 * 8 + 8];
    const size_t index_step = index_bytes * (1 + below(2));
    loch_strided work = {.size = sizeof work,
                         .to = to_arena + below(3) * bytes,
                         .from = from_arena + below(3) * bytes,
                         .to_type = type,
                         .from_type = type,
                         .axes = row > 1 ? 2 : 1,
                         .sizes = {is_gather ? COUNT : ROWS / 2, row},
                         .to_strides = {(ptrdiff_t)to_row, (ptrdiff_t)bytes},
                         .from_strides = {(ptrdiff_t)from_row, (ptrdiff_t)bytes},
                         .indexing = is_gather ? LOCH_INDEXING_GATHER : LOCH_INDEXING_SCATTER,
                         .index_type = index_type,
                         .indices = indices,
                         .index_stride = (ptrdiff_t)index_step,
                         .index_limit = ROWS};
    for (size_t i = 0; i < work.sizes[0]; i++) {
        int64_t index = is_gather ? (int64_t)below(ROWS) : (int64_t)(2 * i); /* scattered rows are apart */
        if (!below(5)) index = is_gather || below(2) ? -1 - (int64_t)below(3) : ROWS + (int64_t)below(1000);
        if (index_type == LOCH_I64 && !below(9)) index = INT64_MIN + (int64_t)i;
        const int32_t narrow = (int32_t)index;
        if (index_type == LOCH_I32)
            memcpy(indices + i * index_step, &narrow, sizeof narrow);
        else
            memcpy(indices + i * index_step, &index, sizeof index);
        if (index_type == LOCH_I32) index = narrow;
        const bool is_in = index >= 0 && index < ROWS;
        unsigned char *to = expected + ((unsigned char *)work.to - to_arena);
        const unsigned char *from = work.from;
        if (is_gather && is_in)
            memcpy(to + i * to_row, from + (size_t)index * from_row, row_bytes);
        else if (is_gather)
            memset(to + i * to_row, 0, row_bytes);
        else if (is_in)
            memcpy(to + (size_t)index * to_row, from + i * from_row, row_bytes);
    }
    assert_true(do_by_kernels(&work));
    expect_equal(&work, round);
}

static void rows_are_gathered_and_scattered(void **state)
{
    (void)state;
    begin();
    for (size_t round = 0; round < 200; round++)
        gather_and_scatter(round, any_type(), 1 + below(round % 2 ? 8 : 100), round & 1,
                           round & 2 ? LOCH_I32 : LOCH_I64);
    assert_true(launches[LOCHI_PLAN_GATHER] && launches[LOCHI_PLAN_SCATTER]);
}

#ifdef LOCH_TEST_NO_CXX
bool emulated_run(const char *name, emulated_marks marks, unsigned blocks, const void *job)
{
    (void)name, (void)marks, (void)blocks, (void)job;
    return false;
}
#define TEST_HAS_KERNELS false
#else
#define TEST_HAS_KERNELS true
#endif

int main(void)
{
    if (!TEST_HAS_KERNELS) {
        printf("skipped: there is no C++ compiler for the kernels\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_and_types_give_what_the_host_does),
        cmocka_unit_test(planes_are_turned),
        cmocka_unit_test(runs_of_16_bytes_are_turned_as_elements),
        cmocka_unit_test(conversions_at_odd_addresses_have_no_kernel),
        cmocka_unit_test(indices_at_odd_addresses_have_no_kernel),
        cmocka_unit_test(long_work_is_cut),
        cmocka_unit_test(rows_are_gathered_and_scattered),
    };
    randomness.state = test_seed(0x9e37);
    to_arena = malloc(ARENA);
    from_arena = malloc(ARENA);
    expected = malloc(ARENA);
    if (!to_arena || !from_arena || !expected) return 1;
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    free(to_arena);
    free(from_arena);
    free(expected);
    return failures;
}
