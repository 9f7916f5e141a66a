# SPDX-License-Identifier: MIT
"""Devices, streams and events, and streams of other libraries as arguments."""

import pickle
import threading

import loch
import pytest

SIM = "sim:64MiB"


def test_devices():
    assert loch.devices()[0] == "cpu" and all(isinstance(name, str) for name in loch.devices())
    device = loch.Device("cpu")
    assert device.name == "cpu" == str(device) and device == "cpu" and device == loch.Device("cpu") and device != "cuda:0"
    assert hash(device) == hash("cpu") and repr(device) == "loch.Device('cpu')" and (device == 5) is False
    free, total = device.memory_info()
    assert 0 < free <= total and device.memory_info().total == total
    assert device.properties["driver"] == "cpu" and "host_access" in device.properties["capabilities"]
    device.sync()
    assert pickle.loads(pickle.dumps(device)) == device
    assert loch.zeros(2, device=device).device == "cpu" and loch.Device(device) == device
    for wrong in (None, 5, b"cpu", []):
        with pytest.raises(TypeError):
            loch.Device(wrong)
    for wrong in ("", "tpu:0", "cuda:-1", "sim:nonsense", "cpu\0x"):
        with pytest.raises((loch.Error, ValueError)):
            loch.Device(wrong)


class TorchDevice:
    """As torch.device."""

    type, index = "cpu", None

    def __str__(self):
        return "cpu"


def test_devices_of_torch():
    assert loch.zeros(2, device=TorchDevice()).device == "cpu"


@pytest.mark.parametrize("device", ["cpu", SIM])
def test_streams_and_events(device):
    with loch.Stream(device, priority=-1) as stream:
        assert stream.device == device and stream.id > 0 and device in repr(stream)
        begin, end = loch.Event(device, timed=True), loch.Event(device, timed=True)
        begin.record(stream)
        tensor = loch.zeros(1000, device=device, stream=stream).fill(3, stream=stream)
        end.record(stream)
        stream.wait(end)
        stream.sync()
        end.sync()
        assert stream.query() is True and end.query() is True and begin.elapsed_ns(end) >= 0
        assert tensor.tolist()[:2] == [3, 3]
        tensor.record_use(stream)
        copy = tensor.to(dtype="i32", stream=stream)
        stream.sync()
        assert copy.tolist()[:2] == [3, 3]
    for call in (stream.sync, stream.query, lambda: stream.handle, lambda: stream.id, stream.__cuda_stream__):
        with pytest.raises(ValueError, match="closed"):
            call()
    with pytest.raises(ValueError, match="closed"):
        loch.zeros(3, device=device, stream=stream)
    stream.close()
    assert "closed" in repr(stream)
    assert loch.Stream.default(device).handle == 0


class CudaCore:
    """As a stream of cuda.core."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


class Torch:
    """As torch.cuda.Stream."""

    def __init__(self, handle):
        self.cuda_stream = handle


class Cupy:
    """As cupy.cuda.Stream."""

    def __init__(self, handle):
        self.ptr = handle


@pytest.mark.parametrize("wrap", [int, CudaCore, Torch, Cupy])
@pytest.mark.parametrize("device", ["cpu", SIM])
def test_default_streams_of_other_libraries(wrap, device):
    pool = loch.Pool(device)
    for handle in (0, 1, 2):
        assert pool.alloc(100, stream=wrap(handle)).nbytes == 100
        assert loch.zeros(3, device=device, stream=wrap(handle)).tolist() == [0, 0, 0]
        pool.alloc(100).free(stream=wrap(handle))


@pytest.mark.parametrize("wrap", [int, CudaCore, Torch, Cupy])
def test_other_handles_need_a_driver_with_queues(wrap):
    with pytest.raises(loch.Error) as caught:
        loch.zeros(3, stream=wrap(0x1234560))
    assert caught.value.status in ("E_UNSUPPORTED", "E_INVALID")


@pytest.mark.parametrize("wrong", ["stream", 1.5, [], True, object(), 2**70, CudaCore("x"), Torch(None), Cupy(b"")])
def test_things_that_are_no_stream(wrong):
    with pytest.raises((TypeError, OverflowError, loch.Error)):
        loch.Pool().alloc(10, stream=wrong)
    with pytest.raises((TypeError, OverflowError, loch.Error)):
        loch.zeros(3).fill(1, stream=wrong)


class Broken:
    """A stream whose handle cannot be read."""

    def __cuda_stream__(self):
        raise RuntimeError("broken stream")


class Odd:
    """A stream with a wrong answer."""

    def __cuda_stream__(self):
        return 5


def test_errors_of_other_streams_come_through():
    with pytest.raises(RuntimeError, match="broken"):
        loch.zeros(3, stream=Broken())
    with pytest.raises(TypeError, match="version"):
        loch.zeros(3, stream=Odd())


@pytest.mark.parametrize("wrong", [-1, 3, 4095, -(2**63)])
def test_numbers_that_are_no_handle(wrong):
    for call in (lambda: loch.zeros(3, stream=wrong), lambda: loch.Pool().alloc(3, stream=Torch(wrong))):
        with pytest.raises(loch.Error, match="handle"):
            call()


def test_wrong_streams():
    stream = loch.Stream(SIM)
    with pytest.raises(loch.Error):
        loch.zeros(3, "f32", "cpu", stream=stream).fill(1, stream=stream)
    with pytest.raises(TypeError):
        stream.wait(5)
    with pytest.raises(TypeError):
        loch.Event(SIM).elapsed_ns(None)
    with pytest.raises(loch.Error):
        loch.Event(SIM).elapsed_ns(loch.Event(SIM))
    with pytest.raises(ValueError):
        loch.Stream(SIM, order="first")
    with pytest.raises(loch.Error):
        loch.Stream.wrap(2, "cpu")
    with pytest.raises(TypeError):
        loch.Stream.default(None)


def test_threads_close_a_stream_in_use():
    for _ in range(30):
        stream = loch.Stream(SIM)
        errors = []

        def use(stream=stream, errors=errors):
            try:
                for _ in range(50):
                    loch.zeros(10, device=SIM, stream=stream)
            except ValueError:
                pass
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        stream.close()
        for thread in threads:
            thread.join()
        assert not errors


def test_events_of_many_threads():
    stream, event = loch.Stream(SIM), loch.Event(SIM, timed=True)

    def use():
        for _ in range(100):
            event.record(stream)
            event.query()
            stream.wait(event)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    event.sync()


def test_cuda_array_interface_is_for_cuda():
    assert not hasattr(loch.zeros(3), "__cuda_array_interface__")
    assert not hasattr(loch.zeros(3, device=SIM), "__cuda_array_interface__")
