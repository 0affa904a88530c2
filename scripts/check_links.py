#!/usr/bin/env python3
"""Checks every link from a page of a site to another page, file or anchor of it.

    check_links.py FOLDER        prints those that lead nowhere and exits 1, or prints one line and exits 0
"""
import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r'<[^>]*?\s(?:href|src)="([^"]*)"')
ANCHOR = re.compile(r'<[^>]*?\s(?:id|name)="([^"]*)"')
ELSEWHERE = re.compile(r"[a-z]+:|//|#?$")  # another site, or the page itself
DOXYGENS = "#nested-classes"  # Doxygen links to the list of classes inside one also where all of them are private, and left out


def main():
    root = Path(sys.argv[1]).resolve()
    texts = {path: path.read_text(errors="replace") for path in root.rglob("*.html")}
    anchors = {path: {unescape(name) for name in ANCHOR.findall(text)} for path, text in texts.items()}
    found, count = [], 0
    for path, text in texts.items():
        for link in set(LINK.findall(text)):
            link = unescape(link)
            if ELSEWHERE.match(link) or link == DOXYGENS:
                continue
            count += 1
            file, _, anchor = link.partition("#")
            target = (path.parent / unquote(file.split("?")[0])).resolve() if file else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{path.relative_to(root)}: {link} leads nowhere")
            elif anchor and target in anchors and unquote(anchor) not in anchors[target]:
                found.append(f"{path.relative_to(root)}: {link} has no such place")
    print("\n".join(found) or f"{len(texts)} pages, {count} links within the site, all of which lead somewhere")
    return 1 if found or not texts else 0


if __name__ == "__main__":
    sys.exit(main())
