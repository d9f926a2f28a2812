"""What torch_generate.py and its stand-in share: the arrivals, the measured service, and the commands that it reads from standard input.

Each line is answered with one JSON line:
  serve <start> <requests> <seconds> <seed>
      the requests of the trace <seed> from the Unix time <start> on
  quit
One thread serves the requests one after another. Times count from the time when a request was due, so that a request which waits for the
one before counts as late.

The trace has the shape of public ones; no data set is needed:
  gaps     gamma with shape 0.25, so their standard deviation is twice their mean. BurstGPT's own generator has shape 0.5 (1.4 times). The Azure
           LLM inference trace 2023 (code) has 3 to 4 times within its first minute, and pauses of half a minute between its bursts.
           They are scaled so that each trace has the same number of requests in the same time.
  lengths  the deciles of that trace's first 440 requests, read by eye and rounded; prompts of more than 4096 tokens are cut.
"""

import gc
import hashlib
import itertools
import json
import random
import sys
import time

import holds

SHAPE = 0.25
PROMPTS = (64, 128, 256, 576, 1088, 1600, 2176, 2944, 4096, 4096)
ANSWERS = (6, 7, 8, 9, 11, 13, 15, 18, 28, 90)
MICROSECOND = 1e-6


def trace(requests, seconds, seed):
    """When each request is due, the number of its prompt, and how many tokens it asks for."""
    chance = random.Random(seed)
    gaps = [chance.gammavariate(SHAPE, 1.0) for _ in range(requests + 1)]
    times = itertools.accumulate(gap * seconds / sum(gaps) for gap in gaps[:-1])
    return [(at, chance.randrange(len(PROMPTS)), chance.choice(ANSWERS)) for at in times]


def wait_until(when):
    while (left := when - time.perf_counter()) > 0:
        if left > 0.002:
            time.sleep(left - 0.0015)


def serve(generate, start, requests, seconds, seed):
    """`generate(prompt, tokens, put)` calls `put(token)` as soon as the host has a token."""
    begin = time.perf_counter() + (start - time.time())
    held, rows, tokens_us, digest, last = holds.counts(), [], [], hashlib.sha256(), begin
    for at, prompt, length in trace(requests, seconds, seed):
        due, answer, when = begin + at, [], []

        def put(token):
            when.append(time.perf_counter())
            answer.append(token)

        wait_until(due)
        began = time.perf_counter()
        generate(prompt, length, put)
        last = when[-1]
        gaps = [round((later - earlier) / MICROSECOND, 1) for earlier, later in zip(when, when[1:])]
        tokens_us += gaps
        digest.update(repr((prompt, length, answer)).encode())
        rows.append([round(1000 * at, 2), PROMPTS[prompt], length, *(round((moment - due) / MICROSECOND) for moment in (began, when[0], last)), max(gaps)])
        if len(answer) != length:
            raise SystemExit(f"a request for {length} tokens got {len(answer)}")
    return {
        "requests": rows, "requests_are": "due ms, tokens of the prompt, tokens of the answer, us after that until it began, its first token, its last token; longest time of a token, us",
        "tokens_us": tokens_us, "digest": digest.hexdigest(), "behind_s": max(0.0, last - begin - seconds), "holds": holds.since(held),
    }


def run(generate, about):
    """Says that the service is ready, with what `about` tells, and carries out the commands."""
    for prompt in range(len(PROMPTS)):
        # Kernels of each shape are loaded and chosen once.
        for _ in range(2):
            generate(prompt, 4, lambda token: None)
    # A full garbage collection takes as long as some tokens; from here on it skips what was loaded.
    gc.freeze()
    print(json.dumps({"ready": True, "mean_tokens": sum(ANSWERS) / len(ANSWERS), **about}), flush=True)
    for line in sys.stdin:
        name, *words = line.split() or ["quit"]
        if name == "quit":
            return
        start, requests, seconds, seed = words
        print(json.dumps(serve(generate, float(start), int(requests), float(seconds), int(seed))), flush=True)
