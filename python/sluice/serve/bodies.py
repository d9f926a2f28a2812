"""The bodies of HTTP requests: how large one may be, and all of them together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from sluice.serve.errors import BodyTooLarge, QueueFull, TooSlow

# All bodies together may have so many times the bytes of one.
AT_ONCE = 4
# The longest time in which a body arrives, seconds. A client that stops sending would keep its part of the memory.
LONGEST_S = 60


class Bodies:
    """Counts the bytes of all bodies that are read, or whose requests are not answered yet."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0

    @contextlib.asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytearray]:
        """The body of a request, counted until the end of the `with`. Raises `BodyTooLarge`, `QueueFull` or `TooSlow`."""
        if (request.content_length or 0) > self.most:
            raise BodyTooLarge(f"the body has {request.content_length} bytes, at most {self.most} are possible")
        body = bytearray()
        try:
            try:
                await asyncio.wait_for(self._fill(request, body), LONGEST_S)
            except asyncio.TimeoutError:
                raise TooSlow(f"the body did not arrive within {LONGEST_S} s") from None
            yield body
        finally:
            self.used -= len(body)

    async def _fill(self, request: web.Request, body: bytearray) -> None:
        # A compressed body is longer than its Content-Length.
        async for chunk in request.content.iter_any():
            if len(body) + len(chunk) > self.most:
                raise BodyTooLarge(f"the body has more than {self.most} bytes")
            if self.used + len(chunk) > AT_ONCE * self.most:
                raise QueueFull(f"requests with {self.used} bytes are being served already")
            self.used += len(chunk)
            body += chunk
