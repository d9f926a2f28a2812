"""The open inference protocol over gRPC."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Callable
from typing import Any

import grpc
import numpy
from google.protobuf.message import DecodeError

from sluice.serve import messages
from sluice.serve.errors import InvalidRequest, ServeError
from sluice.serve.service import MODEL_VERSION, Inference, Service
from sluice.serve.tensors import check_count, check_shape, from_bytes, from_values

log = logging.getLogger(__name__)
# The field of InferTensorContents for each data type.
CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents",
}
# The type of the values of each field.
TYPES = {"bool_contents": "?", "int_contents": "i4", "int64_contents": "i8", "uint_contents": "u4", "uint64_contents": "u8", "fp32_contents": "f4", "fp64_contents": "f8"}
# So many values are read from a message at a time; in between other threads get Python's lock.
VALUES = 4 << 10
# Threads for requests that do not wait.
SPARE = 16


def values_of(contents: Any, field: str) -> numpy.ndarray:
    """The values of a repeated field, in the type of the field: numpy would choose one for each part."""
    return numpy.concatenate([numpy.asarray(contents[begin:begin + VALUES], TYPES[field]) for begin in range(0, max(len(contents), 1), VALUES)])


def arrays_of(request: Any) -> list[tuple[str, numpy.ndarray]]:
    """The inputs of a ModelInferRequest."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise InvalidRequest(f"the request has {len(request.inputs)} inputs, but {len(raw)} raw contents")
    found = []
    for index, tensor in enumerate(check_count(request.inputs, "inputs")):
        shape = check_shape(list(tensor.shape))
        if raw:
            if tensor.HasField("contents"):
                raise InvalidRequest(f"input {tensor.name!r} has both raw and typed contents")
            found.append((tensor.name, from_bytes(tensor.name, tensor.datatype, shape, raw[index])))
            continue
        if tensor.datatype not in CONTENTS:
            raise InvalidRequest(f"input {tensor.name!r}: {tensor.datatype!r} needs raw contents, or is not supported")
        field = CONTENTS[tensor.datatype]
        found.append((tensor.name, from_values(tensor.name, tensor.datatype, shape, values_of(getattr(tensor.contents, field), field))))
    return found


class Methods:
    """The methods of the service by name."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def ServerLive(self, request: Any, context: grpc.ServicerContext) -> dict[str, Any]:
        return {"live": True}

    def ServerReady(self, request: Any, context: grpc.ServicerContext) -> dict[str, Any]:
        return {"ready": self.service.is_ready}

    def ModelReady(self, request: Any, context: grpc.ServicerContext) -> dict[str, Any]:
        self.service.model(request.name, request.version)
        return {"ready": self.service.is_ready}

    def ServerMetadata(self, request: Any, context: grpc.ServicerContext) -> dict[str, Any]:
        return self.service.server_metadata()

    def ModelMetadata(self, request: Any, context: grpc.ServicerContext) -> dict[str, Any]:
        return self.service.model_metadata(request.name, request.version)

    def ModelInfer(self, request: Any, context: grpc.ServicerContext) -> dict[str, Any]:
        self.service.check(request.model_name, request.model_version)
        inference = Inference(request.model_name, arrays_of(request), [output.name for output in check_count(request.outputs, "outputs")], request.model_version)
        future = self.service.submit(inference)
        # The request of a client that has gone is dropped while it waits. Of one that had gone before there is no callback.
        if not context.add_callback(future.cancel):
            future.cancel()
        rows = future.result()
        output = self.service.output(request.model_name)
        return {
            "model_name": request.model_name, "model_version": MODEL_VERSION, "id": request.id,
            "outputs": [{"name": output.name, "datatype": output.dtype, "shape": rows.shape}], "raw_output_contents": [rows.tobytes()]}


def handler(name: str, method: Callable) -> grpc.RpcMethodHandler:
    """A method with the protocol's messages and errors."""
    questions, answers = messages.CLASSES[f"{name}Request"], messages.CLASSES[f"{name}Response"]

    def read(raw: bytes) -> Any:
        """The message, or the error: gRPC would report one that is raised here as INTERNAL. It keeps what is returned until the answer, and not
        the bytes."""
        try:
            return questions.FromString(raw)
        except DecodeError as error:
            return InvalidRequest(f"the request is no {name}Request: {error}")

    def call(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            if isinstance(request, InvalidRequest):
                raise request
            return answers(**method(request, context))
        except ServeError as error:
            status, words = getattr(grpc.StatusCode, error.grpc_status), str(error)
        except concurrent.futures.CancelledError:
            status, words = grpc.StatusCode.CANCELLED, "the client has gone"
        except Exception:
            log.exception("request failed method=%s", name)
            status, words = grpc.StatusCode.INTERNAL, "internal error"
        context.abort(status, words)

    return grpc.unary_unary_rpc_method_handler(call, read, answers.SerializeToString)


class Server:
    """The server and its threads, one for each request that waits. Threads answer with less work than an event loop: docs/serving.md."""

    def __init__(self, service: Service, address: str) -> None:
        # As over HTTP: requests are bounded, and answers are as long as the models make them.
        options = [("grpc.max_receive_message_length", service.config.max_body_mib << 20), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
        # As many as wait in both queues and run; further ones are refused at once, and need a thread for that.
        running = 1 + max(model.max_batch for model in service.config.models)
        most = 2 * service.config.queue + running + SPARE
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(most, "grpc"), options=options, maximum_concurrent_rpcs=most)
        methods = Methods(service)
        handlers = {name: handler(name, getattr(methods, name)) for name in messages.METHODS}
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(messages.SERVICE, handlers),))
        self.port = self.server.add_insecure_port(address)
        self.server.start()

    def stop(self, grace: float) -> None:
        """Returns when all requests are answered, or after so many seconds."""
        self.server.stop(grace).wait()
