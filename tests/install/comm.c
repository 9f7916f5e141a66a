/* SPDX-License-Identifier: MIT */
/* A program outside the tree that has a communicator by itself. */
#include <loch/comm.h>

int main(void)
{
    loch_comm *comm;
    loch_comm_info info = {.size = sizeof info};
    const loch_comm_options options = {.size = sizeof options, .kind = LOCH_COMM_SELF, .ranks = 1};
    if (loch_comm_create(&options, &comm) != LOCH_OK) return 1;
    const loch_status status = loch_comm_get_info(comm, &info);
    loch_comm_destroy(comm);
    return status != LOCH_OK || info.ranks != 1;
}
