"""Rounds of interleaved blocks, as many as fit into a part's time limit."""

import time

import rig

# Time for the result and the end of the programs, seconds.
RESERVE = 8


def left(options):
    """Seconds until the rounds have to be over."""
    return rig.STARTED + options.limit - time.monotonic() - RESERVE


def fitting(options, requests, around):
    """By which factor a round's requests have to be shortened so that all rounds fit; at most 1. In a round they last `requests`, and everything
    else lasts `around`, in seconds."""
    seconds = left(options)
    room = seconds / options.rounds - around
    rig.say(f"{seconds:.0f} s are left for {options.rounds} rounds of {requests + around:.0f} s")
    return min(1.0, room / requests)


def numbers(options):
    """The numbers of the rounds. There is no further one if it would not end in time."""
    lasted = 0.0
    for number in range(options.rounds):
        begun = time.monotonic()
        if number and rig.STARTED + options.limit - begun < 1.02 * lasted + 4:
            rig.say(f"no time for round {number}")
            return
        yield number
        lasted = time.monotonic() - begun
