#!/usr/bin/env python3
"""Checks all sample pictures, and those of the docs, as files of their own and as parts of one page.

    well_formed.py PROGRAM FOLDER     PROGRAM writes the samples, FOLDER has the pictures of the docs

- each is well-formed XML with a title and a description that its root names;
- no two ids of a page are equal, every id begins with the picture's, and every style is of the picture's id;
- nothing is fetched and nothing runs: no address but SVG's name, no script, no link, no handler of events;
- no mark and no text leaves the picture, and no two texts overlap;
- none is larger than 400 KB.
"""
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"
KNOWN = {"svg", "title", "desc", "style", "rect", "line", "path", "circle", "text"}
MOST_BYTES = 400_000
LETTER = 0.52  # of a size's height is the mean width of a letter


def width_of(text, size):
    return sum(1.0 if ord(c) > 0x1100 and not 0x2000 <= ord(c) < 0x2e80 else LETTER for c in text) * size


def box_of(text):
    """Left, top, right, bottom of a text element."""
    x, y, size = float(text.get("x")), float(text.get("y")), float(text.get("font-size", 14))
    width = width_of(text.text or "", size)
    left = x - {"middle": width / 2, "end": width}.get(text.get("text-anchor"), 0)
    return left, y - 0.72 * size, left + width, y + 0.2 * size


def corners_of(element):
    """(x, y) of every corner of a mark."""
    name = element.tag.removeprefix(SVG)

    def get(attribute):
        return float(element.get(attribute, 0))

    if name == "rect":
        return [(get("x"), get("y")), (get("x") + get("width"), get("y") + get("height"))]
    if name == "line":
        return [(get("x1"), get("y1")), (get("x2"), get("y2"))]
    if name == "circle":
        return [(get("cx"), get("cy"))]
    if name == "path":
        return [tuple(map(float, pair.split())) for pair in re.findall(r"[ML]([-\d.]+ [-\d.]+)", element.get("d"))]
    return []


def layout_faults(root):
    width, height = map(float, root.get("viewBox").split()[2:])
    for element in root.iter():
        for x, y in corners_of(element):
            if not (-0.01 <= x <= width + 0.01 and -0.01 <= y <= height + 0.01):
                yield f"<{element.tag.removeprefix(SVG)}> at {x} {y} leaves the picture of {width} x {height}"
                break
    texts = [(box_of(text), text.text) for text in root.iter(SVG + "text") if text.text]
    for i, ((left, top, right, bottom), words) in enumerate(texts):
        if left < -0.5 or right > width + 0.5 or top < -0.5 or bottom > height + 0.5:
            yield f"the text {words!r} leaves the picture"
        for (l, t, r, b), others in texts[:i]:
            if left < r and l < right and top < b and t < bottom:
                yield f"the texts {words!r} and {others!r} overlap"


def faults(text):
    """One sentence for each thing that is wrong with a picture."""
    if len(text.encode()) > MOST_BYTES:
        yield f"{len(text.encode())} bytes"
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        yield f"is no XML: {error}"
        return
    own = root.get("id", "")
    named = [element.get("id") for element in root if element.tag in (SVG + "title", SVG + "desc")]
    if root.get("role") != "img" or root.get("aria-labelledby", "").split() != named or len(named) != 2:
        yield "does not say what it is called"
    for element in root.iter():
        if element.tag.removeprefix(SVG) not in KNOWN:
            yield f"has an element {element.tag}"
        for name, value in element.attrib.items():
            if name.lower().startswith("on") or "href" in name or "url(" in value or "//" in value:
                yield f"has {name}={value!r}"
        if not (element.get("id") or own).startswith(own):
            yield f"has the id {element.get('id')!r}"
        if element.tag == SVG + "style":
            for line in element.text.strip().split("\n"):
                if not line.startswith(f"#{own} .") and line not in ("}", "@media(prefers-color-scheme:dark){"):
                    yield f"has a style of others: {line}"
    yield from layout_faults(root)


def page_faults(pictures):
    """Of all of them in one page."""
    ids = [found for text in pictures for found in re.findall(r'\bid="([^"]*)"', text)]
    for repeated in sorted({found for found in ids if ids.count(found) > 1}):
        yield f"the id {repeated!r} is there {ids.count(repeated)} times"
    try:
        ElementTree.fromstring("<html>" + "".join(pictures) + "</html>")
    except ElementTree.ParseError as error:
        yield f"the page is no XML: {error}"


def check_that_it_can_fail(good):
    planted = {
        "is no XML": good.replace("</svg>", ""),
        "has an element": good.replace("</svg>", "<script>1</script></svg>"),
        "has onload": good.replace("<rect", '<rect onload="f()"', 1),
        "has href": good.replace("<rect", '<rect href="x"', 1),
        "has a style of others": good.replace("<style>", "<style>text{fill:red}\n"),
        "has the id": good.replace("<rect", '<rect id="x"', 1),
        "does not say": good.replace('role="img"', ""),
        "overlap": good.replace("</svg>", '<text x="20" y="26">over the title</text></svg>'),
        "leaves the picture of": good.replace("</svg>", '<line x1="0" y1="0" x2="999" y2="0"/></svg>'),
        "the text 'far": good.replace("</svg>", '<text x="550" y="80">far to the right</text></svg>'),
    }
    missed = [fault for fault, text in planted.items() if not any(fault in found for found in faults(text))]
    if missed or not list(page_faults([good, good])):
        sys.exit(f"this check does not notice: {missed}")


def main():
    with tempfile.TemporaryDirectory(prefix="pictures ") as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        files = sorted(Path(folder).glob("*.svg")) + sorted(Path(sys.argv[2]).glob("*.svg"))
        pictures = {path.stem: path.read_text() for path in files}
    check_that_it_can_fail(pictures["lines"])
    found = [f"{name}: {fault}" for name, text in pictures.items() for fault in faults(text)]
    found += page_faults(pictures.values())
    print("\n".join(found) or f"{len(pictures)} pictures are in order")
    return 1 if found or not pictures else 0


if __name__ == "__main__":
    sys.exit(main())
