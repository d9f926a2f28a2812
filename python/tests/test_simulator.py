"""Tasks with kernels on the simulated GPU, with and without libsluice.so. Kernels and the GPU's own account are the witnesses."""

import sys

import pytest

TASKS = 10_000


@pytest.mark.parametrize("hook", [True, False], ids=["preemptive", "priorities"])
def test_ten_thousand_tasks_run_once_in_order_and_their_futures_resolve(simulator, hook):
    seen = simulator.run("programs/many_tasks.py", TASKS, hook=hook, label=f"many-{hook}")
    metrics = seen.pop("metrics")
    cancelled = seen.pop("cancelled")
    assert 0 < cancelled < TASKS / 5
    assert seen == {
        "in_order": True, "resolved": True, "wrong_counts": [], "wrong_results": [], "started_twice": 0, "ran": TASKS - cancelled,
        "threads_left": 0, "streams_left": 0,
    }
    assert simulator.ledger(f"many-{hook}")["kernels_completed"] == TASKS - cancelled
    counts = [of_name for name, of_name in metrics["tasks"].items() if name == "body"]
    assert (sum(of["count"] for of in counts), sum(of["cancelled"] for of in counts)) == (TASKS - cancelled, cancelled)
    assert metrics["mode"] == ("preemptive" if hook else "priorities")
    assert (metrics["preemptions"] > 0) == hook
    assert metrics["preemption_level"] == ("device" if hook else None)


def beside(simulator, tmp_path, config, action, *, hook=True):
    (tmp_path / "gpu.yaml").write_text(config)
    seen = simulator.run("programs/beside.py", tmp_path / "gpu.yaml", action, hook=hook)
    assert seen["beside"], "the best-effort task was over before the latency-critical one"
    assert seen["all"] == 1000, "each kernel ran once"
    return seen


def test_best_effort_stream_stands_while_a_latency_critical_task_works_on_the_host(simulator, tmp_path):
    seen = beside(simulator, tmp_path, "preemption: device", "read_twice")
    assert seen["seen"][0] == seen["seen"][1]
    assert seen["metrics"]["preemption_level"] == "device"


@pytest.mark.parametrize("hook", [True, False])
def test_without_preemption_the_best_effort_stream_continues(simulator, tmp_path, hook):
    seen = beside(simulator, tmp_path, "preemption: none", "read_twice", hook=hook)
    assert seen["seen"][0] < seen["seen"][1]
    assert (seen["metrics"]["mode"], seen["metrics"]["preemptions"]) == ("priorities", 0)


def test_best_effort_stream_continues_after_the_longest_stop(simulator, tmp_path):
    seen = beside(simulator, tmp_path, "longest_stop_ms: 20", "wait_for_progress")
    assert seen["metrics"]["preemptions"] > 0


def test_gpu_that_does_not_exist_is_an_error(simulator):
    program = "import sluice, json\ntry: sluice.GPUScheduler(gpu_id=7)\nexcept ValueError as error: print(json.dumps(str(error)))"
    assert simulator.run(sys.executable, "-c", program, hook=False) == "gpu_id is 7, expected 0 to 0"


def test_error_of_a_kernel_reaches_the_future(simulator):
    assert simulator.run("programs/failing_kernel.py", hook=False) == {"error": "CudaError", "code": 700}


@pytest.mark.parametrize("hook", [True, False])
def test_example(simulator, hook):
    metrics = simulator.run("../../examples/python/tasks.py", hook=hook, label=f"example-{hook}")
    counts = {name: of_name["count"] for name, of_name in metrics["tasks"].items()}
    assert counts == {"Spin": 1, "answer": 20, "train": 10}
    assert simulator.ledger(f"example-{hook}")["kernels_completed"] == 20 * 5 + 10 * 20
    assert (metrics["preemptions"] > 0) == hook


def test_best_effort_task_whose_copy_delays_the_stop_continues(simulator):
    assert simulator.run("programs/pageable_copies.py", hook=True) == {"ended": True, "preempted": True}
