/* SPDX-License-Identifier: MIT */
/* One rank of a job that hands memory over: mpirun starts several of these (tests/parts/comm/run-handover). */
#include "handover_ranks.h"

int main(int count, char **arguments)
{
    return ranks_main(count, arguments);
}
