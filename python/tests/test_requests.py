"""Requests that overlap. libsluice.so has one for the whole process."""

import contextlib
import ctypes
import threading
import types

import pytest

import sluice
from sluice import _hook

PATIENCE = 60


@pytest.fixture
def calls(monkeypatch):
    """The calls to a libsluice.so of the test's own."""
    made = []

    def function(name):
        def call(*_):
            made.append(name.removeprefix("sluice_request_"))
            return sluice.Result.OK
        return call

    with monkeypatch.context() as patch:
        patch.setattr(ctypes, "CDLL", lambda _: types.SimpleNamespace(**{name: function(name) for name in _hook.FUNCTIONS}))
        hook = _hook.Hook()
    monkeypatch.setattr(_hook, "_found", hook)
    return made


def test_request_of_a_thread_ends_when_those_of_all_threads_have_ended(calls):
    other_began, first_ended = threading.Event(), threading.Event()

    def other():
        with sluice.request():
            other_began.set()
            assert first_ended.wait(PATIENCE)

    thread = threading.Thread(target=other)
    with sluice.request():
        thread.start()
        assert other_began.wait(PATIENCE)
    assert calls == ["begin", "begin"]
    first_ended.set()
    thread.join(PATIENCE)
    assert calls == ["begin", "begin", "end"]


def test_request_of_a_scheduler_and_one_without_count_together_and_later_ones_end_too(calls):
    with sluice.GPUScheduler() as scheduler:
        scheduler._backend._hook = _hook.find()
        for _ in range(2):
            with contextlib.ExitStack() as outer:
                with sluice.request():
                    outer.enter_context(scheduler.request())
                assert calls == ["begin", "begin"]
            assert calls == ["begin", "begin", "end"]
            calls.clear()
