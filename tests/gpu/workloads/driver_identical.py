"""torch_identical.py's stand-in on the driver API alone, to rehearse identical.py on the simulator: a step is a number of raw_kernels.py's
calls, and what it leaves in memory takes the place of weights and loss. Prints the same JSON lines.
"""

import argparse
import hashlib
import json
import time

import preempter
import raw_kernels

# Calls of a step; steps before the speed is known.
CALLS, TRIAL = 20, 30


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--checkpoint", type=float, default=0.1)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--preempter")
    parser.add_argument("--level", choices=preempter.LEVELS, default="host")
    parser.add_argument("--hz", type=int, default=1000)
    options = parser.parse_args()
    driver = raw_kernels.Driver()
    run = raw_kernels.Run(driver, 1 if driver.simulated else 264)
    done = 0

    def step():
        nonlocal done
        run.play(CALLS, done)
        done += 1

    def state():
        digest = hashlib.sha256(json.dumps(run.digest()).encode()).hexdigest()
        return {"step": done, "loss": 0.0, "loss_hex": digest[:16], "digest": digest}

    begin = time.monotonic()
    for _ in range(TRIAL):
        step()
    each = (time.monotonic() - begin) / TRIAL
    steps = options.steps or TRIAL + max(20, int(options.seconds / each) // 10 * 10)
    middle = max(TRIAL + 10, int(steps * options.checkpoint) // 10 * 10)
    print(json.dumps({"ready": True, "steps": steps, "step_s": each, "device": driver.name}), flush=True)
    handles = [stream.value for stream in run.streams]
    active = options.preempter and preempter.Preempter(options.preempter, handles, options.level, options.hz, 7)
    begin = time.monotonic()
    while done < steps:
        step()
        if done == middle:
            print(json.dumps({"checkpoint": True, **state()}), flush=True)
    seconds = time.monotonic() - begin
    preempted = active.stop() if active else None
    print(json.dumps({"final": True, "seconds": seconds, "preempted": preempted, **state()}), flush=True)


if __name__ == "__main__":
    main()
