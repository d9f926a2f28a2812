"""A service that answers by transformers' `generate`: greedy, one request at a time, a Llama of 0.4 G parameters with random weights (llama.py).

`generate` hands each token to a streamer when the host has it. Commands and arrivals: generating.py.
"""

import argparse

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
    model = llama.make(llama.SERVICE_LAYERS).eval()
    chance = torch.Generator().manual_seed(1)
    prompts = [torch.randint(2, llama.VOCABULARY, (1, length), generator=chance).pin_memory() for length in generating.PROMPTS]

    def generate(prompt, tokens, put):
        ids = prompts[prompt].to("cuda", non_blocking=True)
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, use_cache=True, streamer=Streamer(put))

    generating.run(generate, {"torch": torch.__version__, "transformers": transformers.__version__, "device": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
