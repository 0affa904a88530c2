#!/usr/bin/env python3
"""Trains, draws the run's page, and looks at it.

    run_page.py PROGRAM                 as a parser does: tags in order, no two ids alike, each number one of the run's files
                                        and, in tables, of its row and column, and so are what curves, bars and bands are drawn to
    run_page.py PROGRAM CHROMIUM        as a reader does, on wide and narrow screens, in light and dark: every picture has its
                                        size, nothing is fetched, no console message, no sideways scrolling. Exits 77
                                        where there is no CHROMIUM
"""
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

from needs import skip
from page_pictures import check_pictures
from page_steps import check_steps
from page_tables import check_tables

ROOT = Path(__file__).resolve().parents[2]
VOID = {"meta", "link", "br", "img", "input"}


def make_page(program, folder):
    train = [program, "launch", "-n", "2", "train", str(ROOT / "configs/fashion_mnist.json")]
    settings = ["epochs=2", "schedule.warmup_steps=10", "model.layers=[784,64,32,10]", f"runs={folder}", "name=a <run> & more"]
    for words in ([*train, *(word for setting in settings for word in ("--set", setting))], [program, "report", f"{folder}/a <run> & more"]):
        run = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, f"{words}\n{run.stdout}{run.stderr}"
    return Path(folder, "a <run> & more")


class Parsed(HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.numbers, self.pictures, self.sections = [], [], [], 0, []
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "data":
            self.numbers.append(float(values["value"]))
        if tag == "section":
            self.sections.append(values["id"])
        self.pictures += tag == "svg"

    def handle_startendtag(self, tag, attributes):
        if "id" in dict(attributes):
            self.ids.append(dict(attributes)["id"])

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"


def numbers_in(value):
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers_in(part)]
    if isinstance(value, list):
        return [number for part in value for number in numbers_in(part)]
    return [float(value)] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def check_as_a_parser(run):
    page = Parsed((run / "report.html").read_text())
    assert len(page.ids) == len(set(page.ids)), "two ids are alike"
    assert page.sections == ["summary", "learning", "memory", "communication", "units", "settings"], page.sections
    assert page.pictures == 12, page.pictures
    files = {name: json.loads((run / name).read_text()) for name in ("about.json", "ledger.json")}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    known = set(numbers_in(files) + numbers_in(lines))
    units = [unit["parameters"] for unit in files["about.json"]["plan"]["units"]]
    known |= {parameters / sum(units) for parameters in units}
    strange = [number for number in page.numbers if number not in known]
    # What is hidden is none of the files' numbers, unless by chance, as where all of it is, or nothing.
    assert len(page.numbers) > 50 and len(strange) <= 1 and all(0 <= share <= 1 for share in strange), f"not in the files, but for what is hidden: {strange}"


class Browser:
    """Chromium, spoken to by its DevTools protocol over a pair of pipes."""

    def __init__(self, program, profile):
        commands, self.to_write = os.pipe()
        self.to_read, answers = os.pipe()
        theirs = [fcntl.fcntl(number, fcntl.F_DUPFD, 10) for number in (commands, answers)]  # not 3 or 4 themselves
        words = [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}', "bash", *words], pass_fds=theirs,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for number in (commands, answers, *theirs):
            os.close(number)
        self.rest, self.events, self.count, self.session = b"", [], 0, {}

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.to_read, 1 << 16)
            assert more, "the browser has ended"
            self.rest += more
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def call(self, method, **parameters):
        self.count += 1
        os.write(self.to_write, json.dumps({"id": self.count, "method": method, "params": parameters, **self.session}).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.count:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message())

    def value(self, script):
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")


def check_in(browser, url, width, scheme):
    where = f"at {width} pixels, {scheme}"
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(url)
    wide = browser.value("document.documentElement.scrollWidth")
    assert wide <= width, f"{where}: the page is {wide} wide"
    sizes = browser.value("[...document.querySelectorAll('svg')].map(s => [s.id, s.getBoundingClientRect().width, s.querySelectorAll('text').length])")
    assert len(sizes) == 12 and all(size > 0.8 * min(width, 480) - 60 and texts > 3 for _, size, texts in sizes), (where, sizes)
    outside = browser.value("[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().right > innerWidth).length")
    assert outside == 0, f"{where}: {outside} pictures are cut off"
    ground, ink = (browser.value(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color"))
    light = [sum(map(int, colour[4:-1].split(","))) for colour in (ground, ink)]
    assert (light[0] > light[1]) == (scheme == "light"), (where, ground, ink)
    asked = [event["params"]["request"]["url"] for event in browser.events if event.get("method") == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [url], (where, asked)
    said = [event for event in browser.events if event.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")]
    assert not said, (where, said)


def check_as_a_reader(run, chromium, profile):
    browser = Browser(chromium, profile)
    try:
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        browser.session = {"sessionId": browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Network", "Log"):
            browser.call(f"{domain}.enable")
        for width in (1280, 400):
            for scheme in ("light", "dark"):
                check_in(browser, (run / "report.html").as_uri(), width, scheme)
    finally:
        browser.process.kill()
        browser.process.wait()


def main(program, chromium=None):
    if chromium is not None and not Path(chromium).exists():  # CMake's word for it is CHROMIUM-NOTFOUND
        skip("the page in a browser", "there is no Chromium here (Debian package chromium)")
    with tempfile.TemporaryDirectory(prefix="run page ", ignore_cleanup_errors=True) as folder:
        run = make_page(program, folder)
        if chromium is None:
            check_as_a_parser(run)
            check_tables(run)
            check_pictures(run)
            check_steps(run)
        else:
            check_as_a_reader(run, chromium, f"{folder}/profile")


if __name__ == "__main__":
    main(*sys.argv[1:])
