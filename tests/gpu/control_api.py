"""A client of the pod-manager's control API (proto/sluice/control_v1.proto) with the standard library only.

gRPC over a unix socket without TLS: one HTTP/2 connection with one stream a call. Messages are made of, and read as, protobuf fields.
"""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, AWAY = 0, 1, 3, 4, 6, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4


class Refused(Exception):
    """The manager refuses a call, or does not answer."""


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out + bytes([number]))


def message(*fields):
    """A message of (number, value): whole numbers, text, or messages as bytes. A value of None is left out."""
    out = b""
    for number, value in fields:
        if value is None:
            continue
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(content)) + content
    return out


def fields(content):
    """A message as {number: values}: whole numbers, and bytes for everything else."""
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(content):
        key = number()
        kind = key & 7
        if kind == 0:
            value = number()
        else:
            size = {1: 8, 5: 4}.get(kind) or number()
            value, at = content[at:at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def counts(entries):
    """A map<string, integer> from its entries."""
    read = [fields(entry) for entry in entries]
    return {entry[1][0].decode(): entry.get(2, [0])[0] for entry in read}


def frame(kind, flags, stream, content=b""):
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def header(name, value):
    """A header that is not entered into the table of either side (RFC 7541, 6.2.2). Both texts are shorter than 127 bytes."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call(path, method, request, timeout=10.0):
    """The answer of the manager whose control socket is `path`.

    Raises Refused. Its reason is in the manager's log: a status in compressed headers is not read here."""
    headers = {
        ":method": "POST", ":scheme": "http", ":path": f"/sluice.control.v1.PodManager/{method}", ":authority": "localhost",
        "content-type": "application/grpc", "te": "trailers",
    }
    body = b"\0" + struct.pack(">I", len(request)) + request
    block = b"".join(header(name, value) for name, value in headers.items())
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, body))
            answer = receive(connection)
    except OSError as why:
        raise Refused(f"{method}: {why}") from why
    # A refusal has headers only.
    if len(answer) < 5:
        raise Refused(f"{method} is refused: see the manager's log")
    return answer[5:5 + struct.unpack(">I", answer[1:5])[0]]


def receive(connection):
    """The data of stream 1 until the stream ends."""
    stream, answer = connection.makefile("rb"), b""
    while True:
        head = stream.read(9)
        if len(head) < 9:
            return answer
        content = stream.read(int.from_bytes(head[:3], "big"))
        kind, flags, number = head[3], head[4], int.from_bytes(head[5:9], "big")
        if kind == SETTINGS and not flags & ACK:
            connection.sendall(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            connection.sendall(frame(PING, ACK, 0, content))
        elif kind == DATA and number == 1:
            answer += content
        if kind in (RESET, AWAY) or (kind in (DATA, HEADERS) and number == 1 and flags & END_STREAM):
            return answer
