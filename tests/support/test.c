/* SPDX-License-Identifier: MIT */
/* The checks, seeded numbers and patterns of test.h. */
#include "test.h"

#include <errno.h>
#include <pthread.h>

/* Tests ask for more memory than there is; the sanitizers' allocators then have to return NULL and not stop. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

__attribute__((visibility("default"))) const char *__msan_default_options(void);
const char *__msan_default_options(void)
{
    return "allocator_may_return_null=1";
}

/* Leaves out the cases whose name LOCH_TEST_CASES does not match. */
__attribute__((constructor)) static void test_choose_cases(void)
{
    const char *pattern = getenv("LOCH_TEST_CASES");
    if (pattern && *pattern) cmocka_set_test_filter(pattern);
}

void test_check_ok(loch_status status, const char *call, const char *file, int line)
{
    if (status == LOCH_OK) return;
    print_error("%s gave %s: %s\n", call, loch_status_name(status), loch_error_get()->sentence);
    _fail(file, line);
}

static void test_set_print(unsigned set)
{
    for (int i = 0; i < LOCH_STATUS_COUNT; i++)
        if (set & (1u << i)) print_error(" %s", loch_status_name((loch_status)i));
    print_error("\n");
}

void test_check_fails(loch_status status, unsigned expected, const char *call, const char *file, int line)
{
    const loch_error *error = loch_error_get();
    if (!(expected & (1u << status))) {
        print_error("%s gave %s (%s), expected", call, loch_status_name(status),
                    status == LOCH_OK ? "" : error->sentence);
        test_set_print(expected);
        _fail(file, line);
    }
    if (error->status != status || !error->sentence[0]) {
        print_error("%s gave %s, but the record says %s, \"%s\"\n", call, loch_status_name(status),
                    loch_status_name(error->status), error->sentence);
        _fail(file, line);
    }
    if (!error->driver || strlen(error->sentence) >= LOCH_ERROR_SENTENCE_MAX || strchr(error->sentence, '\n')) {
        print_error("%s left a record that is not well formed\n", call);
        _fail(file, line);
    }
}

void test_check_status(loch_status status, loch_status expected, const char *call, const char *file, int line)
{
    if (status == expected) return;
    print_error("%s gave %s, expected %s\n", call, loch_status_name(status), loch_status_name(expected));
    _fail(file, line);
}

uint64_t test_seed(uint64_t fallback)
{
    uint64_t seed = fallback;
    const char *text = getenv("LOCH_TEST_SEED");
    if (text && *text) {
        char *end = NULL;
        errno = 0;
        unsigned long long value = strtoull(text, &end, 0);
        if (errno || *end) {
            fprintf(stderr, "LOCH_TEST_SEED is no number: %s\n", text);
            exit(2);
        }
        seed = value;
    }
    printf("seed %llu (LOCH_TEST_SEED sets another)\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

static uint64_t test_mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

uint64_t test_random_next(test_random *random)
{
    random->state += 0x9e3779b97f4a7c15u;
    return test_mix(random->state);
}

size_t test_random_below(test_random *random, size_t limit)
{
    return (size_t)(test_random_next(random) % limit);
}

static uint64_t test_pattern_word(uint64_t seed, size_t index)
{
    return test_mix(seed * 0x9e3779b97f4a7c15u + index + 1);
}

void test_pattern_write(void *to, size_t bytes, uint64_t seed)
{
    unsigned char *out = to;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = test_pattern_word(seed, i / 8);
        memcpy(out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

size_t test_pattern_differs(const void *from, size_t bytes, uint64_t seed)
{
    const unsigned char *in = from;
    size_t whole = 0;
    for (uint64_t seen; bytes - whole >= 8; whole += 8) { /* no call for each word */
        memcpy(&seen, in + whole, 8);
        if (seen != test_pattern_word(seed, whole / 8)) break;
    }
    for (size_t i = whole; i < bytes; i += 8) {
        uint64_t word = test_pattern_word(seed, i / 8);
        size_t length = bytes - i < 8 ? bytes - i : 8;
        if (memcmp(in + i, &word, length) == 0) continue;
        const unsigned char *expected = (const unsigned char *)&word;
        for (size_t k = 0; k < length; k++)
            if (in[i + k] != expected[k]) return i + k;
    }
    return bytes;
}

static loch_call_count test_call(loch_device *device, const char *name)
{
    loch_call_count calls[LOCH_CALL_COUNT];
    size_t count = 0;
    CHECK_OK(test_device_calls(device, calls, LOCH_CALL_COUNT, &count));
    assert_int_equal(count, LOCH_CALL_COUNT);
    for (size_t i = 0; i < count; i++)
        if (strcmp(calls[i].name, name) == 0) return calls[i];
    fail_msg("no driver call is named %s", name);
    return calls[0];
}

uint64_t test_call_count(loch_device *device, const char *name)
{
    return test_call(device, name).count;
}

uint64_t test_call_ns(loch_device *device, const char *name)
{
    return test_call(device, name).ns;
}

uint64_t test_call_real_ns(loch_device *device, const char *name)
{
    return test_call(device, name).real_ns;
}

void test_threads_run(void *(*function)(void *worker), void *workers, size_t worker_bytes, size_t count)
{
    pthread_t *threads = calloc(count, sizeof *threads);
    assert_non_null(threads);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, function, (char *)workers + i * worker_bytes), 0);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    free(threads);
}

void test_end_defaults(void)
{
    size_t waiting = 0, leaks = 0;
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, &waiting));
    CHECK_OK(loch_registry_clear(NULL, NULL, &leaks));
    if (waiting || leaks) fail_msg("%zu pieces of memory wait for work, %zu blocks are live", waiting, leaks);
}

int test_skip_gpu(void)
{
    const char *required = getenv("LOCH_REQUIRE_GPU");
    const bool is_failure = required && !strcmp(required, "1");
    fprintf(stderr, "%s: %s\n", is_failure ? "a GPU is required" : "skipped", loch_error_get()->sentence);
    return is_failure ? 1 : TEST_SKIPPED;
}
