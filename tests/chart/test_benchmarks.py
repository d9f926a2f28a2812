"""docs/benchmarks.md and its plot are what tools/benchmarks/write.py makes of the recorded results, and the page stays short."""

import json
import sys
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools/benchmarks"))

import intervals  # noqa: E402
import write  # noqa: E402

PAGE = REPOSITORY / "docs/benchmarks.md"
# A reader sees the whole page at one sitting. Explanations belong to docs/benchmarks/history or to the design notes.
MOST_LINES = 150


class Page(unittest.TestCase):
    def test_page_and_plot_are_what_the_recorded_results_give(self):
        for path, text in write.files().items():
            self.assertEqual(text, path.read_text(), f"{path.relative_to(REPOSITORY)} is stale: run tools/benchmarks/write.py")

    def test_page_has_at_most_150_lines(self):
        self.assertLessEqual(len(PAGE.read_text().splitlines()), MOST_LINES)

    def test_each_recorded_result_beside_the_page_is_named_in_a_document(self):
        texts = [
            page.read_text() for page in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("tests/*/README.md")]
        ]
        for result in [*write.FOLDER.glob("*.json"), *write.FOLDER.glob("*.svg")]:
            self.assertTrue(any(result.name in text for text in texts), f"no document names {result.name}")

    def test_each_recorded_result_is_json_as_other_programs_read_it(self):
        def refuse(constant):
            raise ValueError(f"{constant} is not JSON")

        for result in write.FOLDER.glob("*.json"):
            with self.subTest(result.name):
                json.loads(result.read_text(), parse_constant=refuse)


class Intervals(unittest.TestCase):
    def test_interval_contains_the_median_and_repeats(self):
        runs = [[(1.0 + 0.01 * block, 1.0) for block in range(5)], [(1.1 + 0.01 * block, 1.0) for block in range(5)]]
        first, second = (intervals.of_blocks(runs, intervals.ratio_of_medians) for _ in range(2))
        self.assertEqual(first, second)
        self.assertAlmostEqual(first.value, (1.02 + 1.12) / 2)
        self.assertTrue(first.interval[0] < first.value < first.interval[1])
        self.assertEqual((first.least, first.greatest, first.runs), (1.02, 1.12, 2))

    def test_blocks_without_scatter_have_an_interval_without_width(self):
        found = intervals.of_blocks([[(2.0, 1.0)] * 5], intervals.ratio_of_medians)
        self.assertEqual(found.interval, (2.0, 2.0))

    def test_runs_without_blocks_show_their_range_in_other_brackets(self):
        self.assertEqual(intervals.of_runs([1.0, 3.0, 2.0]).text(1), "2.0 (1.0 to 3.0)")
        self.assertEqual(intervals.of_runs([2.0]).text(1), "2.0")


if __name__ == "__main__":
    unittest.main()
