"""The GPU through PyTorch and the CUDA driver: models as CUDA graphs, best effort limited to SMs by green contexts."""

from __future__ import annotations

import logging
import os

import torch

from sluice.serve.backend import output_of
from sluice.serve.config import BEST_EFFORT, PRIORITIES, PROFILE, Config, ConfigError, Model, Tensor
from sluice.serve.cuda import networks
from sluice.serve.cuda.driver import Driver, DriverError
from sluice.serve.cuda.program import TORCH, Program

log = logging.getLogger(__name__)
# On 132 SMs, fewer than 16 give best-effort work less than a pause does, and more than 64 hardly more than 64 do: docs/serving.md.
CANDIDATES = (16, 24, 32, 40, 48, 64)
DTYPES = {kind: name for name, kind in TORCH.items()}


class Backend:
    """GPU 0. Real-time programs have a stream of the highest priority, best-effort ones of the lowest."""

    def __init__(self, config: Config, candidates: tuple[int, ...] = CANDIDATES) -> None:
        torch.backends.cudnn.benchmark = True
        # Streams that share a hardware queue wait for each other. The driver reads this once, when it starts.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        torch.cuda.init()
        # Without a split or a pause nothing happens between pieces.
        self.pieced = config.split != PRIORITIES
        self.driver = Driver()
        self.use_here()
        self.best_effort, self.real_time = torch.cuda.Stream(priority=0), torch.cuda.Stream(priority=-5)
        wanted = candidates if config.split == PROFILE else (config.split,) if isinstance(config.split, int) else ()
        self.contexts = self._contexts(wanted)
        self.splits: tuple[int, ...] = ()

    def _contexts(self, counts: tuple[int, ...]) -> dict:
        """Green contexts; fewer, or none, where the driver has no more."""
        contexts: dict = {}
        try:
            most = self.driver.sms().count
            for count in counts:
                if count < most:
                    sms, context = self.driver.green_context(count)
                    contexts.setdefault(sms, context)
        except (DriverError, AttributeError) as error:
            log.warning("green contexts not usable beyond count=%d error=%s", len(contexts), error)
        return contexts

    def use_here(self) -> None:
        self.driver.use_here()

    def prepare(self, model: Model) -> tuple[dict[int, Program], Tensor]:
        if model.input.dtype not in TORCH:
            raise ConfigError([f"model {model.name}: input.dtype is {model.input.dtype!r}, but PyTorch {torch.__version__} has only {', '.join(TORCH)}"])
        limited = model.klass == BEST_EFFORT
        network, stream = networks.load(model), self.best_effort if limited else self.real_time
        programs = {
            size: Program(self.driver, network, model.input.dtype, (size, *model.input.shape), stream, self.contexts if limited else {}, limited and self.pieced)
            for size in model.batches}
        answers = {size: program.answer for size, program in programs.items()}
        output = output_of(model.name, DTYPES[answers[model.max_batch].dtype], {size: tuple(answer.shape) for size, answer in answers.items()})
        if limited:
            self.splits = tuple(sorted({*self.splits, *(split for program in programs.values() for split in self.contexts if program.allows(split))}))
        return programs, output
