/* SPDX-License-Identifier: MIT */
/* Every host allocation of the library, every thread and every descriptor that it asks for fails in turn, once and for
 * good, while a communicator is created, used and destroyed: with one rank without a library below, and with one rank
 * on a library in the place of NCCL. Every failure is told, and nothing is held afterwards. */
#include "nccl.h"
#include "support/sweep.h"
#include "support/test.h"
#include <errno.h>
#include <loch/comm.h>
#include <stdatomic.h>
#include <unistd.h>

/* --- calls that fail; the linker puts these in the place of the functions --- */

static atomic_int fault_mode;
static _Atomic uint64_t fault_after, fault_calls;

static bool fault_strikes(int error)
{
    if (!atomic_load(&fault_mode)) return false;
    const uint64_t number = atomic_fetch_add(&fault_calls, 1), after = atomic_load(&fault_after);
    const bool is_hit = atomic_load(&fault_mode) == TEST_FAILING_ONCE ? number == after : number >= after;
    if (is_hit) errno = error;
    return is_hit;
}

/* FAULT(result, function, (parameters), (arguments), value on failure, errno) */
#define FAULT(result, name, parameters, arguments, failed, error)                                                      \
    result __real_##name parameters;                                                                                   \
    result __wrap_##name parameters;                                                                                   \
    result __wrap_##name parameters                                                                                    \
    {                                                                                                                  \
        return fault_strikes(error) ? (failed) : __real_##name arguments;                                              \
    }

FAULT(void *, malloc, (size_t bytes), (bytes), NULL, ENOMEM)
FAULT(void *, calloc, (size_t count, size_t bytes), (count, bytes), NULL, ENOMEM)
FAULT(void *, realloc, (void *address, size_t bytes), (address, bytes), NULL, ENOMEM)

static loch_device *device;
static void (*count)(int *comms, int *registrations, int *aborts);

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((status = (call)) != LOCH_OK) goto end;                                                                    \
    } while (0)

/* Creates, uses and destroys a communicator of one rank. */
static loch_status run(loch_comm_kind kind)
{
    loch_comm *comm = NULL;
    loch_tensor *tensors[12] = {NULL};
    loch_status status;
    const loch_comm_options options = {.size = sizeof options, .device = device, .kind = kind};
    const loch_tensor_options memory = {.size = sizeof memory, .device = device};
    for (size_t i = 0; i < 12; i++)
        TRY(loch_tensor_create(LOCH_I8, LOCH_SHAPE(100), &memory, &tensors[i]));
    TRY(loch_comm_create(&options, &comm));
    TRY(loch_comm_all_reduce(comm, tensors[0], tensors[1], LOCH_COMM_SUM, NULL));
    TRY(loch_comm_begin_group(comm));
    for (size_t i = 0; i < 6 && status == LOCH_OK; i++) {
        status = loch_comm_send(comm, tensors[2 * i], 0, NULL);
        if (status == LOCH_OK) status = loch_comm_receive(comm, tensors[2 * i + 1], 0, NULL);
    }
    const loch_status ended = loch_comm_end_group(comm);
    if (status == LOCH_OK) status = ended;
    if (status != LOCH_OK) assert_int_equal(ended, status); /* the end of a group tells the first failure */
    TRY(status);
    TRY(loch_comm_barrier(comm));
end:
    if (status != LOCH_OK && !comm) assert_int_not_equal(loch_error_get()->sentence[0], 0);
    loch_comm_destroy(comm);
    for (size_t i = 0; i < 12; i++)
        loch_tensor_release(tensors[i]);
    return status;
}

static void sweep(loch_comm_kind kind)
{
    static const test_failing modes[] = {TEST_FAILING_ONCE, TEST_FAILING_FOREVER};
    int comms, registrations, aborts;
    uint64_t places = 0;
    assert_int_equal(run(kind), LOCH_OK);
    for (size_t mode = 0; mode < 2; mode++)
        for (uint64_t after = 0;; after++) {
            atomic_store(&fault_calls, 0);
            atomic_store(&fault_after, after);
            atomic_store(&fault_mode, modes[mode]);
            const loch_status status = run(kind);
            atomic_store(&fault_mode, 0);
            count(&comms, &registrations, &aborts);
            assert_int_equal(comms, 0); /* nothing of NCCL is left */
            if (atomic_load(&fault_calls) <= after) {
                assert_int_equal(status, LOCH_OK);
                break;
            }
            if (status != LOCH_OK) assert_int_equal(status, LOCH_E_HOST_MEMORY);
            places++;
        }
    printf("%llu places\n", (unsigned long long)places);
    assert_true(places >= 6);
}

static void a_communicator_of_one_rank(void **state)
{
    (void)state;
    sweep(LOCH_COMM_SELF);
}

static void a_communicator_of_nccl(void **state)
{
    (void)state;
    char path[] = "/tmp/loch-comm-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    setenv("STAND_IN_FILE", path, 1);
    sweep(LOCH_COMM_NCCL);
    unlink(path);
}

int main(void)
{
    char path[600];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 40);
    if (length <= 0) return 1;
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, "stand_in_nccl.so");
    void *address;
    if (loch_option_set("nccl", path) != LOCH_OK) return 1;
    lochi_comm_nccl_driver = "sim";
    if (loch_device_open("sim:256MiB,backed,async=off", &device) != LOCH_OK) return 1;
    if (loch_library_find(LOCH_LIBRARY_NCCL, "stand_in_count", &address) != LOCH_OK) return 1;
    memcpy(&count, &address, sizeof address);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_communicator_of_one_rank),
        cmocka_unit_test(a_communicator_of_nccl),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    loch_device_release(device);
    return failed;
}
