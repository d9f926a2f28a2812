#!/usr/bin/env python3
"""Many models in one server: each answer stays the same to the bit while other models are prepared and run.

Prepares five networks, VGG-19 first because its weights have memory of their own, and runs them in mixed order, best-effort ones on the
whole GPU and in each split, changing the split between pieces. Last, without the networks that the graphs read: this must fail or answer
differently, else the test shows nothing.
"""

import argparse
import collections
import gc
import os
import pathlib
import random
import sys
import time

import rig

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from sluice.serve import config  # noqa: E402
from sluice.serve.backend import WHOLE  # noqa: E402

NETWORKS = ("vgg19", "resnext50_32x4d", "mobilenet_v2", "resnet152", "resnet50")
SPLITS = (16, 48)


def models():
    """VGG-19 and ResNet-50 in both classes, the others best effort."""
    both = {"vgg19", "resnet50"}
    wanted = [(name, config.REAL_TIME) for name in NETWORKS if name in both] + [(name, config.BEST_EFFORT) for name in NETWORKS]
    given = config.Tensor("input", "FP16", (3, 224, 224))
    return tuple(config.Model(f"{klass}-{name}", klass, ("torchvision", name), given) for name, klass in wanted)


def answer(program, split_of_piece):
    """The answer to the fixed rows, with a split for each piece."""
    import numpy

    rows = numpy.random.default_rng(0).integers(0, 2, program.host_rows.shape).astype(program.host_rows.dtype)
    program.begin([rows])
    for piece in range(program.pieces):
        program.launch(piece, split_of_piece(piece))
    return program.finish().tobytes()


def replay(programs, chance, until):
    """Runs programs in random order until that time: how often each ran, and how often with other bits than at first."""
    ran, changed = collections.Counter(), collections.Counter()
    while time.monotonic() < until:
        name = chance.choice(list(programs))
        program, first = programs[name]
        splits = list(program.executables)
        mixed = [chance.choice(splits) for _ in range(program.pieces)] if chance.random() < 0.5 else [chance.choice(splits)] * program.pieces
        ran[name] += 1
        changed[name] += answer(program, mixed.__getitem__) != first
    return ran, changed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of running in mixed order")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--name", default="reef-many-models")
    options = parser.parse_args()
    rig.limit(options.limit)
    import torch

    from sluice.serve import cuda

    listed = models()
    backend = cuda.Backend(config.Config(listed), SPLITS)
    programs = {}
    for model in listed:
        program = backend.prepare(model)[0][1]
        # The reference is from before the next model is prepared.
        programs[model.name] = program, answer(program, lambda piece: WHOLE)
        rig.say(f"{model.name}: {program.pieces} pieces, splits {sorted(program.executables)}, exact {program.exact}")
    inexact = [name for name, (program, _) in programs.items() if not program.exact]
    chance = random.Random(options.seed)
    ran, changed = replay(programs, chance, time.monotonic() + options.seconds)
    told = {"ok": not +changed and not inexact and min(ran[name] for name in programs) > 0, "ran": ran, "changed": +changed, "inexact": inexact, "splits": backend.splits}
    rig.write(options.name, told)
    for program, _ in programs.values():
        program.network = None
    gc.collect()
    torch.cuda.empty_cache()
    try:
        _, others = replay(programs, chance, time.monotonic() + 1)
        told["without_networks"] = f"{others.total()} other answers"
        told["ok"] = told["ok"] and others.total() > 0
    except cuda.DriverError as error:
        told["without_networks"] = str(error)
    rig.say(f"without the networks: {told['without_networks']}")
    rig.write(options.name, told)
    sys.stdout.flush()
    # After a failed GPU the destructors of graphs report errors of their own.
    os._exit(0 if told["ok"] else 1)


if __name__ == "__main__":
    main()
