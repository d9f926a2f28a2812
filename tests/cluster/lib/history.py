"""Everything that happened to the pods of a namespace, in the order of the API server."""

import contextlib
import http.client
import json
import ssl
import threading

from lib import api
from lib.certificates import PKI
from lib.namespaces import until
from lib.settings import API


class History:
    """The events of a watch: ("ADDED" | "MODIFIED" | "DELETED", pod)."""

    def __init__(self, namespace: str) -> None:
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.events: list[tuple[str, dict]] = []
        trusted = ssl.create_default_context(cafile=str(PKI / "ca.crt"))
        self._connection = http.client.HTTPSConnection(API.removeprefix("https://"), timeout=3600, context=trusted)
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "History":
        since = api.request("GET", self.path)["metadata"]["resourceVersion"]
        url = f"{self.path}?watch=true&timeoutSeconds=3600&resourceVersion={since}"
        self._connection.request("GET", url, headers={"Authorization": "Bearer token-admin"})
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(OSError):
            self._connection.sock.shutdown(2)
        self._thread.join()

    def until_now(self) -> list[tuple[str, dict]]:
        """The events up to this moment."""
        listed = {one["metadata"]["uid"]: _version(one) for one in api.request("GET", self.path)["items"]}

        def is_complete() -> bool:
            known = {one["metadata"]["uid"]: _version(one) for kind, one in list(self.events) if kind != "DELETED"}
            for kind, one in list(self.events):
                if kind == "DELETED":
                    known.pop(one["metadata"]["uid"], None)
            return known.keys() <= listed.keys() and all(known.get(uid, 0) >= version for uid, version in listed.items())

        until("the watch has shown all pods", 30, is_complete)
        return list(self.events)

    def _follow(self) -> None:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            while line := self._answer.readline():
                event = json.loads(line)
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    self.events.append((event["type"], event["object"]))


def _version(pod: dict) -> int:
    return int(pod["metadata"]["resourceVersion"])
