"""Whether the tables and the words of a run's page say the numbers of its files: row by row, each in its column."""
import json
import re
from html.parser import HTMLParser


class Tables(HTMLParser):
    """The rows of each table, by its first heading: a list of (text, number or None) each."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tables, self.rows, self.cell = [], None, None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "table":
            self.rows = []
            self.tables.append(self.rows)
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.cell = ["", None]
            self.rows[-1].append(self.cell)
        elif tag == "data" and self.cell:
            self.cell[1] = float(dict(attributes)["value"])

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.cell = None

    def handle_data(self, text):
        if self.cell:
            self.cell[0] += text


def number_or_text(cell):
    text, number = cell
    return text if number is None else number


def expect_rows(rows, heads, expected):
    assert [text for text, _ in rows[0]] == heads, (rows[0], heads)
    said = [[number_or_text(cell) for cell in row] for row in rows[1:]]
    assert len(said) == len(expected), (heads, said, expected)
    for row, wanted in zip(said, expected):
        assert row == wanted, f"table of {heads[0]}: the page says {row}, the files {wanted}"


def check_units(rows, units):
    parameters = sum(unit["parameters"] for unit in units)
    expect_rows(rows, ["unit", "parameters", "share", "gathered", "gathers a step", "reductions a step", "sent a step"],
                [[unit["name"], unit["parameters"], unit["parameters"] / parameters, unit["full_bytes"], unit["gathers"], unit["reductions"], unit["bytes_sent"]]
                 for unit in units])


def check_peaks(rows, planned, ledger):
    """A plan says nothing of what data sets keep, of workspaces, and of what a run does beside its steps."""
    measured = {owner: bytes["peak"] for owner, bytes in ledger["categories"].items()}
    expected = []
    for owner in sorted(planned.keys() | measured.keys()):
        most, said = measured.get(owner, 0), planned.get(owner, 0)
        expected.append([owner, "", most, ""] if owner in ("data", "workspace", "other") else [owner, said, most, "= plan"])
    expect_rows(rows, ["peak of", "predicted", "measured", ""], [*expected, ["everything at once", "", ledger["peak"], ""]])


def check_lines(rows, lines):
    keys = list(lines[0])
    expect_rows(rows, keys, [["" if line.get(key) is None else line[key] for key in keys] for line in lines])


def read_back(text, value):
    """As a file has it: a text as it is, all else as JSON."""
    return text if isinstance(value, str) else json.loads(text)


def check_settings(rows, config):
    flat = {}
    for key, value in config.items():
        flat |= {f"{key}.{inner}": part for inner, part in value.items()} if isinstance(value, dict) else {key: value}
    assert [row[0][0] for row in rows[1:]] == list(flat), (rows, flat)
    for name, (said, _), *_ in rows[1:]:
        assert read_back(said, flat[name[0]]) == flat[name[0]], (name, said, flat[name[0]])


def check_environment(rows, about, saved):
    about = {key: value for key, value in about.items() if not isinstance(value, dict)}
    *rows, last, hashed = rows[1:]
    assert [row[0][0] for row in rows] == list(about), (rows, about)
    for (name, _), (said, _) in rows:
        assert read_back(said, about[name]) == about[name], (name, said, about[name])
    assert [number_or_text(cell) for cell in last] == ["last checkpoint", saved["step"]], (last, saved["step"])
    assert [text for text, _ in hashed] == ["its hash", saved["hash"]], (hashed, saved["hash"])


def check_tiles(page, about, ledger, lines):
    """The numbers at the top, each with its words; pictures say what communication is hidden."""
    tiles = {words: float(value) for value, words in re.findall(r'<div class="tile"><b><data value="([^"]*)">[^<]*</data></b><span>([^<]*)</span>', page)}
    del tiles["of communication hidden behind computing"]
    last, end = lines[-1], about["end"]
    assert end["step_bytes"] == about["plan"]["bytes_sent"], about
    expected = {f"test accuracy after step {last['step']}": last["test_accuracy"], f"test loss after step {last['step']}": last["test_loss"],
                f"training loss up to step {last['step']}": last["loss"], "samples per second": end["samples_per_s"],
                "this process&#39;s training took": end["seconds"], "sent by rank 0 in a step, as predicted": end["step_bytes"],
                "peak memory of rank 0, data and all": ledger["peak"]}
    assert tiles == expected, (tiles, expected)
    (state,) = re.findall(r'<span class="state">ended after step <data value="(\d+)">[^<]*</data> of <data value="(\d+)">', page)
    assert list(map(int, state)) == [end["steps"], about["total_steps"]], state


def check_tables(run):
    page = (run / "report.html").read_text()
    about, ledger, config = (json.loads((run / name).read_text()) for name in ("about.json", "ledger.json", "config.json"))
    saved = json.loads((run / (run / "latest").read_text().strip() / "run.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    told, peaks, units, settings, environment = Tables(page).tables
    check_lines(told, lines)
    check_peaks(peaks, about["plan"]["peaks"], ledger)
    check_units(units, about["plan"]["units"])
    check_settings(settings, config)
    check_environment(environment, about, saved)
    check_tiles(page, about, ledger, lines)
