"""The bodies of HTTP requests: how large one may be, and all of them together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from sluice.serve.config import BEST_EFFORT, CLASSES
from sluice.serve.errors import BodyTooLarge, InvalidRequest, QueueFull, TooSlow

# All bodies together may have so many times the bytes of one, and those of best-effort requests fewer: a real-time one has room beside them.
AT_ONCE, AT_ONCE_BEST_EFFORT = 4, 3
# The longest time in which a body arrives, seconds. A client that stops sending would keep its part of the memory.
LONGEST_S = 60


class Bodies:
    """Counts the bytes of all bodies that are read, or whose requests are not answered yet."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, dict.fromkeys(CLASSES, 0)

    @contextlib.asynccontextmanager
    async def read(self, request: web.Request, klass: str) -> AsyncIterator[bytearray]:
        """The body of a request for a model of this class, counted until the end of the `with`. Raises `BodyTooLarge`, `InvalidRequest`, `QueueFull` or `TooSlow`."""
        if (request.content_length or 0) > self.most:
            raise BodyTooLarge(f"the body has {request.content_length} bytes, at most {self.most} are possible")
        body = bytearray()
        try:
            try:
                await asyncio.wait_for(self._fill(request, klass, body), LONGEST_S)
            except asyncio.TimeoutError:
                raise TooSlow(f"the body did not arrive within {LONGEST_S} s") from None
            except web.RequestPayloadError as error:
                raise InvalidRequest(f"the body does not have its Content-Encoding or Transfer-Encoding: {error}") from None
            yield body
        finally:
            self.used[klass] -= len(body)

    async def _fill(self, request: web.Request, klass: str, body: bytearray) -> None:
        # A compressed body is longer than its Content-Length.
        async for chunk in request.content.iter_any():
            if len(body) + len(chunk) > self.most:
                raise BodyTooLarge(f"the body has more than {self.most} bytes")
            self._check(klass, len(chunk))
            self.used[klass] += len(chunk)
            body += chunk

    def _check(self, klass: str, more: int) -> None:
        """Raises `QueueFull` if there is no room for so many bytes more."""
        used = sum(self.used.values())
        if used + more > AT_ONCE * self.most:
            raise QueueFull(f"requests with {used} bytes are being served already")
        if klass == BEST_EFFORT and self.used[klass] + more > AT_ONCE_BEST_EFFORT * self.most:
            raise QueueFull(f"{klass} requests with {self.used[klass]} bytes are being served already")
