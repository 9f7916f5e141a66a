/* SPDX-License-Identifier: MIT */
/* The lock of the library and forks (state.c). */
#ifndef SHARE_STATE_H
#define SHARE_STATE_H

#include <pthread.h>

/* Guards the parcels, spans and connections of the owner and the links of the importer. Loch is never called with it
 * held: a fork takes it, and Loch's locks too. */
extern pthread_mutex_t lochi_share_lock;

/* Number of forks between the first process that loaded the library and this one. Objects remember the number, so that
 * a child tells what it inherited. Changes in the child of a fork only, before it has a second thread. */
extern unsigned lochi_share_epoch;

/* Does its work in the child of a fork, with the lock held: closes descriptors and forgets what they belonged to. Must
 * not call Loch. */
typedef void share_forked(void);

/* Has both functions called in the child of every fork, from now on. */
void lochi_share_state_watch_forks(share_forked *one, share_forked *other);

#endif
