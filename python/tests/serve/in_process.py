"""Both protocols of a service in this process, for a service on a GPU of the test's own."""

import asyncio
import threading

from sluice.serve import grpc_api, http_api


class Serving:
    """`http` and `grpc` are the addresses. The service is started, and closed at the end."""

    def __init__(self, service):
        self.service, self.loop = service, asyncio.new_event_loop()

    def __enter__(self):
        self.service.start()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.runner, http = self._run(http_api.serve(self.service, "127.0.0.1:0", 5))
        self.server = grpc_api.Server(self.service, "127.0.0.1:0")
        self.http, self.grpc = f"127.0.0.1:{http}", f"127.0.0.1:{self.server.port}"
        return self

    def __exit__(self, *_):
        self.server.stop(0)
        self._run(self.runner.cleanup())
        self.service.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)
