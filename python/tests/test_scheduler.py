"""The scheduler without a GPU."""

import asyncio
import concurrent.futures
import gc
import logging
import threading
import weakref

import pytest

import sluice
from sluice import _backend


@pytest.fixture
def scheduler():
    with sluice.GPUScheduler() as scheduler:
        yield scheduler


class Blocker:
    """A task that runs until it is released."""

    def __init__(self, scheduler, critical=True):
        self.begun, self.released = threading.Event(), threading.Event()
        decorate = scheduler.latency_critical if critical else scheduler.best_effort
        self.future = scheduler.submit(decorate(priority=100)(self._run))
        assert self.begun.wait(10)

    def _run(self):
        self.begun.set()
        assert self.released.wait(10)


def test_tasks_start_by_class_then_priority_then_submission(scheduler):
    started, blocker = [], Blocker(scheduler)
    tasks = {
        (critical, priority): decorate(priority=priority)(started.append)
        for critical, decorate in ((True, scheduler.latency_critical), (False, scheduler.best_effort))
        for priority in sluice.Priority
    }
    futures = [scheduler.submit(task, (key, turn)) for turn in range(2) for key, task in tasks.items()]
    blocker.released.set()
    for future in futures:
        future.result(timeout=10)
    assert started == sorted(started, key=lambda seen: (not seen[0][0], -seen[0][1], seen[1]))


def test_result_error_and_arguments_are_carried(scheduler):
    @scheduler.best_effort()
    def divide(a, b, *, times=1):
        """Divides."""
        return a / b * times

    assert divide(8, 4) == 2, "a plain call runs at once"
    assert divide.__doc__ == "Divides."
    assert scheduler.submit(divide, 8, 2, times=3).result(timeout=10) == 12
    assert scheduler.submit(divide, args=(8, 2)).result(timeout=10) == 4
    with pytest.raises(ZeroDivisionError):
        scheduler.submit(divide, 1, 0).result(timeout=10)
    seen = next(iter(scheduler.get_metrics()["tasks"].values()))
    assert (seen["class"], seen["count"], seen["failed"]) == ("best-effort", 3, 1)


def test_task_is_cancelled_before_its_start_and_not_after(scheduler):
    blocker, ran = Blocker(scheduler), []
    waiting = scheduler.submit(scheduler.best_effort()(ran.append), 1)
    assert waiting.cancel() and waiting.cancelled()
    assert not blocker.future.cancel()
    blocker.released.set()
    blocker.future.result(timeout=10)
    scheduler.close()
    assert ran == []
    assert scheduler.get_metrics()["tasks"]["append"]["cancelled"] == 1


def test_result_waits_no_longer_than_its_time_limit(scheduler):
    blocker = Blocker(scheduler)
    with pytest.raises(concurrent.futures.TimeoutError):
        blocker.future.result(timeout=0.01)
    blocker.released.set()


def test_asubmit_returns_raises_and_cancels(scheduler):
    double = scheduler.latency_critical()(lambda x: x * 2)
    fail = scheduler.best_effort()(lambda: 1 / 0)

    async def main():
        assert await scheduler.asubmit(double, 4) == 8
        with pytest.raises(ZeroDivisionError):
            await scheduler.asubmit(fail)
        blocker = Blocker(scheduler)
        waiting = asyncio.ensure_future(scheduler.asubmit(fail))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        blocker.released.set()

    asyncio.run(main())
    scheduler.close()
    assert sum(seen["cancelled"] for seen in scheduler.get_metrics()["tasks"].values()) == 1


def test_latencies_above_the_goal_are_violations(scheduler):
    blocker = Blocker(scheduler)
    late = scheduler.submit(scheduler.latency_critical(slo_ms=0.001)(int))
    blocker.released.set()
    assert late.result(timeout=10) == 0
    metrics = scheduler.get_metrics()
    assert (metrics["slo_violations"], metrics["tasks"]["int"]["slo_violations"]) == (1, 1)
    assert 0 < metrics["tasks"]["int"]["p50_us"] <= metrics["tasks"]["int"]["p99_us"]
    assert 0 < metrics["utilisation"] <= 1


def test_close_ends_all_tasks_and_refuses_more():
    scheduler = sluice.GPUScheduler()
    task, blocker = scheduler.best_effort()(int), Blocker(scheduler)
    waiting = scheduler.submit(task)
    threading.Timer(0.01, blocker.released.set).start()
    scheduler.close()
    scheduler.close()
    assert waiting.result(timeout=0) == 0
    with pytest.raises(RuntimeError, match="closed"):
        scheduler.submit(task)


def test_close_cancels_waiting_tasks_on_request():
    scheduler = sluice.GPUScheduler()
    blocker = Blocker(scheduler)
    waiting = scheduler.submit(scheduler.best_effort()(int))
    waiting.add_done_callback(lambda _: blocker.released.set())
    scheduler.close(cancel_waiting=True)
    assert waiting.cancelled() and blocker.future.done()


def test_task_that_closes_its_scheduler_gets_an_error(scheduler):
    with pytest.raises(RuntimeError, match="cannot close"):
        scheduler.submit(scheduler.best_effort()(scheduler.close)).result(timeout=10)


def test_what_is_no_task_is_refused(scheduler):
    async def coroutine():
        pass

    with pytest.raises(TypeError, match="decorate"):
        scheduler.submit(int)
    with pytest.raises(TypeError, match="coroutine"):
        scheduler.best_effort()(coroutine)
    with pytest.raises(ValueError, match="priority"):
        scheduler.best_effort(priority=2**31)(int)
    for slo_ms in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="slo_ms"):
            scheduler.latency_critical(slo_ms=slo_ms)(int)


def test_scheduler_without_a_gpu_says_so_once(caplog):
    _backend._said.clear()
    with caplog.at_level(logging.WARNING, "sluice"):
        for _ in range(2):
            with sluice.GPUScheduler() as scheduler:
                metrics = scheduler.get_metrics()
                assert scheduler.hint(300) == sluice.Result.NOT_MANAGED
                with scheduler.request():
                    pass
    assert metrics["mode"] == "unprioritised" and metrics["reason"] in caplog.text
    assert len(caplog.records) == 1


def test_nothing_is_left_of_a_task(scheduler):
    class Result:
        pass

    def fail(argument):
        raise ValueError(argument)

    gc.disable()
    try:
        result, argument = Result(), Result()
        gone = [weakref.ref(result), weakref.ref(argument)]
        task = scheduler.best_effort()(lambda *_: result)
        scheduler.submit(task, argument).result(timeout=10)
        future = scheduler.submit(scheduler.best_effort()(fail), argument)
        assert isinstance(future.exception(timeout=10), ValueError)
        gone.append(weakref.ref(future))
        # The next task begins after the threads have let go of the earlier ones.
        scheduler.submit(scheduler.best_effort()(int)).result(timeout=10)
        del result, argument, task, future
        assert [reference() for reference in gone] == [None] * 3
    finally:
        gc.enable()


def test_no_thread_is_left():
    before = threading.active_count()
    for _ in range(50):
        with sluice.GPUScheduler() as scheduler:
            scheduler.submit(scheduler.best_effort()(int))
    assert threading.active_count() == before


def test_task_made_from_a_task_has_its_own_class(scheduler):
    answer = scheduler.latency_critical(priority=3, slo_ms=5)(lambda: 1)
    background = scheduler.best_effort()(answer)
    assert (background.critical, background.priority, background.slo_ns) == (False, 0, None)
    assert scheduler.submit(background).result(60) == 1
