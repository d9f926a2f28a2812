"""A language model's decode service (decoder.py: 16 layers, width 2048, 1 G parameters, bf16), batch 1, with a cache of keys and values.

A request is a prefill of 256 tokens (eager), then 47 tokens. Each token is a CUDA graph's replay (`graph`) or some 300 launches (`eager`),
a copy of 8 bytes to the host and a wait for the stream. Commands: decoding.py.
"""

import torch

import decoder
import decoding

PROMPT, PROMPTS = 256, 64
# Cycles of a kernel that occupies the stream until the host has launched what is to be timed: about 20 ms.
DELAY_CYCLES = 40_000_000
# Cycles of the kernel whose time shows the SM clock, and of the one before, during which the host launches it: 100 and 40 us.
PROBE_CYCLES, PROBE_DELAY_CYCLES = 200_000, 80_000


class Service:
    def __init__(self, mode, tokens):
        self.tokens = tokens
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        self.session = decoder.Session(decoder.make("cuda"), PROMPT + tokens + 1)
        chance = torch.Generator().manual_seed(1)
        self.prompts = torch.randint(0, decoder.VOCABULARY, (PROMPTS, PROMPT), generator=chance).pin_memory()
        self.prompt = torch.empty(PROMPT, dtype=torch.long, device="cuda")
        self.answer = torch.zeros(1, dtype=torch.long).pin_memory()
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self.enqueue_step = self.session.step
        self.rewind()
        for number in range(3):
            self.prefill(number)
            self.enqueue_token()
            self.wait()
        if mode == "graph":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):
                self.session.step()
            self.enqueue_step = graph.replay
        for number in range(3):
            self.prefill(number)
            for _ in range(tokens):
                self.enqueue_token()
                self.wait()

    def enqueue_prefill(self, number=0):
        self.prompt.copy_(self.prompts[number % PROMPTS], non_blocking=True)
        self.session.prefill(self.prompt)
        self.answer.copy_(self.session.token, non_blocking=True)

    def enqueue_token(self):
        self.enqueue_step()
        self.answer.copy_(self.session.token, non_blocking=True)

    def wait(self):
        """The last token that was enqueued."""
        self.stream.synchronize()
        return self.answer.item()

    def prefill(self, number):
        self.enqueue_prefill(number)
        return self.wait()

    def rewind(self):
        """Sets the position back to the prompt's end."""
        self.session.position.fill_(PROMPT)
        self.stream.synchronize()

    def gpu_us(self, enqueue):
        """The GPU's own time of some work: all of it is launched before its begin, so that the host's pauses do not count."""
        self.rewind()
        torch.cuda._sleep(DELAY_CYCLES)
        self.events[0].record()
        enqueue()
        self.events[1].record()
        self.stream.synchronize()
        return 1000 * self.events[0].elapsed_time(self.events[1])

    def clock_mhz(self):
        """The SM clock now: the GPU's time of a kernel that waits for a number of the clock's cycles."""
        torch.cuda._sleep(PROBE_DELAY_CYCLES)
        self.events[0].record()
        torch.cuda._sleep(PROBE_CYCLES)
        self.events[1].record()
        self.stream.synchronize()
        return round(PROBE_CYCLES / (1000 * self.events[0].elapsed_time(self.events[1])), 1)

    def prefill_gpu_us(self):
        return self.gpu_us(self.enqueue_prefill)

    def token_gpu_us(self):
        return self.gpu_us(self.enqueue_token)


def make(mode, tokens):
    return Service(mode, tokens), {"torch": torch.__version__, "device": torch.cuda.get_device_name()}


if __name__ == "__main__":
    with torch.inference_mode():
        decoding.main(__doc__, make, load=torch.cuda.init)
