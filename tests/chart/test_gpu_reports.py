"""tests/gpu: what decode.py reports of the SM clock, the arrivals of replay.py, and how it counts what attained its SLO."""

import random
import statistics
import sys
import unittest
from pathlib import Path

GPU_TESTS = Path(__file__).resolve().parents[1] / "gpu"
sys.path[:0] = [str(GPU_TESTS), str(GPU_TESTS / "workloads")]

import decode_power  # noqa: E402
import generating  # noqa: E402
import replay  # noqa: E402

CLOCK, TOKEN_US, TOKENS = 1980.0, 1200.0, 20


def block(chance, clocks, sensitivity, factor=1.0, programs=("decode", "be")):
    """A block whose tokens depend on the clock with this sensitivity, and are `factor` times as long for another reason."""
    told = {"clocks_mhz": [[clock, clock] for clock in clocks], "tokens_us": []}
    for clock in clocks:
        told["tokens_us"] += [TOKEN_US * factor * (1 + sensitivity * (CLOCK / clock - 1)) * chance.gauss(1, 0.002) for _ in range(TOKENS)]
    return {program: told if program.startswith("decode") else {} for program in programs}


class Clock(unittest.TestCase):
    def result(self, sensitivity, factor=1.0, disturb=()):
        chance = random.Random(1)
        blocks = {"alone": [block(chance, [CLOCK] * 10, sensitivity, programs=("decode0",)) for _ in range(4)]}
        for arm, around in (("auto", 1750), ("limit-0.7", 1880)):
            blocks[arm] = [block(chance, [chance.gauss(around, 40) for _ in range(10)], sensitivity, factor) for _ in range(4)]
        for at, clock in enumerate(disturb):
            blocks["auto"][0]["decode"]["clocks_mhz"][at] = [clock, clock]
        rows = {arm: {"be": {"of_left": 0.9}} for arm in blocks}
        return decode_power.result(blocks, rows, {})["clock"]

    def test_sensitivity_is_found_and_takes_the_clock_off(self):
        told = self.result(0.4)
        self.assertAlmostEqual(told["sensitivity"], 0.4, delta=0.03)
        self.assertGreater(told["arms"]["auto"]["raw"]["p99_of_alone"], 1.04)
        self.assertAlmostEqual(told["arms"]["auto"]["fitted"]["p99_of_alone"], 1.0, delta=0.005)

    def test_a_difference_that_is_not_the_clocks_stays(self):
        told = self.result(0.4, factor=1.1)
        self.assertAlmostEqual(told["arms"]["auto"]["fitted"]["p50_of_alone"], 1.1, delta=0.01)
        self.assertAlmostEqual(told["arms"]["limit-0.7"]["fitted"]["p50_of_alone"], 1.1, delta=0.01)

    def test_full_correction_takes_off_too_much_where_memory_counts(self):
        self.assertLess(self.result(0.4)["arms"]["auto"]["full"]["p50_of_alone"], 0.95)

    def test_readings_interrupted_by_a_switch_do_not_count(self):
        told = self.result(0.4, disturb=(90.0, 200.0))
        self.assertAlmostEqual(told["arms"]["auto"]["not_credible"], 2 / 40)
        self.assertAlmostEqual(told["sensitivity"], 0.4, delta=0.03)


class Arrivals(unittest.TestCase):
    def test_traces_are_the_same_for_a_seed_and_have_the_asked_requests_within_the_time(self):
        trace = generating.trace(40, 4.0, 7)
        self.assertEqual(trace, generating.trace(40, 4.0, 7))
        self.assertNotEqual(trace, generating.trace(40, 4.0, 8))
        times = [at for at, _, _ in trace]
        self.assertEqual((len(times), times), (40, sorted(times)))
        self.assertLess(times[-1], 4.0)

    def test_gaps_vary_twice_as_much_as_their_mean(self):
        times = [at for at, _, _ in generating.trace(20_000, 2000.0, 1)]
        gaps = [later - earlier for earlier, later in zip(times, times[1:])]
        self.assertAlmostEqual(statistics.stdev(gaps) / statistics.fmean(gaps), 2.0, delta=0.1)


class Attainment(unittest.TestCase):
    GOALS = {"first_us": 1000, "token_us": 100}

    def test_a_request_has_to_meet_both_goals(self):
        def row(first, token):
            return [0.0, 64, 11, 0, first, first + 10 * token, token]

        rows = [row(900, 90), row(1100, 90), row(900, 110), row(1000, 100)]
        self.assertEqual(replay.attained(rows, self.GOALS), 0.5)
        self.assertEqual(replay.attained(rows, self.GOALS, scale=1.2), 1.0)

    def test_arms_with_other_tokens_are_named(self):
        def served(digest):
            return {"digest": digest}, None

        blocks = {"alone": [served("a"), served("b")], "sluice": [served("a"), served("c")], "training": [(None, {})] * 2}
        self.assertEqual(replay.different(blocks), [[1, {"alone": "b", "sluice": "c"}]])


if __name__ == "__main__":
    unittest.main()
