#!/usr/bin/env python3
"""Looks for what clang-format breaks without an error: lines that it cut, which nobody has read since.

    broken_lines.py ROOT        prints every one and exits 1, or prints one line and exits 0

- a section banner whose dashes went to a line of their own;
- a line of a worked example, or of a list in a comment, of which one word went to a line of its own, or two that the next
  line goes on from further in;
- a text of one word between two parts of the same text;
- a template's arguments taken for comparisons: `is_invocable_v < F`.

Mend by hand: shorter words, or `// clang-format off` around a table.
"""
import re
import sys
from pathlib import Path

import layers

FOLDERS = [*layers.ORDER, "tests", "tutorials", "bench"]
FULL = 100  # columns of a line after which the formatter had no room for one more word
DASHES = re.compile(r"\s*// ?-{3,}\s*$")
ONE_WORD = re.compile(r"\s*///? {3,}[\w`'()*]+[.,;:]?$")
FEW_WORDS = re.compile(r"\s*///? {2,}\S+( \S+)?$")
COMMENT = re.compile(r"\s*//")
ONE_WORD_TEXT = re.compile(r'\s*"\w+ ?"$')
TEXT = re.compile(r'\s*"')
COMPARED = re.compile(r"(requires|concept|=) [\w: ]*\w_v < |^&, \w+\.\.\. >")


def goes_on(before, line):
    """`line` goes on under the text of a list's item."""
    item = re.match(r"\s*///? *- ", before)
    return item and re.match(r"\s*///? *", line).end() == item.end()


def indentation(line):
    """Of the words of a comment; 0 for any other line."""
    found = re.match(r"\s*///? *(?=\S)", line)
    return found.end() if found else 0


def faults(lines):
    for number, (before, line, after) in enumerate(zip([""] + lines, lines, lines[1:] + [""]), 1):
        if DASHES.match(line):
            yield number, "dashes alone"
        if ONE_WORD.match(line) and COMMENT.match(before) and len(before) > FULL and not goes_on(before, line):
            yield number, "a word left over"
        elif FEW_WORDS.match(line) and len(before) > FULL and indentation(before) <= indentation(line) < indentation(after):
            yield number, "words left over"
        if ONE_WORD_TEXT.match(line) and before.endswith('"') and TEXT.match(after):
            yield number, "a word left over"
        if COMPARED.search(line):
            yield number, "a template's arguments, spaced as comparisons"


def main():
    root = Path(sys.argv[1]).resolve()
    files = [p for folder in FOLDERS for p in sorted((root / folder).rglob("*")) if p.suffix in (".h", ".cpp", ".cu")]
    found = [f"{path.relative_to(root)}:{number}: {fault}: {path.read_text().splitlines()[number - 1].strip()}"
             for path in files for number, fault in faults(path.read_text().splitlines())]
    print("\n".join(found) or f"no broken lines in {len(files)} files")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
