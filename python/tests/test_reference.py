"""docs/reference/python.md and cpp.md are what tools/api-reference.py makes of the docstrings and of the headers' comments."""

import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("python.md", "cpp.md")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    subprocess.run([sys.executable, REPOSITORY / "tools" / "api-reference.py", folder], check=True)
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_committed_page_is_what_the_sources_describe(made, page):
    assert (REPOSITORY / "docs" / "reference" / page).read_text() == (made / page).read_text(), "run tools/api-reference.py docs/reference"


@pytest.mark.parametrize(("page", "words"), [
    ("python.md", ["GPUScheduler.submit(task: Task[R], /, *arguments: Any, args: Sequence[Any]=(), **keywords: Any) -> Future[R]", "longest_stop_ms", "Priority.HIGH", "with GPUScheduler.request(): ...", "with request(): ...", "A context manager. "]),
    ("cpp.md", ["class Scheduler", "auto submit(const Task<Function> &task, Arguments... arguments)", "Submits a task with copies of its arguments.", "bool cancel()", "p50, p99", "longest_stop_ms", "`~Scheduler()`: Waits until all tasks have ended"]),
])
def test_page_has_what_users_call(made, page, words):
    text = (made / page).read_text()
    assert [each for each in words if each not in text] == []


@pytest.mark.parametrize("page", PAGES)
def test_page_has_nothing_private(made, page):
    text = (made / page).read_text()
    assert not any(word in text for word in ("detail::", "__init__", "update_stream", "FORKED"))
