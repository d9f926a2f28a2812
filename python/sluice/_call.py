"""A submitted task and the future of its result."""

from __future__ import annotations

import copy
import dataclasses
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, Optional, TypeVar

from sluice._task import Task

log = logging.getLogger("sluice")
R = TypeVar("R")
FORKED = "this process was forked after the scheduler began, which runs in process %d only: make a scheduler in this process"


@dataclasses.dataclass(eq=False)
class Call:
    """`number` is the queue's; `run` is the task with its arguments."""

    number: int
    run: Callable[[], Any]
    future: Future[Any]

    def resolve(self, result: Any = None, error: Optional[BaseException] = None) -> None:
        """Resolves the future. What its callbacks raise is logged: the thread of the class goes on."""
        try:
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)
        except InvalidStateError:
            # The task forked, and this is the forked process: see `abandon`.
            pass
        except BaseException:  # noqa: BLE001
            log.exception("a callback of a task's future failed")

    def abandon(self, error: BaseException) -> None:
        """Resolves the future in a forked process, unless it is resolved, without its callbacks, which are the parent's."""
        # Another thread may have held the future's lock when the process was forked; nothing releases it here, so `done` could hang.
        if self.future._state in ("PENDING", "RUNNING"):
            Future.__init__(self.future)
            self.future.set_exception(error)
        else:
            self.future._condition = threading.Condition()


def without_stop_iteration(task: Task[R]) -> Task[R]:
    """The task with RuntimeError in place of StopIteration, which no coroutine and no asyncio future can raise."""
    if not isinstance(task, Task):
        return task

    def run(*arguments: Any, **keywords: Any) -> R:
        try:
            return task(*arguments, **keywords)
        except StopIteration as stop:
            raise RuntimeError("the task raised StopIteration") from stop

    replaced = copy.copy(task)
    replaced._function = run
    return replaced
