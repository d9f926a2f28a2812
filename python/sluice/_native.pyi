from typing import Any, Literal, Optional, final

__all__ = ["TaskQueue"]

@final
class TaskQueue:
    """The order of waiting tasks, the two that run, and their figures. Times are nanoseconds of one monotonic clock."""

    def __new__(cls, now_ns: int) -> TaskQueue: ...
    def submit(self, name: str, critical: bool, priority: int, slo_ns: Optional[int], now_ns: int) -> int:
        """Appends a task behind those of its class and priority; returns its number."""
    def cancel(self, task: int) -> bool:
        """Removes a waiting task. False if it has started or ended."""
    def start(self, critical: bool, now_ns: int) -> Optional[int]:
        """Starts the next task of a class, if one may start now."""
    def finish(self, task: int, now_ns: int, *, failed: bool = False, cancelled: bool = False) -> bool:
        """Ends a running task. False if it does not run."""
    def stream_action(self) -> Optional[Literal["preempt", "restore"]]:
        """The change that the best-effort stream needs now, once."""
    def preemption_failed(self) -> None:
        """Takes back the last "preempt", which could not be carried out."""
    def waiting(self) -> int: ...
    def running(self) -> int: ...
    def metrics(self, now_ns: int) -> dict[str, Any]:
        """The part of `GPUScheduler.get_metrics` about tasks and preemptions."""
