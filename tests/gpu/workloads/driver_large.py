"""torch_large.py's stand-in on the driver API alone, to rehearse residency.py on the simulator: a step is a number of raw_kernels.py's calls,
and what these leave, with a pattern in the rest of the memory, takes the place of weights. Answers the same lines.
"""

import argparse
import sys
import time

import movable
import raw_kernels

CALLS = 20


class Adapter:
    """raw_kernels.Driver with the method of driver_serve.Driver."""

    def __init__(self, driver):
        self.call = driver


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=0.1)
    options = parser.parse_args()
    driver = raw_kernels.Driver()
    calls = raw_kernels.Run(driver, 1 if driver.simulated else 264)
    memory = movable.Memory(Adapter(driver), int(options.gib * (1 << 30)), calls.streams[0])
    done = 0

    def step():
        nonlocal done
        calls.play(CALLS, done)
        done += 1

    step()
    movable.say(ready=True, device=driver.name)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "train":
            time.sleep(max(0.0, float(words[1]) - time.time()))
            longest, begun = 0.0, time.monotonic()
            last = begun
            for _ in range(int(words[2])):
                step()
                now = time.monotonic()
                longest, last = max(longest, now - last), now
            movable.say(steps=int(words[2]), seconds=last - begun, longest_step_s=longest, loss=0.0)
        elif words[0] == "digest":
            movable.say(digest=str(calls.digest()) if memory.is_right() else "the pattern is wrong")
        else:
            return


if __name__ == "__main__":
    main()
