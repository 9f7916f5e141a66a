/* SPDX-License-Identifier: MIT */
/* Call stacks, compared with those of the C library. Both are taken by one function, look(); the addresses there differ
 * and all others must be equal. */
#include "base/room.h"
#include "base/stack.h"
#include "base/stack_rule.h"
#include "test.h"
#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define MANY 256
#define FAR __attribute__((noinline, noclone))
#define STAY() __asm__ volatile("" ::: "memory") /* after a call: it is no jump */

typedef struct sight {
    uintptr_t ours[MANY], theirs[MANY];
    size_t our_count, their_count, most;
} sight;

FAR static void look(void *user)
{
    sight *seen = user;
    const size_t most = seen->most ? seen->most : MANY;
    seen->our_count = lochi_stack_capture(seen->ours, most, 0);
    const int count = backtrace((void **)seen->theirs, MANY);
    seen->their_count = count > 0 ? (size_t)count : 0;
    STAY();
}

/* The C library's stack may begin with a frame of a sanitizer. */
static void check_equal(const sight *seen)
{
    assert_true(seen->our_count > 3);
    size_t shift = 0;
    while (shift < 4 && seen->theirs[1 + shift] != seen->ours[1])
        shift++;
    assert_true(shift < 4);
    assert_int_equal(seen->our_count + shift, seen->their_count);
    for (size_t i = 1; i < seen->our_count; i++)
        assert_int_equal(seen->ours[i], seen->theirs[i + shift]);
    const uintptr_t here = seen->ours[0], there = seen->theirs[shift];
    assert_true((here > there ? here - there : there - here) < 512);
}

typedef void going(void (*function)(void *), void *user);

FAR static void through_nothing(void (*function)(void *), void *user)
{
    function(user);
    STAY();
}

FAR static void through_two(void (*function)(void *), void *user)
{
    through_nothing(function, user);
    STAY();
}

FAR static void through_large_frame(void (*function)(void *), void *user)
{
    volatile char large[20000];
    large[0] = 1;
    large[sizeof large - 1] = large[0];
    function(user);
    STAY();
}

FAR static void through_alloca(void (*function)(void *), void *user)
{
    const size_t bytes = ((sight *)user)->our_count % 7 * 100 + 50;
    memset(__builtin_alloca(bytes), 1, bytes);
    function(user);
    STAY();
}

FAR static void through_aligned(void (*function)(void *), void *user)
{
    _Alignas(64) volatile char aligned[128];
    aligned[0] = 1;
    function(user);
    STAY();
    aligned[1] = aligned[0];
}

FAR static void through_aligned_alloca(void (*function)(void *), void *user)
{
    _Alignas(64) volatile char aligned[128];
    const size_t bytes = ((sight *)user)->our_count % 7 * 100 + 50;
    memset(__builtin_alloca(bytes), 1, bytes);
    aligned[0] = 1;
    function(user);
    STAY();
    aligned[1] = aligned[0];
}

/* Needs most registers, so that all are saved; the frame pointer is one of them. */
FAR static void through_registers(void (*function)(void *), void *user)
{
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7;
    for (unsigned i = 0; i < 3; i++) {
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g));
        function(user);
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g));
    }
}

typedef struct passed {
    void (*function)(void *);
    void *user;
} passed;

static _Thread_local passed through_passed;

FAR static int through_compare(const void *a, const void *b)
{
    through_passed.function(through_passed.user);
    STAY();
    return *(const int *)a - *(const int *)b;
}

FAR static void through_qsort(void (*function)(void *), void *user)
{
    int numbers[] = {3, 1, 2};
    through_passed = (passed){function, user};
    qsort(numbers, 3, sizeof *numbers, through_compare);
    STAY();
}

FAR static loch_status through_visit(const loch_option *option, void *user)
{
    const passed *call = user;
    assert_non_null(option);
    call->function(call->user);
    STAY();
    return LOCH_OK;
}

FAR static void through_library(void (*function)(void *), void *user)
{
    passed call = {function, user};
    CHECK_OK(loch_option_walk(through_visit, &call));
}

FAR static void through_recursion(unsigned depth, void (*function)(void *), void *user)
{
    if (depth)
        through_recursion(depth - 1, function, user);
    else
        function(user);
    STAY();
}

FAR static void through_hundred(void (*function)(void *), void *user)
{
    through_recursion(100, function, user);
    STAY();
}

static going *const all_ways[] = {
    through_nothing,        through_two,       through_large_frame, through_alloca,  through_aligned,
    through_aligned_alloca, through_registers, through_qsort,       through_library, through_hundred};

static void every_way(void)
{
    for (unsigned round = 0; round < 3; round++) /* the later ones find their rules */
        for (size_t i = 0; i < sizeof all_ways / sizeof *all_ways; i++) {
            sight seen = {0};
            seen.our_count = i;
            all_ways[i](look, &seen);
            check_equal(&seen);
        }
}

static void stacks_equal_those_of_the_c_library(void **state)
{
    (void)state;
    every_way();
}

static void *every_way_of_thread(void *unused)
{
    every_way();
    return unused;
}

static void stacks_of_threads_equal_those_of_the_c_library(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, every_way_of_thread, NULL), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void a_stack_that_the_program_gave_to_a_thread_is_walked(void **state)
{
    (void)state;
    const size_t bytes = TEST_MIB;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstack(&attributes, memory, bytes), 0);
    assert_int_equal(pthread_create(&thread, &attributes, every_way_of_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
    munmap(memory, bytes);
}

static void a_stack_has_as_many_frames_as_were_asked_for(void **state)
{
    (void)state;
    sight all = {0};
    through_hundred(look, &all);
    for (size_t most = 1; most < 90; most += 11) {
        sight seen = {.most = most};
        seen.ours[most] = 7;
        through_hundred(look, &seen);
        assert_int_equal(seen.our_count, most);
        assert_int_equal(seen.ours[most], 7);
        assert_memory_equal(seen.ours + 1, all.ours + 1, (most > 1 ? most - 2 : 0) * sizeof *all.ours);
    }
    uintptr_t none = 7;
    assert_int_equal(lochi_stack_capture(&none, 0, 0), 0);
    assert_int_equal(none, 7);
}

static void frames_are_left_out_from_the_inside(void **state)
{
    (void)state;
    uintptr_t all[MANY], rest[MANY];
    for (size_t skip = 0; skip < 4; skip++) {
        const size_t count = lochi_stack_capture(all, MANY, 0);
        const size_t left = lochi_stack_capture(rest, MANY, skip);
        assert_int_equal(left, count - skip);
        const size_t same = skip ? 0 : 1; /* the first address is that of the call itself */
        assert_memory_equal(rest + same, all + skip + same, (left - same) * sizeof *all);
    }
    assert_int_equal(lochi_stack_capture(rest, MANY, 1000), 0);
}

static size_t count_rules(void)
{
    size_t count = 0;
    for (unsigned set = 0; set < LOCHI_STACK_SETS; set++)
        for (unsigned way = 0; way < LOCHI_STACK_WAYS; way++)
            count += atomic_load(&lochi_stack_rules[set][way]) != 0;
    return count;
}

/* --- modules that come and go --- */

typedef void module_call(void (*function)(void *), void *user, volatile char *unused);

/* Calls look() through a module that is loaded for the call only. Returns the return address in the module. */
FAR static uintptr_t look_through_module(const char *name)
{
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    assert_true(length > 0);
    path[length] = 0;
    strcpy(strrchr(path, '/') + 1, name);
    void *module = dlopen(path, RTLD_NOW);
    assert_non_null(module);
    module_call *call = (module_call *)(uintptr_t)dlsym(module, "stack_module_call");
    assert_non_null(call);
    sight seen = {0};
    volatile char unused = 0;
    call(look, &seen, &unused);
    dlclose(module);
    check_equal(&seen);
    return seen.ours[1];
}

static void rules_of_an_unloaded_module_are_not_used(void **state)
{
    (void)state;
    unsigned equal = 0;
    for (unsigned round = 0; round < 8; round++)
        equal += look_through_module("stack_module_a.so") == look_through_module("stack_module_b.so");
    print_message("the second module was at the place of the first in %u of 8 rounds\n", equal);
}

static void a_thread_that_finds_all_rules_looks_for_unloaded_modules_now_and_then(void **state)
{
    (void)state;
    (void)look_through_module("stack_module_a.so");
    sight seen = {0};
    for (unsigned i = 0; i < 3; i++)
        through_hundred(look, &seen);
    const size_t rules = count_rules();
    if (!rules) return; /* a processor without rules */
    void *library = dlopen("libresolv.so.2", RTLD_NOW);
    if (library) dlclose(library);
    uintptr_t frames[4];
    size_t fewest = rules;
    for (unsigned i = 0; i < 4096 && fewest == rules; i++) {
        lochi_stack_capture(frames, 4, 0);
        const size_t now = count_rules();
        if (now < fewest) fewest = now;
    }
    if (library) assert_true(fewest < rules);
}

/* --- what cannot be walked --- */

static sight signal_sight;
static volatile sig_atomic_t signal_count;

static void on_signal(int number)
{
    (void)number;
    look(&signal_sight);
    signal_count++;
}

static void check_begins(const sight *seen)
{
    assert_true(seen->our_count >= 1);
    const uintptr_t here = seen->ours[0], there = (uintptr_t)look;
    assert_true(here > there && here - there < 1024);
}

static void a_signal_handler_can_take_its_stack(void **state)
{
    (void)state;
    char *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    const stack_t other = {.ss_sp = memory, .ss_size = 65536};
    stack_t before;
    assert_int_equal(sigaltstack(&other, &before), 0);
    for (int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
        const struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
        assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
        raise(SIGUSR1);
        check_begins(&signal_sight);
    }
    assert_int_equal(signal_count, 2);
    signal(SIGUSR1, SIG_DFL);
    assert_int_equal(sigaltstack(&before, NULL), 0);
    munmap(memory, 65536);
}

static ucontext_t main_context, other_context;
static sight other_sight;

static void in_other_context(void)
{
    for (unsigned i = 0; i < 10; i++)
        through_two(look, &other_sight);
}

static void a_stack_of_the_program_is_read_to_the_end_of_its_page(void **state)
{
    (void)state;
    char *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(mprotect(memory + 61440, 4096, PROT_NONE), 0); /* behind the stack */
    assert_int_equal(getcontext(&other_context), 0);
    other_context.uc_stack.ss_sp = memory;
    other_context.uc_stack.ss_size = 61440;
    other_context.uc_link = &main_context;
    makecontext(&other_context, in_other_context, 0);
    assert_int_equal(swapcontext(&main_context, &other_context), 0);
    check_begins(&other_sight);
    munmap(memory, 65536);
    sight seen = {0};
    through_two(look, &seen);
    check_equal(&seen);
}

#if defined __x86_64__

/* Calls its first argument with its second. `has_frame`: keeps a frame pointer. */
static void call_generated(bool has_frame, void (*function)(void *), void *user)
{
    static const uint8_t with[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
    static const uint8_t without[] = {0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0xf8, 0x48, 0x89,
                                      0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x08, 0xc3};
    uint8_t *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(code, MAP_FAILED);
    memcpy(code, has_frame ? with : without, has_frame ? sizeof with : sizeof without);
    assert_int_equal(mprotect(code, 4096, PROT_READ | PROT_EXEC), 0);
    ((void (*)(void (*)(void *), void *))(uintptr_t)code)(function, user);
    STAY();
    munmap(code, 4096);
}

FAR static void look_ourselves(void *user)
{
    sight *seen = user;
    seen->our_count = lochi_stack_capture(seen->ours, MANY, 0);
    STAY();
}

static void generated_code_is_crossed_by_its_frame_pointer(void **state)
{
    (void)state;
    sight outside = {0}, seen = {0};
    look_ourselves(&outside);
    for (unsigned i = 0; i < 3; i++) {
        call_generated(true, look_ourselves, &seen);
        assert_true(seen.our_count >= outside.our_count);
        for (size_t k = 1; k + 1 < outside.our_count; k++) /* those outside of this function */
            assert_int_equal(seen.ours[seen.our_count - k], outside.ours[outside.our_count - k]);
    }
}

static void generated_code_without_a_frame_pointer_does_no_harm(void **state)
{
    (void)state;
    sight seen = {0};
    for (unsigned i = 0; i < 3; i++) {
        call_generated(false, look_ourselves, &seen);
        assert_true(seen.our_count >= 2);
    }
}

static uintptr_t wild_pointers[] = {0, 1, 8, 0xdead0000, 0x7ffffffffff8, 0xfffffffffffffff0, 0x8000000000000000};

static void a_wild_frame_pointer_does_no_harm(void **state)
{
    (void)state;
    sight seen = {0};
    uintptr_t own = (uintptr_t)__builtin_frame_address(0);
    for (size_t i = 0; i < sizeof wild_pointers / sizeof *wild_pointers + 64; i++) {
        const size_t known = sizeof wild_pointers / sizeof *wild_pointers;
        const uintptr_t wild = i < known ? wild_pointers[i] : own + (i - known) * 8 + i % 3;
        register void (*function)(void *) __asm__("r12") = look_ourselves;
        register uintptr_t value __asm__("r13") = wild;
        register uintptr_t before __asm__("r14") = 0;
        void *argument = &seen;
        /* Also moves the stack pointer without a word in the tables: the walk takes wrong words for addresses. */
        __asm__ volatile("movq %%rbp, %%r14\n\tmovq %%rsp, %%rbx\n\tsubq $512, %%rsp\n\tandq $-64, %%rsp\n\t"
                         "movq %%r13, %%rbp\n\tcall *%%r12\n\tmovq %%r14, %%rbp\n\tmovq %%rbx, %%rsp"
                         : "+r"(function), "+r"(value), "+r"(before), "+D"(argument)
                         :
                         : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
        assert_true(seen.our_count >= 1);
    }
}

#endif

int main(void)
{
    static sight warm;
    look(&warm); /* the C library loads its unwinder */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacks_equal_those_of_the_c_library),
        cmocka_unit_test(stacks_of_threads_equal_those_of_the_c_library),
        cmocka_unit_test(a_stack_that_the_program_gave_to_a_thread_is_walked),
        cmocka_unit_test(a_stack_has_as_many_frames_as_were_asked_for),
        cmocka_unit_test(frames_are_left_out_from_the_inside),
        cmocka_unit_test(rules_of_an_unloaded_module_are_not_used),
        cmocka_unit_test(a_thread_that_finds_all_rules_looks_for_unloaded_modules_now_and_then),
        cmocka_unit_test(a_signal_handler_can_take_its_stack),
        cmocka_unit_test(a_stack_of_the_program_is_read_to_the_end_of_its_page),
#if defined __x86_64__
        cmocka_unit_test(generated_code_is_crossed_by_its_frame_pointer),
        cmocka_unit_test(generated_code_without_a_frame_pointer_does_no_harm),
        cmocka_unit_test(a_wild_frame_pointer_does_no_harm),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
