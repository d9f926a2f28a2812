"""10,000 tasks of random classes, priorities, durations and failures on the simulated GPU, some cancelled. Prints what was seen.

Each task adds one to a number of its own on the GPU, so the numbers show which tasks ran, and how often.
"""

import json
import random
import sys
import threading
import time

import gpu

import sluice

TASKS, SEED = int(sys.argv[1]), 1
chance = random.Random(SEED)


class Planned(Exception):
    pass


def main():
    threads_before = threading.active_count()
    with sluice.GPUScheduler() as scheduler:
        numbers = scheduler.submit(scheduler.latency_critical()(gpu.Numbers), TASKS).result(timeout=60)
        started, kinds = [], {}

        def body(index, us, fails):
            started.append(index)
            numbers.add(index, us, sluice.current_stream())
            if fails:
                raise Planned(index)
            return index

        def task(critical, priority):
            if (critical, priority) not in kinds:
                decorate = scheduler.latency_critical if critical else scheduler.best_effort
                kinds[critical, priority] = decorate(priority=priority)(body)
            return kinds[critical, priority]

        plan = [(chance.random() < 0.3, chance.randrange(-2, 3), chance.randrange(30), chance.random() < 0.1) for _ in range(TASKS)]
        half = TASKS // 2
        # The first half waits behind one task, so that its whole order is known.
        release = threading.Event()
        scheduler.submit(scheduler.latency_critical(priority=100)(release.wait))

        def submit(index):
            critical, priority, us, fails = plan[index]
            return scheduler.submit(task(critical, priority), index, us, fails)

        futures = [submit(index) for index in range(half)]
        cancelled = {index for index in range(half) if chance.random() < 0.1 and futures[index].cancel()}
        release.set()
        expected = sorted((index for index in range(half) if index not in cancelled), key=lambda i: (not plan[i][0], -plan[i][1], i))
        for future in futures:
            future.cancelled() or future.exception(timeout=60)
        in_order = started == expected
        # The second half comes while tasks run, from two threads.
        more = [None] * (TASKS - half)

        def submitter(first):
            for index in range(first, TASKS - half, 2):
                more[index] = submit(half + index)
                if index % 10 < 2:
                    time.sleep(0.002)
                if index % 9 == 0:
                    more[index].cancel()

        submitters = [threading.Thread(target=submitter, args=(first,)) for first in range(2)]
        for thread in submitters:
            thread.start()
        for thread in submitters:
            thread.join()
        futures += more
        for future in futures:
            future.cancelled() or future.exception(timeout=60)
        counts = scheduler.submit(scheduler.latency_critical()(numbers.read)).result(timeout=60)
        metrics = scheduler.get_metrics()
        handles = [stream.handle for stream in scheduler._backend._streams.values()]
    cancelled = {index for index, future in enumerate(futures) if future.cancelled()}
    print(json.dumps({
        "in_order": in_order,
        "resolved": all(future.done() for future in futures),
        "cancelled": len(cancelled),
        "wrong_counts": [i for i, count in enumerate(counts) if count != (i not in cancelled)],
        "wrong_results": [i for i, future in enumerate(futures) if i not in cancelled and not as_planned(future, i, plan[i][3])],
        "started_twice": len(started) - len(set(started)),
        "ran": len(started),
        "metrics": metrics,
        "threads_left": threading.active_count() - threads_before,
        "streams_left": sum(gpu.driver.cuStreamQuery(gpu.ctypes.c_void_p(handle)) == 0 for handle in handles),
    }))


def as_planned(future, index, fails):
    error = future.exception()
    return isinstance(error, Planned) and error.args == (index,) if fails else error is None and future.result() == index


if __name__ == "__main__":
    main()
