"""Node agents as processes, for nodes of kwok: each with simulated GPUs of its own. There is no kubelet: its part, the device slots of
the node's status, is played by lib/fleet.py."""

import json
import urllib.request
from dataclasses import dataclass

from lib import api, claims, fleet
from lib.namespaces import until
from lib.processes import Program
from lib.settings import KUBECONFIG, SIMULATION, STATE

MODEL = "Simulated H200 of an agent"


@dataclass(frozen=True)
class Agent:
    node: str
    gpus: int
    # Distinguishes the ports and the folders of the agents.
    number: int
    # Gives the GPUs by claims. Nothing asks for them to be prepared, because there is no kubelet.
    dra: bool = False

    @property
    def _folder(self):
        # Short, because a path of a socket has at most 108 bytes.
        return SIMULATION / f"a{self.number}"

    @property
    def _simulators(self) -> list[Program]:
        named = [(uuid, self._folder / f"{index}.sock", index) for index, uuid in enumerate(fleet.uuids(self.node, self.gpus))]
        common = [SIMULATION / "sluice", "sim", "--memory", str(fleet.MEMORY_BYTES), "--model", MODEL]
        own = lambda uuid, socket, index: ["--uuid", uuid, "--socket", socket, "--pci", f"0000:{index + 1:02x}:00.0"]
        return [Program(f"sim-{uuid}", [*common, *own(uuid, socket, index)]) for uuid, socket, index in named]

    @property
    def program(self) -> Program:
        flags = {
            "node": self.node,
            "http": f"127.0.0.1:{9500 + self.number}",
            "health": f"127.0.0.1:{9600 + self.number}",
            "state-page": f"127.0.0.1:{9700 + self.number}",
            "library": STATE / "programs/libsluice.so",
            "state-folder": self._folder / "state",
            "socket-folder": self._folder / "run",
            "plugin-folder": self._folder / "plugins",
            "nvml": SIMULATION / "lib/libnvidia-ml.so.1",
            "controls": "off",
            "self-test": "off",
        }
        own = [f"--kubelet-folder={self._folder / 'kubelet'}", f"--cdi-folder={self._folder / 'cdi'}", "--dra", "--seats-per-gpu=100"]
        sockets = ",".join(str(simulator.argv[simulator.argv.index("--socket") + 1]) for simulator in self._simulators)
        words = [SIMULATION / "sluice", "node-agent", *(f"--{flag}={value}" for flag, value in flags.items()), *(own if self.dra else [])]
        return Program(f"agent-{self.node}", words, {"KUBECONFIG": str(KUBECONFIG), "SLUICE_SIM_SOCKET": sockets})

    def start(self) -> None:
        """Returns when the node has the agent's inventory, or its devices."""
        if self.dra:
            api.request("PATCH", f"/api/v1/nodes/{self.node}", {"metadata": {"labels": {claims.LABEL: "true"}}}, "application/merge-patch+json")
        for folder in ("state", "run", "plugins", "kubelet/plugins_registry", "cdi"):
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
        for simulator in self._simulators:
            simulator.start()
        self.program.start()
        until(f"inventory of {self.node}", 60, lambda: self.program.check() or self._is_published())

    def stop(self) -> None:
        for program in (self.program, *self._simulators):
            program.stop()

    def clients(self) -> set[str]:
        """Names of the pods that it serves."""
        with urllib.request.urlopen(f"http://127.0.0.1:{9700 + self.number}/state", timeout=10) as answer:
            gpus = json.loads(answer.read())["gpus"]
        return {client["pod"] for gpu in gpus for client in gpu["in_force"] if not client["left_out"]}

    def _is_published(self) -> bool:
        if self.dra:
            return any(len(one["spec"].get("devices", [])) == self.gpus for one in claims.slices() if one["spec"]["nodeName"] == self.node)
        annotations = api.request("GET", f"/api/v1/nodes/{self.node}")["metadata"]["annotations"]
        gpus = json.loads(annotations["sluice.dev/gpus"])["gpus"]
        return {gpu["model"] for gpu in gpus} == {MODEL}
