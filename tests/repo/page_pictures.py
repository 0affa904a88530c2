"""Whether the pictures of a run's page are of the numbers in its files: coordinates are read back by the ticks of the axes."""
import json
import math
import re
from xml.etree import ElementTree

NEAR = 0.03  # of a pixel: coordinates have two digits
CURVES = {"Training loss": "loss", "Test accuracy": "test_accuracy", "Test loss": "test_loss", "Learning rate": "lr", "Norm of the gradients": "grad_norm",
          "Samples per second": "samples_per_s"}
BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
SECONDS = {"s": 1e6, "ms": 1e3, "µs": 1}  # in microseconds, as the trace has them


class Picture:
    def __init__(self, svg):
        self.root = ElementTree.fromstring(re.sub(r' xmlns="[^"]*"', "", svg))
        self.title = self.root.find("title").text

    def texts(self):
        return [(float(text.get("x")), float(text.get("y")), text.text, text.get("text-anchor")) for text in self.root.iter("text") if text.text]

    def numbers(self, anchor, at):
        """Ticks: the numbers beside an axis, and where they are. Those of the axis are in one line."""
        places = {}
        for text in self.texts():
            if text[3] == anchor and re.fullmatch(r"-?[\d.]+(e-?\d+)?", text[2]):
                places.setdefault(text[1 - at], []).append((float(text[2]), text[at]))
        return max(places.values(), key=len)

    def axis(self, anchor, at, of=float):
        """From a coordinate to `of` what is written at it, and that of a pixel."""
        (low, begin), (high, end) = ((of(number), place) for number, place in (pick(self.numbers(anchor, at)) for pick in (min, max)))
        return lambda coordinate: low + (coordinate - begin) * (high - low) / (end - begin), abs((high - low) / (end - begin))

    def unit(self, units):
        (found,) = [text for _, _, text, _ in self.texts() if text in units]
        return units[found]

    def named(self, shape):
        """Shapes with a name of their own."""
        return [(part, part.find("title").text) for part in self.root.iter(shape) if part.find("title") is not None]


def points_of(path):
    return [tuple(map(float, point.split())) for point in re.findall(r"[ML]([\d.]+ [\d.]+)", path.get("d"))]


def height_at(side, at):
    """Of a side that is level between its steps."""
    (height,) = {from_ for (begin, from_), (end, to) in zip(side, side[1:]) if min(begin, end) < at < max(begin, end) and from_ == to}
    return height


def check_curve(picture, lines):
    key = CURVES[picture.title]
    expected = [(line["step"], line[key]) for line in lines if key in line]
    x, step = picture.axis("middle", 0)
    of = math.log if key == "grad_norm" else float
    y, value = picture.axis("end", 1, of)
    (line,) = [path for path in picture.root.iter("path") if "s-blue" in path.get("class")]
    drawn = [(x(at), y(height + 5)) for at, height in points_of(line)]  # a number stands 5 below its line
    assert len(drawn) == len(expected), (picture.title, drawn, expected)
    for (at, height), (then, number) in zip(drawn, expected):
        assert abs(at - then) <= NEAR * step and abs(height - of(number)) <= NEAR * value, (picture.title, drawn, expected)


def check_sent(picture, units, events):
    sent = {}
    for event in events:
        unit = event.get("args", {}).get("unit")
        if event["pid"] == 0 and "bytes_sent" in event.get("args", {}):
            sent[unit] = sent.get(unit, 0) + event["args"]["bytes_sent"]
    scale = picture.axis("middle", 0)[1] * picture.unit(BYTES)
    drawn = {name.split(":")[0]: float(bar.get("width")) * scale for bar, name in picture.named("rect")}
    expected = {f"{unit['name']}, plan": unit["bytes_sent"] for unit in units} | {f"{unit}, sent": number for unit, number in sent.items() if unit}
    assert drawn.keys() == expected.keys(), (drawn, expected)
    assert all(abs(drawn[name] - number) <= NEAR * scale for name, number in expected.items()), (drawn, expected)


def most_and_how_long(events):
    """Of each owner on rank 0 the most bytes, and for how many microseconds at a time it had them."""
    moments = [event for event in events if event["ph"] == "C" and event["pid"] == 0]
    most, lasted, since, now = {}, {}, {}, {}
    for event, end in zip(moments, [*(event["ts"] for event in moments[1:]), moments[-1]["ts"]]):
        now.update(event["args"])
        for owner, number in now.items():
            if number > most.get(owner, -1):
                most[owner], lasted[owner], since[owner] = number, 0, event["ts"]
            if number == most[owner]:
                lasted[owner] = max(lasted[owner], end - since.setdefault(owner, event["ts"]))
            else:
                since.pop(owner, None)
    return most, lasted


def check_memory(picture, events):
    """The thickness of each owner's band where it is thickest; a moment shorter than some pixels may be left out."""
    most, lasted = most_and_how_long(events)
    pixel = picture.axis("middle", 0)[1] * picture.unit(SECONDS)
    scale = picture.axis("end", 1)[1] * picture.unit(BYTES)
    checked = 0
    for path, name in picture.named("path"):
        points = points_of(path)  # its upper side to the right, and its lower one back
        turn = max(range(len(points)), key=lambda i: (points[i][0], i))
        ends = sorted({at for at, _ in points})
        middles = [(begin + end) / 2 for begin, end in zip(ends, ends[1:])]
        thickest = max(height_at(points[turn:], at) - height_at(points[:turn], at) for at in middles) * scale
        owner = name.split(",")[0]
        assert thickest <= most[owner] + 2 * NEAR * scale, (name, thickest, most[owner])
        if lasted[owner] > 4 * pixel:
            assert abs(thickest - most[owner]) <= 2 * NEAR * scale, (name, thickest, most[owner])
            checked += 1
    assert checked >= 3, (most, lasted, pixel)


def check_line_of_the_plan(picture, plan):
    """What the plan says of a step: all but what data sets keep, and what a run does beside its steps."""
    y, pixel = picture.axis("end", 1)
    (line,) = [line for line in picture.root.iter("line") if line.get("stroke-dasharray") == "6 4"]
    scale = picture.unit(BYTES)
    expected = plan["peak"] - plan["peaks"].get("data", 0) - plan["peaks"].get("other", 0)
    assert abs(y(float(line.get("y1")) + 5) * scale - expected) <= NEAR * pixel * scale, (line.get("y1"), expected)


def moments_of(events, ops, other=False):
    """Intervals as they are drawn, joined: of events whose operation is one of `ops`, or none of them."""
    joined = []
    for begin, end in sorted((event["ts"], event["ts"] + event["dur"]) for event in events if (event["args"]["op"] in ops) != other):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return joined


def in_common(some, others):
    return sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in some for b in others)


def check_hidden(page, picture, events, last):
    """Of the time in which something is sent, that in which the rank computes and does not wait: over all ranks, and of each."""
    computes, shares, hidden, sent = {"forward", "backward", "recompute", "step"}, [], 0, 0
    for step in sorted((event for event in events if event["name"] == last), key=lambda event: event["pid"]):
        mine = [event for event in events if event["pid"] == step["pid"] and "op" in event.get("args", {}) and step["ts"] <= event["ts"] < step["ts"] + step["dur"]]
        busy, waits = moments_of(mine, computes), moments_of(mine, {"wait"})
        sends = moments_of(mine, computes | {"wait", "reshard"}, other=True)
        both = [[max(a[0], b[0]), min(a[1], b[1])] for a in sends for b in busy if max(a[0], b[0]) < min(a[1], b[1])]
        mine_hidden, mine_sent = in_common(sends, busy) - in_common(both, waits), in_common(sends, sends)
        shares.append(mine_hidden / mine_sent)
        hidden, sent = hidden + mine_hidden, sent + mine_sent
    (said,) = re.findall(r'<data value="([^"]*)">[^<]*</data>[^%]{0,60}of communication hidden behind computing', page)
    assert abs(float(said) - hidden / sent) < 1e-6, (said, hidden / sent)
    of_ranks = [float(number) for *_, text, _ in picture.texts() for number in re.findall(r"^(?:less than |more than )?([\d]+) % hidden$", text)]
    assert len(of_ranks) == len(shares) and all(abs(100 * share - said) <= 1 for share, said in zip(shares, of_ranks)), (of_ranks, shares)


def check_lanes(picture, events):
    """Each bar is an event of the trace and as long, but a pixel at least."""
    pixel = picture.axis("middle", 0)[1] * picture.unit(SECONDS)
    durations = {}
    for event in events:
        durations.setdefault(event["name"], []).append(event.get("dur", 0))
    bars = [(name.split(",")[0].replace(" of ", " "), float(bar.get("width")) * pixel) for bar, name in picture.named("rect")]
    assert len(bars) > 10, bars
    for name, took in bars:
        assert any(abs(took - max(long, pixel)) <= NEAR * pixel for long in durations[name]), (name, took, durations[name])


def pictures_on(page):
    return [Picture(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.S)]


def check_pictures(run):
    page, about = (run / "report.html").read_text(), json.loads((run / "about.json").read_text())
    pictures = pictures_on(page)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    steps = [event["args"]["step"] for event in events if re.fullmatch(r"step \d+", event["name"])]
    (last,) = [event for event in events if event["name"] == f"step {max(steps)}" and event["pid"] == 0]
    of_last = [event for event in events if event["ph"] == "X" and event["ts"] >= last["ts"]]
    curves = [picture for picture in pictures if picture.title in CURVES]
    assert {picture.title for picture in curves} == set(CURVES), [picture.title for picture in pictures]
    for picture in curves:
        check_curve(picture, lines)
    by_id = {picture.root.get("id"): picture for picture in pictures}
    check_sent(by_id["sent"], about["plan"]["units"], of_last)
    check_memory(by_id["memory-picture"], events)
    check_line_of_the_plan(by_id["memory-picture"], about["plan"])
    check_hidden(page, by_id["lanes"], events, last["name"])
    check_lanes(by_id["lanes"], events)
