/* SPDX-License-Identifier: MIT */
/* A wire over a communicator. MPI moves memory of the host. NCCL moves memory of its device, so a short message goes
 * there and back. */
#include "wire.h"
#include "kit/fail.h"
#include <string.h>

loch_status lochi_comm_handover_comm_open(handover_wire *wire)
{
    loch_comm_info info = {.size = sizeof info};
    const loch_status status = loch_comm_get_info(wire->comm, &info);
    if (status != LOCH_OK) return status;
    if (wire->rank < 0 || wire->rank >= info.ranks || wire->rank == info.rank)
        return LOCH_FAIL(INVALID, "rank %d of %d cannot hand memory over to rank %d: it has to be another rank",
                         info.rank, info.ranks, wire->rank);
    wire->device = info.kind == LOCH_COMM_NCCL ? info.device : NULL;
    return LOCH_OK;
}

/* Creates a tensor of bytes on the device of the wire, or on host memory of the caller. */
static loch_status comm_tensor(const handover_wire *wire, void *bytes, size_t count, loch_tensor **out)
{
    const loch_tensor_options options = {.size = sizeof options, .device = wire->device};
    const int64_t shape[] = {(int64_t)count};
    return wire->device ? loch_tensor_create(LOCH_U8, 1, shape, &options, out)
                        : loch_tensor_wrap(LOCH_U8, 1, shape, bytes, NULL, out);
}

loch_status lochi_comm_handover_comm_send(handover_wire *wire, const void *from, size_t bytes)
{
    loch_tensor *tensor = NULL;
    void *address; /* a tensor can be written; this one is only read */
    memcpy(&address, &from, sizeof address);
    loch_status status = comm_tensor(wire, address, bytes, &tensor);
    if (status == LOCH_OK && wire->device) status = loch_tensor_write(tensor, from, bytes, NULL);
    if (status == LOCH_OK) status = loch_comm_send(wire->comm, tensor, wire->rank, NULL);
    loch_tensor_release(tensor);
    return status;
}

loch_status lochi_comm_handover_comm_receive(handover_wire *wire, void *to, size_t bytes)
{
    loch_tensor *tensor = NULL;
    loch_status status = comm_tensor(wire, to, bytes, &tensor);
    if (status == LOCH_OK) status = loch_comm_receive(wire->comm, tensor, wire->rank, NULL);
    if (status == LOCH_OK && wire->device) status = loch_tensor_read(tensor, to, bytes, NULL);
    loch_tensor_release(tensor);
    return status;
}
