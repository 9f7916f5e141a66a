/* SPDX-License-Identifier: MIT */
/* A matrix cut over the ranks of a job: every rank loads its own rows, then its own columns, from a mapped file, and
 * the parts are gathered again. Without a launcher there is one rank, which has it all.
 *
 *   mpirun -n 3 45_cut */
#include <loch/comm.h>
#include <loch/cut.h>
#include <loch/npy.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ROWS 7
#define COLUMNS 4

/* Rank 0 writes the file. */
static void write_file(const char *path)
{
    float numbers[ROWS * COLUMNS];
    loch_tensor *matrix;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        numbers[i] = (float)i;
    LOCH_CHECK(loch_tensor_create_from(LOCH_F32, LOCH_SHAPE(ROWS, COLUMNS), numbers, NULL, &matrix));
    LOCH_CHECK(loch_npy_save(matrix, path, NULL));
    loch_tensor_release(matrix);
}

/* Loads this rank's part along an axis, gathers, and compares. Returns whether the whole is right. */
static int cut(loch_comm *comm, loch_tensor *mapped, int axis, int rank)
{
    loch_cut_part mine = {.size = sizeof mine};
    loch_tensor *view, *part, *whole;
    float numbers[ROWS * COLUMNS];
    int right = 1;
    LOCH_CHECK(loch_cut_get_part(comm, loch_tensor_get_size(mapped, axis), rank, &mine));
    LOCH_CHECK(loch_cut_slice(comm, mapped, axis, &view)); /* no copy: what loch_context_load takes */
    LOCH_CHECK(loch_cut_load(comm, mapped, axis, NULL, &part));
    printf("rank %d: %s %lld to %lld, %zu of %zu bytes loaded\n", rank, axis ? "columns" : "rows",
           (long long)mine.start, (long long)mine.start + mine.count, loch_tensor_get_bytes(view),
           loch_tensor_get_bytes(mapped));
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(ROWS, COLUMNS), NULL, &whole));
    LOCH_CHECK(loch_cut_gather(comm, whole, part, axis, NULL));
    LOCH_CHECK(loch_tensor_read(whole, numbers, sizeof numbers, NULL));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        right = right && numbers[i] == (float)i;
    loch_tensor_release(whole);
    loch_tensor_release(part);
    loch_tensor_release(view);
    return right;
}

int main(void)
{
    loch_comm *comm;
    loch_comm_info info = {.size = sizeof info};
    loch_tensor *mapped, *name;
    char path[64] = "";
    LOCH_CHECK(loch_comm_create(NULL, &comm));
    LOCH_CHECK(loch_comm_get_info(comm, &info));
    if (info.rank == 0) {
        snprintf(path, sizeof path, "/tmp/loch-cut-%ld.npy", (long)getpid());
        write_file(path);
    }
    LOCH_CHECK(loch_tensor_wrap(LOCH_U8, LOCH_SHAPE(sizeof path), path, NULL, &name));
    LOCH_CHECK(loch_comm_broadcast(comm, name, 0, NULL)); /* all ranks learn the path */
    LOCH_CHECK(loch_npy_load(path, NULL, &mapped));
    const int right = cut(comm, mapped, 0, info.rank) && cut(comm, mapped, 1, info.rank);
    LOCH_CHECK(loch_comm_barrier(comm));
    if (info.rank == 0) printf("number of ranks: %d; the whole is %s\n", info.ranks, right ? "right" : "wrong");
    loch_tensor_release(mapped);
    loch_tensor_release(name);
    if (info.rank == 0) unlink(path);
    loch_comm_destroy(comm);
    return !right;
}
