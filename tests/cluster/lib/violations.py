"""The agents' events `LimitViolated` of a test: a pod that is reported for what it did not do fails it."""

from lib import api

EVENTS = "/api/v1/events?fieldSelector=reason%3DLimitViolated"
# "namespace/pod: message" of the present test; the events of all tests.
_found: set[str] = set()
_known: set[str] = set()


def begin() -> None:
    """What is left of an earlier test does not count."""
    gather()
    _found.clear()


def gather() -> None:
    """To be called before a namespace is deleted, as its events go with it."""
    for event in api.request("GET", EVENTS)["items"]:
        if event["metadata"]["uid"] not in _known:
            of = event["involvedObject"]
            _found.add(f"{of['namespace']}/{of['name']}: {event.get('message', '')}")
        _known.add(event["metadata"]["uid"])


def wrong(violators: set[str]) -> str:
    """The pods reported during the test without being its `VIOLATORS`; an empty text if there is none."""
    gather()
    lines = sorted(line for line in _found if line.split(": ")[0].split("/")[1] not in violators)
    return "".join(f"reported for a violation: {line}\n" for line in lines)
