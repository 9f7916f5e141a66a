/* SPDX-License-Identifier: MIT */
/* Rooms of threads: they go with their thread, and a thread that can have none still says what went wrong. */
#include "base/fail.h"
#include "base/room.h"
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Thread_local bool has_no_memory;
static atomic_long rooms; /* that were mapped and are not unmapped */

/* Stand for the C library's, in this program and the library that is linked with it: they count rooms, and can
 * refuse. */
void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (bytes == sizeof(lochi_room) && has_no_memory) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    atomic_fetch_add(&rooms, bytes == sizeof(lochi_room));
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}

int munmap(void *address, size_t bytes)
{
    atomic_fetch_sub(&rooms, bytes == sizeof(lochi_room));
    return (int)syscall(SYS_munmap, address, bytes);
}

static void *without_memory(void *user)
{
    const char **wrong = user;
    has_no_memory = true;
    *wrong = NULL;
    if (loch_error_get()->status != LOCH_OK || *loch_error_get()->sentence) *wrong = "does not start empty";
    for (int status = 1; status < LOCH_STATUS_COUNT; status++) {
        if (loch_error_set((loch_status)status, "cuda", 7, "%d", status) != (loch_status)status) *wrong = "status";
        const loch_error *error = loch_error_get();
        const char *text = loch_status_text((loch_status)status);
        if (error->status != (loch_status)status || strncmp(error->sentence, text, strlen(text)) != 0)
            *wrong = "record";
        if (strcmp(error->driver, "") != 0) *wrong = "driver";
    }
    const loch_error saved = lochi_error_save();
    loch_error_clear();
    if (loch_error_get()->status != LOCH_OK) *wrong = "is not cleared";
    lochi_error_restore(&saved);
    if (loch_error_get()->status != LOCH_STATUS_COUNT - 1) *wrong = "is not restored";
    (void)loch_error_set((loch_status)1000, NULL, 0, "x");
    if (loch_error_get()->status != LOCH_E_DRIVER) *wrong = "a code outside the list";
    loch_device *device = NULL;
    if (loch_device_open("nothing", &device) != LOCH_E_NOT_FOUND) *wrong = "open";
    if (loch_error_get()->status != LOCH_E_NOT_FOUND) *wrong = "record of open";
    if (loch_device_open("sim:64MiB,backed", &device) != LOCH_OK) *wrong = "open a device";
    void *block = NULL;
    if (!*wrong && loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 4096, 0, &block) != LOCH_OK) *wrong = "alloc";
    char byte = 1;
    if (!*wrong && loch_copy(block, &byte, 1) != LOCH_OK) *wrong = "copy"; /* remembers no place */
    if (!*wrong && loch_raw_free(block) != LOCH_OK) *wrong = "free";
    loch_device_release(device);
    if (loch_error_set(LOCH_E_LIMIT, NULL, 0, "one") != LOCH_E_LIMIT) *wrong = "status";
    has_no_memory = false; /* the record of before is there, and later ones are whole */
    if (loch_error_get()->status != LOCH_E_LIMIT) *wrong = "is lost with memory";
    (void)loch_error_set(LOCH_E_IO, "cuda", 7, "two");
    if (strcmp(loch_error_get()->sentence, "two") != 0 || loch_error_get()->driver_code != 7) *wrong = "with memory";
    return NULL;
}

static void a_thread_without_a_room_still_says_what_failed(void **state)
{
    (void)state;
    const char *wrong = "did not run";
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, without_memory, &wrong), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (wrong) fail_msg("%s", wrong);
}

/* --- the ends of threads --- */

#define KEYS 3

static pthread_key_t keys[KEYS];
static atomic_int calls, wrongs;

/* A destructor of the program's that uses Loch in every round, before or behind Loch's own. */
static void fail_late(void *value)
{
    atomic_fetch_add(&calls, 1);
    if (loch_device_open("", NULL) != LOCH_E_INVALID || loch_error_get()->status != LOCH_E_INVALID ||
        !*loch_error_get()->sentence)
        atomic_fetch_add(&wrongs, 1);
    pthread_setspecific(*(pthread_key_t *)value, value); /* again, until there are no more rounds */
}

static void *set_keys(void *user)
{
    (void)user;
    if (loch_device_open("", NULL) != LOCH_E_INVALID) atomic_fetch_add(&wrongs, 1);
    for (size_t i = 0; i < KEYS; i++)
        pthread_setspecific(keys[i], &keys[i]);
    return NULL;
}

static void rooms_go_with_threads(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_key_create(&keys[0], fail_late), 0);
    (void)loch_error_get(); /* this thread's, and the library's own key, behind the first */
    for (size_t i = 1; i < KEYS; i++)
        assert_int_equal(pthread_key_create(&keys[i], fail_late), 0);
    const long before = atomic_load(&rooms);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(pthread_create(&thread, NULL, set_keys, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_true(atomic_load(&calls) >= 50 * KEYS * 2);
    assert_int_equal(atomic_load(&wrongs), 0);
    assert_int_equal(atomic_load(&rooms), before);
    for (size_t i = 0; i < KEYS; i++)
        pthread_key_delete(keys[i]);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(rooms_go_with_threads),
        cmocka_unit_test(a_thread_without_a_room_still_says_what_failed),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
