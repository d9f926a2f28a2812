"""Tasks that end unusually, and processes that are forked: no future is left without a result."""

import asyncio
import os
import subprocess
import sys
import threading
import traceback

import pytest

import sluice
from sluice._call import Call

PATIENCE = 20


@pytest.fixture
def scheduler():
    with sluice.GPUScheduler() as scheduler:
        yield scheduler


class Aborted(BaseException):
    pass


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, Aborted, asyncio.CancelledError, StopIteration])
@pytest.mark.parametrize("critical", [True, False])
def test_every_kind_of_exception_is_carried_and_the_class_runs_on(scheduler, kind, critical):
    decorate = scheduler.latency_critical() if critical else scheduler.best_effort()

    def leave():
        raise kind("planned")

    assert type(scheduler.submit(decorate(leave)).exception(PATIENCE)) is kind
    assert scheduler.submit(decorate(int)).result(PATIENCE) == 0


@pytest.mark.parametrize("kind", [SystemExit, Aborted])
def test_callback_that_raises_does_not_end_the_class(scheduler, kind):
    release = threading.Event()
    task = scheduler.best_effort()(release.wait)

    def fail(_):
        raise kind("planned")

    first = scheduler.submit(task)
    first.add_done_callback(fail)
    release.set()
    assert scheduler.submit(scheduler.best_effort()(int)).result(PATIENCE) == 0


def test_asubmit_raises_what_a_coroutine_may_not_carry(scheduler):
    def stop():
        raise StopIteration("planned")

    async def main():
        await asyncio.wait_for(scheduler.asubmit(scheduler.best_effort()(stop)), PATIENCE)

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(main())


def in_a_fork(check):
    """The exit status of a forked process that runs `check`: 0 if it returns, 1 if it raises, 2 if it hangs."""
    pid = os.fork()
    if pid == 0:
        threading.Timer(PATIENCE, os._exit, [2]).start()
        try:
            check()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_process_refuses_the_scheduler_and_its_futures_do_not_hang(scheduler):
    begun, release = threading.Event(), threading.Event()

    def work():
        begun.set()
        assert release.wait(PATIENCE)
        return 1

    running = scheduler.submit(scheduler.latency_critical()(work))
    waiting = scheduler.submit(scheduler.best_effort()(int))
    called = []
    waiting.add_done_callback(called.append)
    assert begun.wait(PATIENCE)

    def check():
        for future in (running, waiting):
            with pytest.raises(RuntimeError, match="forked"):
                future.result(PATIENCE / 2)
        assert not called, "callbacks are the parent's"
        with pytest.raises(RuntimeError, match="forked"):
            scheduler.submit(scheduler.best_effort()(int))
        scheduler.close()
        with sluice.GPUScheduler() as own:
            assert own.submit(own.best_effort()(int)).result(PATIENCE) == 0

    try:
        assert in_a_fork(check) == 0
    finally:
        release.set()
    assert (running.result(PATIENCE), waiting.result(PATIENCE)) == (1, 0), "the parent's tasks are not touched"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork_while_another_thread_holds_the_scheduler_does_not_hang(scheduler):
    held, release = threading.Event(), threading.Event()

    def hold():
        with scheduler._changed:
            held.set()
            release.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE)

    def check():
        with pytest.raises(RuntimeError, match="forked"):
            scheduler.submit(scheduler.best_effort()(int))

    try:
        assert in_a_fork(check) == 0
    finally:
        release.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork_inside_a_task_ends_in_the_child_as_the_task_does(scheduler):
    def fork():
        return in_a_fork(lambda: None)

    assert scheduler.submit(scheduler.best_effort()(fork)).result(PATIENCE) == 0
    assert scheduler.submit(scheduler.best_effort()(int)).result(PATIENCE) == 0


FORKS_AND_RETURNS = """
import os, sluice, threading
with sluice.GPUScheduler() as scheduler:
    submitted, parent = threading.Event(), os.getpid()
    def fork():
        submitted.wait()
        child = os.fork()
        return child and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    task = scheduler.best_effort()
    first, second = scheduler.submit(task(fork)), scheduler.submit(task(int))
    submitted.set()
    print(first.result(), second.result())
"""


def test_fork_inside_a_task_while_another_one_waits_ends_without_an_error():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS_AND_RETURNS], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "0 0\n")
    assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork_between_the_end_of_a_task_and_its_result_leaves_no_future_unresolved(scheduler, monkeypatch):
    resolve, statuses = Call.resolve, []

    def fork_before(call, *arguments, **keywords):
        def check():
            with pytest.raises(RuntimeError, match="forked"):
                call.future.result(PATIENCE / 2)

        statuses.append(in_a_fork(check))
        resolve(call, *arguments, **keywords)

    monkeypatch.setattr(Call, "resolve", fork_before)
    assert scheduler.submit(scheduler.best_effort()(int)).result(2 * PATIENCE) == 0
    assert statuses == [0]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_result_that_a_future_has_stays_in_a_forked_process(scheduler):
    statuses, begin = [], threading.Event()

    def check(future):
        assert future.result(PATIENCE / 2) == 5

    def work():
        begin.wait(PATIENCE)
        return 5

    future = scheduler.submit(scheduler.best_effort()(work))
    future.add_done_callback(lambda done: statuses.append(in_a_fork(lambda: check(done))))
    begin.set()
    # The next task begins after the callbacks.
    assert scheduler.submit(scheduler.best_effort()(int)).result(2 * PATIENCE) == 0
    assert statuses == [0]
