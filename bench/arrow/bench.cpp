/* SPDX-License-Identifier: MIT */
/* Arrow's work on one memory pool: CPU time of each piece of work, and the peak of the process. Run by bench/arrow/run.
 *
 *     bench loch|loch-untagged|system|jemalloc|mimalloc [ROUNDS]
 *
 * Prints one line: the pool, the best CPU time of each piece of work in ms, MiB asked for at most, MiB of the process
 * at most.
 */
#include <loch_arrow.hpp>

#include <arrow/acero/exec_plan.h>
#include <arrow/acero/options.h>
#include <arrow/api.h>
#include <arrow/compute/api.h>
#include <arrow/compute/initialize.h>
#include <arrow/io/memory.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <thread>

namespace cp = arrow::compute;
namespace ac = arrow::acero;

namespace
{

constexpr int64_t ROWS = 2000000;

arrow::MemoryPool *find_pool(const std::string &name)
{
    arrow::MemoryPool *pool = nullptr;
    if (name == "loch") return loch::arrow_pool::make().ValueOrDie().release();
    if (name == "loch-untagged") return loch::arrow_pool::make({"arrow", ""}).ValueOrDie().release();
    if (name == "jemalloc" && arrow::jemalloc_memory_pool(&pool).ok()) return pool;
    if (name == "mimalloc" && arrow::mimalloc_memory_pool(&pool).ok()) return pool;
    return name == "system" ? arrow::system_memory_pool() : nullptr;
}

void check(const arrow::Status &status)
{
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
}

std::shared_ptr<arrow::Table> build(arrow::MemoryPool *pool)
{
    std::mt19937_64 random(7);
    arrow::Int64Builder keys(pool);
    arrow::DoubleBuilder values(pool);
    arrow::StringBuilder names(pool);
    for (int64_t i = 0; i < ROWS; i++) {
        const uint64_t number = random();
        check(keys.Append(static_cast<int64_t>(number % 100000)));
        check(values.Append(static_cast<double>(number % 100000) / 8));
        check(names.Append(std::to_string(number % 1000000)));
    }
    auto schema = arrow::schema({arrow::field("key", arrow::int64()), arrow::field("value", arrow::float64()),
                                 arrow::field("name", arrow::utf8())});
    return arrow::Table::Make(schema,
                              {keys.Finish().ValueOrDie(), values.Finish().ValueOrDie(), names.Finish().ValueOrDie()});
}

void sort(const std::shared_ptr<arrow::Table> &table, arrow::MemoryPool *pool)
{
    cp::ExecContext context(pool);
    auto order = cp::SortIndices(table, cp::SortOptions({cp::SortKey("key"), cp::SortKey("value")}), &context);
    cp::Take(table, order.ValueOrDie(), cp::TakeOptions::NoBoundsCheck(), &context).ValueOrDie();
}

void group(const std::shared_ptr<arrow::Table> &table, arrow::MemoryPool *pool)
{
    const ac::Declaration plan = ac::Declaration::Sequence(
        {{"table_source", ac::TableSourceNodeOptions(table)},
         {"aggregate",
          ac::AggregateNodeOptions({{"hash_sum", nullptr, "value", "sum"}, {"hash_count", nullptr, "name", "count"}},
                                   {"key"})}});
    ac::DeclarationToTable(plan, true, pool).ValueOrDie();
}

void parquet_file(const std::shared_ptr<arrow::Table> &table, arrow::MemoryPool *pool)
{
    auto sink = arrow::io::BufferOutputStream::Create(4096, pool).ValueOrDie();
    auto properties = parquet::WriterProperties::Builder().memory_pool(pool)->build();
    check(parquet::arrow::WriteTable(*table, pool, sink, 200000, properties));
    auto source = std::make_shared<arrow::io::BufferReader>(sink->Finish().ValueOrDie());
    auto reader = parquet::arrow::OpenFile(source, pool).ValueOrDie();
    reader->set_use_threads(true);
    reader->ReadTable().ValueOrDie();
}

/* Buffers of 64 bytes to 64 KiB that come, grow and go, on two threads. */
void buffers(arrow::MemoryPool *pool)
{
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < 2; number++)
        threads.emplace_back([pool, number] {
            std::mt19937 random(number);
            std::vector<std::shared_ptr<arrow::ResizableBuffer>> held(64);
            for (int step = 0; step < 500000; step++) {
                auto &buffer = held[random() % held.size()];
                const int64_t size = int64_t(64) << (random() % 11);
                if (buffer && step % 4 == 0)
                    check(buffer->Resize(size));
                else
                    buffer = arrow::AllocateResizableBuffer(size, pool).ValueOrDie();
            }
        });
    for (std::thread &thread : threads)
        thread.join();
}

/* CPU time of the process in ms: other programs of the machine do not count. */
double read_clock()
{
    timespec now = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

double best_of(int rounds, const std::function<void()> &work)
{
    double best = 1e9;
    for (int i = 0; i < rounds; i++) {
        const double start = read_clock();
        work();
        best = std::min(best, read_clock() - start);
    }
    return best;
}

} // namespace

int main(int argc, char **argv)
{
    const std::string name = argc > 1 ? argv[1] : "";
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
    check(cp::Initialize());
    arrow::MemoryPool *pool = find_pool(name);
    if (!pool) {
        std::printf("%-14s not there\n", name.c_str());
        return 0;
    }
    std::shared_ptr<arrow::Table> table;
    const double built = best_of(rounds, [&] { table = build(pool); });
    const double sorted = best_of(rounds, [&] { sort(table, pool); });
    const double grouped = best_of(rounds, [&] { group(table, pool); });
    const double stored = best_of(rounds, [&] { parquet_file(table, pool); });
    const double small = best_of(rounds, [&] { buffers(pool); });
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    std::printf("%-14s %8.0f %8.0f %8.0f %8.0f %8.0f %10.0f %10.0f\n", name.c_str(), built, sorted, grouped, stored,
                small, static_cast<double>(pool->max_memory()) / (1 << 20),
                static_cast<double>(usage.ru_maxrss) / 1024);
    table.reset();
    return 0;
}
