"""A language model's decode on several GPUs, tensor-parallel: each of the 16 layers of decoder.py is split between the ranks, with two
all-reduces a layer over NCCL. A token is a CUDA graph's replay that contains them, a copy of 8 bytes to the host and a wait.

A request of --tokens tokens begins each --every milliseconds, or when the one before is over. There is no prefill. Commands and board are
those of ddp_train.py; the answer to `run` is
  {"steps", "ends", "ms", "ms_ends", "first_ms"}: when each token came; the times of the tokens that are not the first of a request, and when
  each of these came; the times of the first ones
"""

import sys
import time

import ddp_train
from ddp_train import Board

PROMPT, ROOM = 256, 512
# On the simulator: the kernel of a token.
TOKEN_US = 100


def split_model(torch, device, rank, world, sizes):
    """This rank's part of the network. Embedding and head are whole on each rank."""
    import decoder
    from torch import nn

    class Layer(decoder.Layer):
        def __init__(self, width, heads):
            nn.Module.__init__(self)
            part = width // world
            self.heads = heads // world
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.split, self.mix = nn.Linear(width, 3 * part, bias=False), nn.Linear(part, width, bias=False)
            self.up, self.down = nn.Linear(width, 4 * part, bias=False), nn.Linear(4 * part, width, bias=False)

        def forward(self, x, attend):
            batch, length, _ = x.shape
            query, key, value = self.split(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            x = x + self.reduced(self.mix(attend(query, key, value).transpose(1, 2).reshape(batch, length, -1)))
            return x + self.reduced(self.down(nn.functional.gelu(self.up(self.between(x)))))

        def reduced(self, part):
            if world > 1:
                torch.distributed.all_reduce(part)
            return part

    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = decoder.Decoder(**{**sizes, "layers": 0})
        torch.manual_seed(1 + rank)
        model.layers = nn.ModuleList(Layer(sizes["width"], sizes["heads"]) for _ in range(sizes["layers"]))
    torch.set_default_dtype(torch.float32)
    return model


def make_session(torch, model, head_width, device):
    """decoder.py's session for a model whose layers have a part of the heads."""
    import decoder

    class Session(decoder.Session):
        def __init__(self):
            heads = model.layers[0].heads
            self.model, self.room, self.scale = model, ROOM, head_width**-0.5
            self.keys, self.values = (torch.zeros(len(model.layers), heads, ROOM, head_width, dtype=torch.bfloat16, device=device) for _ in range(2))
            self.slots, self.position = torch.arange(ROOM, device=device), torch.zeros(1, dtype=torch.long, device=device)
            self.hidden = torch.full((1,), float("-inf"), dtype=torch.bfloat16, device=device)
            self.seen = torch.zeros(1, dtype=torch.bfloat16, device=device)
            self.token = torch.zeros(1, dtype=torch.long, device=device)

    return Session()


class Decode:
    """PyTorch's decode."""

    def __init__(self, group, options):
        import torch

        self.torch, self.group, self.tokens, self.every = torch, group, options.tokens, options.every / 1000
        if group.kind == "cuda":
            torch.cuda.init()

    def build(self):
        torch, group = self.torch, self.group
        with torch.inference_mode():
            device = group.join(torch)
            tiny = {"layers": 2, "width": 64, "heads": 4, "vocabulary": 128}
            sizes = {"layers": 16, "width": 2048, "heads": 16, "vocabulary": 50_304} if group.kind == "cuda" else tiny
            model = split_model(torch, device, group.rank, group.world, sizes)
            self.session = make_session(torch, model, sizes["width"] // sizes["heads"], device)
            self.answer, self.enqueue = torch.zeros(1, dtype=torch.long), self.session.step
            if group.kind == "cuda":
                self.capture()
            self.request_warm()
        name = torch.cuda.get_device_name() if group.kind == "cuda" else "cpu"
        return {"model": "decode", "torch": torch.__version__, "device": name}

    def capture(self):
        torch = self.torch
        self.answer = self.answer.pin_memory()
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        self.session.position.fill_(PROMPT)
        for _ in range(3):
            self.session.step()
        self.stream.synchronize()
        # NCCL's watchdog thread queries the events of these steps until it has seen them finished.
        time.sleep(0.5)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
            self.session.step()
        self.enqueue = self.graph.replay

    def request_warm(self):
        self.begin()
        for _ in range(self.tokens):
            self.token()

    def begin(self):
        """Sets the position back to the prompt's end."""
        self.session.position.fill_(PROMPT)

    def token(self):
        self.enqueue()
        self.answer.copy_(self.session.token, non_blocking=True)
        if self.group.kind == "cuda":
            self.stream.synchronize()


class Simulated:
    """A kernel a token on the driver API; a token is over when all ranks have theirs."""

    def __init__(self, group, options):
        self.group, self.tokens, self.every = group, options.tokens, options.every / 1000

    def build(self):
        import driver_serve

        driver = ddp_train.driver_on(self.group.gpu)
        _, _, self.request = driver_serve.build(driver, 4096, TOKEN_US)
        return {"model": "stand-in", "device": driver.name}

    def begin(self):
        pass

    def token(self):
        self.request()
        ddp_train.meet(self.group)


def run(program, begin, end):
    """Requests until the first rank has passed `end`."""
    group, words = program.group, program.group.board.words
    ends, tokens_ms, tokens_ends, first_ms, number = [], [], [], [], 0
    ddp_train.wait_until(begin)
    while True:
        if group.first:
            ddp_train.wait_until(begin + number * program.every)
            if time.monotonic() >= end:
                words[Board.STOP] = number
                break
            words[Board.GO] = number + 1
        else:
            while words[Board.GO] <= number < words[Board.STOP]:
                time.sleep(0.00002)
            # The first rank stops only before a request that it has not let begin.
            if words[Board.GO] <= number:
                break
        last = time.monotonic()
        program.begin()
        for index in range(program.tokens):
            program.token()
            now = time.monotonic()
            (tokens_ms if index else first_ms).append(round(1000 * (now - last), 4))
            last = now
            ends.append(round(now - begin, 5))
            if index:
                tokens_ends.append(ends[-1])
            words[Board.DONE + group.rank] = len(ends)
        number += 1
    told = {"steps": len(ends)}
    return {**told, "ends": ends, "ms": tokens_ms, "ms_ends": tokens_ends, "first_ms": first_ms} if group.first else told


def main():
    parser = ddp_train.arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--every", type=float, default=80.0, help="milliseconds from the begin of a request to the next one's")
    options = parser.parse_args()
    program = (Simulated if options.device == "sim" else Decode)(ddp_train.Group(options), options)
    if options.device == "sim":
        ddp_train.serve(program, run)
    with program.torch.inference_mode():
        ddp_train.serve(program, run)


if __name__ == "__main__":
    sys.exit(main())
