# SPDX-License-Identifier: MIT
"""Several threads on one object. A free-threaded interpreter runs them at the same time; with the GIL they still meet, because
calls of the library release it. Needs no NumPy."""

import sys
import sysconfig
import threading

import loch
import pytest

KIB, MIB = 1 << 10, 1 << 20
THREADS, ROUNDS = 4, 300


def hammer(work, threads=THREADS):
    """Runs work(number) in several threads that begin together, and raises what one of them raised."""
    barrier, failures = threading.Barrier(threads), []

    def run(number):
        try:
            barrier.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001: shown by the thread of the test
            failures.append(error)

    all_threads = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    if failures:
        raise failures[0]


def test_a_free_threaded_interpreter_keeps_its_threads():
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("the interpreter has a GIL")
    assert not sys._is_gil_enabled()  # the import of a module that did not declare it would have switched it on


def test_one_tensor_is_used_by_all_threads():
    tensor = loch.zeros((THREADS, 1000), "i64")

    def work(number):
        row = tensor[number]
        for round in range(ROUNDS):
            row.fill(round)
            assert tensor[number, 999].item() == round
            assert tensor.T.shape == (1000, THREADS)
            view = memoryview(tensor)
            assert view.nbytes == 8000 * THREADS
            view.release()
            assert len(tensor.clone().tolist()) == THREADS
            assert loch.from_dlpack(tensor)[number, 0].item() == round
            repr(tensor)

    hammer(work)
    assert [row[0] for row in tensor.tolist()] == [ROUNDS - 1] * THREADS
    assert tensor.references == 1


def test_one_pool_serves_all_threads():
    with loch.Pool(limit="256MiB", name="hammered") as pool:

        def work(number):
            blocks = []
            for round in range(ROUNDS):
                blocks.append(pool.alloc((number + 1) * 3 * KIB + round, zeroed=True))
                tensor = loch.full((100,), number, "i32", pool=pool)
                assert tensor.tolist() == [number] * 100
                assert tensor.pool == pool and hash(tensor.pool) == hash(pool)
                if len(blocks) > 8:
                    blocks.pop(0).free()
                pool.limit = 256 * MIB - number
                assert pool.stats().blocks > 0 and pool.info() and pool.blocks() and pool.report()
                if round % 50 == 0:
                    pool.trim()
                    child = pool.child(f"{number}", limit="2MiB")
                    assert any(other == child for other in pool.children)
                    child.close()

        hammer(work)
        assert pool.stats().blocks == 0


def test_a_block_is_freed_by_one_thread():
    with loch.Pool() as pool:
        for _ in range(ROUNDS):
            block, freed = pool.alloc(KIB), []

            def work(number, block=block, freed=freed):
                try:
                    block.free()
                    freed.append(number)
                except loch.Error as error:
                    assert error.status == "E_DOUBLE_FREE"

            hammer(work, 2)
            assert len(freed) == 1 and block.freed
        assert pool.stats().blocks == 0


def test_a_block_in_use_is_not_called_freed():
    with loch.Pool() as pool, pool.alloc(KIB) as block:
        said = []

        class Evil:
            """A stream that frees the block when it is asked for its handle."""

            def __cuda_stream__(self):
                for end in (block.free, block.detach):
                    try:
                        end()
                    except loch.Error as error:
                        said.append(error)
                return (0, 0)

        block.record_use(Evil())
        assert [error.status for error in said] == ["E_BUSY", "E_BUSY"] and "uses the block" in str(said[0])
        assert not block.freed


def test_a_pool_is_closed_under_its_users():
    for _ in range(60):
        pool = loch.Pool(name="closed under its users")

        def work(number, pool=pool):
            if number == 0:
                pool.close()
                return
            try:
                for _ in range(20):
                    with pool.alloc(KIB):
                        pool.stats()
            except loch.Error as error:
                assert error.status == "E_INVALID" and "closed" in str(error)

        hammer(work)
        assert pool.closed


def test_a_session_ends_once():
    with loch.Pool() as pool:
        for _ in range(60):
            session, bytes_freed = pool.session(), []

            def work(number, session=session, bytes_freed=bytes_freed):
                try:
                    for _ in range(5):
                        session.alloc(KIB)
                    bytes_freed.append(session.end())
                except loch.Error as error:
                    assert error.status in ("E_INVALID", "E_BUSY")

            hammer(work)
            if not session.ended:
                session.end()
            assert len(bytes_freed) <= 1 and pool.stats().blocks == 0


def test_a_capsule_is_taken_by_one_thread():
    for _ in range(ROUNDS):
        tensor = loch.full((10,), 3, "i32")
        capsule, made = tensor.__dlpack__(), []

        def work(number, capsule=capsule, made=made):
            try:
                made.append(loch.from_dlpack(capsule))
            except TypeError:
                pass

        hammer(work)
        assert len(made) == 1 and made[0].tolist() == [3] * 10


def test_exports_of_all_threads_are_counted():
    with loch.Pool() as pool:
        tensor = loch.zeros((1000,), "u8", pool=pool)

        def work(number):
            for _ in range(ROUNDS):
                views = [memoryview(tensor) for _ in range(3)]
                with pytest.raises(loch.Error):
                    pool.sleep()
                for view in views:
                    view.release()

        hammer(work)
        assert pool.sleep("host") > 0  # no export is left
        assert pool.wake() >= 0
        assert tensor.tolist() == [0] * 1000


def test_tags_belong_to_threads():
    def work(number):
        for round in range(ROUNDS):
            loch._core.set_thread_tag(f"hammer-{number}")
            assert loch._core.thread_tag() == f"hammer-{number}"
            assert f"hammer-{number}" in loch._core.tags()
        loch._core.set_thread_tag(None)

    hammer(work)


def test_one_tag_object_is_entered_by_all_threads():
    inner, barrier = loch.tag("hammer-inner"), threading.Barrier(THREADS)

    def work(number):
        with loch.tag(f"hammer-outer-{number}"):
            with inner:
                barrier.wait()  # all are inside
                assert loch._core.thread_tag() == "hammer-inner"
            assert loch._core.thread_tag() == f"hammer-outer-{number}"
        assert loch._core.thread_tag() is None

    hammer(work)


def test_streams_and_events_of_all_threads():
    stream, event = loch.Stream("cpu"), loch.Event("cpu")

    def work(number):
        for _ in range(ROUNDS):
            event.record(stream)
            event.sync()
            assert event.query()
            stream.wait(event)
            stream.sync()
            assert stream.query() in (True, False)

    hammer(work)
    stream.close()


def test_types_of_elements_are_replaced_while_threads_read_them():
    tensor, types = loch.zeros((3,), "f32"), loch._dtypes

    def work(number):
        for _ in range(300 * ROUNDS):
            if number < 3:
                loch._core._set_dtypes(tuple([*types._ALL]))  # as an import of the package beside this one does
            assert tensor.dtype == "f32" and tensor.dtype is types._ALL[2]

    try:
        hammer(work)
    finally:
        loch._core._set_dtypes(types._ALL)
