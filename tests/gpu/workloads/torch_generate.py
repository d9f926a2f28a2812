"""A service that answers by transformers' `generate`: greedy, one request at a time, a Llama of 0.4 G parameters with random weights (llama.py).

`generate` hands each token to a streamer when the host has it. Commands and arrivals: generating.py.

Python's garbage collector does not look through what the libraries have made: that may take some 50 ms, and tokens of the first run took either 5 to 8
or 43 to 78 ms, in the arms alone as well. The same kernels are chosen each time, so that the tokens of two runs can be compared.
"""

import argparse
import gc
import os

import torch
import transformers
from transformers.generation.streamers import BaseStreamer

import generating
import llama
import window


class Streamer(BaseStreamer):
    """Passes each token on. The first thing that `generate` puts is the prompt."""

    def __init__(self, put):
        self.pass_on, self.prompt_is_over = put, False

    def put(self, value):
        if self.prompt_is_over:
            self.pass_on(value.item())
        self.prompt_is_over = True

    def end(self):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--staged", action="store_true", help="say when the libraries are loaded, and wait for a line before anything else")
    if parser.parse_args().staged:
        window.stand_by(torch)
    # Before cuBLAS makes its first workspace.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model = llama.make(llama.SERVICE_LAYERS).eval()
    chance = torch.Generator().manual_seed(1)
    prompts = [torch.randint(2, llama.VOCABULARY, (1, length), generator=chance).pin_memory() for length in generating.PROMPTS]

    def generate(prompt, tokens, put):
        ids = prompts[prompt].to("cuda", non_blocking=True)
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, use_cache=True, streamer=Streamer(put))

    gc.collect()
    gc.freeze()
    generating.run(generate, {"torch": torch.__version__, "transformers": transformers.__version__, "device": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
