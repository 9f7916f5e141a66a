/* SPDX-License-Identifier: MIT */
/* Loading and unloading: dlclose while threads live that have used the library, and several copies of it in one
 * process. */
#include "copy_file.h"
#include "loaded.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define THREADS 6
#define COPIES 8

typedef struct user {
    const loaded *library;
    pthread_barrier_t *barrier;
    const char *wrong;
} user;

/* Uses the library, and ends after it was closed. */
static void *use_and_outlive(void *argument)
{
    user *u = argument;
    u->wrong = loaded_use(u->library);
    pthread_barrier_wait(u->barrier); /* used */
    pthread_barrier_wait(u->barrier); /* closed */
    return NULL;
}

static void threads_outlive_dlclose(void **state)
{
    (void)state;
    const char *path = loaded_path();
    for (int round = 0; round < 20; round++) {
        loaded library;
        user users[THREADS];
        pthread_t threads[THREADS];
        pthread_barrier_t barrier;
        const char *wrong = loaded_open(&library, path);
        if (wrong) fail_msg("%s", wrong);
        assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS + 1), 0);
        for (size_t i = 0; i < THREADS; i++) {
            users[i] = (user){&library, &barrier, NULL};
            assert_int_equal(pthread_create(&threads[i], NULL, use_and_outlive, &users[i]), 0);
        }
        pthread_barrier_wait(&barrier);
        assert_int_equal(dlclose(library.handle), 0);
        pthread_barrier_wait(&barrier);
        for (size_t i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            if (users[i].wrong) fail_msg("%s", users[i].wrong);
        }
        pthread_barrier_destroy(&barrier);
    }
}

typedef struct copies {
    loaded libraries[COPIES];
    pthread_barrier_t barrier;
    const char *wrong;
} copies;

/* Is there before the copies are, and uses each of them. */
static void *use_all(void *argument)
{
    copies *all = argument;
    pthread_barrier_wait(&all->barrier);
    for (size_t i = 0; i < COPIES && !all->wrong; i++)
        all->wrong = loaded_use(&all->libraries[i]);
    pthread_barrier_wait(&all->barrier); /* used */
    pthread_barrier_wait(&all->barrier); /* closed */
    return NULL;
}

static void several_copies_of_the_library_fit_in_one_process(void **state)
{
    (void)state;
    char folder[] = "/tmp/loch-copies-XXXXXX", path[64];
    static copies all;
    pthread_t thread;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(pthread_barrier_init(&all.barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, use_all, &all), 0);
    const char *wrong = NULL;
    for (size_t i = 0; i < COPIES && !wrong; i++) {
        snprintf(path, sizeof path, "%s/libloch-%zu.so", folder, i);
        copy_file(loaded_path(), path);
        wrong = loaded_open(&all.libraries[i], path);
        unlink(path);
        for (size_t other = 0; other < i && !wrong; other++)
            assert_ptr_not_equal(all.libraries[i].loch_alloc, all.libraries[other].loch_alloc);
        if (!wrong) wrong = loaded_use(&all.libraries[i]);
    }
    rmdir(folder);
    if (wrong) fail_msg("%s", wrong);
    pthread_barrier_wait(&all.barrier);
    pthread_barrier_wait(&all.barrier);
    for (size_t i = 0; i < COPIES; i++)
        assert_int_equal(dlclose(all.libraries[i].handle), 0);
    pthread_barrier_wait(&all.barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (all.wrong) fail_msg("%s", all.wrong);
    pthread_barrier_destroy(&all.barrier);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(threads_outlive_dlclose),
        cmocka_unit_test(several_copies_of_the_library_fit_in_one_process),
    };
    if (!loaded_path()) {
        puts("skipped: libloch.so is not beside this program's folder");
        return TEST_SKIPPED;
    }
    return cmocka_run_group_tests(cases, NULL, NULL);
}
