"""`python -m sluice.serve`: serves the models of a file by the open inference protocol (KServe v2), over HTTP and gRPC."""

from __future__ import annotations

import argparse
import asyncio
import logging
import pathlib
import signal
import sys

from sluice.serve.config import ConfigError, load
from sluice.serve.errors import ServeError

log = logging.getLogger(__name__)

# Threads of the executor get Python's lock within so long, seconds: the default of 5 ms is longer than a request.
SWITCH_INTERVAL = 0.0001
# Time for the requests that are served when the server is asked to end: first over gRPC, then over HTTP.
GRACE_S = 5


async def run(service, options: argparse.Namespace) -> None:
    """Serves until a signal. Raises the error of the start."""
    from sluice.serve import grpc_api, http_api

    runner, http_port = await http_api.serve(service, options.http, GRACE_S)
    server = grpc_api.Server(service, options.grpc)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # Live from now on; ready when the models are captured and profiled.
    starting = asyncio.get_running_loop().run_in_executor(None, service.start)

    def started(done: asyncio.Future) -> None:
        if done.exception():
            stop.set()
        elif service.is_ready:
            print(f"ready http={http_port} grpc={server.port}", flush=True)

    starting.add_done_callback(started)
    await stop.wait()
    service.refuse()
    await asyncio.get_running_loop().run_in_executor(None, server.stop, GRACE_S)
    await runner.cleanup()
    await asyncio.get_running_loop().run_in_executor(None, service.close)
    await starting


def main() -> int:
    """The exit status: 2 for a wrong configuration or a model that cannot be served, 1 if the start failed."""
    parser = argparse.ArgumentParser(prog="python -m sluice.serve", description=__doc__)
    parser.add_argument("--models", type=pathlib.Path, required=True, metavar="FILE", help="the models, see docs/serving.md")
    parser.add_argument("--http", default="127.0.0.1:8000", metavar="HOST:PORT")
    parser.add_argument("--grpc", default="127.0.0.1:8001", metavar="HOST:PORT")
    parser.add_argument("--check", action="store_true", help="only check the file")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        config = load(options.models)
    except ConfigError as error:
        print(f"{options.models}:\n{error}", file=sys.stderr)
        return 2
    if options.check:
        return 0
    sys.setswitchinterval(SWITCH_INTERVAL)
    from sluice.serve.service import Service

    try:
        asyncio.run(run(Service(config), options))
    except ConfigError as error:
        print(f"{options.models}:\n{error}", file=sys.stderr)
        return 2
    except ServeError as error:
        log.error("start failed error=%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
