/* SPDX-License-Identifier: MIT */
/* Events of CUDA that other processes can wait for (cuda.c). */
#ifndef SHARE_CUDA_H
#define SHARE_CUDA_H

#include "message.h"

/* An event of a device. */
typedef struct share_cuda_event share_cuda_event;

/* Creates an event that other processes can wait for, and records it on `stream` (NULL: the default stream). Returns
 * NULL if the device is not a CUDA one or cannot share events; the caller then waits in another way. */
share_cuda_event *lochi_share_cuda_record(loch_device *device, loch_stream *stream);

/* Destroys an event. NULL does nothing. */
void lochi_share_cuda_destroy(share_cuda_event *event);

/* Copies what another process opens the event with. */
void lochi_share_cuda_get_handle(const share_cuda_event *event, uint8_t out[SHARE_EVENT_BYTES]);

/* Returns whether the work before the event has ended. */
bool lochi_share_cuda_has_passed(const share_cuda_event *event);

/* Makes a stream (NULL: the default stream) wait for an event of this process. Returns false if the driver refuses. */
bool lochi_share_cuda_wait(const share_cuda_event *event, loch_stream *stream);

/* Makes a stream (NULL: the default stream) of `device` wait for an event of another process. Returns false if the
 * driver refuses: the processes may be in different containers. */
bool lochi_share_cuda_wait_shared(loch_device *device, const uint8_t handle[SHARE_EVENT_BYTES], loch_stream *stream);

#endif
