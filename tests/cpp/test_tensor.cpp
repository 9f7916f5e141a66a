// SPDX-License-Identifier: MIT
// Tensors: types, views, contents, text, mappings, files, DLPack.
#include "test.hpp"

#include <loch/cpp/dlpack.hpp>
#include <loch/cpp/mapping.hpp>
#include <loch/cpp/npy.hpp>
#include <loch/cpp/pool.hpp>
#include <loch/cpp/tensor.hpp>

#include <cstdio>
#include <numeric>
#include <sstream>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(test::is_shared<loch::tensor> && sizeof(loch::tensor) == sizeof(void *));
static_assert(test::is_guard<loch::mapping<float>>);
static_assert(test::is_owner<loch::dlpack> && test::is_owner<loch::dlpack_legacy>);

static_assert(loch::dtype_of<float>() == LOCH_F32 && loch::dtype_of<double>() == LOCH_F64);
static_assert(loch::dtype_of<bool>() == LOCH_BOOL && loch::dtype_of<const int>() == LOCH_I32);
static_assert(loch::dtype_of<std::int8_t>() == LOCH_I8 && loch::dtype_of<std::uint8_t>() == LOCH_U8);
static_assert(loch::dtype_of<std::int16_t>() == LOCH_I16 && loch::dtype_of<std::uint16_t>() == LOCH_U16);
static_assert(loch::dtype_of<std::uint32_t>() == LOCH_U32 && loch::dtype_of<std::int64_t>() == LOCH_I64);
static_assert(loch::dtype_of<long>() == LOCH_I64 && loch::dtype_of<unsigned long long>() == LOCH_U64);
static_assert(loch::dtype_of<loch_f16>() == LOCH_F16 && loch::dtype_of<loch_bf16>() == LOCH_BF16);
static_assert(loch::dtype_of<loch_f8e4m3>() == LOCH_F8E4M3 && loch::dtype_of<loch_f8e5m2>() == LOCH_F8E5M2);

TEST(types_have_names_and_conversions)
{
    EXPECT(test::equal(loch::name_of(LOCH_BF16), "bf16") && loch::bytes_of(LOCH_BF16) == 2);
    EXPECT(loch::find_dtype("torch.bfloat16") == LOCH_BF16 && loch::find_dtype("nothing") == LOCH_DTYPE_NONE);
    EXPECT(loch::to_float(loch::from_float<loch_f16>(0.5f)) == 0.5f);
    EXPECT(loch::to_float(loch::from_float<loch_bf16>(-2)) == -2);
    EXPECT(loch::to_float(loch::from_float<loch_f8e4m3>(448)) == 448);
    EXPECT(loch::to_float(loch::from_float<loch_f8e5m2>(1.5f)) == 1.5f);
    EXPECT(loch::value_of<int>(loch::scalar_of(3.7)) == 3 && loch::value_of<bool>(loch::scalar_of(-1)));
    EXPECT(loch::value_of<double>(loch::scalar_of(loch::from_float<loch_f16>(0.25f))) == 0.25);
    EXPECT(loch::value_of<std::uint64_t>(loch::scalar_of(UINT64_MAX)) == UINT64_MAX);
    std::vector<float> from{1.5f, -2.5f};
    std::vector<std::int32_t> to(2);
    loch::convert(loch::span<std::int32_t>(to), loch::span<float>(from));
    EXPECT(to[0] == 1 && to[1] == -2);
    EXPECT_THROWS(LOCH_E_INVALID, loch::convert(loch::span<std::int32_t>(to.data(), 1), loch::span<float>(from)));
}

TEST(tensors_are_made_in_many_ways)
{
    const loch::place mine{loch::pool(loch::device("cpu"), "mine")}; // outlives the handle that it was made of
    EXPECT(loch::tensor::zeros<float>({2}, mine).item<float>({1}) == 0);
    const loch::tensor zeros = loch::tensor::zeros<std::int32_t>({2, 3}, loch::place().named("weights"));
    EXPECT(zeros.dtype() == LOCH_I32 && zeros.dimensions() == 2 && zeros.elements() == 6 && zeros.bytes() == 24);
    EXPECT((zeros.shape() == loch::sizes{2, 3}) && (zeros.strides() == loch::sizes{3, 1}));
    EXPECT((zeros.shape() != loch::sizes{2, 4}) && (zeros.shape() != loch::sizes{2}) && zeros.size(-1) == 3);
    EXPECT(zeros.item<int>({1, 2}) == 0 && test::equal(zeros.name(), "weights"));
    const loch::tensor scalar = loch::tensor::full({}, 2.5);
    EXPECT(scalar.dimensions() == 0 && scalar.item<float>() == 2.5f && scalar.item<int>() == 2);
    const loch::tensor half = loch::tensor::full({4}, loch::from_float<loch_f16>(0.5f));
    EXPECT(half.dtype() == LOCH_F16 && half.item<double>({3}) == 0.5);
    const std::vector<std::uint8_t> bytes{1, 2, 3};
    EXPECT(loch::tensor::from(bytes).item<int>({2}) == 3);
    EXPECT(loch::tensor::from({1.0f, 2.0f}).size(0) == 2);
    float memory[6] = {0, 1, 2, 3, 4, 5};
    const loch::tensor wrapped = loch::tensor::wrap(memory, {3, 2});
    EXPECT(wrapped.data<float>() == memory && wrapped.address() == memory);
    const loch::tensor on = loch::tensor::on(wrapped.buffer(), LOCH_F32, {2}, 8);
    EXPECT(on.item<float>({0}) == 2 && on.offset() == 8);
    EXPECT(loch::tensor::on(wrapped.buffer(), LOCH_F32, {2}, 0, {3}).item<float>({1}) == 3);
    EXPECT_THROWS(LOCH_E_INVALID, loch::tensor::on(wrapped.buffer(), LOCH_F32, {2}, 0, {3, 1}));
    EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, loch::tensor::on(wrapped.buffer(), LOCH_F32, {7}));
    EXPECT_THROWS(LOCH_E_INVALID, loch::tensor::empty<float>({-1}));
    EXPECT_THROWS(LOCH_E_INVALID, loch::tensor::empty<float>(std::vector<std::int64_t>(17, 1)));
    EXPECT_THROWS(LOCH_E_OVERFLOW, loch::tensor::empty<float>({INT64_MAX, 4}));
    EXPECT_THROWS(LOCH_E_INVALID, wrapped.data<int>());
    loch::tensor moved = scalar;
    test::moves(moved);
}

TEST(typed_access_checks_type_place_and_order)
{
    const loch::tensor t = loch::tensor::from({1.0f, 2.0f, 3.0f, 4.0f}).reshape({2, 2});
    loch::span<float> elements = t.span<float>();
    EXPECT(elements.size() == 4 && elements[3] == 4);
    elements[3] = 5;
    EXPECT(t.item<int>({1, 1}) == 5 && t.span<const float>()[3] == 5);
    EXPECT_THROWS(LOCH_E_INVALID, t.span<int>());
    EXPECT_THROWS(LOCH_E_INVALID, t.transpose(0, 1).span<float>());
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, t.to(loch::device(test::sim_name)).span<float>());
}

TEST(views_share_memory)
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
    const loch::tensor row = t[0][1];
    t.set_item({0, 1, 2}, -1);
    EXPECT(row.item<float>({2}) == -1);
    const std::vector<loch::tensor> parts = t.chunk(1, 2);
    EXPECT(parts.size() == 2 && parts[0].size(1) == 2 && parts[1].size(1) == 1);
    EXPECT_THROWS(LOCH_E_INVALID, t.chunk(3, 2));
}

TEST(contents_go_to_devices_and_back)
{
    test::on_devices([](const loch::device &device) {
        const loch::stream stream(device);
        const loch::tensor here = loch::tensor::from({1.0f, 2.0f, 3.0f});
        static const float constant[] = {1};
        loch_external external{};
        external.access = LOCH_READ_ONLY;
        const loch::tensor read_only = loch::tensor::wrap(const_cast<float *>(constant), {1}, external);
        EXPECT(read_only.data<const float>() == constant && read_only.access() == LOCH_READ_ONLY);
        EXPECT_THROWS(LOCH_E_INVALID, read_only.data<float>());
        const loch::tensor there = here.clone(loch::place(device).on(stream));
        stream.sync();
        EXPECT(there.device().get() == device.get() && there.item<int>({2}) == 3);
        if (!there.is_on_host()) EXPECT_THROWS(LOCH_E_UNSUPPORTED, there.data<float>());
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
        EXPECT(there.to_device(device).get() == there.get());
        EXPECT(here.to_device(device, stream).device().get() == device.get());
        loch_tensor_copy_options options{};
        options.overflow = LOCH_OVERFLOW_SPECIAL;
        const loch::tensor narrow = loch::tensor::empty<loch_f8e5m2>({3});
        here.fill(1e6);
        narrow.copy_from(here, options);
        EXPECT(narrow.item<double>({0}) > 1e300);
        EXPECT(here.to(LOCH_F16, device).dtype() == LOCH_F16);
    });
}

TEST(tensors_are_printed)
{
    const loch::tensor t = loch::tensor::from({1, 2, 3});
    EXPECT(t.str() == "[1 2 3]");
    loch_print_options options{};
    options.separator = ", ";
    EXPECT(t.str(options) == "[1, 2, 3]");
    std::ostringstream stream;
    stream << t.slice(0, 1) << loch::tensor();
    EXPECT(stream.str() == "[2 3](empty)");
    EXPECT(test::has(t.describe(), "i32[3]"));
    EXPECT(test::has(loch::tensor::zeros<float>({1000, 1000}).str(), "..."));
    std::FILE *file = std::tmpfile();
    t.print_to(file);
    std::rewind(file);
    char line[32] = "";
    EXPECT(std::fgets(line, sizeof line, file) && test::equal(line, "[1 2 3]\n"));
    std::fclose(file);
}

// What was moved from, or never made, is an error to use and never a crash.
TEST(empty_handles_are_errors)
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
        EXPECT_THROWS(LOCH_E_INVALID, const loch::mapping<float> mapping{*empty});
        EXPECT_THROWS(LOCH_E_INVALID, loch::dlpack{*empty});
        EXPECT_THROWS(LOCH_E_INVALID, loch::npy::save(*empty, "x"));
    }
    EXPECT_THROWS(LOCH_E_INVALID, moved.fill(1, loch::stream{})); // not the default one
    EXPECT_THROWS(LOCH_E_INVALID, moved.to(loch::allocator{}));
    EXPECT_THROWS(LOCH_E_INVALID, loch::tensor::on(loch::buffer{}, LOCH_F32, {1}));
}

TEST(a_mapping_writes_back_at_its_end)
{
    test::on_devices([](const loch::device &device) {
        const loch::tensor t = loch::tensor::zeros<float>({2, 3}, loch::place(device));
        {
            const loch::mapping<float> mapping(t);
            mapping.at({1, 2}) = 5;
            mapping.span()[0] = 1;
            EXPECT((mapping.shape() == loch::sizes{2, 3}) && mapping.strides()[1] == 1);
            EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, mapping.at({2, 0}));
            EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, mapping.at({0}));
        }
        EXPECT(t.item<int>({1, 2}) == 5 && t.item<int>({0, 0}) == 1);
        {
            loch::mapping<float> all(t, LOCH_MAP_WRITE);
            for (float &each : all.span())
                each = 9;
            all.unmap();
            EXPECT(!all.data() && t.item<int>({0, 1}) == 9);
        }
        const loch::mapping<const float> columns(t.transpose(0, 1));
        EXPECT(columns.at({2, 1}) == 9);
        if (device.can(LOCH_CAN_HOST_ACCESS)) EXPECT_THROWS(LOCH_E_INVALID, columns.span());
        EXPECT_THROWS(LOCH_E_INVALID, const loch::mapping<int> made{t});
        EXPECT_THROWS(LOCH_E_INVALID, const loch::mapping<const float> made(t, LOCH_MAP_READ_WRITE));
    });
}

TEST(files_of_numpy_come_back)
{
    const std::string path = test::temporary("tensor.npy");
    test::on_devices([&](const loch::device &device) {
        const loch::tensor t = loch::tensor::from({1.5f, 2.5f}).to(loch::place(device));
        loch::npy::save(t, path);
        EXPECT(loch::npy::load(path).item<float>({1}) == 2.5f);
        const loch::tensor there = loch::npy::load(path, loch::place(device).named("loaded"));
        EXPECT(there.device().get() == device.get() && test::equal(there.name(), "loaded"));
        EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::npy::save(t.to(LOCH_BF16), path));
        loch_npy_save_options save{};
        save.as_bits = 1;
        loch::npy::save(t.to(LOCH_BF16), path, save);
        loch_npy_load_options load{};
        load.dtype = LOCH_BF16;
        EXPECT(loch::npy::load(path, load).item<float>({0}) == 1.5f);
    });
    std::remove(path.c_str());
    EXPECT_THROWS(LOCH_E_NOT_FOUND, loch::npy::load(path));
}

static void count_deletion(void *, std::size_t, void *user)
{
    ++*static_cast<int *>(user);
}

TEST(dlpack_structures_have_one_owner)
{
    int deleted = 0;
    float memory[4] = {1, 2, 3, 4};
    loch_external external{};
    external.deleter = count_deletion;
    external.user = &deleted;
    {
        loch::dlpack exported(loch::tensor::wrap(memory, {2, 2}, external));
        EXPECT(deleted == 0);
        test::moves(exported);
        loch::dlpack taken = loch::dlpack::take(exported.release());
        const loch::tensor back = taken.to_tensor();
        EXPECT(!taken && !exported && back.address() == memory && (back.shape() == loch::sizes{2, 2}));
        EXPECT_THROWS(LOCH_E_INVALID, taken.to_tensor());
        EXPECT(deleted == 0);
    }
    EXPECT(deleted == 1);
    loch::dlpack(loch::tensor::wrap(memory, {4}, external)).reset(); // never imported: its deleter runs
    EXPECT(deleted == 2);
    {
        loch::dlpack_legacy exported(loch::tensor::wrap(memory, {4}, external));
        test::moves(exported);
        const loch::dlpack_legacy unused(loch::tensor::wrap(memory, {4}, external));
        loch::dlpack_legacy taken = loch::dlpack_legacy::take(exported.release());
        EXPECT(taken.to_tensor().address() == memory);
        EXPECT(deleted == 3);
    }
    EXPECT(deleted == 4);
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::dlpack{loch::tensor::zeros<float>({1}, loch::device(test::sim_name))});
    external.access = LOCH_READ_ONLY;
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::dlpack_legacy{loch::tensor::wrap(memory, {4}, external)});
    EXPECT(deleted == 5);
    loch_dlpack_export copied{};
    copied.copy = LOCH_DLPACK_COPY;
    EXPECT(loch::dlpack(loch::tensor::wrap(memory, {4}), copied).to_tensor().address() != memory);
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
