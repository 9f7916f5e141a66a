/* SPDX-License-Identifier: MIT */
/* The engine for one rank: every call is a copy on the device, in the order of the stream, or nothing if it is in
 * place. Sends and receives of a group are kept in lists: the first send goes to the first receive, and so on. */
#include "self.h"
#include "kit/fail.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct self_message {
    const void *from;
    void *to;
    size_t bytes;
} self_message;

typedef struct self_state {
    self_message *messages; /* of the present group, in order */
    size_t sent, received, capacity;
} self_state;

static loch_status self_accept(loch_comm *comm, const loch_tensor *tensor, const char *what)
{
    const loch_device *device = loch_tensor_get_device(tensor);
    if (device == comm->device || loch_tensor_is_on_host(tensor)) return LOCH_OK;
    return LOCH_FAIL(INVALID, "the tensor '%s' of a collective is on %.80s, and the communicator on %.80s", what,
                     loch_device_get_name(device), loch_device_get_name(comm->device));
}

static loch_status self_can_reduce(const loch_comm *comm, loch_dtype dtype, loch_comm_op op)
{
    (void)comm, (void)dtype, (void)op;
    return LOCH_OK;
}

static loch_status self_prepare(loch_comm *comm, loch_stream *stream)
{
    (void)comm, (void)stream;
    return LOCH_OK;
}

static loch_status self_copy(void *to, const void *from, size_t bytes, loch_stream *stream)
{
    return bytes && to && to != from ? loch_copy_on(to, from, bytes, stream) : LOCH_OK;
}

/* Puts one side of a message into the lists of the group. */
static loch_status self_keep(self_state *state, const comm_call *call)
{
    size_t *place = call->verb == COMM_SEND ? &state->sent : &state->received;
    if (*place == state->capacity) {
        const size_t capacity = state->capacity ? 2 * state->capacity : 4;
        self_message *messages = realloc(state->messages, capacity * sizeof *messages);
        if (!messages) return LOCH_FAIL(HOST_MEMORY, "no host memory for a group of %zu messages", capacity);
        state->messages = messages;
        state->capacity = capacity;
    }
    self_message *message = &state->messages[*place];
    if (*place >= (call->verb == COMM_SEND ? state->received : state->sent)) *message = (self_message){0};
    const size_t bytes = call->count * call->bytes;
    if (message->bytes && message->bytes != bytes)
        return LOCH_FAIL(INVALID, "a message of %zu bytes is received as one of %zu bytes",
                         call->verb == COMM_SEND ? bytes : message->bytes,
                         call->verb == COMM_SEND ? message->bytes : bytes);
    message->bytes = bytes;
    if (call->verb == COMM_SEND)
        message->from = call->from;
    else
        message->to = call->to;
    ++*place;
    return LOCH_OK;
}

static loch_status self_run(loch_comm *comm, const comm_call *call)
{
    switch (call->verb) {
    case COMM_SEND:
    case COMM_RECEIVE: return self_keep(comm->below, call);
    case COMM_ALL_TO_ALL_V:
        return self_copy((char *)call->to + call->to_offsets[0] * call->bytes,
                         (const char *)call->from + call->from_offsets[0] * call->bytes,
                         call->from_counts[0] * call->bytes, call->stream);
    default: return self_copy(call->to, call->from, call->count * call->bytes, call->stream);
    }
}

static loch_status self_begin_group(loch_comm *comm)
{
    self_state *state = comm->below;
    state->sent = state->received = 0;
    return LOCH_OK;
}

static loch_status self_end_group(loch_comm *comm, loch_status status)
{
    const self_state *state = comm->below;
    if (status != LOCH_OK) return status;
    if (state->sent != state->received)
        return LOCH_FAIL(INVALID, "a group of one rank has %zu sends and %zu receives", state->sent, state->received);
    for (size_t i = 0; i < state->sent; i++)
        LOCH_RETURN(
            self_copy(state->messages[i].to, state->messages[i].from, state->messages[i].bytes, comm->group_stream));
    return LOCH_OK;
}

static loch_status self_barrier(loch_comm *comm)
{
    (void)comm;
    return LOCH_OK;
}

static loch_status self_sync(loch_comm *comm, loch_stream *stream)
{
    (void)comm;
    return loch_stream_sync(stream);
}

static loch_status self_window(loch_comm *comm, loch_buffer *buffer)
{
    (void)comm, (void)buffer;
    return LOCH_FAIL(UNSUPPORTED, "a communicator without NCCL has no windows");
}

static void self_describe(const loch_comm *comm, loch_comm_info *out)
{
    (void)comm, (void)out;
}

static void self_destroy(loch_comm *comm)
{
    self_state *state = comm->below;
    if (state) free(state->messages);
    free(state);
    comm->below = NULL;
}

static const comm_engine self_engine = {.accept = self_accept,
                                        .can_reduce = self_can_reduce,
                                        .prepare = self_prepare,
                                        .agree = lochi_comm_agree_always,
                                        .run = self_run,
                                        .begin_group = self_begin_group,
                                        .end_group = self_end_group,
                                        .barrier = self_barrier,
                                        .sync = self_sync,
                                        .add_window = self_window,
                                        .remove_window = self_window,
                                        .describe = self_describe,
                                        .destroy = self_destroy};

loch_status lochi_comm_self_create(loch_comm *comm)
{
    comm->engine = &self_engine;
    comm->name = "self";
    snprintf(comm->version, sizeof comm->version, "%s", loch_version());
    comm->below = calloc(1, sizeof(self_state));
    if (!comm->below) return LOCH_FAIL(HOST_MEMORY, "no host memory for a communicator");
    comm->local_rank = 0;
    comm->local_ranks = 1;
    return LOCH_OK;
}
