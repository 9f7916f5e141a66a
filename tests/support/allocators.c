/* SPDX-License-Identifier: MIT */
/* Making stacks, and running cases over them. */
#include "allocators.h"
#include "base/sanitize.h"

#include <loch/child.h>
#include <loch/direct.h>
#include <loch/pool.h>
#include <loch/session.h>
#include <loch/wrapper.h>
#include <unistd.h>

#define STACK_PARTS_MAX 16
#define STACK_PART_MAX 32
#define CASES_MAX 32
#define STACK_OWN_CAPACITY (8 * TEST_USER_CAPACITY)      /* a segment for each small block */
#define STACK_DEFERRED_CAPACITY (4 * TEST_USER_CAPACITY) /* of all that one case allocates */

/* Thread sanitizers take ten times as long: they get what differs in its locks. */
#if LOCHI_TSAN
#define STACK_ELSEWHERE(...)
#else
#define STACK_ELSEWHERE(...) __VA_ARGS__,
#endif

const char *const test_stacks[] = {
    /* allocators */
    "user",
    "user-full",
    "user-unsafe",
    "direct",
    "direct-deferred",
    "direct-pinned",
    "pool",
    "pool-pinned",
    STACK_ELSEWHERE("direct-zones", "pool-whole", "pool-idle", "child-range", "child-quota", "pool-on-direct",
                    "pool-on-user", "pool-on-pool", "pool-own")
    /* each wrapper */
    "wrapper/user",
    "limit/direct",
    "tracking/direct",
    "csv/user-full",
    "redzone/direct",
    "fault/user",
    "locked/user-unsafe",
    "limit/pool",
    "tracking/pool",
    "redzone/pool",
    "session/pool",
    STACK_ELSEWHERE("session/user", "session/direct", "session/limit/pool", "tracking/session/pool", "limit/user",
                    "tracking/user-full", "logging/user", "logging/direct", "trace/direct", "redzone/user",
                    "redzone/user-full", "fault/direct", "locked/user-full", "logging/pool", "fault/pool",
                    "locked/pool")
    /* stacks */
    "tracking/limit/redzone/direct",
    "locked/logging/fault/user-unsafe",
    "logging/tracking/locked/fault/limit/redzone/user-full",
    "tracking/limit/redzone/pool",
    STACK_ELSEWHERE("limit/tracking/direct", "tracking/user-unsafe", "redzone/tracking/limit/direct-zones",
                    "wrapper/limit/limit/tracking/tracking/wrapper/direct", "tracking/redzone/redzone/direct-deferred",
                    "fault/locked/redzone/logging/direct-pinned", "wrapper/tracking/pool-whole",
                    "redzone/logging/pool-pinned")};

const size_t test_stacks_count = sizeof test_stacks / sizeof *test_stacks;

const char *const *test_stacks_own;
loch_status (*test_stack_base_own)(loch_device *device, const char *kind, loch_allocator **out);

const char *const test_wrappers[] = {"wrapper", "bare",    "limit", "tracking", "logging", "csv",
                                     "trace",   "redzone", "fault", "locked",   "session"};

const size_t test_wrappers_count = sizeof test_wrappers / sizeof *test_wrappers;

/* --- files of logging wrappers: one folder a process --- */

static char stack_folder[256];
static unsigned stack_files;

static void stack_remove_files(void)
{
    char path[320];
    if (!stack_folder[0]) return;
    for (unsigned i = 0; i < stack_files; i++) {
        snprintf(path, sizeof path, "%s/%u", stack_folder, i);
        unlink(path);
    }
    stack_files = 0;
}

static void stack_remove_folder(void)
{
    stack_remove_files();
    if (stack_folder[0]) rmdir(stack_folder);
    stack_folder[0] = '\0';
}

static void stack_file_name(char *path, size_t bytes)
{
    if (!stack_folder[0]) {
        const char *parent = getenv("TMPDIR");
        snprintf(stack_folder, sizeof stack_folder, "%.200s/loch-test-XXXXXX", parent && *parent ? parent : "/tmp");
        if (!mkdtemp(stack_folder)) {
            fprintf(stderr, "no folder for files: %s\n", stack_folder);
            exit(1);
        }
        atexit(stack_remove_folder);
    }
    snprintf(path, bytes, "%s/%u", stack_folder, stack_files++);
}

/* --- making stacks --- */

static loch_status stack_log(loch_allocator *wrapped, loch_logging_format format, loch_allocator **out)
{
    char path[320];
    loch_logging_options options = {.size = sizeof options, .format = format};
    if (format != LOCH_LOGGING_HOOK) {
        stack_file_name(path, sizeof path);
        options.path = path;
    }
    return loch_logging_create(wrapped, NULL, &options, out);
}

/* A session's allocator, in place of the session: the reference is the one that the end would give back. */
static loch_status stack_session(loch_allocator *wrapped, loch_allocator **out)
{
    loch_session *session;
    const loch_status status = loch_session_begin(wrapped, NULL, &session);
    *out = loch_session_get_allocator(session);
    return status;
}

loch_status test_stack_wrap(const char *kind, loch_allocator *wrapped, loch_allocator **out)
{
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = TEST_USER_CAPACITY};
    const loch_tracking_options tracking = {.size = sizeof tracking, .records = 64};
    const loch_allocator_ops bare = {.size = sizeof bare, .kind = "bare"}; /* forwards everything */
    if (!strcmp(kind, "wrapper")) return test_user_wrap(wrapped, out);
    if (!strcmp(kind, "bare")) return loch_wrapper_create(wrapped, NULL, &bare, NULL, out);
    if (!strcmp(kind, "limit")) return loch_limit_create(wrapped, NULL, &limit, out);
    if (!strcmp(kind, "tracking")) return loch_tracking_create(wrapped, NULL, &tracking, out);
    if (!strcmp(kind, "logging")) return stack_log(wrapped, LOCH_LOGGING_HOOK, out);
    if (!strcmp(kind, "csv")) return stack_log(wrapped, LOCH_LOGGING_CSV, out);
    if (!strcmp(kind, "trace")) return stack_log(wrapped, LOCH_LOGGING_TRACE, out);
    if (!strcmp(kind, "redzone")) return loch_redzone_create(wrapped, NULL, NULL, out);
    if (!strcmp(kind, "session")) return stack_session(wrapped, out);
    if (!strcmp(kind, "locked")) return loch_locked_create(wrapped, NULL, out);
    if (strcmp(kind, "fault") != 0) return loch_error_set(LOCH_E_INVALID, NULL, 0, "no wrapper is named %s", kind);
    loch_allocator *fault = NULL;
    loch_status status = loch_fault_create(wrapped, NULL, NULL, &fault);
    if (status == LOCH_OK) status = loch_fault_set(fault, NULL);
    if (status != LOCH_OK) {
        loch_allocator_release(fault);
        fault = NULL;
    }
    *out = fault;
    return status;
}

static loch_status stack_base(loch_device *device, const char *kind, loch_allocator **out);

/* Pools with a limit on what they hold: whole granules, and what rounding takes. */
static loch_status stack_pool(loch_device *device, const char *kind, loch_allocator **out)
{
    loch_pool_options options = {.size = sizeof options, .limit_bytes = TEST_USER_CAPACITY};
    if (!strncmp(kind, "pool-on-", 8)) { /* on a source */
        const loch_status made = stack_base(device, kind + 8, &options.source);
        if (made != LOCH_OK) return made;
        const loch_status status = loch_pool_create(device, NULL, &options, out);
        loch_allocator_release(options.source);
        return status;
    }
    if (!strcmp(kind, "pool-own")) {
        options.preset = LOCH_POOL_NO_SPLIT;
        options.limit_bytes = STACK_OWN_CAPACITY;
    } else if (!strcmp(kind, "pool-pinned"))
        options.kind = LOCH_MEMORY_PINNED;
    else if (!strcmp(kind, "pool-whole"))
        options.preset = LOCH_POOL_WHOLE_BLOCKS;
    else if (!strcmp(kind, "pool-idle"))
        options.idle_bytes = TEST_USER_CAPACITY / 4;
    else if (strcmp(kind, "pool") != 0)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "no pool is named %s", kind);
    return loch_pool_create(device, NULL, &options, out);
}

/* Children whose parents have no other reference. */
static loch_status stack_child(loch_device *device, const char *kind, loch_allocator **out)
{
    const loch_pool_options options = {
        .size = sizeof options,
        .limit_bytes = 2 * TEST_USER_CAPACITY,
        .handle_bytes = TEST_USER_CAPACITY / 2 /* a range is taken at once: few calls */
    };
    loch_child_options child = {.size = sizeof child, .limit_bytes = TEST_USER_CAPACITY};
    if (!strcmp(kind, "child-range"))
        child.kind = LOCH_CHILD_RANGE;
    else if (strcmp(kind, "child-quota") != 0)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "no child is named %s", kind);
    loch_allocator *parent = NULL;
    loch_status status = loch_pool_create(device, NULL, &options, &parent);
    if (status == LOCH_OK) status = loch_pool_create_child(parent, NULL, &child, out);
    loch_allocator_release(parent);
    return status;
}

static loch_status stack_base(loch_device *device, const char *kind, loch_allocator **out)
{
    loch_direct_options options = {.size = sizeof options, .limit_bytes = TEST_USER_CAPACITY};
    if (!strcmp(kind, "user")) return test_user_create(device, TEST_USER_PLAIN, out);
    if (!strcmp(kind, "user-unsafe")) return test_user_create(device, TEST_USER_UNSAFE, out);
    if (!strcmp(kind, "user-full")) return test_user_create(device, TEST_USER_FULL, out);
    if (!strncmp(kind, "pool", 4)) return stack_pool(device, kind, out);
    if (!strncmp(kind, "child-", 6)) return stack_child(device, kind, out);
    if (test_stack_base_own) return test_stack_base_own(device, kind, out);
    if (!strcmp(kind, "direct-deferred")) {
        options.when = LOCH_DIRECT_FREE_DEFERRED;
        options.limit_bytes = STACK_DEFERRED_CAPACITY;
    } else if (!strcmp(kind, "direct-pinned")) {
        options.kind = LOCH_MEMORY_PINNED;
    } else if (!strcmp(kind, "direct-zones")) {
        options.red_zone_bytes = 100;
        options.poison = 0xe5;
    } else if (strcmp(kind, "direct") != 0) {
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "no allocator is named %s", kind);
    }
    return loch_direct_create(device, NULL, &options, out);
}

/* The parts of a stack, outermost first; their number. */
static size_t stack_split(const char *stack, char parts[STACK_PARTS_MAX][STACK_PART_MAX])
{
    size_t count = 0;
    while (*stack && count < STACK_PARTS_MAX) {
        const size_t length = strcspn(stack, "/");
        snprintf(parts[count++], STACK_PART_MAX, "%.*s", (int)length, stack);
        stack += length + (stack[length] == '/');
    }
    return count;
}

bool test_stack_has(const char *stack, const char *part)
{
    char parts[STACK_PARTS_MAX][STACK_PART_MAX];
    const size_t count = stack_split(stack, parts);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(parts[i], part)) return true;
    return false;
}

bool test_stack_is_pinned(const char *stack)
{
    return test_stack_has(stack, "direct-pinned") || test_stack_has(stack, "pool-pinned");
}

bool test_stack_is_pool(const char *stack)
{
    const char *slash = strrchr(stack, '/'), *base = slash ? slash + 1 : stack;
    return !strncmp(base, "pool", 4) || !strncmp(base, "child-", 6);
}

loch_status test_stack_create(loch_device *device, const char *stack, loch_allocator **out)
{
    char parts[STACK_PARTS_MAX][STACK_PART_MAX];
    const size_t count = stack_split(stack, parts);
    *out = NULL;
    if (!count) return loch_error_set(LOCH_E_INVALID, NULL, 0, "a stack has parts");
    if (test_stack_is_pinned(stack) && !loch_device_can(device, LOCH_CAN_PINNED))
        return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "the device has no pinned memory");
    loch_allocator *inner = NULL;
    loch_status status = stack_base(device, parts[count - 1], &inner);
    for (size_t i = count - 1; i > 0 && status == LOCH_OK; i--) {
        loch_allocator *outer = TEST_UNTOUCHED;
        status = test_stack_wrap(parts[i - 1], inner, &outer);
        loch_allocator_release(inner);
        inner = outer;
    }
    *out = inner;
    return status;
}

/* --- subjects --- */

static const char *subject_stack; /* of the group that runs */

/* Pools do what the device can: they run over more kinds of it. */
static const char subject_pool_devices[] =
    "sim:1GiB,granule=64KiB,backed;sim:1GiB,backed,async=off;sim:1GiB,backed,alias=off,clock=stepped";

static void subject_hear(loch_log_level level, const char *line, void *user)
{
    (void)level;
    (void)line;
    (void)user;
}

void test_subject_begin(test_subject *subject, void **state)
{
    const test_bed *bed = *state;
    *subject = (test_subject){.bed = bed, .stack = subject_stack};
    subject->alive = test_user_alive();
    subject->wrong = test_user_wrong();
    subject->usage.size = sizeof subject->usage;
    CHECK_OK(loch_host_get_usage(&subject->usage));
    const loch_status status = test_stack_create(bed->device, subject->stack, &subject->allocator);
    if (status == LOCH_E_UNSUPPORTED && test_stack_is_pinned(subject->stack)) skip();
    CHECK_OK(status);
    assert_non_null(subject->allocator);
    subject->traits = loch_allocator_get_traits(subject->allocator);
    subject->reuses = !test_stack_has(subject->stack, "direct-deferred");
    subject->capacity = test_stack_has(subject->stack, "pool-own") ? STACK_OWN_CAPACITY
                        : subject->reuses                          ? TEST_USER_CAPACITY
                                                                   : STACK_DEFERRED_CAPACITY;
}

void test_subject_end(test_subject *subject)
{
    loch_host_usage usage = {.size = sizeof usage};
    loch_allocator_release(subject->allocator);
    subject->allocator = NULL;
    CHECK_OK(loch_host_get_usage(&usage));
    stack_remove_files();
    assert_int_equal(test_user_wrong(), subject->wrong);
    assert_int_equal(test_user_alive(), subject->alive);
    assert_int_equal(usage.blocks, subject->usage.blocks);
    assert_int_equal(usage.bytes, subject->usage.bytes);
}

void test_subject_require(test_subject *subject, bool condition)
{
    if (condition) return;
    test_subject_end(subject);
    skip();
}

void *test_subject_alloc(const test_subject *subject, size_t bytes)
{
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_alloc(subject->allocator, bytes, &block));
    assert_non_null(block);
    return block;
}

loch_stats test_subject_stats(const test_subject *subject)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(subject->allocator, &stats));
    return stats;
}

void test_stats_expect_same(const loch_stats *before, const loch_stats *after)
{
#define EXPECT_SAME(name, sum, text)                                                                                   \
    if (before->name != after->name && strcmp(#name, "failures") != 0)                                                 \
        fail_msg("%s was %llu and is %llu", #name, (unsigned long long)before->name, (unsigned long long)after->name);
    LOCH_STATS_LIST(EXPECT_SAME)
#undef EXPECT_SAME
}

static bool subject_is_wanted(const char *stack)
{
    const char *wanted = getenv("LOCH_TEST_STACKS");
    if (!wanted || !*wanted) return true;
    for (size_t length; *wanted; wanted += length + (wanted[length] == ';')) {
        length = strcspn(wanted, ";");
        if (strlen(stack) == length && !strncmp(stack, wanted, length)) return true;
    }
    return false;
}

/* A GPU that is asked for: held open meanwhile, because starting one takes long. NULL for none. */
static loch_device *subject_hold_gpu(void)
{
    char name[LOCH_DEVICE_NAME_MAX];
    loch_device *device = NULL;
    const char *devices = getenv("LOCH_TEST_DEVICES"), *cuda = devices ? strstr(devices, "cuda") : NULL;
    if (!cuda) return NULL;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(cuda, ";"), cuda);
    return loch_device_open(name, &device) == LOCH_OK ? device : NULL;
}

int test_subjects_run(const struct CMUnitTest *cases, size_t count)
{
    static char names[CASES_MAX][160];
    struct CMUnitTest group[CASES_MAX];
    int failures = 0;
    bool has_run = false;
    if (count > CASES_MAX) {
        printf("a group has %zu cases, more than %d\n", count, CASES_MAX);
        return 1;
    }
    loch_device *gpu = subject_hold_gpu();
    loch_log_set_hook(subject_hear, NULL, LOCH_LOG_INFO);
    const char *const *stacks = test_stacks_own ? test_stacks_own : test_stacks;
    for (size_t i = 0; test_stacks_own ? stacks[i] != NULL : i < test_stacks_count; i++) {
        if (!subject_is_wanted(stacks[i])) continue;
        subject_stack = stacks[i];
        for (size_t k = 0; k < count; k++) {
            snprintf(names[k], sizeof names[k], "%s: %s", subject_stack, cases[k].name);
            group[k] = cases[k];
            group[k].name = names[k];
        }
        int result = test_bed_run(group, count);
        has_run |= result != TEST_SKIPPED;
        if (result != TEST_SKIPPED) failures += result;
        if (!test_stack_is_pool(subject_stack)) continue;
        result = test_bed_run_also(subject_pool_devices, group, count);
        if (result != TEST_SKIPPED) failures += result;
    }
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF);
    loch_device_release(gpu);
    if (failures > TEST_SKIPPED - 1) failures = TEST_SKIPPED - 1; /* 77 means another thing, and a status is one byte */
    return failures || has_run ? failures : TEST_SKIPPED;
}
