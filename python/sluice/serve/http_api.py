"""The open inference protocol over HTTP: JSON, and the binary tensor extension. `/metrics` is for Prometheus."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import numpy
from aiohttp import web

from sluice.serve.errors import InvalidRequest, ServeError
from sluice.serve.service import MODEL_VERSION, Inference, Service
from sluice.serve.tensors import check_shape, from_bytes, from_values

log = logging.getLogger(__name__)
JSON_LENGTH = "Inference-Header-Content-Length"


def as_object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{what}: expected an object")
    return value


def as_list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidRequest(f"{what}: expected a list")
    return value


def as_string(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{what}: expected a string")
    return value


def split_body(body: bytes, length: str | None) -> tuple[dict[str, Any], bytes]:
    """The JSON object of a request and the binary data behind it."""
    try:
        size = len(body) if length is None else int(length)
        if not 0 <= size <= len(body):
            raise ValueError("out of range")
    except ValueError:
        raise InvalidRequest(f"{JSON_LENGTH} is {length!r}, but the body has {len(body)} bytes") from None
    try:
        return as_object(json.loads(body[:size]), "the request"), body[size:]
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the request is not JSON: {error}") from None


def arrays_of(request: dict[str, Any], binary: bytes) -> list[tuple[str, numpy.ndarray]]:
    """The inputs of a request."""
    found = []
    for each in as_list(request.get("inputs"), "inputs"):
        tensor = as_object(each, "inputs")
        name, dtype = as_string(tensor.get("name"), "inputs.name"), as_string(tensor.get("datatype"), "inputs.datatype")
        shape = check_shape(tensor.get("shape"))
        size = as_object(tensor.get("parameters", {}), "inputs.parameters").get("binary_data_size")
        if size is None:
            found.append((name, from_values(name, dtype, shape, as_list(tensor.get("data"), f"the data of input {name!r}"))))
            continue
        if not isinstance(size, int) or not 0 <= size <= len(binary):
            raise InvalidRequest(f"input {name!r}: binary_data_size is {size!r}, and {len(binary)} bytes are left")
        found.append((name, from_bytes(name, dtype, shape, binary[:size])))
        binary = binary[size:]
    if binary:
        raise InvalidRequest(f"{len(binary)} bytes behind the last input")
    return found


class Handlers:
    """One method a route."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def live(self, request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def ready(self, request: web.Request) -> web.Response:
        return web.json_response({"ready": self.service.is_ready}, status=200 if self.service.is_ready else 503)

    async def metadata(self, request: web.Request) -> web.Response:
        return web.json_response(self.service.server_metadata(["binary_tensor_data"]))

    async def model_metadata(self, request: web.Request) -> web.Response:
        return web.json_response(self.service.model_metadata(*self._model(request)))

    async def model_ready(self, request: web.Request) -> web.Response:
        name, version = self._model(request)
        self.service.model(name, version)
        return web.json_response({"name": name, "ready": self.service.is_ready}, status=200 if self.service.is_ready else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self.service.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def infer(self, request: web.Request) -> web.Response:
        asked, binary = split_body(await request.read(), request.headers.get(JSON_LENGTH))
        name, version = self._model(request)
        outputs = [as_object(each, "outputs") for each in as_list(asked.get("outputs", []), "outputs")]
        all_binary = as_object(asked.get("parameters", {}), "parameters").get("binary_data_output", False)
        as_binary = any(as_object(each.get("parameters", {}), "outputs.parameters").get("binary_data", all_binary) for each in outputs) if outputs else all_binary
        names = [as_string(each.get("name"), "outputs.name") for each in outputs]
        rows = await asyncio.wrap_future(self.service.submit(Inference(name, arrays_of(asked, binary), names, version)))
        output = self.service.output(name)
        tensor: dict[str, Any] = {"name": output.name, "datatype": output.dtype, "shape": list(rows.shape)}
        answer = {"model_name": name, "model_version": MODEL_VERSION, "outputs": [tensor], **({"id": asked["id"]} if "id" in asked else {})}
        if not as_binary:
            tensor["data"] = rows.ravel().tolist()
            return web.json_response(answer)
        raw = rows.tobytes()
        tensor["parameters"] = {"binary_data_size": len(raw)}
        head = json.dumps(answer).encode()
        return web.Response(body=head + raw, content_type="application/octet-stream", headers={JSON_LENGTH: str(len(head))})

    @staticmethod
    def _model(request: web.Request) -> tuple[str, str]:
        return request.match_info["model"], request.match_info.get("version", "")


@web.middleware
async def errors(request: web.Request, handler: Any) -> web.StreamResponse:
    """Every error is a JSON object with its message."""
    try:
        return await handler(request)
    except ServeError as error:
        return web.json_response({"error": str(error)}, status=error.http_status)
    except web.HTTPException as error:
        return web.json_response({"error": error.reason}, status=error.status)
    except Exception:
        log.exception("request failed path=%s", request.path)
        return web.json_response({"error": "internal error"}, status=500)


def application(service: Service) -> web.Application:
    """The routes of the protocol."""
    handlers = Handlers(service)
    app = web.Application(middlewares=[errors], client_max_size=service.config.max_body_mib << 20)
    app.add_routes([
        web.get("/v2/health/live", handlers.live), web.get("/v2/health/ready", handlers.ready), web.get("/v2", handlers.metadata), web.get("/metrics", handlers.metrics)])
    for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        app.add_routes([web.get(model, handlers.model_metadata), web.get(f"{model}/ready", handlers.model_ready), web.post(f"{model}/infer", handlers.infer)])
    return app


async def serve(service: Service, address: str) -> tuple[web.AppRunner, int]:
    """Starts the server; returns it and its port."""
    host, _, port = address.rpartition(":")
    runner = web.AppRunner(application(service), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    return runner, runner.addresses[0][1]
