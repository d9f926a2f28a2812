"""Files and names of the source that the documents name: each is there."""

import re
import subprocess
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# The generated page lists functions of the driver. CHANGELOG.md and older benchmarks name what past versions had.
PAGES = sorted(
    {REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("tests/*/README.md")}
    - {REPOSITORY / "docs/compatibility.md", *REPOSITORY.glob("docs/benchmarks/history/*.md")}
)
CODE = re.compile(r"`([^`]+)`")
PATH = re.compile(r"[\w.\-]+(?:/[\w.\-]+)*/?")
# Names with these endings are files of the repository, also without their folder. Others may be files that a program writes.
SOURCE = (".rs", ".py", ".proto", ".hpp", ".toml")
NAME_IN_FILE = re.compile(r"`(\w+(?:::\w+)*)`\s+in\s+`([\w.\-]+(?:/[\w.\-]+)+/?)`")


def source_paths() -> dict[str, set[str]]:
    """Each ending of the path of a file or folder that git does not ignore, with the files that it stands for."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    endings: dict[str, set[str]] = {}
    for file in listed.stdout.split("\n"):
        parts = file.split("/")
        for end in range(1, len(parts) + 1):
            for begin in range(end):
                endings.setdefault("/".join(parts[begin:end]), set()).add(file)
    return endings


class Paths(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.paths = source_paths()
        cls.folders = {path.name for path in REPOSITORY.iterdir() if path.is_dir() and path.name in cls.paths}

    def test_every_path_is_in_the_tree(self):
        for page in PAGES:
            prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
            for code in CODE.findall(prose):
                path = code.rstrip("/")
                is_ours = path.split("/")[0] in self.folders and "/" in path or path.endswith(SOURCE)
                if PATH.fullmatch(code) and is_ours:
                    self.assertTrue(path in self.paths, f"{page.relative_to(REPOSITORY)} names {code}")

    def test_every_name_is_in_its_file(self):
        found = 0
        for page in PAGES:
            for name, path in NAME_IN_FILE.findall(page.read_text()):
                files = self.paths.get(path.rstrip("/"), ())
                found += bool(files)
                texts = [(REPOSITORY / file).read_text(errors="ignore") for file in files]
                parts = [re.compile(rf"\b{part}\b") for part in name.split("::")]
                there = not files or any(all(part.search(text) for part in parts) for text in texts)
                self.assertTrue(there, f"{page.relative_to(REPOSITORY)} names {name} in {path}")
        self.assertGreater(found, 50, "the pattern finds the names of GLOSSARY.md")


if __name__ == "__main__":
    unittest.main()
