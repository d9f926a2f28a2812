"""A wait that lasts as long as the work, also if the request is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def until_done(work: asyncio.Future[Any], cancel: Callable[[], object] = lambda: None) -> Any:
    """The result of the work. If the caller is cancelled, `cancel` is called, and `CancelledError` is raised when the work has ended: until then
    the work uses memory that the caller counts. A second cancellation, as at the end of the server, is not delayed."""
    try:
        await asyncio.wait([work])
    except asyncio.CancelledError:
        cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            # A failure that is never read would be logged.
            work.exception()
        raise
    return work.result()
