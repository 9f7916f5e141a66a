/* SPDX-License-Identifier: MIT */
/* Rooms of threads: pages from the system, unmapped by a thread-specific destructor. A destructor that runs later
 * may make another room, which the next round of destructors unmaps. In the last rounds no room is made. The main
 * thread keeps its room until the process ends. */
#include "base/room.h"
#include "base/status.h"
#include "base/thread_own.h"
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>

#define ROOM_ENDS_MAX 3 /* below PTHREAD_DESTRUCTOR_ITERATIONS, the number of rounds of destructors */

_Thread_local lochi_room *lochi_room_own;

static pthread_once_t room_once = PTHREAD_ONCE_INIT;
static pthread_key_t room_key;
static bool room_has_key;

static void room_end(void *room)
{
    lochi_room_own = NULL;
    lochi_thread_own_small.room_ends++;
    munmap(room, sizeof(lochi_room));
}

static void room_make_key(void)
{
    room_has_key = pthread_key_create(&room_key, room_end) == 0;
}

lochi_room *lochi_room_make(void)
{
    pthread_once(&room_once, room_make_key);
    if (!room_has_key || lochi_thread_own_small.room_ends >= ROOM_ENDS_MAX) return NULL;
    lochi_room *room = mmap(NULL, sizeof *room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return NULL;
    if (pthread_setspecific(room_key, room) != 0) {
        munmap(room, sizeof *room);
        return NULL;
    }
    room->error = *lochi_error_bare();
    lochi_room_own = room;
    return room;
}
