/* SPDX-License-Identifier: MIT */
/* Loads onto a device, on the simulator: the file is read while copies run, slots are not written to before their
 * copies have ended, neighbours are read at once, and every failure on the way is told and leaves nothing behind. */
#include "safetensors_fixture.h"

#include <errno.h>
#include <loch/sim.h>
#include <sched.h>
#include <stdatomic.h>

#define LAG_NS 1000000 /* of a copy */
#define DEVICE "sim:1GiB,clock=stepped,lag=1000000"
#define SMALL 4096
#define MANY 600 /* small tensors */
#define LONG (32 << 20)
#define PIECES 16
#define PIECE (LONG / PIECES) /* what a load of that many bytes is cut into */

/* --- reads, which the linker puts in the place of pread --- */

static loch_device *read_device;         /* whose clock a read moves; NULL for none */
static uint64_t read_piece_ns;           /* time of a read of PIECE bytes */
static atomic_size_t read_calls;         /* number of reads */
static atomic_size_t read_bytes_overlap; /* bytes that were read while a copy had not ended */
static atomic_size_t read_failing;       /* number of the read that fails, from 1 on; 0 for none */

ssize_t __real_pread(int file, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int file, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int file, void *to, size_t bytes, off_t offset)
{
    loch_sim_stats stats = {.size = sizeof stats};
    const size_t number = atomic_fetch_add(&read_calls, 1) + 1;
    if (number == atomic_load(&read_failing)) {
        errno = EIO;
        return -1;
    }
    const ssize_t count = __real_pread(file, to, bytes, offset);
    if (!read_device || count <= 0) return count;
    if (loch_sim_get_stats(read_device, &stats) != LOCH_OK) return -1;
    if (stats.pending) atomic_fetch_add(&read_bytes_overlap, (size_t)count);
    if (loch_sim_advance(read_device, (uint64_t)count * read_piece_ns / PIECE) != LOCH_OK) return -1;
    return count;
}

static void read_watch(loch_device *device, uint64_t piece_ns)
{
    read_device = device;
    read_piece_ns = piece_ns;
    atomic_store(&read_calls, 0);
    atomic_store(&read_bytes_overlap, 0);
    atomic_store(&read_failing, 0);
}

/* --- the file: MANY small tensors "s0", "s1", ... of a byte more each, then "long" --- */

static size_t small_bytes(size_t i)
{
    return SMALL + i % 7;
}

static unsigned char *file_data;
static char small_names[MANY][8];

static int make_file(void **state)
{
    static char header[MANY * 80 + 200];
    size_t length = 1, place = 0;
    if (fixture_setup(state) != 0) return -1;
    header[0] = '{';
    for (size_t i = 0; i < MANY; i++) {
        snprintf(small_names[i], sizeof small_names[i], "s%zu", i);
        length += (size_t)snprintf(header + length, sizeof header - length,
                                   "\"s%zu\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]},", i,
                                   small_bytes(i), place, place + small_bytes(i));
        place += small_bytes(i);
    }
    length += (size_t)snprintf(header + length, sizeof header - length,
                               "\"long\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]}}", LONG, place,
                               place + LONG);
    place += LONG;
    file_data = malloc(place);
    assert_non_null(file_data);
    test_pattern_write((char *)file_data, place, 11);
    fixture_make(fixture_path, header, length, file_data, place);
    return 0;
}

static int end_file(void **state)
{
    read_watch(NULL, 0);
    free(file_data);
    return fixture_teardown(state);
}

static const unsigned char *data_of(const char *name)
{
    size_t place = 0;
    for (size_t i = 0; i < MANY && strcmp(name, small_names[i]) != 0; i++)
        place += small_bytes(i);
    return file_data + place;
}

static loch_tensor *make_tensor(loch_device *device, size_t bytes)
{
    loch_tensor *tensor;
    const loch_tensor_options there = {.size = sizeof there, .device = device};
    CHECK_OK(loch_tensor_create(LOCH_U8, LOCH_SHAPE((int64_t)bytes), &there, &tensor));
    return tensor;
}

static void expect_contents(loch_tensor *tensor, const char *name)
{
    const size_t bytes = loch_tensor_get_bytes(tensor);
    unsigned char *seen = malloc(bytes);
    assert_non_null(seen);
    CHECK_OK(loch_tensor_read(tensor, seen, bytes, NULL));
    assert_memory_equal(seen, data_of(name), bytes);
    free(seen);
}

static loch_device *open_device(void)
{
    loch_device *device;
    CHECK_OK(loch_device_open(DEVICE, &device));
    return device;
}

static loch_sim_stats figures(loch_device *device)
{
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_sim_get_stats(device, &stats));
    return stats;
}

/* Ends a test: no violations, and nothing left on the device. */
static void close_device(loch_device *device)
{
    size_t leaks;
    assert_int_equal(figures(device).violations, 0);
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, NULL));
    CHECK_OK(loch_registry_clear(NULL, NULL, &leaks));
    assert_int_equal(leaks, 0);
    assert_int_equal(figures(device).pinned_bytes, 0);
    assert_int_equal(figures(device).physical_bytes, 0);
    assert_int_equal(figures(device).events, 0);
    loch_device_release(device);
}

/* --- tests --- */

/* Loads on a simulated device whose copies of a piece take LAG_NS, from a file whose reads of a piece take `read_ns`.
 * Returns the time of the load. */
static uint64_t time_load(uint64_t read_ns)
{
    loch_device *device = open_device();
    loch_tensor *tensor = make_tensor(device, LONG);
    loch_safetensors *file;
    uint64_t start, end;
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    CHECK_OK(loch_sim_get_time(device, &start));
    read_watch(device, read_ns);
    CHECK_OK(loch_safetensors_copy(file, "long", tensor, NULL));
    CHECK_OK(loch_sim_get_time(device, &end));
    read_watch(NULL, 0);
    expect_contents(tensor, "long");
    loch_tensor_release(tensor);
    loch_safetensors_close(file);
    close_device(device);
    return end - start;
}

/* A load takes as long as the slower of the file and the bus, and a piece of the other one: the first read and the last
 * copy have nothing to overlap with. So it reaches 0.9 of the slower rate. One thread reads, so that the simulator's
 * time does not depend on the machine. */
static void a_load_is_as_fast_as_the_slower_of_file_and_bus(void **state)
{
    static const uint64_t reads_ns[] = {LAG_NS / 8, LAG_NS / 2, LAG_NS, 2 * LAG_NS, 8 * LAG_NS};
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    (void)state;
    for (size_t i = 0; i < sizeof reads_ns / sizeof *reads_ns; i++) {
        const uint64_t slower = reads_ns[i] > LAG_NS ? reads_ns[i] : LAG_NS;
        const uint64_t taken = time_load(reads_ns[i]);
        if (taken < PIECES * slower || PIECES * slower < taken * 9 / 10)
            fail_msg("reads of %zu ns for a piece: %zu ns beside %zu ns", (size_t)reads_ns[i], (size_t)taken,
                     (size_t)(PIECES * slower));
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* Copies that end only when they are waited for: all pieces behind the first three are read while one runs. */
static void a_copy_runs_under_every_later_read(void **state)
{
    (void)state;
    loch_device *device = open_device();
    loch_tensor *tensor = make_tensor(device, LONG);
    loch_safetensors *file;
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    read_watch(device, 0);
    CHECK_OK(loch_safetensors_copy(file, "long", tensor, NULL));
    assert_true(atomic_load(&read_bytes_overlap) >= LONG - 3 * PIECE);
    read_watch(NULL, 0);
    assert_int_equal(figures(device).pending, 0);
    expect_contents(tensor, "long");
    loch_tensor_release(tensor);
    loch_safetensors_close(file);
    close_device(device);
}

/* With a stream the call does not wait for its copies. The slots live until then, and the file may be closed. */
static void copies_on_a_stream_stay_queued(void **state)
{
    (void)state;
    loch_device *device = open_device();
    loch_tensor *tensor = make_tensor(device, LONG);
    loch_safetensors *file;
    loch_stream *stream;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_stream_sync(loch_stream_get_default(device)));
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    const loch_safetensors_load_options options = {.size = sizeof options, .stream = stream};
    CHECK_OK(loch_safetensors_copy(file, "long", tensor, &options));
    loch_safetensors_close(file);
    assert_int_equal(loch_stream_query(stream), LOCH_E_BUSY);
    CHECK_OK(loch_stream_sync(stream));
    expect_contents(tensor, "long");
    loch_tensor_release(tensor);
    loch_stream_close(stream);
    close_device(device);
}

/* A graph would copy from slots that are gone: a captured stream gets nothing from them. */
static void a_captured_stream_gets_no_pieces(void **state)
{
    (void)state;
    loch_device *device = open_device();
    loch_tensor *tensor = make_tensor(device, LONG);
    loch_safetensors *file;
    loch_stream *stream;
    loch_sim_graph *graph;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    CHECK_OK(loch_sim_capture_begin(stream));
    read_watch(device, 0);
    const loch_safetensors_load_options options = {.size = sizeof options, .stream = stream};
    const loch_status status = loch_safetensors_copy(file, "long", tensor, &options);
    assert_true(status == LOCH_OK || status == LOCH_E_BUSY);
    assert_int_equal(atomic_load(&read_calls), 0);
    read_watch(NULL, 0);
    CHECK_OK(loch_sim_capture_end(stream, &graph));
    assert_int_equal(figures(device).pinned_bytes, 0);
    if (status == LOCH_OK) {
        CHECK_OK(loch_sim_graph_launch(graph, stream));
        CHECK_OK(loch_stream_sync(stream));
        expect_contents(tensor, "long");
    }
    loch_sim_graph_destroy(graph);
    loch_tensor_release(tensor);
    loch_safetensors_close(file);
    loch_stream_close(stream);
    close_device(device);
}

/* Copies small tensors in reverse order, all or every second one, with the long one in front or not. */
static void copy_many(loch_device *device, size_t step, bool with_long, loch_stream *stream)
{
    const char *names[MANY + 1];
    loch_tensor *tensors[MANY + 1];
    loch_safetensors *file;
    size_t count = 0;
    if (with_long) {
        names[0] = "long";
        tensors[count++] = make_tensor(device, LONG);
    }
    for (size_t i = MANY; i >= step; i -= step) {
        names[count] = small_names[i - step];
        tensors[count++] = make_tensor(device, small_bytes(i - step));
    }
    if (stream) CHECK_OK(loch_stream_sync(loch_stream_get_default(device)));
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    read_watch(device, 0);
    const loch_safetensors_load_options options = {.size = sizeof options, .stream = stream};
    CHECK_OK(loch_safetensors_copy_many(file, names, tensors, count, &options));
    read_device = NULL;
    if (stream) CHECK_OK(loch_stream_sync(stream));
    for (size_t i = 0; i < count; i++) {
        expect_contents(tensors[i], names[i]);
        loch_tensor_release(tensors[i]);
    }
    loch_safetensors_close(file);
}

static void neighbours_are_read_at_once(void **state)
{
    (void)state;
    loch_device *device = open_device();
    loch_stream *stream;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    copy_many(device, 1, false, NULL);
    assert_in_range(atomic_load(&read_calls), 1, 32);
    copy_many(device, 1, true, stream);
    assert_in_range(atomic_load(&read_calls), 8, 256);
    copy_many(device, 2, true, NULL);
    assert_true(atomic_load(&read_calls) >= MANY / 2);
    loch_stream_close(stream);
    close_device(device);
}

static void wrong_lists_are_refused(void **state)
{
    (void)state;
    loch_device *device = open_device();
    loch_safetensors *file;
    loch_tensor *tensors[] = {make_tensor(device, small_bytes(0)), make_tensor(device, small_bytes(1))};
    const char *names[] = {"s0", "none"};
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    CHECK_OK(loch_safetensors_copy_many(file, NULL, NULL, 0, NULL));
    CHECK_FAILS(loch_safetensors_copy_many(NULL, names, tensors, 2, NULL), INVALID);
    CHECK_FAILS(loch_safetensors_copy_many(file, NULL, tensors, 2, NULL), INVALID);
    CHECK_FAILS(loch_safetensors_copy_many(file, names, NULL, 2, NULL), INVALID);
    read_watch(device, 0);
    CHECK_FAILS(loch_safetensors_copy_many(file, names, tensors, 2, NULL), NOT_FOUND);
    names[1] = NULL;
    CHECK_FAILS(loch_safetensors_copy_many(file, names, tensors, 2, NULL), INVALID);
    CHECK_SAYS("tensor 1 of 2");
    names[1] = "s2";
    CHECK_FAILS(loch_safetensors_copy_many(file, names, tensors, 2, NULL), INVALID);
    assert_int_equal(atomic_load(&read_calls), 0);
    for (int i = 0; i < 2; i++)
        loch_tensor_release(tensors[i]);
    loch_safetensors_close(file);
    close_device(device);
}

/* --- failures in the middle --- */

/* Every read fails in turn. */
static void a_failing_read_is_told(void **state)
{
    (void)state;
    loch_device *device = open_device();
    size_t failed = 0, number = 0;
    for (loch_status status = LOCH_E_IO; status != LOCH_OK; failed++) {
        read_watch(NULL, 0);
        atomic_store(&read_failing, ++number);
        loch_error_clear();
        loch_safetensors *file;
        status = loch_safetensors_open(fixture_path, NULL, &file);
        if (status != LOCH_OK) continue; /* the header */
        loch_tensor *tensor = make_tensor(device, LONG);
        status = loch_safetensors_copy(file, "long", tensor, NULL);
        if (status != LOCH_OK) {
            assert_int_equal(status, LOCH_E_IO);
            CHECK_SAYS("cannot be read: Input/output error");
            assert_int_equal(figures(device).pending, 0);
        }
        loch_tensor_release(tensor);
        loch_safetensors_close(file);
    }
    assert_true(failed > 60);
    close_device(device);
}

/* A file that ends in the fifth piece, with two copies in flight. */
static void a_short_file_is_told(void **state)
{
    (void)state;
    loch_device *device = open_device();
    loch_tensor *tensor = make_tensor(device, LONG);
    loch_safetensors *file;
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    loch_safetensors_info info = {.size = sizeof info};
    CHECK_OK(loch_safetensors_find(file, "long", &info));
    assert_int_equal(truncate(fixture_path, (off_t)(info.offset + 4 * PIECE + 1000)), 0);
    CHECK_FAILS(loch_safetensors_copy(file, "long", tensor, NULL), CORRUPT);
    CHECK_SAYS("became shorter while it was open");
    assert_int_equal(figures(device).pending, 0);
    loch_tensor_release(tensor);
    loch_safetensors_close(file);
    close_device(device);
}

/* Every driver call from the allocation of the slots to the last wait fails in turn, once and for good. */
static void a_failing_driver_is_told(void **state)
{
    (void)state;
    loch_device *device = open_device();
    loch_stream *streams[2] = {NULL};
    size_t leaks, failed = 0;
    CHECK_OK(loch_stream_create(device, NULL, &streams[1]));
    for (int mode = LOCH_SIM_FAULT_ONCE; mode <= LOCH_SIM_FAULT_FOREVER; mode++)
        for (int i = 0; i < 2; i++)
            for (uint64_t after = 0;; after++) {
                assert_true(after < 1000);
                static const char *const names[] = {"s0", "long"};
                loch_tensor *tensors[] = {make_tensor(device, small_bytes(0)), make_tensor(device, LONG)};
                loch_safetensors *file;
                CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
                CHECK_OK(loch_stream_sync(loch_stream_get_default(device)));
                const size_t pinned = figures(device).pinned_bytes, events = figures(device).events;
                const uint64_t calls = figures(device).calls;
                const loch_sim_fault fault = {.size = sizeof fault, .after = after, .mode = (loch_sim_fault_mode)mode};
                loch_error_clear();
                CHECK_OK(loch_sim_set_fault(device, &fault));
                const loch_safetensors_load_options options = {.size = sizeof options, .stream = streams[i]};
                const loch_status status = loch_safetensors_copy_many(file, names, tensors, 2, &options);
                const loch_error told = *loch_error_get();
                const bool is_met = figures(device).calls - calls > after;
                CHECK_OK(loch_sim_set_fault(device, NULL));
                if (status != LOCH_OK) {
                    failed++;
                    assert_int_equal(told.status, status);
                    assert_true(told.sentence[0] != '\0');
                }
                CHECK_OK(loch_stream_sync(streams[1]));
                CHECK_OK(loch_stream_sync(loch_stream_get_default(device)));
                for (int j = 0; j < 2; j++) {
                    if (status == LOCH_OK) expect_contents(tensors[j], names[j]);
                    loch_tensor_release(tensors[j]);
                }
                loch_safetensors_close(file);
                CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, NULL));
                assert_int_equal(figures(device).violations, 0);
                CHECK_OK(loch_registry_clear(NULL, NULL, &leaks));
                assert_int_equal(leaks, 0);
                assert_true(figures(device).pinned_bytes <= pinned && figures(device).events <= events);
                if (is_met) continue;
                assert_int_equal(status, LOCH_OK);
                break;
            }
    assert_true(failed > 40);
    loch_stream_close(streams[1]);
    close_device(device);
}

#define PIECES_TEST(function) cmocka_unit_test_setup_teardown(function, make_file, end_file)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PIECES_TEST(a_load_is_as_fast_as_the_slower_of_file_and_bus),
        PIECES_TEST(a_copy_runs_under_every_later_read),
        PIECES_TEST(copies_on_a_stream_stay_queued),
        PIECES_TEST(a_captured_stream_gets_no_pieces),
        PIECES_TEST(neighbours_are_read_at_once),
        PIECES_TEST(wrong_lists_are_refused),
        PIECES_TEST(a_failing_read_is_told),
        PIECES_TEST(a_short_file_is_told),
        PIECES_TEST(a_failing_driver_is_told),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}
