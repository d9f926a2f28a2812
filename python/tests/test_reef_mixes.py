"""tests/gpu/reef_mixes.py with clients of the test's own: what is recorded if clients fail or time is short."""

import argparse
import json
import pathlib
import signal
import sys

import pytest

GPU_TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu"


@pytest.fixture
def mixes(monkeypatch):
    monkeypatch.syspath_prepend(str(GPU_TESTS))
    handler = signal.getsignal(signal.SIGTERM)
    import reef_mixes
    signal.signal(signal.SIGTERM, handler)
    for name in ("say", "write"):
        monkeypatch.setattr(sys.modules["rig"], name, lambda *_, **__: None)
    return reef_mixes


class Client:
    """Answers each block with its seed, unless the client fails."""

    def __init__(self, name, *_, failing=()):
        self.name, self.failing, self.replies = name, failing, []

    def ask(self, line):
        word, _, load = line.partition(" ")
        self.replies.append({"seed": json.loads(load)["seed"], "rate": 1.0, "kinds": 1, "latencies_ms": [1.0]} if word == "run" else {})

    def reply(self, timeout):
        if self.name in self.failing:
            raise sys.modules["rig"].ChildFailed(f"{self.name}: planned")
        return self.replies.pop(0)


def test_replies_of_a_block_in_which_a_client_failed_are_not_taken_for_a_later_block(mixes):
    clients = {name: Client(name, failing=["rt-vgg19"]) for name in ("rt-vgg19", "be-resnet152")}
    with pytest.raises(mixes.rig.ChildFailed, match="rt-vgg19: planned"):
        mixes.run(clients, "A", 1.0, 1)
    assert mixes.run(clients, "one alone", 1.0, 2)["be-resnet152"]["seed"] == 200
    # Not asked again: a stopped process answers nothing, and each attempt would take its whole time.
    with pytest.raises(mixes.rig.ChildFailed, match="failed before: rt-vgg19"):
        mixes.run(clients, "A", 1.0, 3)
    assert clients["be-resnet152"].replies == []


@pytest.mark.parametrize(("factor", "failing", "complete", "ok"), [(1.0, (), True, True), (0.4, (), False, True), (1.0, ("rt-vgg19",), False, False)])
def test_result_is_complete_if_all_requested_rounds_ran(mixes, monkeypatch, factor, failing, complete, ok):
    written = []
    monkeypatch.setattr(mixes.rig, "write", lambda name, result, quiet: written.append(result))
    monkeypatch.setattr(mixes.rig, "Gpu", lambda _: argparse.Namespace(plain=dict))
    monkeypatch.setattr(mixes.rig, "serving", lambda env, *_: env)
    monkeypatch.setattr(mixes.rig, "python", lambda *_: [])
    made = {}

    def child(name, *_):
        made[name] = Client(name)
        return made[name]

    def fitting(options, *_):
        # All clients are connected.
        for name in failing:
            made[name].failing = failing
        return factor

    monkeypatch.setattr(mixes.rig, "Child", child)
    monkeypatch.setattr(mixes, "start_server", lambda *_: ("", []))
    monkeypatch.setattr(mixes.rounds, "fitting", fitting)
    monkeypatch.setattr(mixes.rounds, "left", lambda _: 1000.0)
    mixes.measure(argparse.Namespace(gpu="sim", rounds=2, seconds=1.0, seed=1, name="mixes"), {"ok": False, "complete": False, "failed": {}})
    last = written[-1]
    assert (last["ok"], last["complete"], last["rounds"], last["rounds_requested"]) == (ok, complete, 1 if factor < 1 else 2, 2)
