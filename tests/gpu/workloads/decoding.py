"""What torch_decode.py and its stand-in share: the program's arguments, a decode service's requests, and the commands that it reads from
standard input.

Each line is answered with one JSON line:
  serve <start> <seconds> <rate> <seed> <api> [<probe>]
      the requests of the arrival trace <seed> (Poisson, <rate> a second) from the Unix time <start> on; with <api> 1 each request
      is announced by sluice_request_begin and ended by sluice_request_end; with <probe> 1 the SM clock is measured after each request's
      first token and after its last one, which is not part of a token's time
  tokens <start> <seconds>
      tokens back to back, without prefills: their median and mean time
  gpu <times>
      the GPU's own time of a prefill, of a token and of a request
  quit
A request is a prefill, which gives the first token, and then `service.tokens` tokens. The host waits for each token. A first token's
latency counts from the time when the request was due, so that a request which waits for the one before counts as late.
"""

import argparse
import ctypes
import gc
import json
import random
import statistics
import sys
import time
import zlib

import holds
import split

MICROSECOND = 1e-6


def arrivals(seconds, rate, seed):
    """When the requests of a trace are due. A shorter trace with the same seed is the beginning of a longer one."""
    chance, at, times = random.Random(seed), 0.0, []
    while (at := at + chance.expovariate(rate)) < seconds:
        times.append(at)
    return times


def wait_until(when):
    while (left := when - time.perf_counter()) > 0:
        if left > 0.002:
            time.sleep(left - 0.0015)


def request_functions():
    """The hook's functions that begin and end a request, if this process runs under a hook that has them."""
    library = ctypes.CDLL(None)
    found = [getattr(library, name, None) for name in ("sluice_request_begin", "sluice_request_end")]
    return found if all(found) else None


def is_hooked():
    return hasattr(ctypes.CDLL(None), "sluice_hint")


def serve(service, start, seconds, rate, seed, api, probe=False):
    begin = time.perf_counter() + (start - time.time())
    held, codes, requests, tokens_us, checksum, last, clocks = holds.counts(), {}, [], [], 0, begin, []
    for number, at in enumerate(arrivals(seconds, rate, seed)):
        due = begin + at
        wait_until(due)
        if api:
            code = api[0]()
            codes[code] = codes.get(code, 0) + 1
        answer = [service.prefill(number)]
        first = last = time.perf_counter()
        took = []
        if probe:
            clocks.append([service.clock_mhz()])
            last = time.perf_counter()
        for _ in range(service.tokens):
            service.enqueue_token()
            answer.append(service.wait())
            now = time.perf_counter()
            took.append(round((now - last) / MICROSECOND, 1))
            last = now
        if probe:
            clocks[-1].append(service.clock_mhz())
        if api:
            api[1]()
        tokens_us += took
        checksum = zlib.crc32(repr(answer).encode(), checksum)
        requests.append([round(1000 * at, 2), round((first - due) / MICROSECOND), round((last - due) / MICROSECOND), max(took)])
    return {
        "tokens_us": tokens_us, "requests": requests, "requests_are": "due ms, first token us after that, last token us after that, longest token us",
        "checksum": checksum, "seconds": seconds, "behind_s": max(0.0, last - begin - seconds), "request_api": codes, "holds": holds.since(held), "clocks_mhz": clocks,
    }


def back_to_back(service, start, seconds):
    """Also where the time goes: until all calls of a token have returned, and in the wait; and how often the process was switched."""
    begin = now = time.perf_counter() + (start - time.time())
    wait_until(begin)
    tokens_us, launch_us, before = [], [], split.switches()
    while now < begin + seconds:
        if len(tokens_us) % service.tokens == 0:
            service.rewind()
        last = time.perf_counter()
        service.enqueue_token()
        launched = time.perf_counter()
        service.wait()
        now = time.perf_counter()
        tokens_us.append((now - last) / MICROSECOND)
        launch_us.append((launched - last) / MICROSECOND)
    spent = [(now - then) / len(tokens_us) for now, then in zip(split.switches(), before)]
    # Clocks and caches settle in the first ones.
    tokens_us, launch_us = tokens_us[len(tokens_us) // 10:], launch_us[len(tokens_us) // 10:]
    return {
        "tokens": len(tokens_us), "median_us": statistics.median(tokens_us), "mean_us": statistics.fmean(tokens_us),
        "launch_us": statistics.median(launch_us), "wait_us": statistics.median(token - launch for token, launch in zip(tokens_us, launch_us)),
        "per_token": dict(zip(("gave_up", "taken_off", "faults"), (round(n, 3) for n in spent))),
    }


def gpu_time(service, times):
    prefill, token = (statistics.median(measure() for _ in range(times)) for measure in (service.prefill_gpu_us, service.token_gpu_us))
    return {"prefill_us": prefill, "token_us": token, "request_us": prefill + service.tokens * token}


def main(description, make, load=lambda: None):
    """The program: `load()` is what may run beside others, and `make(mode, tokens)` returns the service and what to tell about it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["graph", "eager"])
    parser.add_argument("--tokens", type=int, default=47, help="of a request after the first one")
    parser.add_argument("--staged", action="store_true", help="say when the libraries are loaded, and wait for a line before anything else")
    options = parser.parse_args()
    if options.staged:
        load()
        print(json.dumps({"loaded": True}), flush=True)
        sys.stdin.readline()
    service, about = make(options.mode, options.tokens)
    run(service, {"mode": options.mode, **about})


def run(service, about):
    """Says that the service is ready, with what `about` tells, and carries out the commands."""
    api = request_functions()
    # A full garbage collection takes as long as some tokens; from here on it skips what was loaded.
    gc.freeze()
    print(json.dumps({"ready": True, "hooked": is_hooked(), "request_api": api is not None, **about}), flush=True)
    for line in sys.stdin:
        name, *words = line.split() or ["quit"]
        if name == "quit":
            return
        numbers = [float(word) for word in words]
        if name == "serve":
            start, seconds, rate, seed, by_api, *probe = numbers
            told = serve(service, start, seconds, rate, int(seed), api if by_api else None, bool(probe and probe[0]))
        elif name == "tokens":
            told = back_to_back(service, *numbers)
        else:
            told = gpu_time(service, int(numbers[0]))
        print(json.dumps(told), flush=True)
