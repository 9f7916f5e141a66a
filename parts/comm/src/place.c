/* SPDX-License-Identifier: MIT */
/* The place of a process in its job, from the variables that launchers set. A row of the table is one launcher; the
 * first row whose rank and number of ranks are both set is the one that counts. Variables of torchrun come first: a
 * program may set them itself, and they then say more than the launcher around it. */
#include "place.h"
#include "common.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

typedef struct place_row {
    loch_comm_source source;
    const char *rank, *ranks, *local_rank, *local_ranks; /* names of variables; NULL for none */
} place_row;

static const place_row place_rows[] = {
    {LOCH_COMM_FROM_TORCH, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {LOCH_COMM_FROM_OPENMPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {LOCH_COMM_FROM_PMI, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {LOCH_COMM_FROM_SLURM, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL},
};

static const char *place_text(const char *name)
{
    const char *text = name ? secure_getenv(name) : NULL;
    return text && *text ? text : NULL;
}

/* Reads a variable as a number from `least` on. Leaves `out` alone if the variable is not set. */
static loch_status place_number(const char *name, int least, int *out)
{
    const char *text = place_text(name);
    if (!text) return LOCH_OK;
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || *end || end == text || value < least || value > INT_MAX)
        return LOCH_FAIL(INVALID, "the variable %s is \"%.40s\", and it must be a number from %d on", name, text,
                         least);
    *out = (int)value;
    return LOCH_OK;
}

static loch_status place_read_row(const place_row *row, loch_comm_place *out)
{
    out->source = row->source;
    out->local_rank = -1;
    LOCH_RETURN(place_number(row->rank, 0, &out->rank));
    LOCH_RETURN(place_number(row->ranks, 1, &out->ranks));
    LOCH_RETURN(place_number(row->local_rank, 0, &out->local_rank));
    LOCH_RETURN(place_number(row->local_ranks, 1, &out->local_ranks));
    if (out->rank >= out->ranks)
        return LOCH_FAIL(INVALID, "the variable %s is %d, and %s says that there are %d ranks", row->rank, out->rank,
                         row->ranks, out->ranks);
    if (out->local_ranks && out->local_rank >= out->local_ranks)
        return LOCH_FAIL(INVALID, "the variable %s is %d, and %s says that there are %d ranks on this machine",
                         row->local_rank, out->local_rank, row->local_ranks, out->local_ranks);
    return LOCH_OK;
}

loch_status lochi_comm_place_read(loch_comm_place *out)
{
    *out = (loch_comm_place){.size = sizeof *out, .ranks = 1, .local_ranks = 1};
    for (size_t i = 0; i < sizeof place_rows / sizeof *place_rows; i++) {
        if (!place_text(place_rows[i].rank) || !place_text(place_rows[i].ranks)) continue;
        out->local_ranks = 0;
        return place_read_row(&place_rows[i], out);
    }
    return LOCH_OK;
}

loch_status loch_comm_get_place(loch_comm_place *out)
{
    loch_comm_place place;
    LOCH_RETURN(comm_write_result(&(loch_comm_place){.size = 0}, sizeof place, out, "the place of a process"));
    LOCH_RETURN(lochi_comm_place_read(&place));
    return comm_write_result(&place, sizeof place, out, "the place of a process");
}
