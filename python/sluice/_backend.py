"""What tasks run on: two streams of a GPU with or without preemption, or the host."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, Optional, TypeVar

from sluice import _hook
from sluice._config import Config
from sluice._driver import Gpu, NoGpu
from sluice._hook import Result
from sluice._streams import ClassStream

log = logging.getLogger("sluice")
R = TypeVar("R")

MEANING = {"priorities": "with stream priorities alone", "unprioritised": "on the host, in the order of their class"}
_said: set[str] = set()


class Backend:
    """The streams of both classes, and what is known of the GPU and of libsluice.so."""

    def __init__(self, config: Config, gpu_id: int) -> None:
        self._hint_us = config.hint_us
        self._gpu: Optional[Gpu] = None
        self._hook: Optional[_hook.Hook] = None
        #: By class: latency-critical and best-effort.
        self._streams: dict[bool, ClassStream] = {}
        self._level: Optional[str] = None
        self._hinted = Result.NOT_MANAGED
        self.mode, self._reason = self._open(config, gpu_id)
        if self._reason is not None and self._reason not in _said:
            _said.add(self._reason)
            log.warning("tasks run %s: %s", MEANING[self.mode], self._reason)

    def _open(self, config: Config, gpu_id: int) -> tuple[str, Optional[str]]:
        """Opens the GPU. Returns the mode and, unless it is `preemptive`, the reason."""
        try:
            self._gpu = gpu = Gpu(gpu_id)
        except NoGpu as none:
            return "unprioritised", str(none)
        self._hook = _hook.find()
        self._streams = {critical: ClassStream(gpu, urgent=critical) for critical in (True, False)}
        if self._hook is None:
            return "priorities", "libsluice.so is not loaded"
        if config.preemption == "none":
            return "priorities", "preemption is none in the configuration"
        with gpu.current():
            result = self._hook.enable(self._streams[False].handle, config.preemption, config.longest_stop_ms)
        return ("preemptive", None) if result == Result.OK else ("priorities", f"preemption cannot be enabled: {result.name}")

    def current(self) -> contextlib.AbstractContextManager[None]:
        """Makes the GPU's context current in this thread."""
        return contextlib.nullcontext() if self._gpu is None else self._gpu.current()

    def run(self, critical: bool, function: Callable[[], R]) -> R:
        """Runs a function with the stream of a class, in a thread in which the context is current, and waits for its GPU work.
        It waits after an error too: the next task needs an empty stream."""
        stream = self._streams.get(critical)
        if stream is None:
            return function()
        if critical and self._hint_us:
            self.tell(lambda hook: hook.hint(self._hint_us))
        with stream.current():
            try:
                return function()
            finally:
                stream.synchronize()

    def preempt(self) -> bool:
        """Stops the best-effort stream, if that is possible now."""
        assert self._hook is not None
        result, level = self._hook.preempt(self._streams[False].handle)
        self._level = level or self._level
        # After TIMEOUT the stream stays preempted and stops when its work permits.
        return result in (Result.OK, Result.TIMEOUT)

    def restore(self) -> None:
        """Lets the best-effort stream continue."""
        assert self._hook is not None
        self._hook.restore(self._streams[False].handle)

    def tell(self, call: Callable[[_hook.Hook], Result]) -> Result:
        """Makes a call to the hook with the GPU's context current."""
        if self._hook is None:
            return Result.NOT_MANAGED
        with self.current():
            self._hinted = call(self._hook)
        return self._hinted

    def metrics(self) -> dict[str, Any]:
        """The backend's part of `GPUScheduler.get_metrics`."""
        return {"mode": self.mode, "reason": self._reason, "preemption_level": self._level, "hint": self._hinted.name}

    def close(self) -> None:
        """Destroys the streams, which have to be idle."""
        if self.mode == "preemptive":
            assert self._hook is not None
            self._hook.disable(self._streams[False].handle)
        for stream in self._streams.values():
            stream.close()
        if self._gpu is not None:
            self._gpu.close()
