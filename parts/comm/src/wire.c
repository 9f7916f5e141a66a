/* SPDX-License-Identifier: MIT */
/* Chooses between the kinds of wires. A wire that has failed is not used again: the two sides may no longer agree on
 * what comes next. */
#include "wire.h"
#include "kit/fail.h"
#include <stdio.h>
#include <string.h>

loch_status lochi_comm_handover_wire_open(const loch_handover_peer *peer, uint64_t timeout_ns, handover_wire *out)
{
    loch_handover_peer read = {.size = sizeof read};
    memset(out, 0, sizeof *out);
    if (!peer || peer->size < sizeof peer->size)
        return LOCH_FAIL(INVALID, "a hand-over needs a peer whose size member is set");
    memcpy(&read, peer, peer->size < sizeof read ? peer->size : sizeof read);
    out->comm = read.comm;
    out->rank = read.rank;
    out->socket = read.socket;
    out->timeout_ns = timeout_ns;
    if (read.comm)
        snprintf(out->name, sizeof out->name, "rank %d", read.rank);
    else
        snprintf(out->name, sizeof out->name, "the other process");
    return read.comm ? lochi_comm_handover_comm_open(out) : lochi_comm_handover_socket_check(read.socket);
}

/* Marks a wire as broken if a call has failed, and hands the status on. */
static loch_status wire_note(handover_wire *wire, loch_status status)
{
    wire->is_broken = status != LOCH_OK;
    return status;
}

static loch_status wire_refuse(const handover_wire *wire)
{
    return LOCH_FAIL(IO, "the connection with %s failed before", wire->name);
}

loch_status lochi_comm_handover_wire_send(handover_wire *wire, const void *from, size_t bytes)
{
    if (wire->is_broken) return wire_refuse(wire);
    return wire_note(wire, wire->comm ? lochi_comm_handover_comm_send(wire, from, bytes)
                                      : lochi_comm_handover_socket_send(wire, from, bytes));
}

loch_status lochi_comm_handover_wire_receive(handover_wire *wire, void *to, size_t bytes)
{
    if (wire->is_broken) return wire_refuse(wire);
    return wire_note(wire, wire->comm ? lochi_comm_handover_comm_receive(wire, to, bytes)
                                      : lochi_comm_handover_socket_receive(wire, to, bytes));
}

bool lochi_comm_handover_wire_takes(const handover_wire *wire, const loch_buffer *buffer)
{
    if (!wire->device) return loch_buffer_is_on_host(buffer) != 0;
    return loch_buffer_get_device(buffer) == wire->device && loch_buffer_get_kind(buffer) == LOCH_MEMORY_DEVICE;
}

loch_status lochi_comm_handover_wire_send_tensor(handover_wire *wire, loch_tensor *from)
{
    void *address;
    if (wire->is_broken) return wire_refuse(wire);
    if (wire->comm) return wire_note(wire, loch_comm_send(wire->comm, from, wire->rank, NULL));
    loch_status status = loch_tensor_get_address(from, &address);
    if (status == LOCH_OK) status = lochi_comm_handover_socket_send(wire, address, loch_tensor_get_bytes(from));
    return wire_note(wire, status);
}

loch_status lochi_comm_handover_wire_receive_tensor(handover_wire *wire, loch_tensor *to)
{
    void *address;
    if (wire->is_broken) return wire_refuse(wire);
    if (wire->comm) return wire_note(wire, loch_comm_receive(wire->comm, to, wire->rank, NULL));
    loch_status status = loch_tensor_get_address(to, &address);
    if (status == LOCH_OK) status = lochi_comm_handover_socket_receive(wire, address, loch_tensor_get_bytes(to));
    return wire_note(wire, status);
}
