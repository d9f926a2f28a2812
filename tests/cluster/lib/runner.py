"""Finds the tests in scenarios/*.py, runs them one after the other, each with a time limit, and keeps the figures."""

import importlib.util
import inspect
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from lib import assemble
from lib.cluster import Cluster
from lib.settings import HERE, KUBERNETES

# A machine of two cores that others use as well is sometimes too slow for a deadline. A second try is said and counted.
RETRIES = int(os.environ.get("SLUICE_CLUSTER_RETRIES", "0"))
SECONDS = 120  # of a test in a file that has no SECONDS of its own


class TookTooLong(BaseException):
    """No test may catch this by catching Exception."""


def _alarm(*_) -> None:
    raise TookTooLong


def tests(words: list[str]):
    """(name, function, seconds) in the order of the files and, within one, of its lines."""
    for path in sorted((HERE / "scenarios").glob("[0-9]*.py")):
        for name, function, seconds in of_file(path):
            if not words or any(word in name for word in words):
                yield name, function, seconds


def of_file(path: Path):
    specification = importlib.util.spec_from_file_location(f"scenario_{path.stem}", path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    try:
        specification.loader.exec_module(module)
    except Exception as error:  # a file that cannot be read is a failed test, and the other files' tests go on

        def unreadable(_cluster, error=error) -> None:
            raise error

        return [(f"{path.stem}.could_not_be_read", unreadable, SECONDS)]
    functions = [item for name, item in inspect.getmembers(module, inspect.isfunction) if name.startswith("test_")]
    functions.sort(key=lambda item: item.__code__.co_firstlineno)
    seconds = getattr(module, "SECONDS", SECONDS)
    return [(f"{path.stem}.{item.__name__.removeprefix('test_')}", item, seconds) for item in functions]


def main(result: Path, words: list[str]) -> int:
    signal.signal(signal.SIGALRM, _alarm)
    cluster = Cluster()
    done: list[dict] = []
    chosen = list(tests(words))
    if not chosen:
        print(f"no test's name contains any of: {' '.join(words)}")
        return 2
    for name, function, seconds in chosen:
        print(f"test {name} … ", end="", flush=True)
        began, cluster.figures = time.monotonic(), {}
        reason = run(function, cluster, seconds)
        tries = 1
        while reason and tries <= RETRIES:
            print(f"FAILED, once more\n{reason}", assemble.logs(), cluster.state(), f"test {name} again … ", sep="\n", end="", flush=True)
            cluster.figures, tries = {}, tries + 1
            reason = run(function, cluster, seconds)
        took = round(time.monotonic() - began, 1)
        print(f"{'FAILED' if reason else 'ok'} ({took} s)", *(f"\n    {key}: {value}" for key, value in cluster.figures.items()), flush=True)
        if reason:
            print(reason, assemble.logs(), cluster.state(), sep="\n", flush=True)
        done.append({"name": name, "ok": not reason, "seconds": took, "tries": tries, "reason": reason, "figures": cluster.figures})
        failed = sum(not test["ok"] for test in done)
        summary = {"kubernetes": KUBERNETES, "passed": len(done) - failed, "failed": failed, "tests": done}
        result.write_text(json.dumps(summary))
    return 0


def run(function, cluster: Cluster, seconds: int) -> str:
    """Why it failed, or nothing."""
    signal.alarm(seconds)
    try:
        function(cluster)
    except TookTooLong:
        return f"took longer than {seconds} s:\n{traceback.format_exc()}"
    except Exception:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    return ""
