"""The examples in docstrings, in docs/reference/python-api.md and in examples/."""

import doctest
import importlib
import pathlib

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("module", ["sluice", "sluice._config", "sluice._hook", "sluice._streams"])
def test_docstrings(module):
    seen = doctest.testmod(importlib.import_module(module))
    assert seen.attempted > 0 and seen.failed == 0


def test_reference_page():
    seen = doctest.testfile(str(REPOSITORY / "docs" / "reference" / "python-api.md"), module_relative=False)
    assert seen.attempted > 0 and seen.failed == 0
