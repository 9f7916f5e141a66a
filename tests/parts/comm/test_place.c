/* SPDX-License-Identifier: MIT */
/* The place of a process in its job, from the variables of launchers. */
#include "support/test.h"
#include <loch/comm.h>

static const char *const names[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_LOCALID"};

/* Sets variables in the order of the list above, from `first` on; NULL leaves one out. */
static void set(size_t first, const char *rank, const char *ranks, const char *local_rank, const char *local_ranks)
{
    const char *const values[] = {rank, ranks, local_rank, local_ranks};
    for (size_t i = 0; i < 4; i++)
        if (values[i]) setenv(names[first + i], values[i], 1);
}

static void unset(void)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static void expect(loch_comm_source source, int rank, int ranks, int local_rank, int local_ranks)
{
    loch_comm_place place = {.size = sizeof place};
    CHECK_OK(loch_comm_get_place(&place));
    assert_int_equal(place.source, source);
    assert_int_equal(place.rank, rank);
    assert_int_equal(place.ranks, ranks);
    assert_int_equal(place.local_rank, local_rank);
    assert_int_equal(place.local_ranks, local_ranks);
    assert_int_equal(place.size, sizeof place);
}

static void a_process_by_itself_is_alone(void **state)
{
    (void)state;
    unset();
    expect(LOCH_COMM_FROM_NOTHING, 0, 1, 0, 1);
    setenv("RANK", "3", 1); /* half of what a launcher sets does not count */
    expect(LOCH_COMM_FROM_NOTHING, 0, 1, 0, 1);
    setenv("WORLD_SIZE", "", 1);
    expect(LOCH_COMM_FROM_NOTHING, 0, 1, 0, 1);
}

static void every_launcher_is_read(void **state)
{
    (void)state;
    unset();
    set(12, "5", "6", "1", NULL);
    expect(LOCH_COMM_FROM_SLURM, 5, 6, 1, 0);
    set(8, "1", "2", "1", "2");
    expect(LOCH_COMM_FROM_PMI, 1, 2, 1, 2);
    set(4, "7", "8", "3", "4");
    expect(LOCH_COMM_FROM_OPENMPI, 7, 8, 3, 4);
    set(0, "2", "3", "0", "1");
    expect(LOCH_COMM_FROM_TORCH, 2, 3, 0, 1);
    unset();
    set(8, "0", "1", NULL, NULL);
    expect(LOCH_COMM_FROM_PMI, 0, 1, -1, 0);
}

static void wrong_numbers_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[][4] = {
        {"x", "2", NULL, NULL}, {"1 ", "2", NULL, NULL},          {"-1", "2", NULL, NULL},
        {"2", "2", NULL, NULL}, {"0", "0", NULL, NULL},           {"0", "-3", NULL, NULL},
        {"0", "2", "q", NULL},  {"0", "2", "-1", NULL},           {"0", "2", "2", "2"},
        {"0", "2", "0", "0"},   {"0", "99999999999", NULL, NULL}, {"0x1", "2", NULL, NULL}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        loch_comm_place place = {.size = sizeof place, .rank = 77};
        unset();
        set(0, wrong[i][0], wrong[i][1], wrong[i][2], wrong[i][3]);
        CHECK_FAILS(loch_comm_get_place(&place), INVALID);
        loch_comm *comm = TEST_UNTOUCHED;
        CHECK_FAILS(loch_comm_create(NULL, &comm), INVALID);
        assert_null(comm);
    }
    unset();
    setenv("RANK", "9", 1);
    setenv("WORLD_SIZE", "4", 1);
    loch_comm_place place = {.size = sizeof place};
    CHECK_FAILS(loch_comm_get_place(&place), INVALID);
    assert_non_null(strstr(loch_error_get()->sentence, "the variable RANK is 9, and WORLD_SIZE says"));
    unset();
}

static void a_short_struct_gets_what_fits(void **state)
{
    (void)state;
    unset();
    loch_comm_place place = {.size = offsetof(loch_comm_place, ranks), .ranks = -9, .local_rank = -9};
    CHECK_OK(loch_comm_get_place(&place));
    assert_int_equal(place.rank, 0);
    assert_int_equal(place.ranks, -9);
    place.size = 0;
    CHECK_FAILS(loch_comm_get_place(&place), INVALID);
    CHECK_FAILS(loch_comm_get_place(NULL), INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_by_itself_is_alone),
        cmocka_unit_test(every_launcher_is_read),
        cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(a_short_struct_gets_what_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
