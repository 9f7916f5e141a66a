// SPDX-License-Identifier: MIT
// Buffers, pins, scratch memory.
#include "test.hpp"

#include <loch/cpp/buffer.hpp>
#include <loch/cpp/pool.hpp>
#include <loch/cpp/scratch.hpp>

#include <cstdint>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(test::is_shared<loch::buffer> && test::is_owner<loch::unique_buffer> && test::is_guard<loch::pin>);
static_assert(test::is_owner<loch::buffer_pool> && test::is_owner<loch::workspace> && test::is_guard<loch::scratch>);
static_assert(sizeof(loch::buffer) == sizeof(void *));

TEST(handles_are_copied_moved_and_given_up)
{
    loch::buffer a(100);
    EXPECT(a && a.bytes() == 100 && a.references() == 1 && a.is_on_host());
    loch::buffer b = a;
    EXPECT(a.references() == 2 && b.get() == a.get());
    b = a; // once more
    loch::buffer &alias = b;
    b = alias;
    EXPECT(a.references() == 2);
    test::moves(b);
    EXPECT(a.references() == 2);
    b.reset();
    EXPECT(!b && a.references() == 1);
    b.reset();
    loch_buffer *raw = a.release();
    EXPECT(!a && loch_buffer_get_references(raw) == 1);
    a = loch::buffer::take(raw);
    EXPECT(loch::buffer::retain(raw).references() == 2);
    EXPECT(a.references() == 1);
    loch::unique_buffer unique(10);
    test::moves(unique);
}

static void count_deletion(void *, std::size_t, void *user)
{
    ++*static_cast<int *>(user);
}

TEST(buffers_are_filled_copied_sliced_and_wrapped)
{
    test::on_devices([](const loch::device &device) {
        loch::unique_buffer unique(64, loch::place().zeroed());
        EXPECT(static_cast<const char *>(unique.address())[63] == 0);
        unique.fill<std::uint32_t>(0x01020304u);
        const loch::place whole = loch::place(loch::pool(device, "whole")).one_handle(); /* from a pool of its own */
        EXPECT(loch::unique_buffer(100, whole).bytes() == 100);
        EXPECT_THROWS(LOCH_E_INVALID, loch::unique_buffer(100, loch::place(whole).movable()));
        const loch::buffer shared = std::move(unique);
        EXPECT(!unique && shared.bytes() == 64);
        loch::buffer part = shared.slice(60, 4);
        EXPECT(part.elements<std::uint32_t>()[0] == 0x01020304u && part.id() == shared.id());
        EXPECT(shared.references() == 2);
        EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, shared.slice(61, 4));
        EXPECT_THROWS(LOCH_E_UNSUPPORTED, part.resize(10));

        const loch::stream stream(device);
        loch::buffer there(64, device), back(64);
        EXPECT(there.device().get() == device.get() && there.kind() == LOCH_MEMORY_DEVICE && there.allocator());
        const std::uint64_t version = there.version();
        there.copy_from(shared, stream);
        there.record_use(stream);
        EXPECT(there.version() > version);
        there.touch();
        EXPECT(there.version() > version + 1 && there.access() == LOCH_READ_WRITE && !there.is_movable());
        stream.sync();
        back.copy_from(there);
        EXPECT(std::memcmp(back.address(), shared.address(), 64) == 0);
        EXPECT_THROWS(LOCH_E_INVALID, back.copy_from(part)); // sizes differ
        loch_buffer_copy_options clip{};
        clip.fit = LOCH_FIT_CLIP;
        back.copy_from(part, clip);
        back.resize(1000);
        EXPECT(back.bytes() == 1000 && back.elements<char>().size() == 1000);
        EXPECT_THROWS(LOCH_E_INVALID, back.elements<std::uint64_t[3]>()); // 24 bytes do not divide 1000
        if (!there.is_on_host()) EXPECT_THROWS(LOCH_E_UNSUPPORTED, there.elements<char>());

        int deleted = 0;
        char memory[16];
        loch_external external{};
        external.deleter = count_deletion;
        external.user = &deleted;
        external.access = LOCH_READ_ONLY;
        loch::buffer wrapped = loch::buffer::wrap(memory, sizeof memory, external);
        EXPECT(wrapped.address() == memory && deleted == 0 && wrapped.elements<const char>().size() == 16);
        EXPECT_THROWS(LOCH_E_INVALID, wrapped.elements<char>());
        wrapped.add_deleter(count_deletion, &deleted);
        wrapped.reset();
        EXPECT(deleted == 2);
        there.reset();
        EXPECT(loch::buffer::collect(LOCH_WAIT_END) == 0);
    });
    EXPECT_THROWS(LOCH_E_INVALID, loch::buffer(10, loch::device{})); // not the host
    EXPECT_THROWS(LOCH_E_INVALID, loch::buffer().bytes());
    EXPECT_THROWS(LOCH_E_INVALID, loch::unique_buffer().copy_from(loch::buffer()));
}

TEST(a_block_becomes_a_buffer_and_a_buffer_a_block)
{
    test::on_devices([](const loch::device &device) {
        const loch::pool pool(device);
        loch::block block(pool, 100);
        void *const address = block.get();
        loch::unique_buffer buffer = loch::unique_buffer::adopt(std::move(block));
        EXPECT(!block && buffer.address() == address && buffer.bytes() == 100);
        block = buffer.detach();
        EXPECT(block.get() == address && !buffer.address() && buffer.bytes() == 0);
        const loch::pool other(device);
        loch::block foreign = loch::block::take(other, block.get());
        EXPECT_THROWS(LOCH_E_FOREIGN, loch::unique_buffer::adopt(std::move(foreign)));
        EXPECT(foreign.release() == address); // a failure keeps it
        block.free();
        EXPECT(pool.stats().blocks == 0);
        loch_buffer *shared = loch::unique_buffer(10, pool).release();
        loch::unique_buffer first = loch::unique_buffer::take(loch_buffer_retain(shared));
        EXPECT_THROWS(LOCH_E_BUSY, first.detach());
        loch_buffer_release(shared);
    });
}

TEST(a_pin_ends_with_its_block_and_keeps_the_buffer)
{
    const loch::pool pool{loch::device(test::sim_name)};
    loch::buffer buffer(100, loch::place(pool).movable());
    {
        const loch::pin pin = buffer.pin();
        EXPECT(pin.address() && buffer.references() == 2);
        EXPECT_THROWS(LOCH_E_BUSY, buffer.resize(200));
    }
    buffer.resize(200);
    EXPECT(buffer.references() == 1);
    EXPECT_THROWS(LOCH_E_INVALID, static_cast<void>(loch::buffer().pin()));
}

TEST(scratch_memory_is_reused)
{
    test::on_devices([](const loch::device &device) {
        const loch::pool pool(device);
        const loch::stream stream(device);
        loch::buffer_pool buffers(pool);
        test::moves(buffers);
        void *first = nullptr;
        {
            const loch::scratch scratch = buffers.acquire(1000, stream);
            first = scratch.address();
            EXPECT(scratch.buffer().bytes() == 1000 && buffers.stats().out == 1);
        }
        EXPECT(buffers.stats().idle == 1);
        EXPECT(buffers.acquire(1000, stream).address() == first && buffers.stats().reused == 1);
        EXPECT(buffers.trim() > 0 && buffers.stats().idle == 0);
        loch::buffer kept;
        {
            const loch::scratch scratch = buffers.acquire(10);
            kept = scratch.buffer();
        }
        EXPECT(kept.references() == 1 && buffers.stats().idle == 0); // not cached: another reference lives

        loch::workspace workspace(pool, stream);
        test::moves(workspace);
        const loch::buffer space = workspace.acquire(4000);
        EXPECT(space.bytes() == 4000 && workspace.acquire(100).get() == space.get());
    });
    EXPECT_THROWS(LOCH_E_INVALID, static_cast<void>(loch::buffer_pool().acquire(1)));
    EXPECT_THROWS(LOCH_E_INVALID, static_cast<void>(loch::workspace().acquire(1)));
    EXPECT_THROWS(LOCH_E_INVALID, loch::workspace{loch::allocator()});
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
