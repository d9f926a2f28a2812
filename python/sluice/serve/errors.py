"""Errors that a client sees, each with its gRPC status and HTTP status."""

from __future__ import annotations

# Characters of a message. Messages quote what a client sent, which may be as long as its request.
MOST_CHARACTERS = 500


class ServeError(Exception):
    """A request that gets no answer. The message is sent to the client."""

    grpc_status = "INTERNAL"
    http_status = 500

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= MOST_CHARACTERS else f"{message[:MOST_CHARACTERS - 3]}...")


class InvalidRequest(ServeError):
    """The request does not fit the model or the protocol."""

    grpc_status = "INVALID_ARGUMENT"
    http_status = 400


class NotFound(ServeError):
    """There is no model, or no version of it, with this name."""

    grpc_status = "NOT_FOUND"
    http_status = 404


class BodyTooLarge(ServeError):
    """The body of an HTTP request is larger than the configuration allows. gRPC refuses such a message itself, with the same status."""

    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = 413


class TooSlow(ServeError):
    """The body of an HTTP request took too long."""

    grpc_status = "DEADLINE_EXCEEDED"
    http_status = 408


class QueueFull(ServeError):
    """As many requests of the class wait, or as many bytes of bodies, as the configuration allows. The client may try again later."""

    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = 429


class Unavailable(ServeError):
    """The server starts, ends, or has lost its GPU."""

    grpc_status = "UNAVAILABLE"
    http_status = 503


class ModelFailed(ServeError):
    """The model failed on the GPU."""
