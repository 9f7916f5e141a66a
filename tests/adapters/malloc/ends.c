/* SPDX-License-Identifier: MIT */
/* Allocates and frees at every end of a process and of a thread: constructors, exit handlers, destructors of the
 * program, destructors of thread-specific data in several rounds, threads that outlive main. Prints a line at each, so
 * that the test sees that all ran.
 *
 *     ends return | exit | thread | quick | failed */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *ends_early; /* from a constructor */
static pthread_key_t ends_first, ends_second;

/* Allocates blocks of many sizes, fills them, resizes and frees them. */
static void ends_work(const char *place)
{
    char *blocks[64];
    for (size_t i = 0; i < 64; i++) {
        const size_t bytes = i * i * 40 + 1;
        blocks[i] = i % 3 ? malloc(bytes) : calloc(1, bytes);
        if (!blocks[i]) abort();
        memset(blocks[i], (int)i, bytes);
    }
    for (size_t i = 0; i < 64; i++) {
        blocks[i] = realloc(blocks[i], i * 3000 + 7);
        if (!blocks[i] || blocks[i][0] != (char)i) abort();
    }
    for (size_t i = 0; i < 64; i++)
        free(blocks[i]);
    printf("%s\n", place);
    fflush(stdout);
}

__attribute__((constructor(101))) static void ends_construct(void)
{
    ends_early = strdup("constructor");
    ends_work("constructor");
}

__attribute__((destructor(101))) static void ends_destruct(void)
{
    free(ends_early);
    ends_work("destructor");
}

static void ends_at_exit(void)
{
    ends_work("handler");
}

static void ends_at_quick_exit(void)
{
    ends_work("quick handler");
}

/* Sets its key again until the C library stops calling it. */
static void ends_key_destructor(void *value)
{
    const long round = (long)value;
    ends_work("key");
    if (round < 9) pthread_setspecific(ends_first, (void *)(round + 1));
}

static void ends_block_destructor(void *value)
{
    free(value);
}

static void *ends_thread(void *main_thread)
{
    pthread_setspecific(ends_first, (void *)1);
    pthread_setspecific(ends_second, malloc(5000));
    ends_work("thread");
    if (main_thread) {
        pthread_join(*(pthread_t *)main_thread, NULL); /* outlives main */
        ends_work("last thread");
    }
    return NULL;
}

int main(int count, char **arguments)
{
    static pthread_t self;
    const char *way = count > 1 ? arguments[1] : "return";
    if (pthread_key_create(&ends_first, ends_key_destructor) || pthread_key_create(&ends_second, ends_block_destructor))
        return 1;
    if (atexit(ends_at_exit) || at_quick_exit(ends_at_quick_exit)) return 1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, ends_thread, NULL) || pthread_join(thread, NULL)) return 1;
    ends_work("main");
    if (!strcmp(way, "exit")) exit(0);
    if (!strcmp(way, "quick")) quick_exit(0);
    if (!strcmp(way, "failed")) exit(3);
    if (!strcmp(way, "thread")) {
        self = pthread_self();
        if (pthread_create(&thread, NULL, ends_thread, &self)) return 1;
        pthread_exit(NULL);
    }
    return 0;
}
