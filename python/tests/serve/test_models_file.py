"""models.yaml: what it sets, and that all mistakes are reported at once."""

import pytest

from sluice.serve.config import Config, ConfigError, Model, Tensor, parse
from sluice.serve.service import Inference, Service
from sluice.serve.tensors import from_values

GOOD = """
split: 40
bound: 0.2
models:
  - {name: rt, class: real-time, source: {torchvision: resnet50}, input: {shape: [3, 224, 224], dtype: FP16}}
  - {name: be, class: best-effort, source: {export: model.pt2}, input: {shape: [8]}, batches: [4, 1], delay_ms: 2}
"""


def test_file_sets_models_and_sharing():
    assert parse(GOOD) == Config((
        Model("rt", "real-time", ("torchvision", "resnet50"), Tensor("input", "FP16", (3, 224, 224))),
        Model("be", "best-effort", ("export", "model.pt2"), Tensor("input", "FP32", (8,)), (1, 4), 0.002)), 40, 0.2)


def test_all_mistakes_are_reported():
    with pytest.raises(ConfigError) as error:
        parse("""
split: some
models:
  - {name: a/b, class: real-time, source: {other: x}, input: {shape: []}, delay_ms: 1}
  - {name: c, class: best-effort, source: {torchvision: resnet50}, input: {shape: [1]}, batches: [0], colour: red}
""")
    for words in ("split is 'some'", "models[0].name is 'a/b'", "models[0].source", "models[0].input.shape", "models[0].delay_ms", "models[1].batches is [0]", "models[1].colour is unknown"):
        assert words in str(error.value)


DTYPE = "models:\n  - {name: a, class: real-time, source: {sim: {}}, input: {shape: [4], dtype: %s}}"


@pytest.mark.parametrize("dtype", ["[FP16]", "{FP16: 1}", "FP8", "7"])
def test_wrong_data_type_is_a_mistake_of_the_file(dtype):
    with pytest.raises(ConfigError, match=r"models\[0\].input.dtype is .*, expected one of BOOL, UINT8"):
        parse(DTYPE % dtype)


@pytest.mark.parametrize("dtype", ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT64", "FP64"])
def test_every_data_type_of_numbers_is_served(dtype):
    service = Service(parse("split: 32\n" + DTYPE % dtype))
    service.start()
    rows = from_values("input", dtype, (1, 4), [1, 0, 1, 1] if dtype != "BOOL" else [True, False, True, True])
    assert service.submit(Inference("a", [("input", rows)])).result(60).tolist() == [[3, 10]]
    service.close()


@pytest.mark.parametrize(("text", "words"), [("[", "not YAML"), ("3", "expected a mapping"), ("models: []", "a list of models")])
def test_other_text_is_refused(text, words):
    with pytest.raises(ConfigError, match=words):
        parse(text)
