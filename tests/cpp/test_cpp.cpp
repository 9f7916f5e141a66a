// SPDX-License-Identifier: MIT
// loch.hpp: handles, moves and copies, failures as exceptions, tensors, the host's arrays, std::pmr. A plain program:
// prints each failed check with its line, and fails. At the end the library's bookkeeping has to be what it was.
#include <loch/loch.hpp>
#include <loch/sim.h>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <sstream>

namespace
{

int failures;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::printf("line %d: not so: %s\n", __LINE__, #condition);                                                \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

// Runs what has to fail; the status that it threw, LOCH_OK when it did not.
template <class Function> loch_status thrown(Function &&function)
{
    try {
        function();
    } catch (const loch::error &error) {
        EXPECT(error.what()[0] != '\0');
        return error.status();
    }
    return LOCH_OK;
}

#define EXPECT_THROWS(code, ...) EXPECT(thrown([&] { __VA_ARGS__; }) == (code))

constexpr const char *sim_name = "sim:64MiB,granule=64KiB,backed";

// --- what holds at compile time ---

template <class T>
constexpr bool moves = std::is_nothrow_move_constructible_v<T> &&std::is_nothrow_move_assignable_v<T>;
template <class T> constexpr bool copies = std::is_copy_constructible_v<T> &&std::is_copy_assignable_v<T>;

static_assert(moves<loch::device> && copies<loch::device>);
static_assert(moves<loch::allocator> && copies<loch::allocator>);
static_assert(moves<loch::buffer> && copies<loch::buffer>);
static_assert(moves<loch::tensor> && copies<loch::tensor>);
static_assert(moves<loch::unique_buffer> && !std::is_copy_constructible_v<loch::unique_buffer>);
static_assert(moves<loch::stream> && copies<loch::stream>);
static_assert(moves<loch::host_array<int>> && !std::is_copy_constructible_v<loch::host_array<int>>);
static_assert(std::is_nothrow_copy_constructible_v<loch::error>);
static_assert(sizeof(loch::tensor) == sizeof(void *) && sizeof(loch::buffer) == sizeof(void *));

static_assert(loch::dtype_of<float>() == LOCH_F32 && loch::dtype_of<double>() == LOCH_F64);
static_assert(loch::dtype_of<bool>() == LOCH_BOOL && loch::dtype_of<const int>() == LOCH_I32);
static_assert(loch::dtype_of<std::int8_t>() == LOCH_I8 && loch::dtype_of<std::uint8_t>() == LOCH_U8);
static_assert(loch::dtype_of<std::int16_t>() == LOCH_I16 && loch::dtype_of<std::uint16_t>() == LOCH_U16);
static_assert(loch::dtype_of<std::uint32_t>() == LOCH_U32 && loch::dtype_of<std::int64_t>() == LOCH_I64);
static_assert(loch::dtype_of<long>() == LOCH_I64 && loch::dtype_of<unsigned long long>() == LOCH_U64);
static_assert(loch::dtype_of<loch_f16>() == LOCH_F16 && loch::dtype_of<loch_bf16>() == LOCH_BF16);
static_assert(loch::dtype_of<loch_f8e4m3>() == LOCH_F8E4M3 && loch::dtype_of<loch_f8e5m2>() == LOCH_F8E5M2);

// --- failures and handles ---

void failures_are_exceptions()
{
    try {
        loch::device nowhere("no such device");
        EXPECT(false);
    } catch (const std::exception &error) {
        EXPECT(std::strstr(error.what(), "no such device") != nullptr);
    }
    EXPECT_THROWS(LOCH_E_NOT_FOUND, loch::device("nodriver:0"));
    EXPECT_THROWS(LOCH_E_IO, loch::check(LOCH_E_IO)); // a status without a record of its own
    loch::check(LOCH_OK);
}

void handles_are_copied_moved_and_given_up()
{
    loch::buffer a(100);
    EXPECT(a && a.bytes() == 100 && a.references() == 1 && a.is_on_host());
    loch::buffer b = a;
    EXPECT(a.references() == 2 && b.get() == a.get());
    b = a; // the same again
    loch::buffer &alias = b;
    b = alias;
    EXPECT(a.references() == 2);
    loch::buffer c = std::move(b);
    EXPECT(!b && b.get() == nullptr && a.references() == 2);
    loch::buffer &self = c;
    c = std::move(self);
    EXPECT(c && a.references() == 2);
    c.reset();
    EXPECT(!c && a.references() == 1);
    c.reset();
    loch_buffer *raw = a.release();
    EXPECT(!a && loch_buffer_get_references(raw) == 1);
    a = loch::buffer::take(raw);
    EXPECT(loch::buffer::retain(raw).references() == 2);
    EXPECT(a.references() == 1);
    std::swap(a, c);
    EXPECT(!a && c);
}

// What was moved from, or never made, is an error to use and never a crash.
void empty_handles_are_errors()
{
    loch::tensor tensor, made = loch::tensor::zeros<float>({2});
    const loch::tensor moved = std::move(made);
    for (const loch::tensor *empty : {&tensor, &made}) {
        EXPECT_THROWS(LOCH_E_INVALID, empty->elements());
        EXPECT_THROWS(LOCH_E_INVALID, empty->shape());
        EXPECT_THROWS(LOCH_E_INVALID, empty->reshape({1}));
        EXPECT_THROWS(LOCH_E_INVALID, empty->str());
        EXPECT_THROWS(LOCH_E_INVALID, empty->item<float>());
        EXPECT_THROWS(LOCH_E_INVALID, empty->data<float>());
        EXPECT_THROWS(LOCH_E_INVALID, moved.copy_from(*empty));
        EXPECT_THROWS(LOCH_E_INVALID, empty->buffer());
    }
    std::ostringstream text;
    text << tensor;
    EXPECT(text.str() == "(empty)");
    EXPECT_THROWS(LOCH_E_INVALID, loch::device().name());
    EXPECT_THROWS(LOCH_E_INVALID, loch::allocator().stats());
    EXPECT_THROWS(LOCH_E_INVALID, loch::allocator{loch::device{}});
    EXPECT_THROWS(LOCH_E_INVALID, loch::stream{loch::device{}});
    EXPECT_THROWS(LOCH_E_INVALID, loch::stream().sync());
    EXPECT_THROWS(LOCH_E_INVALID, moved.fill(1, loch::stream{}));    // not the default one
    EXPECT_THROWS(LOCH_E_INVALID, loch::buffer(10, loch::device{})); // not the host
    EXPECT_THROWS(LOCH_E_INVALID, moved.to(loch::allocator{}));
    EXPECT_THROWS(LOCH_E_INVALID, loch::tensor::on(loch::buffer{}, LOCH_F32, {1}));
    EXPECT_THROWS(LOCH_E_INVALID, loch::buffer().bytes());
    EXPECT_THROWS(LOCH_E_INVALID, loch::unique_buffer().copy_from(loch::buffer()));
    EXPECT_THROWS(LOCH_E_INVALID, loch::memory_resource{loch::allocator()});
}

void devices_streams_allocators()
{
    const loch::device device(sim_name);
    EXPECT(std::strcmp(device.name(), sim_name) == 0 && std::strcmp(device.properties().driver, "sim") == 0);
    EXPECT(device.can(LOCH_CAN_ASYNC) && !device.can(LOCH_CAN_HOST_ACCESS));
    loch::stream stream(device), other(device);
    EXPECT(stream.id() != other.id());
    const loch::stream copy = other; // shares it
    EXPECT(copy.id() == other.id());
    other = std::move(stream); // the one it had lives on in the copy
    copy.sync();
    EXPECT(loch::stream::retain(copy.get()).id() == copy.id());
    const loch::allocator pool = loch::allocator::pool(device, "mine");
    EXPECT(std::strcmp(pool.name(), "mine") == 0 && std::strcmp(pool.kind(), "pool") == 0 && !pool.is_on_host());
    EXPECT(pool.device().get() == device.get());
    {
        const loch::unique_buffer buffer(1000, loch::place(pool).on(other).aligned(4096));
        EXPECT(reinterpret_cast<std::uintptr_t>(buffer.address()) % 4096 == 0 && !buffer.is_on_host());
        EXPECT(pool.stats().blocks == 1);
    }
    EXPECT(pool.stats().blocks == 0);
    other.sync();
    EXPECT(other.is_idle());
    EXPECT(pool.trim() > 0);
    device.sync();
    EXPECT(std::strcmp(loch::allocator::direct(device).kind(), "direct") == 0);
    EXPECT(loch::allocator(loch::device("cpu")).is_on_host());
}

void deleter(void *, std::size_t, void *user)
{
    ++*static_cast<int *>(user);
}

void buffers()
{
    loch::unique_buffer unique(64, loch::place().zeroed());
    EXPECT(static_cast<const char *>(unique.address())[63] == 0);
    unique.fill<std::uint32_t>(0x01020304u);
    const loch::buffer shared = std::move(unique);
    EXPECT(!unique && shared.bytes() == 64);
    loch::buffer part = shared.slice(60, 4);
    std::uint32_t word = 0;
    std::memcpy(&word, part.address(), sizeof word);
    EXPECT(word == 0x01020304u && part.id() == shared.id() && shared.references() == 2);
    EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, shared.slice(61, 4));
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, part.resize(10));

    const loch::device sim(sim_name);
    const loch::stream stream(sim);
    loch::buffer there(64, sim), back(64);
    there.copy_from(shared, stream);
    there.record_use(stream);
    stream.sync();
    back.copy_from(there);
    EXPECT(std::memcmp(back.address(), shared.address(), 64) == 0);
    EXPECT_THROWS(LOCH_E_INVALID, back.copy_from(part)); // sizes differ
    back.resize(1000);
    EXPECT(back.bytes() == 1000);

    int deleted = 0;
    char memory[16];
    loch_external external{};
    external.size = sizeof external;
    external.deleter = deleter;
    external.user = &deleted;
    loch::buffer wrapped = loch::buffer::wrap(memory, sizeof memory, &external);
    EXPECT(wrapped.address() == memory && deleted == 0);
    wrapped.reset();
    EXPECT(deleted == 1);
}

// --- arrays of the host, std::pmr ---

void host_arrays()
{
    loch::host_array<float> a(1000);
    EXPECT(a.size() == 1000 && a.size_in_bytes() == 4000 && !a.empty() && a.data() == a.begin());
    EXPECT(std::accumulate(a.begin(), a.end(), 0.0f) == 0);
    a[999] = 2;
    EXPECT(a.at(999) == 2 && *(a.end() - 1) == 2);
    EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, a.at(1000));
    loch::host_array<float> b = std::move(a);
    EXPECT(a.empty() && a.data() == nullptr && a.size_in_bytes() == 0 && a.begin() == a.end());
    EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, a.at(0));
    EXPECT(b[999] == 2);
    loch::host_array<float> &self = b;
    b = std::move(self);
    EXPECT(b.size() == 1000 && b[999] == 2);
    a = loch::host_array<float>(0);
    EXPECT(a.empty());
    struct alignas(256) wide {
        char bytes[256];
    };
    const loch::host_array<wide> aligned(3);
    EXPECT(reinterpret_cast<std::uintptr_t>(aligned.data()) % 256 == 0);

    // the seed's bugs: an unchecked product, a size without memory, a memset on a device
    EXPECT_THROWS(LOCH_E_OVERFLOW, loch::host_array<double>(SIZE_MAX / 4));
    const loch::device sim(sim_name);
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::host_array<int>(10, sim));
    loch_attributes pinned{};
    pinned.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE;
    loch::host_array<int> reachable(10, loch::allocator(sim, pinned));
    EXPECT(reachable[9] == 0);

    // the zeroes are there whatever the stream still has to do
    const loch::device slow("sim:64MiB,backed,clock=stepped");
    const loch::stream busy(slow);
    const loch::allocator host(slow, pinned);
    loch::place where(host);
    loch::unique_buffer used(40, where.on(busy));
    std::fill_n(static_cast<int *>(used.address()), 10, 7);
    used.reset();
    loch_sim_kernel kernel{};
    kernel.size = sizeof kernel;
    kernel.name = "busy";
    kernel.duration_ns = 100000;
    loch::check(loch_sim_launch(busy.get(), &kernel));
    EXPECT(loch::host_array<int>(10, where)[9] == 0);
}

// memory that was given back while a device still reads it is not written before that
void containers_wait_for_devices()
{
    const loch::device slow("sim:64MiB,backed,clock=stepped");
    loch_attributes pinned{};
    pinned.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE;
    const loch::allocator host(slow, pinned);
    loch_stream *const stream = loch_stream_get_default(slow.get());
    loch::buffer from(4096, host), to(4096, slow);
    from.fill('a');
    loch_sim_kernel kernel{};
    kernel.size = sizeof kernel;
    kernel.name = "busy";
    kernel.duration_ns = 100000;
    loch::check(loch_sim_launch(stream, &kernel));
    to.copy_from(from, stream);
    from.reset();
    loch::memory_resource resource(host);
    const std::pmr::vector<char> other(4096, 'b', &resource);
    char seen = 0;
    loch::check(loch_copy(&seen, to.address(), 1));
    EXPECT(seen == 'a');
}

void containers_of_pmr()
{
    const loch::device cpu("cpu"), sim(sim_name);
    const loch::allocator pool = loch::allocator::pool(cpu, "containers"), other = loch::allocator::pool(cpu, "other");
    {
        loch::memory_resource resource(pool), same(pool), different(other);
        EXPECT(resource == same && resource != different && resource != *std::pmr::new_delete_resource());
        std::pmr::vector<int> numbers(1000, 7, &resource);
        std::pmr::map<int, std::pmr::string> names(&resource);
        names[1] = "a string that is too long for the small buffer of any implementation";
        EXPECT(pool.stats().blocks >= 2);
        numbers.resize(100000);
        EXPECT(numbers[999] == 7 && numbers[99999] == 0);
        void *first = resource.allocate(0), *second = resource.allocate(0);
        EXPECT(first && second && first != second);
        resource.deallocate(first, 0);
        resource.deallocate(second, 0);
        void *wide = resource.allocate(100, 4096);
        EXPECT(reinterpret_cast<std::uintptr_t>(wide) % 4096 == 0);
        resource.deallocate(wide, 100, 4096);
        bool is_bad_alloc = false;
        try {
            static_cast<void>(resource.allocate(SIZE_MAX / 2));
        } catch (const std::bad_alloc &) {
            is_bad_alloc = true;
        }
        EXPECT(is_bad_alloc);
    }
    EXPECT(pool.stats().blocks == 0);
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::memory_resource{loch::allocator::pool(sim)});
}

// --- tensors ---

void making_tensors()
{
    const loch::place mine{
        loch::allocator::pool(loch::device("cpu"), "mine")}; // outlives the handle that it was made of
    EXPECT(loch::tensor::zeros<float>({2}, mine).item<float>({1}) == 0);
    const loch::tensor zeros = loch::tensor::zeros<std::int32_t>({2, 3}, loch::place().named("weights"));
    EXPECT(zeros.dtype() == LOCH_I32 && zeros.dimensions() == 2 && zeros.elements() == 6 && zeros.bytes() == 24);
    EXPECT((zeros.shape() == loch::sizes{2, 3}) && (zeros.strides() == loch::sizes{3, 1}));
    EXPECT((zeros.shape() != loch::sizes{2, 4}) && (zeros.shape() != loch::sizes{2}) && zeros.size(-1) == 3);
    EXPECT(zeros.item<int>({1, 2}) == 0 && std::strcmp(zeros.name(), "weights") == 0);
    const loch::tensor scalar = loch::tensor::full({}, 2.5);
    EXPECT(scalar.dimensions() == 0 && scalar.item<float>() == 2.5f && scalar.item<int>() == 2);
    const loch::tensor half = loch::tensor::full({4}, loch_f16_from_float(0.5f));
    EXPECT(half.dtype() == LOCH_F16 && half.item<double>({3}) == 0.5);
    const std::vector<std::uint8_t> bytes{1, 2, 3};
    EXPECT(loch::tensor::from(bytes).item<int>({2}) == 3);
    EXPECT(loch::tensor::from({1.0f, 2.0f}).size(0) == 2);
    float memory[6] = {0, 1, 2, 3, 4, 5};
    const loch::tensor wrapped = loch::tensor::wrap(memory, {3, 2});
    EXPECT(wrapped.data<float>() == memory && wrapped.address() == memory);
    const loch::tensor on = loch::tensor::on(wrapped.buffer(), LOCH_F32, {2}, 8);
    EXPECT(on.item<float>({0}) == 2);
    EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, loch::tensor::on(wrapped.buffer(), LOCH_F32, {7}));
    EXPECT_THROWS(LOCH_E_INVALID, loch::tensor::empty<float>({-1}));
    EXPECT_THROWS(LOCH_E_INVALID, loch::tensor::empty<float>(std::vector<std::int64_t>(17, 1)));
    EXPECT_THROWS(LOCH_E_OVERFLOW, loch::tensor::empty<float>({INT64_MAX, 4}));
    EXPECT_THROWS(LOCH_E_INVALID, wrapped.data<int>());
}

void views_share_memory()
{
    float memory[24];
    std::iota(memory, memory + 24, 0.0f);
    const loch::tensor t = loch::tensor::from(memory, {2, 3, 4});
    EXPECT(t.view({6, 4}).item<float>({5, 3}) == 23);
    EXPECT(t.slice(2, 1, LOCH_OPEN, 2).item<float>({0, 0, 1}) == 3);
    EXPECT(t.slice(0, 1).size(0) == 1 && t.index(1, 2).item<float>({1, 3}) == 23);
    EXPECT(t[1][2][3].item<float>() == 23 && t[-1].buffer().get() == t.buffer().get());
    EXPECT(t.transpose(0, 2).item<float>({3, 2, 1}) == 23 && !t.transpose(0, 2).is_contiguous());
    EXPECT((t.permute({2, 0, 1}).shape() == loch::sizes{4, 2, 3}));
    EXPECT((t.unsqueeze(0).shape() == loch::sizes{1, 2, 3, 4}) && t.unsqueeze(0).squeeze().dimensions() == 3);
    EXPECT(t.unsqueeze(1).squeeze(1).dimensions() == 3);
    EXPECT((t.slice(0, 0, 1).expand({5, 3, 4}).shape() == loch::sizes{5, 3, 4}));
    EXPECT((t.view_as<std::uint8_t>().shape() == loch::sizes{2, 3, 16}));
    EXPECT(t.transpose(0, 1).reshape({24}).item<float>({4}) == 12); // a copy: the strides do not allow a view
    EXPECT(t.contiguous().get() == t.get() && t.transpose(0, 1).contiguous().is_contiguous());
    EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, t[2]);
    EXPECT_THROWS(LOCH_E_INVALID, t.view({5}));
    loch::tensor row = t[0][1];
    t.set_item({0, 1, 2}, -1);
    EXPECT(row.item<float>({2}) == -1);
}

void contents_and_devices()
{
    const loch::device sim(sim_name);
    const loch::stream stream(sim);
    const loch::tensor here = loch::tensor::from({1.0f, 2.0f, 3.0f});
    static const float constant[] = {1};
    loch_external external{};
    external.size = sizeof external;
    external.access = LOCH_READ_ONLY;
    const loch::tensor read_only = loch::tensor::wrap(const_cast<float *>(constant), {1}, &external);
    EXPECT(read_only.data<const float>() == constant);
    EXPECT_THROWS(LOCH_E_INVALID, read_only.data<float>());
    const loch::tensor there = here.to(loch::place(sim).on(stream));
    stream.sync();
    EXPECT(!there.is_on_host() && there.device().get() == sim.get() && there.item<int>({2}) == 3);
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, there.data<float>());
    there.fill(7, stream);
    float back[3] = {};
    there.read(back, 3, stream);
    EXPECT(back[0] == 7 && back[2] == 7);
    back[1] = 8;
    there.write(back, 3);
    here.copy_from(there);
    EXPECT(here.data<float>()[1] == 8);
    EXPECT_THROWS(LOCH_E_INVALID, there.read(back, 2));
    EXPECT_THROWS(LOCH_E_OVERFLOW, there.read(back, SIZE_MAX));
    std::int32_t wrong[3];
    EXPECT_THROWS(LOCH_E_INVALID, there.read(wrong, 3)); // as many bytes, but another type
    const loch::tensor copy = here.clone(), converted = here.to<std::int64_t>();
    copy.fill(0);
    EXPECT(here.item<float>({1}) == 8 && converted.dtype() == LOCH_I64 && converted.item<int>({1}) == 8);
    EXPECT(here.to(LOCH_F32).get() == here.get());
    EXPECT(!here.clone(sim).is_on_host() && here.to(LOCH_F16, sim).dtype() == LOCH_F16);
}

void text()
{
    const loch::tensor t = loch::tensor::from({1, 2, 3});
    EXPECT(t.str() == "[1 2 3]");
    loch_print_options options{};
    options.size = sizeof options;
    options.separator = ", ";
    EXPECT(t.str(&options) == "[1, 2, 3]");
    std::ostringstream stream;
    stream << t.slice(0, 1);
    EXPECT(stream.str() == "[2 3]");
    EXPECT(t.describe().find("i32[3]") != std::string::npos);
    EXPECT(loch::tensor::zeros<float>({1000, 1000}).str().find("...") != std::string::npos);
}

} // namespace

int main()
{
    loch_host_usage before{}, after{};
    before.size = after.size = sizeof before;
    EXPECT(loch_host_get_usage(&before) == LOCH_OK);
    try {
        failures_are_exceptions();
        handles_are_copied_moved_and_given_up();
        empty_handles_are_errors();
        devices_streams_allocators();
        buffers();
        host_arrays();
        containers_of_pmr();
        containers_wait_for_devices();
        making_tensors();
        views_share_memory();
        contents_and_devices();
        text();
    } catch (const std::exception &error) {
        std::printf("not caught: %s\n", error.what());
        failures++;
    }
    // the defaults of "cpu" and of the simulated device
    std::size_t leaks = 0;
    EXPECT(loch_registry_clear(nullptr, nullptr, &leaks) == LOCH_OK && leaks == 0);
    EXPECT(loch_host_get_usage(&after) == LOCH_OK);
    EXPECT(after.blocks == before.blocks);
    std::printf("%d failed\n", failures);
    return failures ? 1 : 0;
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
