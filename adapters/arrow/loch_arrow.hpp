/* SPDX-License-Identifier: MIT */
/** @file loch_arrow.hpp
 *  A Loch pool as a memory pool of Apache Arrow (C++). Header only, C++17; newer versions of Arrow need C++20
 *  themselves.
 *
 *      #include <loch_arrow.hpp>
 *
 *      ARROW_ASSIGN_OR_RAISE(auto pool, loch::arrow_pool::make());
 *      arrow::Int64Builder builder(pool.get());
 *      arrow::compute::ExecContext context(pool.get());
 *
 *  - Every block has a tag, so that Loch's reports and statistics name it. Several arrow_pools may share one Loch
 *    allocator, each with a tag of its own: pass one to each part of a program.
 *  - Failures become arrow::Status: OutOfMemory with the sentence of Loch, which says whose limit it is.
 *  - The pool outlives its buffers, as Arrow asks: a buffer keeps a plain pointer to its pool. Any thread.
 */
#ifndef LOCH_ARROW_HPP
#define LOCH_ARROW_HPP

#include <loch/pool.h>

#include <arrow/memory_pool.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

namespace loch
{

/** Options of loch::arrow_pool::make. */
struct arrow_options {
    const char *name = "arrow"; /**< name of the new Loch pool, for people */
    const char *tag = "arrow";  /**< tag of all blocks (tag.h); "" for none */
    /** Device of the memory: "cpu", "cpu:numa1"; a GPU together with pinned memory (`pool->kind`). */
    const char *device = "cpu";
    const loch_pool_options *pool = nullptr; /**< limit, cap on free memory and others; nullptr for all defaults */
};

/** A memory pool of Arrow on a Loch allocator. */
class arrow_pool final : public ::arrow::MemoryPool
{
  public:
    using ::arrow::MemoryPool::Allocate;
    using ::arrow::MemoryPool::Free;
    using ::arrow::MemoryPool::Reallocate;

    /** Makes a memory pool on a Loch pool of its own. Invalid: an option is not valid, or the memory is not the
     *  host's. OutOfMemory: no memory for the records of the pool. */
    static ::arrow::Result<std::unique_ptr<arrow_pool>> make(const arrow_options &options = arrow_options())
    {
        loch_device *device = nullptr;
        loch_allocator *allocator = nullptr;
        loch_status status = loch_device_open(options.device, &device);
        if (status == LOCH_OK) status = loch_pool_create(device, options.name, options.pool, &allocator);
        loch_device_release(device);
        if (status != LOCH_OK) return fail(status, "Loch cannot make a pool", 0);
        auto made = make(allocator, options.tag);
        loch_allocator_release(allocator);
        return made;
    }

    /** Makes a memory pool on an allocator, which is retained: any allocator of host memory that is thread safe, also
     *  a wrapper. Invalid: the allocator is nullptr, not thread safe or of memory that the host cannot use, or the tag
     *  is not valid. */
    static ::arrow::Result<std::unique_ptr<arrow_pool>> make(loch_allocator *allocator, const char *tag = "arrow")
    {
        if (!allocator) return ::arrow::Status::Invalid("a memory pool without an allocator");
        const bool is_on_host = loch_attributes_has(loch_allocator_get_attributes(allocator), LOCH_ATTRIBUTE_ON_HOST) ||
                                loch_device_can(loch_allocator_get_device(allocator), LOCH_CAN_HOST_ACCESS);
        if (!is_on_host)
            return ::arrow::Status::Invalid("allocator \"", loch_allocator_get_name(allocator),
                                            "\" has memory that the host cannot use");
        if (!(loch_allocator_get_traits(allocator) & LOCH_TRAIT_THREAD_SAFE))
            return ::arrow::Status::Invalid("allocator \"", loch_allocator_get_name(allocator),
                                            "\" is not thread safe: wrap it by loch_locked_create");
        loch_tag number = 0;
        if (tag && *tag) {
            const loch_status status = loch_tag_create(tag, &number);
            if (status != LOCH_OK) return fail(status, "Loch cannot make a tag", 0);
        }
        return std::unique_ptr<arrow_pool>(new arrow_pool(allocator, number));
    }

    ~arrow_pool() override { loch_allocator_release(allocator_); }
    arrow_pool(const arrow_pool &) = delete;
    arrow_pool &operator=(const arrow_pool &) = delete;

    /** Returns the Loch allocator. Borrowed. */
    loch_allocator *get_allocator() const noexcept { return allocator_; }
    /** Returns the tag of the blocks; 0 for none. */
    loch_tag get_tag() const noexcept { return tag_; }

    /** Allocates `size` bytes. 0 bytes give an address that is not nullptr and takes no memory. Invalid: the size is
     *  negative, or the alignment is not a power of two. */
    ::arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t **out) override
    {
        if (size < 0) return ::arrow::Status::Invalid("negative malloc size");
        if (!is_alignment(alignment)) return ::arrow::Status::Invalid("alignment ", alignment, " of a memory pool");
        const loch_status status = take(size, alignment, out);
        if (status != LOCH_OK) return fail(status, "malloc", size);
        count(size);
        return ::arrow::Status::OK();
    }

    /** Changes the size of a block and keeps the contents up to the smaller size. The block is unchanged on failure. */
    ::arrow::Status Reallocate(int64_t old_size, int64_t new_size, int64_t alignment, uint8_t **ptr) override
    {
        if (new_size < 0) return ::arrow::Status::Invalid("negative realloc size");
        if (!is_alignment(alignment)) return ::arrow::Status::Invalid("alignment ", alignment, " of a memory pool");
        const loch_status status = resize(old_size, new_size, alignment, ptr);
        if (status != LOCH_OK) return fail(status, "realloc", new_size);
        if (new_size > old_size)
            count(new_size - old_size);
        else
            bytes_.fetch_sub(old_size - new_size, std::memory_order_relaxed);
        return ::arrow::Status::OK();
    }

    /** Frees a block of `size` bytes. A wrong address changes nothing and prints a line on stderr. */
    void Free(uint8_t *buffer, int64_t size, int64_t /* alignment */) override
    {
        if (size <= 0) return;
        const loch_status status = loch_free(allocator_, buffer);
        if (status == LOCH_OK)
            bytes_.fetch_sub(size, std::memory_order_relaxed);
        else
            std::fprintf(stderr, "loch: Arrow frees a wrong address: %s\n", loch_error_get()->sentence);
    }

    /** Gives free memory back to the device. */
    void ReleaseUnused() override
    {
        const loch_status status = loch_allocator_trim(allocator_, 0, nullptr);
        (void)status; /* Arrow asks for the best that is possible */
    }

    /** Prints on stderr what the Loch pool holds. */
    void PrintStats() override { std::fputs(get_report().c_str(), stderr); }

    /** Returns what PrintStats prints. */
    std::string get_report() const
    {
        size_t length = 0;
        std::string text = "Arrow memory pool on Loch, tag \"" + std::string(loch_tag_name(tag_)) +
                           "\": " + std::to_string(bytes_allocated()) + " bytes in use, at most " +
                           std::to_string(max_memory()) + "\n";
        const size_t head = text.size();
        loch_status status = loch_pool_print(allocator_, nullptr, 0, &length);
        if (status == LOCH_OK) {
            text.resize(head + length + 1);
            status = loch_pool_print(allocator_, &text[head], length + 1, nullptr);
            text.resize(head + (status == LOCH_OK ? std::strlen(&text[head]) : 0));
        }
        return text;
    }

    /** Returns the bytes of this pool that are in use, as asked for. */
    int64_t bytes_allocated() const override { return bytes_.load(std::memory_order_relaxed); }
    /** Returns the most bytes that were in use. */
    int64_t max_memory() const override { return peak_.load(std::memory_order_relaxed); }
    /** Returns the sum of the bytes of all allocations, and of those that reallocations added. */
    int64_t total_bytes_allocated() const override { return total_.load(std::memory_order_relaxed); }
    /** Returns the number of allocations, and of reallocations to more bytes. */
    int64_t num_allocations() const override { return calls_.load(std::memory_order_relaxed); }
    /** Returns "loch". */
    std::string backend_name() const override { return "loch"; }

  private:
    /* Loch aligns plain blocks of this many bytes, and of multiples of 64, to 64 bytes (pool.h). */
    static constexpr int64_t ALIGNED_SIZE = 512;
    static constexpr int64_t ALIGNMENT = 64;

    arrow_pool(loch_allocator *allocator, loch_tag tag) : allocator_(loch_allocator_retain(allocator)), tag_(tag) {}

    static bool is_alignment(int64_t alignment) { return alignment > 0 && !(alignment & (alignment - 1)); }

    /* A page that no code reads or writes: the address of buffers without bytes, whatever their alignment. */
    static uint8_t *get_empty()
    {
        alignas(4096) static uint8_t page[1];
        return page;
    }

    /* The status of Arrow for a failed call: the sentence of Loch after Arrow's own words. */
    static ::arrow::Status fail(loch_status status, const char *what, int64_t size)
    {
        const loch_error *error = loch_error_get();
        const char *sentence =
            error->status == status && error->sentence[0] ? error->sentence : loch_status_text(status);
        const std::string text = size ? std::string(what) + " of size " + std::to_string(size) + " failed: " + sentence
                                      : std::string(what) + ": " + sentence;
        switch (status) {
        case LOCH_E_HOST_MEMORY:
        case LOCH_E_DEVICE_MEMORY:
        case LOCH_E_LIMIT:
        case LOCH_E_FRAGMENTED:
        case LOCH_E_OVERFLOW: return ::arrow::Status::OutOfMemory(text);
        case LOCH_E_INVALID:
        case LOCH_E_DOUBLE_FREE:
        case LOCH_E_FOREIGN:
        case LOCH_E_INTERIOR:
        case LOCH_E_NOT_FOUND: return ::arrow::Status::Invalid(text);
        default: return ::arrow::Status::UnknownError(text);
        }
    }

    loch_status take(int64_t size, int64_t alignment, uint8_t **out)
    {
        if (size == 0) {
            *out = get_empty();
            return LOCH_OK;
        }
        loch_request request = {};
        request.size = sizeof request;
        request.bytes = static_cast<size_t>(size);
        request.alignment = static_cast<size_t>(alignment);
        request.tag = tag_;
        void *block = nullptr;
        const loch_status status = loch_allocator_alloc(allocator_, &request, &block);
        if (status == LOCH_OK) *out = static_cast<uint8_t *>(block);
        return status;
    }

    /* Moves a block to a new one that is aligned. */
    loch_status move(int64_t old_size, int64_t new_size, int64_t alignment, uint8_t **ptr)
    {
        uint8_t *block = nullptr;
        const loch_status status = take(new_size, alignment, &block);
        if (status != LOCH_OK) return status;
        std::memcpy(block, *ptr, static_cast<size_t>(old_size < new_size ? old_size : new_size));
        const loch_status freed = old_size ? loch_free(allocator_, *ptr) : LOCH_OK;
        if (freed != LOCH_OK && new_size) { /* a wrong address: nothing has changed */
            const loch_error saved = *loch_error_get();
            const loch_status undone = loch_free(allocator_, block);
            (void)undone;
            loch_error_set(saved.status, nullptr, 0, "%s", saved.sentence);
        }
        if (freed == LOCH_OK) *ptr = block;
        return freed;
    }

    loch_status resize(int64_t old_size, int64_t new_size, int64_t alignment, uint8_t **ptr)
    {
        const bool is_aligned = new_size % ALIGNMENT == 0 || new_size >= ALIGNED_SIZE;
        if (old_size == new_size) return LOCH_OK;
        if (old_size == 0 || new_size == 0 || alignment > ALIGNMENT || !is_aligned)
            return move(old_size, new_size, alignment, ptr);
        void *block = nullptr;
        const loch_status status =
            loch_allocator_realloc(allocator_, *ptr, static_cast<size_t>(new_size), nullptr, &block);
        if (status != LOCH_OK) return status;
        *ptr = static_cast<uint8_t *>(block);
        if (reinterpret_cast<uintptr_t>(block) % static_cast<uintptr_t>(alignment) == 0) return LOCH_OK;
        return move(new_size, new_size, alignment, ptr); /* an allocator with rules of its own */
    }

    void count(int64_t bytes)
    {
        int64_t peak = peak_.load(std::memory_order_relaxed);
        const int64_t now = bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
        total_.fetch_add(bytes, std::memory_order_relaxed);
        calls_.fetch_add(1, std::memory_order_relaxed);
        while (peak < now && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {}
    }

    loch_allocator *allocator_;
    loch_tag tag_;
    alignas(64) std::atomic<int64_t> bytes_{0};
    std::atomic<int64_t> peak_{0}, total_{0}, calls_{0};
};

} // namespace loch

#endif
