/* SPDX-License-Identifier: MIT */
/* Functions that streams run on the host. */
#ifndef LOCH_OPENCL_CALLS_H
#define LOCH_OPENCL_CALLS_H

#include "state.h"

void lochi_opencl_calls_open(lochi_opencl_calls *calls);
/* Ends the threads. No function waits for its turn any more. */
void lochi_opencl_calls_close(lochi_opencl_calls *calls);

loch_status lochi_opencl_stream_call(void *self, void *stream, loch_stream_function *function, void *user);

#endif
