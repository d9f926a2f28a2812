"""Finds the tests in scenarios/*.py, runs them one after the other, each with a time limit, and writes the figures."""

import importlib.util
import inspect
import json
import signal
import sys
import time
import traceback
from pathlib import Path

from lib import assemble, violations
from lib.cluster import Cluster, Skipped
from lib.settings import HERE, KUBERNETES

SECONDS = 120  # time limit of a test in a file without SECONDS
CORE = "--core"  # run only the tests that the files list in CORE


class TookTooLong(BaseException):
    """Derives from BaseException, so that a test that catches Exception does not catch it."""


def _alarm(*_) -> None:
    raise TookTooLong


def tests(words: list[str]):
    """(name, function, seconds) in the order of the files and, within a file, of its lines."""
    core, words = CORE in words, [word for word in words if word != CORE]
    for path in sorted((HERE / "scenarios").glob("[0-9]*.py")):
        for name, function, seconds, is_core in of_file(path):
            if (is_core or not core) and (not words or any(word in name for word in words)):
                yield name, function, seconds


def of_file(path: Path):
    specification = importlib.util.spec_from_file_location(f"scenario_{path.stem}", path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    try:
        specification.loader.exec_module(module)
    except Exception as error:  # a file that cannot be loaded is a failed test; the tests of other files run

        def unreadable(_cluster, error=error) -> None:
            raise error

        return [(f"{path.stem}.could_not_be_read", unreadable, SECONDS, True)]
    functions = [item for name, item in inspect.getmembers(module, inspect.isfunction) if name.startswith("test_")]
    functions.sort(key=lambda item: item.__code__.co_firstlineno)
    seconds, core = getattr(module, "SECONDS", SECONDS), getattr(module, "CORE", set())
    names = [item.__name__.removeprefix("test_") for item in functions]
    if missing := core - set(names):

        def misnamed(_cluster) -> None:
            raise AssertionError(f"CORE of {path.name} lists no test of the file: {missing}")

        return [(f"{path.stem}.core_is_wrong", misnamed, SECONDS, True)]
    return [(f"{path.stem}.{name}", item, seconds, name in core) for name, item in zip(names, functions)]


def main(result: Path, words: list[str]) -> int:
    signal.signal(signal.SIGALRM, _alarm)
    cluster = Cluster()
    done: list[dict] = []
    skipped: list[dict] = []
    chosen = list(tests(words))
    if not chosen:
        print(f"no test's name contains any of: {' '.join(words)}")
        return 2
    for name, function, seconds in chosen:
        print(f"test {name} … ", end="", flush=True)
        began, cluster.figures = time.monotonic(), {}
        try:
            reason = run(function, cluster, seconds)
        except Skipped as why:
            print(f"skipped: {why}", flush=True)
            skipped.append({"name": name, "reason": str(why)})
        else:
            took = round(time.monotonic() - began, 1)
            print(f"{'FAILED' if reason else 'ok'} ({took} s)", *(f"\n    {key}: {value}" for key, value in cluster.figures.items()), flush=True)
            if reason:
                print(reason, assemble.logs(), cluster.state(), sep="\n", flush=True)
            done.append({"name": name, "ok": not reason, "seconds": took, "reason": reason, "figures": cluster.figures})
        failed = sum(not test["ok"] for test in done)
        summary = {"kubernetes": KUBERNETES, "passed": len(done) - failed, "failed": failed, "skipped": skipped, "tests": done}
        result.write_text(json.dumps(summary))
    return 0


def run(function, cluster: Cluster, seconds: int) -> str:
    """The reason of a failure, or an empty text. A pod that is wrongly reported for a violation fails the test. Raises `Skipped` if the test does."""
    signal.alarm(seconds)
    try:
        violations.begin()
        function(cluster)
        return violations.wrong(getattr(sys.modules[function.__module__], "VIOLATORS", set()))
    except TookTooLong:
        return f"took longer than {seconds} s:\n{traceback.format_exc()}"
    except Skipped:
        raise
    except Exception:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
