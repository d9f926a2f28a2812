"""The stream of a task is the current one of PyTorch and CuPy. Both are replaced: the tests need no GPU."""

import contextlib
import sys
import types

import pytest

import sluice
from sluice._streams import ClassStream


class FakeGpu:
    id = 3

    def create_stream(self, *, urgent):
        return 7000 + urgent


class Library:
    """The part of `torch.cuda` and `cupy.cuda` that is used; `current` is the device and the stream."""

    def __init__(self, available=True):
        self.available, self.current = available, None
        self.made = 0

    def is_available(self):
        return self.available

    @contextlib.contextmanager
    def stream(self, external):
        self.current, before = external, self.current
        yield
        self.current = before

    def ExternalStream(self, handle, device):  # noqa: N802: the libraries' name.
        self.made += 1
        found = (handle, device)
        return self.stream(found) if self.name == "cupy" else found

    @contextlib.contextmanager
    def Device(self, number):  # noqa: N802: CuPy's name.
        assert number == FakeGpu.id
        yield


@pytest.fixture(params=["torch", "cupy"])
def library(request, monkeypatch):
    cuda = Library()
    cuda.name = request.param
    monkeypatch.setitem(sys.modules, request.param, types.SimpleNamespace(cuda=cuda))
    return cuda


def test_stream_is_current_inside_a_task_only(library):
    stream = ClassStream(FakeGpu(), urgent=True)
    for _ in range(2):
        with stream.current():
            assert library.current == (7001, 3)
            assert sluice.current_stream() == 7001
        assert library.current is None and sluice.current_stream() == 0


def test_stream_is_not_current_after_an_error(library):
    with pytest.raises(ZeroDivisionError), ClassStream(FakeGpu(), urgent=False).current():
        1 / 0
    assert sluice.current_stream() == 0


def test_torch_without_cuda_and_half_imported_libraries_are_left_alone(monkeypatch):
    cuda = Library(available=False)
    cuda.name = "torch"
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace())
    with ClassStream(FakeGpu(), urgent=True).current():
        assert cuda.current is None and sluice.current_stream() == 7001
