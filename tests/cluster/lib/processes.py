"""Programs of the cluster: started with a log and a pid file, stopped, killed, restarted."""

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from lib.namespaces import until
from lib.settings import STATE, environment


@dataclass(frozen=True)
class Program:
    name: str
    argv: list[str]
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return STATE / "log" / f"{self.name}.log"

    @property
    def _number(self) -> Path:
        return STATE / "pid" / self.name

    def pid(self) -> int | None:
        """Its process, if it runs."""
        try:
            pid = int(self._number.read_text())
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, ValueError):
            return None
        return None if state == "Z" else pid

    def start(self) -> None:
        if self.pid() is not None:
            return
        for folder in (self.log.parent, self._number.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                [str(word) for word in self.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment() | self.variables,
                start_new_session=True,
            )
        self._number.write_text(str(process.pid))
        _CHILDREN.append(process)

    def stop(self, how: signal.Signals = signal.SIGTERM, seconds: float = 30) -> None:
        """Ends it and waits until it is gone."""
        if (pid := self.pid()) is None:
            return
        os.kill(pid, how)
        until(f"end of {self.name}", seconds, lambda: _reaped(pid) or self.pid() is None)

    def check(self) -> None:
        if self.pid() is None:
            raise RuntimeError(f"{self.name} has ended:\n{self.tail()}")

    def tail(self, lines: int = 25) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


def running(*words: str) -> list[int]:
    """Processes whose command line has all these words, those in pods included."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            argv = path.read_bytes().decode(errors="replace").split("\0")
            if all(word in argv for word in words):
                found.append(int(path.parent.name))
    return found


# Programs that this very process has started are its children and have to be waited for.
_CHILDREN: list[subprocess.Popen] = []


def _reaped(pid: int) -> bool:
    return any(child.pid == pid and child.poll() is not None for child in _CHILDREN)
