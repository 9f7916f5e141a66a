/* SPDX-License-Identifier: MIT */
/* The way to the other process (wire.c): short messages, and tensors of bytes. By a Unix socket (wire_socket.c) or a
 * communicator (wire_comm.c). */
#ifndef HANDOVER_WIRE_H
#define HANDOVER_WIRE_H

#include <loch/handover.h>
#include <stdbool.h>

typedef struct handover_wire {
    loch_comm *comm; /* NULL for the socket */
    int rank, socket;
    uint64_t timeout_ns; /* for each message over a socket; 0 for none */
    loch_device *device; /* tensors lie on this device; NULL: in memory of the host; borrowed */
    bool is_broken;      /* nothing more can be sent or received */
    char name[32];       /* of the other side, for sentences: "rank 1" */
} handover_wire;

/* Prepares a wire; there is nothing to close. E_INVALID: the peer is not valid. */
loch_status lochi_comm_handover_wire_open(const loch_handover_peer *peer, uint64_t timeout_ns, handover_wire *out);

/* Send and receive a short message of a size that both sides know. */
loch_status lochi_comm_handover_wire_send(handover_wire *wire, const void *from, size_t bytes);
loch_status lochi_comm_handover_wire_receive(handover_wire *wire, void *to, size_t bytes);

/* Returns whether tensors in this buffer can be sent and received in place. */
bool lochi_comm_handover_wire_takes(const handover_wire *wire, const loch_buffer *buffer);

/* Send and receive a contiguous tensor that lies where the wire takes it, and wait. Both sides know its size. */
loch_status lochi_comm_handover_wire_send_tensor(handover_wire *wire, loch_tensor *from);
loch_status lochi_comm_handover_wire_receive_tensor(handover_wire *wire, loch_tensor *to);

/* The two kinds of wires. */
loch_status lochi_comm_handover_socket_check(int socket);
loch_status lochi_comm_handover_socket_send(handover_wire *wire, const void *from, size_t bytes);
loch_status lochi_comm_handover_socket_receive(handover_wire *wire, void *to, size_t bytes);

loch_status lochi_comm_handover_comm_open(handover_wire *wire);
loch_status lochi_comm_handover_comm_send(handover_wire *wire, const void *from, size_t bytes);
loch_status lochi_comm_handover_comm_receive(handover_wire *wire, void *to, size_t bytes);

#endif
