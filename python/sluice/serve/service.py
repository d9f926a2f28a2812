"""The server without its network: models, their metadata, and requests that are checked before they are queued."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Optional

import numpy

from sluice.serve.backend import WHOLE, Backend
from sluice.serve.config import PAUSE, PRIORITIES, PROFILE, REAL_TIME, Config, Model, Tensor
from sluice.serve.errors import InvalidRequest, NotFound, Unavailable
from sluice.serve.executor import Executor
from sluice.serve.metrics import Metrics
from sluice.serve.profile import profile
from sluice.serve.queues import Request
from sluice.serve.tensors import NAMES

log = logging.getLogger(__name__)
NAME, VERSION, MODEL_VERSION = "sluice", "0.1", "1"


@dataclasses.dataclass(frozen=True)
class Inference:
    """A request of the protocol, from gRPC or HTTP. `outputs`: the names that were asked for; empty for all."""

    model: str
    inputs: Sequence[tuple[str, numpy.ndarray]]
    outputs: Sequence[str] = ()
    version: str = ""


def backend_of(config: Config) -> Backend:
    """The GPU that the models' sources need."""
    if config.models[0].source[0] == "sim":
        from sluice.serve import sim

        return sim.Backend()
    from sluice.serve import cuda

    return cuda.Backend(config)


class Service:
    """The models of a configuration on a GPU."""

    def __init__(self, config: Config, backend: Optional[Backend] = None) -> None:
        self.config, self.metrics, self.ready, self.ending = config, Metrics(), False, threading.Event()
        self.models = {model.name: model for model in config.models}
        self.given, self.executor = backend, Executor(config.queue)
        #: Known of the models that are prepared.
        self.outputs: dict[str, Tensor] = {}
        self.metrics.watch(self.executor)

    def prepare(self) -> None:
        """Loads and captures the models, in the calling thread. Ends early if the server ends meanwhile."""
        self.backend = self.given or backend_of(self.config)
        self.backend.use_here()
        for model in self.config.models:
            if self.ending.is_set():
                return
            begin = time.monotonic()
            self.executor.programs[model.name], self.outputs[model.name] = self.backend.prepare(model)
            log.info("model prepared name=%s class=%s batches=%s seconds=%.1f", model.name, model.klass, model.batches, time.monotonic() - begin)

    def start(self) -> None:
        """Prepares the models, starts the executor and chooses the splits; then the server is ready. Raises `Unavailable` if the GPU fails."""
        self.prepare()
        if self.ending.is_set():
            return
        self.executor.start(self.backend)
        models = list(self.models.values())
        if self.config.split == PROFILE:
            profile(self.executor, models, self.backend.splits, self.config.bound)
        else:
            split = {PAUSE: None, PRIORITIES: WHOLE}.get(self.config.split, self.config.split)
            if split not in (None, WHOLE, *self.backend.splits):
                log.warning("split not usable sms=%s usable=%s: best effort pauses", split, self.backend.splits)
                split = None
            self.executor.splits.update({model.name: split for model in models if model.klass == REAL_TIME})
        # A failed GPU does not recover, and the server would never be ready.
        if self.executor.broken:
            raise self.executor.broken
        # The requests of the profile are not a client's.
        self.executor.preemptions, self.executor.finished = 0, self.metrics.finished
        self.ready = True

    def refuse(self) -> None:
        """Refuses requests from now on, also if the start ends later."""
        self.ending.set()

    def close(self) -> None:
        """Ends after the running requests."""
        self.refuse()
        self.executor.close()

    @property
    def is_ready(self) -> bool:
        """Whether requests are accepted."""
        return self.ready and not self.ending.is_set() and self.executor.broken is None

    def model(self, name: str, version: str = "") -> Model:
        """The model with this name. Raises `NotFound`."""
        if name not in self.models:
            raise NotFound(f"there is no model {name!r}")
        if version not in ("", MODEL_VERSION):
            raise NotFound(f"model {name!r} has no version {version!r}, only {MODEL_VERSION}")
        return self.models[name]

    def check(self, name: str, version: str = "") -> Model:
        """The model, if it takes requests now. Raises `ServeError`."""
        # Requests beside the profile would disturb it, and it would choose a wrong split.
        if not self.is_ready:
            raise self.executor.broken or Unavailable("the server starts or ends")
        return self.model(name, version)

    def output(self, name: str) -> Tensor:
        """The output of a model. Raises `Unavailable` until the model is prepared."""
        if name not in self.outputs:
            raise Unavailable(f"model {name!r} is still being prepared")
        return self.outputs[name]

    def server_metadata(self, extensions: Sequence[str] = ()) -> dict[str, Any]:
        """What the protocol reports about a server."""
        return {"name": NAME, "version": VERSION, "extensions": list(extensions)}

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """What the protocol reports about a model. A size of -1 is the batch."""
        model = self.model(name, version)

        def tensor(what: Tensor) -> dict[str, Any]:
            return {"name": what.name, "datatype": what.dtype, "shape": [-1, *what.shape]}

        return {
            "name": name, "versions": [MODEL_VERSION], "platform": f"sluice_{model.source[0]}", "inputs": [tensor(model.input)], "outputs": [tensor(self.output(name))]}

    def submit(self, inference: Inference) -> "Future[numpy.ndarray]":
        """Queues a request; the future gets the rows of its output. Raises `ServeError`."""
        model = self.check(inference.model, inference.version)
        expected = f"model {model.name!r} expects one input {model.input.name!r}, {model.input.dtype} of shape {[-1, *model.input.shape]}"
        if len(inference.inputs) != 1:
            raise InvalidRequest(f"{expected}; the request has {len(inference.inputs)} inputs")
        (name, rows), = inference.inputs
        if name != model.input.name or NAMES.get(rows.dtype) != model.input.dtype or rows.shape[1:] != model.input.shape or rows.ndim == 0:
            raise InvalidRequest(f"{expected}; the request has {name!r}, {NAMES.get(rows.dtype)} of shape {list(rows.shape)}")
        if len(rows) > model.max_batch:
            raise InvalidRequest(f"model {model.name!r} takes at most {model.max_batch} rows; the request has {len(rows)}")
        output = self.outputs[model.name].name
        for asked in inference.outputs:
            if asked != output:
                raise InvalidRequest(f"model {model.name!r} has no output {asked!r}, only {output!r}")
        request = Request(model, rows, self.executor.clock())
        self.executor.submit(request)
        return request.future
