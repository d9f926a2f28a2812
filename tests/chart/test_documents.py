"""Links of the documents lead somewhere, their sentences are short, and values in the pages of users and operators are the chart's."""

import re
import unittest
from pathlib import Path

import yaml

from rendering import CHART, render

REPOSITORY = CHART.parents[1]
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "examples/README.md",
    REPOSITORY / "docs/kubernetes.md",
    *sorted((REPOSITORY / "docs/operators").glob("*.md")),
]
LINKING = [page for folder in (".", "docs/**", "examples", "python", "tests/*", "tools/*") for page in sorted(REPOSITORY.glob(f"{folder}/*.md"))]
# The prose of docs/benchmarks.md, whose links are relative to that page.
LINKING.remove(REPOSITORY / "tools/benchmarks/page.md")
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
# The longest sentence. Clauses behind a colon or a semicolon count as sentences.
WORDS = 25
PROSE = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(page for folder in ("docs", "docs/design", "docs/operators") for page in sorted((REPOSITORY / folder).glob("*.md")))]
# Values as the pages write them, by their first part.
VALUE = re.compile(r"`((?:nodeAgent|scheduler|webhook|global|image|monitoring|networkPolicy)\.[\w.]+)")


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings."""
    without_code = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", without_code, re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def sentences(text: str) -> list[str]:
    """The sentences outside of code, pictures, tables and headings."""
    without_code = re.sub(r"```.*?```|!\[[^\]]*\]\([^)]*\)", "", text, flags=re.DOTALL)
    blocks = [block for block in re.split(r"\n\s*\n|\n(?=\s*[*-] |\s*\d+\. |[|#])", without_code) if not block.strip().startswith(("|", "#"))]
    plain = [re.sub(r"`[^`]*`", "code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block)) for block in blocks]
    return [sentence for block in plain for sentence in re.split(r"(?<=[.!?:;])\s+", block)]


class Pages(unittest.TestCase):
    def test_no_sentence_is_too_long(self):
        long = [f"{page.relative_to(REPOSITORY)}: {sentence}" for page in PROSE for sentence in sentences(page.read_text()) if len(sentence.split()) > WORDS]
        self.assertEqual(long, [], f"sentences of more than {WORDS} words")

    def test_every_link_leads_to_a_file_and_a_heading(self):
        for page in LINKING:
            for target, anchor in LINK.findall(page.read_text()):
                if target.startswith("http"):
                    continue
                file = (page.parent / target).resolve() if target else page
                self.assertTrue(file.exists(), f"{page.name} links to {target}")
                if anchor:
                    self.assertIn(anchor, anchors(file), f"{page.name} links to {target}{anchor}")

    def test_every_page_of_the_folder_is_in_its_index(self):
        index = (REPOSITORY / "docs/operators/README.md").read_text()
        for page in (REPOSITORY / "docs/operators").glob("*.md"):
            self.assertTrue(page.name == "README.md" or f"({page.name})" in index, page.name)

    def test_every_value_is_one_of_the_chart(self):
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        for page in PAGES:
            for name in VALUE.findall(page.read_text()):
                at = values
                for part in name.rstrip(".").split("."):
                    self.assertTrue(isinstance(at, dict) and part in at, f"{page.name} names the value {name}")
                    at = at[part]

    def test_values_of_commands_are_accepted(self):
        for page in PAGES:
            text = page.read_text()
            # Also a value by itself, such as `nodeAgent.seatsPerGpu=10`.
            settings = re.findall(r"--set ([\w.]+=[^\s`]+)", text) + re.findall(VALUE.pattern[:-1] + r"=[^`…]*)`", text)
            if settings:
                with self.subTest(page.name):
                    self.assertTrue(render(*settings))


if __name__ == "__main__":
    unittest.main()
