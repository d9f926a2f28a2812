"""The server through tritonclient, a client library that this project did not write, over gRPC and HTTP."""

import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import grpc
import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from model_server import MODELS, serving

from sluice.serve import messages

KINDS = {"grpc": tritonclient.grpc, "http": tritonclient.http}


@pytest.fixture(scope="session")
def server():
    with serving(MODELS) as server:
        yield server


@pytest.fixture(params=KINDS)
def triton(request, server):
    """A client of each protocol, and its module."""
    module = KINDS[request.param]
    client = module.InferenceServerClient(getattr(server, request.param))
    yield client, module
    client.close()


def given(module, rows, name="input", dtype="FP32"):
    tensor = module.InferInput(name, list(rows.shape), dtype)
    tensor.set_data_from_numpy(rows)
    return tensor


def ones(rows, dtype=numpy.float32):
    return numpy.ones((rows, 4), dtype)


def test_health_and_metadata_describe_the_models(triton):
    client, module = triton
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("rt")
    described = client.get_model_metadata("be", **({"as_json": True} if module is tritonclient.grpc else {}))
    assert described["name"] == "be"
    (tensor,), (output,) = described["inputs"], described["outputs"]
    assert (tensor["name"], tensor["datatype"], [int(size) for size in tensor["shape"]]) == ("input", "FP32", [-1, 4])
    assert (output["name"], [int(size) for size in output["shape"]]) == ("output", [-1, 2])


def test_answer_has_the_sum_of_each_row_and_the_kernels_that_ran(triton):
    client, module = triton
    rows = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    answer = client.infer("be", [given(module, rows)], outputs=[module.InferRequestedOutput("output")])
    assert answer.as_numpy("output").tolist() == [[6, 5], [22, 5], [38, 5]]


def test_half_precision_input_of_real_time_model(triton):
    client, module = triton
    answer = client.infer("rt", [given(module, ones(1, numpy.float16), dtype="FP16")], request_id="seven")
    assert answer.as_numpy("output").tolist() == [[4, 3]]
    assert (answer.get_response()["id"] if module is tritonclient.http else answer.get_response().id) == "seven"


@pytest.mark.parametrize(("model", "rows", "name", "words"), [
    ("none", ones(1), "input", "there is no model 'none'"),
    ("be", ones(1), "other", "expects one input 'input'"),
    ("be", numpy.ones((1, 5), numpy.float32), "input", r"of shape \[1, 5\]"),
    ("be", ones(5), "input", "takes at most 4 rows"),
])
def test_wrong_request_gets_an_error_that_says_why(triton, model, rows, name, words):
    client, module = triton
    with pytest.raises(Exception, match=words) as error:
        client.infer(model, [given(module, rows, name)])
    wanted = ("404", "StatusCode.NOT_FOUND") if model == "none" else ("400", "StatusCode.INVALID_ARGUMENT")
    assert str(error.value.status()) in wanted
    assert client.is_server_ready()


def infer_later(server, model, rows, done):
    """A request in the background. `done(rows of the answer, error)` is called when it ends."""
    client = tritonclient.grpc.InferenceServerClient(server.grpc)
    dtype = "FP16" if rows.dtype == numpy.float16 else "FP32"
    client.async_infer(model, [given(tritonclient.grpc, rows, dtype=dtype)], lambda result, error: done(result and result.as_numpy("output"), error))
    return client


@pytest.mark.parametrize("model", ["rt", "rt-long"])
def test_real_time_request_is_answered_before_best_effort_work_that_runs_and_waits(server, model):
    order, all_done, preemptions = [], threading.Semaphore(0), metric(server, "sluice_serve_preemptions_total")

    def note(name):
        def done(_, error):
            order.append((name, error))
            all_done.release()
        return done

    clients = [infer_later(server, "slow", ones(1), note("slow")) for _ in range(3)]
    while metric(server, 'sluice_queue_length{class="best-effort"}') != 2:
        pass
    clients.append(infer_later(server, model, ones(1, numpy.float16), note(model)))
    for _ in clients:
        assert all_done.acquire(timeout=60)
    # The running request has kernels for half a second, and the simulated GPU runs those of the whole GPU in the order of submission.
    assert order == [(model, None)] + 3 * [("slow", None)]
    if model == "rt-long":
        # Best-effort kernels were submitted meanwhile, for the split.
        assert metric(server, "sluice_serve_preemptions_total") == preemptions + 1


def test_requests_beyond_the_queue_are_refused_and_the_others_answered(server):
    ended, all_done = [], threading.Semaphore(0)

    def done(answer, error):
        ended.append("answered" if error is None else error.status())
        all_done.release()

    clients = [infer_later(server, "slow", ones(1), done) for _ in range(10)]
    for _ in clients:
        assert all_done.acquire(timeout=60)
    # One runs and four wait; the first may still have waited when the last came.
    assert ended.count("answered") in (4, 5)
    assert set(ended) == {"answered", "StatusCode.RESOURCE_EXHAUSTED"}


def test_concurrent_best_effort_requests_get_their_own_rows(server):
    found, all_done = {}, threading.Semaphore(0)

    def done(number):
        def keep(answer, error):
            found[number] = error or answer.tolist()
            all_done.release()
        return keep

    clients = [infer_later(server, "be", number * ones(1), done(number)) for number in range(4)]
    for _ in clients:
        assert all_done.acquire(timeout=60)
    assert found == {number: [[4 * number, 5]] for number in range(4)}


def page(server, path):
    with urllib.request.urlopen(f"http://{server.http}{path}") as answer:
        return answer.read().decode()


def metric(server, name):
    value = re.search(rf"^{re.escape(name)} (\S+)$", page(server, "/metrics"), re.MULTILINE)
    return float(value.group(1)) if value else 0.0


def test_metrics_count_requests_by_model_and_class(server):
    name = 'sluice_request_seconds_count{class="real-time",model="rt"}'
    before = metric(server, name)
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        client.infer("rt", [given(tritonclient.grpc, ones(1, numpy.float16), dtype="FP16")])
    assert metric(server, name) == before + 1
    assert metric(server, 'sluice_best_effort_sms{model="rt"}') == 32


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 4], "data": ["x"]}]}'])
def test_http_body_that_is_no_request_is_refused(server, body):
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"http://{server.http}/v2/models/be/infer", data=body)
    assert error.value.code == 400
    assert json.loads(error.value.read())["error"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_http_body_that_is_not_in_the_named_encoding_is_refused(server, encoding):
    request = urllib.request.Request(f"http://{server.http}/v2/models/be/infer", data=b"no such thing", headers={"Content-Encoding": encoding})
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request)
    assert error.value.code == 400
    assert "Content-Encoding" in json.loads(error.value.read())["error"]


@pytest.mark.parametrize("method", ["ModelInfer", "ServerLive"])
def test_grpc_message_that_is_no_protobuf_is_refused(server, method):
    with grpc.insecure_channel(server.grpc) as channel, pytest.raises(grpc.RpcError) as error:
        channel.unary_unary(f"/{messages.SERVICE}/{method}")(b"\xff")
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT and f"{method}Request" in error.value.details()


def test_client_prints_latencies(server):
    command = [sys.executable, "-m", "sluice.serve.client", "--url", server.grpc, "--model", "be", "--seconds", "0.3", "--json"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)
    assert told["n"] == len(told["latencies_ms"]) > 0 and told["kinds"] == 1
