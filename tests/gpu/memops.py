#!/usr/bin/env python3
"""What the driver does with stream memory operations, of which gates are made: two programs without the hook.

    memops.py gates     what a gate does and costs (workloads/gates.c); writes $OUT/gates.json
    memops.py waits     which calls wait while a stream of their context stands at a gate (workloads/waits.c); writes $OUT/waits.json

`gates` is right if the driver takes the batch that the hook makes and no write without a fence, if the GPU never says that it has come to a
gate before the kernels in front of it are done, if no kernel runs behind the gate after the one it had come to when the word was stored, if
the stream then stands between two kernels at the gate it names, and if everything that was queued ran once. `waits` is right if what the
hook relies on does not wait (RELIED); the list of the calls that do ("waits") is the answer.
"""

import argparse
import pathlib
import subprocess
import tempfile

import rig

# Calls that must complete while streams are stopped.
RELIED = [
    "launch of a loaded kernel", "launch on a new stream", "stream create", "stream destroy", "event create, record, query, destroy",
    "alloc of 64 MiB", "alloc of 4 KiB", "copy from pinned memory", "copy to pinned memory",
]
# Samples a row, and the kernels' microseconds. The simulator reports completions late.
GATES = {"real": [25, 10, 100, 1000], "sim": [4, 1000, 5000]}


def records(name, options, *arguments):
    """Compiles and runs a program; returns its output, and the reason if it did not end in order."""
    gpu, said = rig.Gpu(options.gpu), []
    with tempfile.TemporaryDirectory(prefix="sluice-memops-") as folder:
        program = pathlib.Path(folder) / name
        command = ["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-pthread", "-o", program, rig.HERE / "workloads" / f"{name}.c", "-ldl"]
        subprocess.run([str(word) for word in command], check=True, timeout=60)
        child = rig.Child(name, [program, *arguments], gpu.plain())
        try:
            while not said or said[-1].get("record") != "end":
                said.append(child.answer(options.patience))
                rig.say(said[-1])
        except SystemExit:
            return said, f"{name} did not get to its end: {' '.join(child.errors().split())[-500:]}"
        child.stop()
    return said[:-1], None


def of_kind(said, kind):
    return [{key: value for key, value in each.items() if key != "record"} for each in said if each.get("record") == kind]


def wrong_answers(taken):
    """Answers of the driver on which the hook does not rely."""
    refused = [f"the driver refuses {what}: {taken[what]}" for what in ("batch", "wait", "write") if taken[what]]
    return refused + [f"the driver takes {what}" for what in ("batch_unfenced", "write_unfenced") if not taken[what]]


def wrong_stops(row, is_real):
    """Errors in the positions at which streams stopped."""
    found = {
        "no stream was stopped on its way": not row["samples"],
        "not all that was queued ran once": row["not_once"],
        "the GPU was ahead of its kernels at a gate": row["not_done_max"] > 0,
        "a stream stood elsewhere than at the gate it named": row["misplaced"],
        # On the simulator the host reads gate words late, and its stores take effect late.
        "kernels ran behind the next gate": is_real and row["beyond_max"] > 0,
    }
    where = f"kernels of {row['kernel_us']} us, {row['every']} to a gate, events {row['events']}"
    return [f"{what} ({where})" for what, is_so in found.items() if is_so]


def with_more(costs):
    """The costs, and what each gate adds to kernels without."""
    bare = {row["every"]: row for row in costs if row["gate"] == "none"}
    def more(row, key):
        return round((row[key] - bare[row["every"]][key]) * row["every"], 2)
    return [{**row, "more_us_a_gate": more(row, "us"), "more_host_us_a_gate": more(row, "host_us")} for row in costs]


def gates(options):
    said, broke = records("gates", options, *GATES[options.gpu])
    taken, rows = of_kind(said, "taken"), of_kind(said, "stops")
    wrong = [what for each in taken for what in wrong_answers(each)]
    wrong += [what for row in rows for what in wrong_stops(row, options.gpu == "real")]
    return {"taken": taken, "stops": rows, "costs": with_more(of_kind(said, "costs")), "left_out": of_kind(said, "left_out"), "wrong": wrong}, broke


def wrong_calls(calls):
    wrong = []
    for name in RELIED:
        call = calls.get(name, {"left_out": "not tried"})
        if "left_out" in call:
            wrong.append(f"{name}: {call['left_out']}")
        elif call["waits"] or call["answer"]:
            wrong.append(f"{name}: " + ("waits" if call["waits"] else f"answered {call['answer']}"))
    # Otherwise nothing was shown: the gate was never opened.
    return wrong + [f"{name}: the stream did not stand" for name, call in calls.items() if call.get("waits") is False and not call["stood"]]


def waits(options):
    said, broke = records("waits", options)
    calls = {each.pop("call"): each for each in said}
    wait = [name for name, call in calls.items() if call.get("waits")]
    rig.say("these wait:", "; ".join(wait))
    return {"waits": wait, "calls": calls, "wrong": wrong_calls(calls)}, broke


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["gates", "waits"])
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds for an answer")
    parser.add_argument("--limit", type=int, default=60)
    options = parser.parse_args()
    rig.limit(options.limit)
    result, broke = (gates if options.part == "gates" else waits)(options)
    result["wrong"] += [broke] if broke else []
    for what in result["wrong"]:
        rig.say("wrong:", what)
    rig.write(options.part, {"ok": not result["wrong"], "gpu": options.gpu, **result})
    return 0 if not result["wrong"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
