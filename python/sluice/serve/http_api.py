"""The open inference protocol over HTTP: JSON, and the binary tensor extension. `/metrics` is for Prometheus."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from aiohttp import web

from sluice.serve.bodies import Bodies
from sluice.serve.config import CLASSES
from sluice.serve.errors import InvalidRequest, ServeError
from sluice.serve.json_bodies import JsonWorker
from sluice.serve.service import MODEL_VERSION, Inference, Service
from sluice.serve.waiting import until_done

log = logging.getLogger(__name__)
JSON_LENGTH = "Inference-Header-Content-Length"


# Of an answer that is longer, so many bytes are written at a time.
CHUNK = 256 << 10


def json_size(request: web.Request, body: bytearray) -> int:
    """How many bytes of the body are JSON; binary tensors follow."""
    length = request.headers.get(JSON_LENGTH)
    try:
        size = len(body) if length is None else int(length)
        if not 0 <= size <= len(body):
            raise ValueError("out of range")
    except ValueError:
        raise InvalidRequest(f"{JSON_LENGTH} is {length!r}, but the body has {len(body)} bytes") from None
    return size


class Handlers:
    """One method a route."""

    def __init__(self, service: Service) -> None:
        largest = service.config.max_body_mib << 20
        self.service, self.bodies = service, Bodies(largest)
        # A worker reads one request at a time, and those that wait fail if it ends: real-time requests do not share one with best effort.
        self.json = {klass: JsonWorker(largest) for klass in CLASSES}

    async def close(self, _: web.Application) -> None:
        for worker in self.json.values():
            worker.close()

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

    async def infer(self, request: web.Request) -> web.StreamResponse:
        name, version = self._model(request)
        # Before the body is read.
        klass = self.service.check(name, version).klass
        async with self.bodies.read(request, klass) as body:
            asked, inputs = await self.json[klass].parse(body, json_size(request, body))
            future = self.service.submit(Inference(name, inputs, asked.outputs, version))
            # The request of a client that has gone is dropped if it waits. If it runs, the body is in use until its end.
            rows = await until_done(asyncio.wrap_future(future), future.cancel)
        output = self.service.output(name)
        tensor: dict[str, Any] = {"name": output.name, "datatype": output.dtype, "shape": list(rows.shape)}
        answer = {"model_name": name, "model_version": MODEL_VERSION, "outputs": [tensor], **({} if asked.id is None else {"id": asked.id})}
        if not asked.binary:
            return await respond(request, await self.json[klass].encode(answer, rows), {"Content-Type": "application/json; charset=utf-8"})
        raw = rows.tobytes()
        tensor["parameters"] = {"binary_data_size": len(raw)}
        head = json.dumps(answer).encode()
        return await respond(request, head + raw, {"Content-Type": "application/octet-stream", JSON_LENGTH: str(len(head))})

    @staticmethod
    def _model(request: web.Request) -> tuple[str, str]:
        return request.match_info["model"], request.match_info.get("version", "")


async def respond(request: web.Request, body: Any, headers: dict[str, str]) -> web.StreamResponse:
    """An answer with this body. A long one is written in parts: the transport would copy all of it at once."""
    if len(body) <= CHUNK:
        return web.Response(body=bytes(body), headers=headers)
    response = web.StreamResponse(headers={**headers, "Content-Length": str(len(body))})
    await response.prepare(request)
    for begin in range(0, len(body), CHUNK):
        await response.write(bytes(body[begin:begin + CHUNK]))
    await response.write_eof()
    return response


@web.middleware
async def errors(request: web.Request, handler: Any) -> web.StreamResponse:
    """Every error is a JSON object with its message."""
    try:
        return await handler(request)
    except ServeError as error:
        return web.json_response({"error": str(error)}, status=error.http_status)
    except web.HTTPException as error:
        return web.json_response({"error": error.reason}, status=error.status)
    except ConnectionError:
        # The client has gone, and aiohttp drops the answer. It would log the error.
        return web.Response(status=400)
    except Exception:
        log.exception("request failed path=%s", request.path)
        return web.json_response({"error": "internal error"}, status=500)


def application(service: Service) -> web.Application:
    """The routes of the protocol."""
    handlers = Handlers(service)
    app = web.Application(middlewares=[errors])
    app.on_cleanup.append(handlers.close)
    app.add_routes([
        web.get("/v2/health/live", handlers.live), web.get("/v2/health/ready", handlers.ready), web.get("/v2", handlers.metadata), web.get("/metrics", handlers.metrics)])
    for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        app.add_routes([web.get(model, handlers.model_metadata), web.get(f"{model}/ready", handlers.model_ready), web.post(f"{model}/infer", handlers.infer)])
    return app


async def serve(service: Service, address: str, grace: float) -> tuple[web.AppRunner, int]:
    """Starts the server; returns it and its port. The handler of a client that has gone is cancelled. At the server's end requests have `grace` seconds to be answered, then they are cancelled."""
    host, _, port = address.rpartition(":")
    runner = web.AppRunner(application(service), access_log=None, shutdown_timeout=grace, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    return runner, runner.addresses[0][1]
