"""sluice/scheduler.hpp: its rules, and the example as a user builds it, on the simulated GPU."""

import pathlib
import subprocess

import pytest

from conftest import BUILD, HERE

REPOSITORY = HERE.parent.parent


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The example, built by CMake's package."""
    built = tmp_path_factory.mktemp("cpp")
    run("cmake", "-S", REPOSITORY / "examples" / "cpp", "-B", built, f"-Dsluice_DIR={REPOSITORY / 'hook' / 'cmake'}", f"-DCUDA_DRIVER={BUILD / 'libcuda.so'}")
    run("cmake", "--build", built)
    return built / "tasks"


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    program = tmp_path_factory.mktemp("rules") / "scheduler"
    flags = "-std=c++17 -O1 -Wall -Wextra -Wpedantic -Wshadow -Werror -pthread".split()
    run("c++", *flags, "-I", REPOSITORY / "hook" / "include", HERE / "programs" / "scheduler.cpp", "-o", program, "-ldl")
    return program


@pytest.mark.parametrize("hook", [True, False], ids=["preemptive", "priorities"])
def test_example_answers_while_the_training_runs(simulator, example, hook):
    seen = simulator.run(pathlib.Path(example), hook=hook)
    assert (seen["mode"], seen["training"], seen["training_continues"]) == (2 if hook else 1, 1000, 1)
    assert (seen["preemptions"] > 0) == hook


@pytest.mark.parametrize("hook", [True, False], ids=["preemptive", "priorities"])
def test_ten_thousand_tasks_run_once_in_order_and_their_futures_resolve(simulator, rules, hook):
    assert simulator.run(pathlib.Path(rules), hook=hook) == {
        "in_order": 1, "once": 1, "wrong": 0, "cancelled": 1, "all": 1, "refused_late": 10_000, "violations": 1,
    }


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_cancelling_while_the_scheduler_ends_touches_nothing_that_is_gone(tmp_path, sanitizer):
    program = tmp_path / "cancel"
    flags = f"-std=c++17 -O1 -g -pthread -fsanitize={sanitizer}".split()
    run("c++", *flags, "-I", REPOSITORY / "hook" / "include", HERE / "programs" / "cancel_at_the_end.cpp", "-o", program, "-ldl")
    done = subprocess.run([program], capture_output=True, text=True, timeout=120)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address randomisation does not suit the compiler's thread sanitizer")
    assert (done.returncode, done.stdout) == (0, '{"all": 1}\n'), done.stderr[:3000]


def test_scheduler_that_ends_runs_the_tasks_that_its_tasks_submit(tmp_path):
    program = tmp_path / "submit"
    run("c++", "-std=c++17", "-O1", "-pthread", "-I", REPOSITORY / "hook" / "include", HERE / "programs" / "submit_at_the_end.cpp", "-o", program, "-ldl")
    done = subprocess.run([program], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (0, '{"ran": 6}\n'), done.stderr
