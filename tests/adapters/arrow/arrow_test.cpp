/* SPDX-License-Identifier: MIT */
/* Loch's memory pool under the real Arrow: Arrow's own tests of a memory pool, every function of it, and Arrow's
 * builders, compute functions, queries and files, whose results must be those of Arrow's default pool. */
#include "loch_arrow.hpp"

#include <loch/loch.h>
#include <loch/sim.h>

#include <arrow/acero/exec_plan.h>
#include <arrow/acero/options.h>
#include <arrow/api.h>
#include <arrow/compute/api.h>
#include <arrow/compute/initialize.h>
#include <arrow/csv/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/api.h>
#include <arrow/memory_pool_test.h>
#include <arrow/util/compression.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include <chrono>
#include <random>
#include <thread>

namespace cp = arrow::compute;
namespace ac = arrow::acero;
using arrow::Status;

namespace
{

std::unique_ptr<loch::arrow_pool> make_pool(const loch::arrow_options &options = {})
{
    return loch::arrow_pool::make(options).ValueOrDie();
}

/* Statistics of Loch for the tag of a pool. */
loch_stats read_tag(const loch::arrow_pool &pool)
{
    loch_stats stats = {};
    stats.size = sizeof stats;
    EXPECT_EQ(loch_allocator_get_tag_stats(pool.get_allocator(), pool.get_tag(), &stats), LOCH_OK);
    return stats;
}

/* All memory is back: Arrow's figures and Loch's say so. Threads of Arrow may drop their last references after the
 * result of a query is there, so this waits for them. */
void expect_empty(const loch::arrow_pool &pool)
{
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (pool.bytes_allocated() && std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();
    EXPECT_EQ(pool.bytes_allocated(), 0);
    const loch_stats stats = read_tag(pool);
    EXPECT_EQ(stats.blocks, 0u);
    EXPECT_EQ(stats.requested_bytes, 0u);
    EXPECT_EQ(stats.allocs, stats.frees);
}

/* --- Arrow's own tests --- */

class ArrowsOwn : public arrow::TestMemoryPoolBase
{
  public:
    arrow::MemoryPool *memory_pool() override { return pool.get(); }
    std::unique_ptr<loch::arrow_pool> pool = make_pool();
};

TEST_F(ArrowsOwn, MemoryTracking)
{
    TestMemoryTracking();
}
TEST_F(ArrowsOwn, OOM)
{
    TestOOM();
}
TEST_F(ArrowsOwn, Reallocate)
{
    TestReallocate();
}
TEST_F(ArrowsOwn, Alignment)
{
    TestAlignment();
}
TEST_F(ArrowsOwn, ReleaseUnused)
{
    TestReleaseUnused();
}

/* --- blocks --- */

TEST(Blocks, HaveEachAlignment)
{
    auto pool = make_pool();
    for (int64_t alignment = 1; alignment <= (1 << 22); alignment *= 2)
        for (int64_t size : {1, 63, 64, 100, 1000, 100000}) {
            uint8_t *block = nullptr;
            ASSERT_TRUE(pool->Allocate(size, alignment, &block).ok());
            ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % static_cast<uintptr_t>(alignment), 0u);
            std::memset(block, 7, static_cast<size_t>(size));
            for (int64_t next : {size * 3, size / 2 + 1, int64_t(77), int64_t(70000)}) {
                ASSERT_TRUE(pool->Reallocate(size, next, alignment, &block).ok());
                ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % static_cast<uintptr_t>(alignment), 0u);
                for (int64_t i = 0; i < std::min(size, next); i++)
                    ASSERT_EQ(block[i], 7);
                std::memset(block, 7, static_cast<size_t>(next));
                size = next;
            }
            ASSERT_EQ(pool->bytes_allocated(), size);
            ASSERT_EQ(read_tag(*pool).requested_bytes, static_cast<uint64_t>(size));
            pool->Free(block, size, alignment);
        }
    expect_empty(*pool);
}

TEST(Blocks, OfZeroBytesTakeNoMemory)
{
    auto pool = make_pool();
    uint8_t *block = nullptr;
    ASSERT_TRUE(pool->Allocate(0, &block).ok());
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
    EXPECT_EQ(read_tag(*pool).allocs, 0u);
    ASSERT_TRUE(pool->Reallocate(0, 100, &block).ok());
    block[99] = 5;
    EXPECT_EQ(pool->bytes_allocated(), 100);
    ASSERT_TRUE(pool->Reallocate(100, 0, &block).ok());
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(pool->bytes_allocated(), 0);
    ASSERT_TRUE(pool->Reallocate(0, 0, &block).ok());
    pool->Free(block, 0);
    auto buffer = arrow::AllocateResizableBuffer(0, pool.get()).ValueOrDie();
    ASSERT_TRUE(buffer->Resize(1000).ok());
    ASSERT_TRUE(buffer->Resize(0, true).ok());
    buffer.reset();
    expect_empty(*pool);
}

TEST(Blocks, WithWrongArgumentsAreRefused)
{
    auto pool = make_pool();
    uint8_t *block = nullptr;
    EXPECT_TRUE(pool->Allocate(-1, &block).IsInvalid());
    EXPECT_TRUE(pool->Allocate(10, 48, &block).IsInvalid());
    EXPECT_TRUE(pool->Allocate(10, 0, &block).IsInvalid());
    EXPECT_TRUE(pool->Allocate(10, -64, &block).IsInvalid());
    EXPECT_EQ(block, nullptr);
    ASSERT_TRUE(pool->Allocate(10, &block).ok());
    uint8_t *const before = block;
    EXPECT_TRUE(pool->Reallocate(10, -1, &block).IsInvalid());
    EXPECT_TRUE(pool->Reallocate(10, 20, 3, &block).IsInvalid());
    EXPECT_TRUE(pool->Reallocate(10, std::numeric_limits<int64_t>::max(), &block).IsOutOfMemory());
    EXPECT_EQ(block, before);
    uint8_t *wrong = block + 1;
    for (int64_t size : {20, 70000}) { /* by a move and by Loch's realloc */
        const Status status = pool->Reallocate(10, size, &wrong);
        EXPECT_TRUE(status.IsInvalid()) << status.ToString();
        EXPECT_EQ(wrong, block + 1);
    }
    testing::internal::CaptureStderr();
    pool->Free(block + 1, 10); /* changes nothing */
    EXPECT_NE(testing::internal::GetCapturedStderr().find("wrong address"), std::string::npos);
    EXPECT_EQ(pool->bytes_allocated(), 10);
    pool->Free(block, 10);
    expect_empty(*pool);
}

TEST(Blocks, KeepTheirContentsThroughRandomReallocations)
{
    auto pool = make_pool();
    struct block {
        uint8_t *address = nullptr;
        int64_t size = 0;
        uint8_t mark = 0;
    };
    std::vector<block> blocks(200);
    std::mt19937 random(18);
    int64_t in_use = 0;
    for (int step = 0; step < 20000; step++) {
        block &chosen = blocks[random() % blocks.size()];
        const int64_t size = random() % (int64_t(1) << (random() % 20));
        for (int64_t i = 0; i < chosen.size; i += 1 + chosen.size / 16)
            ASSERT_EQ(chosen.address[i], chosen.mark);
        if (!chosen.address) {
            ASSERT_TRUE(pool->Allocate(0, &chosen.address).ok());
        }
        ASSERT_TRUE(pool->Reallocate(chosen.size, size, &chosen.address).ok());
        ASSERT_EQ(reinterpret_cast<uintptr_t>(chosen.address) % 64, 0u);
        for (int64_t i = 0; i < std::min(size, chosen.size); i += 1 + chosen.size / 16)
            ASSERT_EQ(chosen.address[i], chosen.mark);
        in_use += size - chosen.size;
        chosen.size = size;
        chosen.mark = static_cast<uint8_t>(random());
        std::memset(chosen.address, chosen.mark, static_cast<size_t>(size));
        ASSERT_EQ(pool->bytes_allocated(), in_use);
    }
    EXPECT_EQ(read_tag(*pool).requested_bytes, static_cast<uint64_t>(in_use));
    for (const block &left : blocks)
        pool->Free(left.address, left.size);
    expect_empty(*pool);
}

/* --- figures --- */

TEST(Figures, AreArrowsAndLochsOwn)
{
    auto pool = make_pool();
    EXPECT_EQ(pool->backend_name(), "loch");
    uint8_t *a = nullptr, *b = nullptr;
    ASSERT_TRUE(pool->Allocate(1000, &a).ok());
    ASSERT_TRUE(pool->Allocate(100000, &b).ok());
    EXPECT_EQ(pool->bytes_allocated(), 101000);
    EXPECT_EQ(pool->num_allocations(), 2);
    ASSERT_TRUE(pool->Reallocate(1000, 3000, &a).ok());
    EXPECT_EQ(pool->num_allocations(), 3);
    EXPECT_EQ(pool->total_bytes_allocated(), 103000);
    pool->Free(b, 100000);
    EXPECT_EQ(pool->bytes_allocated(), 3000);
    EXPECT_EQ(pool->max_memory(), 103000);
    const loch_stats stats = read_tag(*pool);
    EXPECT_EQ(stats.requested_bytes, 3000u);
    EXPECT_EQ(stats.blocks, 1u);
    EXPECT_GE(stats.peak_requested_bytes, 103000u);
    loch_pool_info info = {};
    info.size = sizeof info;
    ASSERT_EQ(loch_pool_get_info(pool->get_allocator(), &info), LOCH_OK);
    EXPECT_GT(info.reserved_bytes, 100000u);
    pool->Free(a, 3000);
    pool->ReleaseUnused();
    ASSERT_EQ(loch_pool_get_info(pool->get_allocator(), &info), LOCH_OK);
    EXPECT_EQ(info.reserved_bytes, 0u);
    testing::internal::CaptureStderr();
    pool->PrintStats();
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(text, pool->get_report());
    EXPECT_NE(text.find("tag \"arrow\": 0 bytes in use, at most 103000\n"), std::string::npos) << text;
    EXPECT_NE(text.find("pool \"arrow\""), std::string::npos) << text;
}

/* Two parts of a program share the memory of one Loch pool, and each has its own figures. */
TEST(Figures, AreApartForEachTag)
{
    auto scan = make_pool({"shared", "scan"});
    auto join = loch::arrow_pool::make(scan->get_allocator(), "join").ValueOrDie();
    auto buffer = arrow::AllocateBuffer(6400, scan.get()).ValueOrDie();
    auto other = arrow::AllocateBuffer(64000, join.get()).ValueOrDie();
    EXPECT_EQ(read_tag(*scan).requested_bytes, 6400u);
    EXPECT_EQ(read_tag(*join).requested_bytes, 64000u);
    EXPECT_EQ(scan->bytes_allocated(), 6400);
    EXPECT_EQ(join->bytes_allocated(), 64000);
    EXPECT_STREQ(loch_tag_name(join->get_tag()), "join");
    buffer.reset();
    other.reset();
    expect_empty(*scan);
    expect_empty(*join);
    auto plain = loch::arrow_pool::make(scan->get_allocator(), "").ValueOrDie();
    EXPECT_EQ(plain->get_tag(), 0u);
    EXPECT_TRUE(arrow::AllocateBuffer(64, plain.get()).ok());
}

TEST(Pools, WithWrongOptionsAreRefused)
{
    const std::string long_name(100, 'x');
    EXPECT_TRUE(loch::arrow_pool::make(nullptr, "arrow").status().IsInvalid());
    EXPECT_TRUE(loch::arrow_pool::make({"arrow", long_name.c_str()}).status().IsInvalid());
    EXPECT_TRUE(loch::arrow_pool::make({"arrow", "arrow", "nothere:0"}).status().IsInvalid());
    const Status status =
        loch::arrow_pool::make({"arrow", "arrow", "sim:1GiB"}).status(); /* addresses without memory */
    EXPECT_TRUE(status.IsInvalid());
    EXPECT_NE(status.message().find("host cannot use"), std::string::npos) << status.ToString();
    loch_pool_options wrong = {};
    wrong.size = sizeof wrong;
    wrong.kind = static_cast<loch_memory_kind>(99);
    EXPECT_FALSE(loch::arrow_pool::make({"arrow", "arrow", "cpu", &wrong}).ok());
}

TEST(Pools, MayBeWrappers)
{
    auto pool = make_pool();
    loch_allocator *wrapper = nullptr;
    ASSERT_EQ(loch_redzone_create(pool->get_allocator(), nullptr, nullptr, &wrapper), LOCH_OK)
        << loch_error_get()->sentence;
    auto checked = loch::arrow_pool::make(wrapper, "checked").ValueOrDie();
    loch_allocator_release(wrapper);
    uint8_t *block = nullptr;
    int64_t size = 64;
    ASSERT_TRUE(checked->Allocate(size, &block).ok());
    for (int64_t next : {640, 6400, 128, 12800}) {
        ASSERT_TRUE(checked->Reallocate(size, next, &block).ok());
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
        size = next;
    }
    checked->Free(block, size);
    EXPECT_EQ(checked->bytes_allocated(), 0);
}

/* --- limits --- */

TEST(Limits, BecomeOutOfMemoryWithLochsSentence)
{
    loch_pool_options options = {};
    options.size = sizeof options;
    options.limit_bytes = size_t(16) << 20;
    auto pool = make_pool({"small pool", "arrow", "cpu", &options});
    uint8_t *block = nullptr;
    const Status status = pool->Allocate(32 << 20, &block);
    EXPECT_TRUE(status.IsOutOfMemory());
    EXPECT_NE(status.message().find("malloc of size 33554432 failed: "), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("\"small pool\""), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("16 MiB"), std::string::npos) << status.message();

    arrow::Int64Builder builder(pool.get()); /* grows until the limit, fails, and gives everything back */
    Status appended;
    int64_t count = 0;
    for (; appended.ok() && count < (10 << 20); count++)
        appended = builder.Append(count);
    EXPECT_TRUE(appended.IsOutOfMemory()) << appended.ToString();
    EXPECT_NE(appended.message().find("16 MiB"), std::string::npos) << appended.message();
    EXPECT_EQ(builder.length(), count - 1); /* what was appended before is there */
    EXPECT_EQ(builder.GetValue(count - 2), count - 2);
    builder.Reset();
    expect_empty(*pool);
    ASSERT_TRUE(pool->Allocate(8 << 20, &block).ok()); /* works again */
    pool->Free(block, 8 << 20);
}

/* --- builders, compute, queries --- */

/* A table with numbers, nulls, text and a dictionary. The same for each call. */
std::shared_ptr<arrow::Table> make_table(int64_t rows, arrow::MemoryPool *pool)
{
    std::mt19937_64 random(7);
    arrow::Int64Builder keys(pool);
    arrow::DoubleBuilder values(pool);
    arrow::StringBuilder names(pool);
    arrow::ListBuilder lists(pool, std::make_shared<arrow::Int32Builder>(pool));
    auto &items = static_cast<arrow::Int32Builder &>(*lists.value_builder());
    for (int64_t i = 0; i < rows; i++) {
        const uint64_t number = random();
        EXPECT_TRUE(keys.Append(static_cast<int64_t>(number % 1000)).ok());
        EXPECT_TRUE((number % 13 ? values.Append(static_cast<double>(number % 100000) / 8) : values.AppendNull()).ok());
        EXPECT_TRUE(names.Append("name " + std::string(number % 40, 'a') + std::to_string(number % 5000)).ok());
        EXPECT_TRUE(lists.Append().ok());
        for (uint64_t k = 0; k < number % 5; k++)
            EXPECT_TRUE(items.Append(static_cast<int32_t>(k)).ok());
    }
    auto schema =
        arrow::schema({arrow::field("key", arrow::int64()), arrow::field("value", arrow::float64()),
                       arrow::field("name", arrow::utf8()), arrow::field("list", arrow::list(arrow::int32()))});
    return arrow::Table::Make(schema, {keys.Finish().ValueOrDie(), values.Finish().ValueOrDie(),
                                       names.Finish().ValueOrDie(), lists.Finish().ValueOrDie()});
}

constexpr int64_t ROWS = 100000;

/* Runs `work` with Arrow's default pool and with Loch's. The results are equal, Loch's pool was used, and everything
 * comes back to it. */
template <class Work> void expect_equal_results(Work work)
{
    auto pool = make_pool();
    auto input = make_table(ROWS, arrow::default_memory_pool());
    {
        arrow::Datum expected = work(input, arrow::default_memory_pool());
        EXPECT_EQ(pool->num_allocations(), 0);
        arrow::Datum actual = work(input, pool.get());
        EXPECT_TRUE(actual.Equals(expected));
        EXPECT_GT(pool->num_allocations(), 0);
        EXPECT_GT(pool->bytes_allocated(), 0); /* the result lies in it */
        EXPECT_EQ(read_tag(*pool).requested_bytes, static_cast<uint64_t>(pool->bytes_allocated()));
    }
    expect_empty(*pool);
}

TEST(Work, Builders)
{
    expect_equal_results([](auto, arrow::MemoryPool *pool) { return arrow::Datum(make_table(ROWS, pool)); });
}

TEST(Work, Sort)
{
    expect_equal_results([](std::shared_ptr<arrow::Table> table, arrow::MemoryPool *pool) {
        cp::ExecContext context(pool);
        const cp::SortOptions options(
            {cp::SortKey("name", cp::SortOrder::Descending), cp::SortKey("value"), cp::SortKey("key")});
        arrow::Datum order = cp::SortIndices(table, options, &context).ValueOrDie();
        return cp::Take(table, order, cp::TakeOptions::NoBoundsCheck(), &context).ValueOrDie();
    });
}

TEST(Work, CastAndArithmetic)
{
    expect_equal_results([](std::shared_ptr<arrow::Table> table, arrow::MemoryPool *pool) {
        cp::ExecContext context(pool);
        auto text =
            cp::Cast(table->GetColumnByName("key"), cp::CastOptions::Safe(arrow::utf8()), &context).ValueOrDie();
        auto number = cp::Cast(text, cp::CastOptions::Safe(arrow::float64()), &context).ValueOrDie();
        return cp::CallFunction("multiply", {number, arrow::Datum(table->GetColumnByName("value"))}, &context)
            .ValueOrDie();
    });
}

TEST(Work, FilterAndUnique)
{
    expect_equal_results([](std::shared_ptr<arrow::Table> table, arrow::MemoryPool *pool) {
        cp::ExecContext context(pool);
        auto mask = cp::CallFunction("less", {arrow::Datum(table->GetColumnByName("key")), arrow::Datum(int64_t(500))},
                                     &context)
                        .ValueOrDie();
        auto kept = cp::Filter(table, mask, cp::FilterOptions::Defaults(), &context).ValueOrDie();
        return arrow::Datum(cp::Unique(kept.table()->GetColumnByName("name"), &context).ValueOrDie());
    });
}

TEST(Work, GroupBy)
{
    expect_equal_results([](std::shared_ptr<arrow::Table> table, arrow::MemoryPool *pool) {
        const ac::AggregateNodeOptions group(
            {{"hash_sum", nullptr, "value", "sum"}, {"hash_count", nullptr, "name", "count"}}, {"key"});
        const ac::Declaration plan =
            ac::Declaration::Sequence({{"table_source", ac::TableSourceNodeOptions(table)},
                                       {"aggregate", group},
                                       {"order_by", ac::OrderByNodeOptions(cp::Ordering({cp::SortKey("key")}))}});
        return arrow::Datum(ac::DeclarationToTable(plan, false, pool).ValueOrDie());
    });
}

TEST(Work, JoinOnThreads)
{
    expect_equal_results([](std::shared_ptr<arrow::Table> table, arrow::MemoryPool *pool) {
        auto small = table->Slice(0, 2000)->SelectColumns({0, 2}).ValueOrDie();
        auto renamed = small->RenameColumns({"key2", "name2"}).ValueOrDie();
        const ac::Declaration plan = ac::Declaration::Sequence(
            {{"hashjoin",
              {ac::Declaration("table_source", ac::TableSourceNodeOptions(table->SelectColumns({0, 1}).ValueOrDie())),
               ac::Declaration("table_source", ac::TableSourceNodeOptions(renamed))},
              ac::HashJoinNodeOptions(ac::JoinType::INNER, {"key"}, {"key2"})},
             {"aggregate",
              ac::AggregateNodeOptions(
                  {{"hash_count", nullptr, "value", "count"}, {"hash_max", nullptr, "value", "max"}}, {"name2"})},
             {"order_by", ac::OrderByNodeOptions(cp::Ordering({cp::SortKey("name2")}))}});
        return arrow::Datum(ac::DeclarationToTable(plan, true, pool).ValueOrDie());
    });
}

/* --- files --- */

TEST(Files, IpcWithCompression)
{
    expect_equal_results([](std::shared_ptr<arrow::Table> table, arrow::MemoryPool *pool) {
        auto options = arrow::ipc::IpcWriteOptions::Defaults();
        options.memory_pool = pool;
        options.codec = arrow::util::Codec::Create(arrow::Compression::LZ4_FRAME).ValueOrDie();
        auto sink = arrow::io::BufferOutputStream::Create(4096, pool).ValueOrDie();
        auto writer = arrow::ipc::MakeFileWriter(sink, table->schema(), options).ValueOrDie();
        EXPECT_TRUE(writer->WriteTable(*table, 10000).ok());
        EXPECT_TRUE(writer->Close().ok());
        auto bytes = sink->Finish().ValueOrDie();
        auto read = arrow::ipc::IpcReadOptions::Defaults();
        read.memory_pool = pool;
        auto source = std::make_shared<arrow::io::BufferReader>(bytes);
        auto reader = arrow::ipc::RecordBatchFileReader::Open(source, read).ValueOrDie();
        return arrow::Datum(reader->ToTable().ValueOrDie());
    });
}

TEST(Files, Parquet)
{
    expect_equal_results([](std::shared_ptr<arrow::Table> table, arrow::MemoryPool *pool) {
        auto sink = arrow::io::BufferOutputStream::Create(4096, pool).ValueOrDie();
        auto properties =
            parquet::WriterProperties::Builder().memory_pool(pool)->compression(arrow::Compression::SNAPPY)->build();
        EXPECT_TRUE(parquet::arrow::WriteTable(*table, pool, sink, 30000, properties).ok());
        auto source = std::make_shared<arrow::io::BufferReader>(sink->Finish().ValueOrDie());
        auto reader = parquet::arrow::OpenFile(source, pool).ValueOrDie();
        reader->set_use_threads(true);
        std::shared_ptr<arrow::Table> read;
        read = reader->ReadTable().ValueOrDie();
        return arrow::Datum(read->CombineChunks(pool).ValueOrDie());
    });
}

TEST(Files, Csv)
{
    expect_equal_results([](std::shared_ptr<arrow::Table> table, arrow::MemoryPool *pool) {
        auto sink = arrow::io::BufferOutputStream::Create(4096, pool).ValueOrDie();
        auto flat = table->SelectColumns({0, 1, 2}).ValueOrDie();
        EXPECT_TRUE(arrow::csv::WriteCSV(*flat, arrow::csv::WriteOptions::Defaults(), sink.get()).ok());
        auto source = std::make_shared<arrow::io::BufferReader>(sink->Finish().ValueOrDie());
        auto reader =
            arrow::csv::TableReader::Make(arrow::io::IOContext(pool), source, arrow::csv::ReadOptions::Defaults(),
                                          arrow::csv::ParseOptions::Defaults(), arrow::csv::ConvertOptions::Defaults())
                .ValueOrDie();
        return arrow::Datum(reader->Read().ValueOrDie());
    });
}

/* --- threads --- */

TEST(Threads, AllocateResizeAndFree)
{
    auto pool = make_pool();
    std::vector<std::thread> threads;
    std::atomic<int> faults{0};
    for (unsigned number = 0; number < 8; number++)
        threads.emplace_back([&, number] {
            std::mt19937 random(number);
            std::vector<std::shared_ptr<arrow::ResizableBuffer>> buffers(20);
            for (int step = 0; step < 3000; step++) {
                auto &buffer = buffers[random() % buffers.size()];
                const int64_t size = random() % (int64_t(1) << (random() % 18));
                if (buffer && buffer->size() && buffer->data()[buffer->size() / 2] != number) faults++;
                if (!buffer || random() % 3 == 0) {
                    auto made = arrow::AllocateResizableBuffer(size, pool.get());
                    if (!made.ok()) faults++;
                    buffer = std::move(*made);
                } else if (!buffer->Resize(size, random() % 2).ok()) {
                    faults++;
                }
                std::memset(buffer->mutable_data(), static_cast<int>(number), static_cast<size_t>(size));
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(faults, 0);
    expect_empty(*pool);
    EXPECT_GE(pool->max_memory(), int64_t(1) << 17);
    EXPECT_GE(pool->total_bytes_allocated(), pool->max_memory());
}

} // namespace

int main(int argc, char **argv)
{
    testing::InitGoogleTest(&argc, argv);
    if (!cp::Initialize().ok()) return 1;
    ac::ExecPlan::Make().ValueOrDie(); /* registers the nodes of queries */
    return RUN_ALL_TESTS();
}
