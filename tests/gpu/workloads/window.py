"""Runs a step function on command, so that windows of several processes can start together.

Reads commands from standard input, one per line, and answers each with one JSON line:
  run <start> <seconds>   wait for the Unix time <start>, run steps for <seconds>, tell how many completed
  quit
A step counts when the GPU has finished it, which is seen from events, at most `depth` steps behind the host.
"""

import collections
import json
import sys
import time


def say(**what):
    print(json.dumps(what), flush=True)


def stand_by(torch):
    """Everything that may run beside others: what takes the GPU comes after the answer to this."""
    torch.cuda.init()
    say(loaded=True)
    sys.stdin.readline()


def serve(torch, step, depth, about):
    """`step()` enqueues one step. Says {"ready": true} with what `about` tells, first."""
    free, total = torch.cuda.mem_get_info()
    say(ready=True, memory_total=total, memory_free=free, **about)
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "quit":
            return
        start, seconds = float(words[1]), float(words[2])
        while (left := start - time.time()) > 0:
            time.sleep(min(left, 0.01) if left > 0.002 else 0)
        say(**window(torch, step, depth, seconds))


def window(torch, step, depth, seconds):
    begin = time.monotonic()
    end = begin + seconds
    in_flight, done, last = collections.deque(), 0, begin
    longest = 0.0
    while True:
        step()
        event = torch.cuda.Event()
        event.record()
        in_flight.append(event)
        if len(in_flight) <= depth:
            continue
        in_flight.popleft().synchronize()
        now = time.monotonic()
        if now > end:
            break
        done, longest, last = done + 1, max(longest, now - last), now
    torch.cuda.synchronize()
    # The rate up to the last completed step is free of the rounding that a whole number of steps in a fixed time has.
    return {"steps": done, "seconds": last - begin, "rate": done / (last - begin) if done else 0.0, "longest_step_s": longest}
