"""Whether the pictures of one step on a run's page say what its trace says: who waited for whom, what moved, and what units were when."""
import json
import re
from collections import Counter

from page_pictures import BYTES, NEAR, SECONDS, moments_of, pictures_on

COMPUTES = {"forward", "backward", "recompute", "step"}
MOVES = "all_gather", "reduce_scatter", "all_reduce"
SIZES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "u8": 1}
MOST_MOVES = 16  # that are drawn


def of_last_step(events):
    """{rank: its records in the last traced step}, in their order."""
    steps = [event for event in events if event["ph"] == "X" and "step" in event["args"]]
    last = max(event["args"]["step"] for event in steps)
    return {step["pid"]: [event for event in events if event["ph"] == "X" and event["pid"] == step["pid"] and "op" in event["args"]
                          and step["ts"] <= event["ts"] < step["ts"] + step["dur"]]
            for step in steps if step["args"]["step"] == last}


def calls_of(ranks):
    """Of each collective of all ranks, in the order of the first rank's: what each of them recorded."""
    calls = {}
    for _, events in sorted(ranks.items()):
        for event in events:
            if "number" in event["args"] and event["args"]["op"] not in COMPUTES | {"wait", "reshard"}:
                calls.setdefault((event["args"]["group"], event["args"]["number"]), []).append(event)
    return [call for call in calls.values() if len(call) == len(ranks)]


def quantity(text, units):
    number, _, unit = text.partition(" ")
    return float(number) * (units[unit] if unit else 1)


def is_said(said, number):
    """In three digits."""
    return abs(said - number) <= 0.006 * abs(number)


def told(picture, pattern):
    (groups,) = re.findall(pattern, picture.root.find("desc").text)
    return groups


def waits_of(calls):
    """{(who, for whom): microseconds}: whoever came before the last one waited for it, or until its own call was over."""
    waited = Counter()
    for call in calls:
        last = max(call, key=lambda event: event["ts"])
        for event in call:
            if event is not last:
                waited[event["pid"], last["pid"]] += min(last["ts"], event["ts"] + event["dur"]) - event["ts"]
    return {pair: took for pair, took in waited.items() if took > 0}


def check_waits(picture, ranks):
    """In the row of who waited and the column of whom it waited for."""
    calls, scale = calls_of(ranks), SECONDS | {"ns": 1e-3}
    waited = waits_of(calls)
    most, texts = max(waited.values()), picture.texts()
    rows = {y: int(text.split()[1]) for _, y, text, anchor in texts if anchor == "end"}
    columns_at = min(y for _, y, _, anchor in texts if anchor == "middle")
    columns = {x: int(text) for x, y, text, _ in texts if y == columns_at and text.isdigit()}
    (unit,) = [scale[text.rsplit(" ", 1)[1]] for *_, text, _ in texts if text.startswith("waited for rank …, in ")]
    drawn = set()
    for shade, tip in picture.named("rect"):
        who, took, whom = re.fullmatch(r"rank (\d+) waited (.*) for rank (\d+)", tip).groups()
        pair, (x, y) = (int(who), int(whom)), (float(shade.get(at)) + float(shade.get(size)) / 2 for at, size in (("x", "width"), ("y", "height")))
        assert (rows[y + 5], columns[x]) == pair and is_said(quantity(took, scale), waited[pair]), (tip, waited)
        assert abs(float(shade.get("fill-opacity")) - 0.7 * waited[pair] / most) <= 0.01, (tip, waited)
        (number,) = [text for at, height, text, anchor in texts if (at, height, anchor) == (x, y + 5, "middle")]
        assert abs(float(number) * unit - waited[pair]) <= 0.51 * unit / 10 ** len(number.partition(".")[2]), (number, waited)
        drawn.add(pair)
    assert drawn == waited.keys(), (drawn, waited)
    for y, rank in rows.items():
        (all_of_it,) = [text for _, height, text, anchor in texts if height == y and anchor is None]
        assert is_said(quantity(all_of_it, scale), sum(took for pair, took in waited.items() if pair[0] == rank)), (rank, all_of_it, waited)
    count, took, share, worst = told(picture, r"In (\d+) collectives? ranks waited (.+?), (?:less than |more than )?(\d+) % of it for rank (\d+)\.")
    for_each = Counter()
    for (_, whom), microseconds in waited.items():
        for_each[whom] += microseconds
    assert int(count) == len(calls) and is_said(quantity(took, scale), sum(waited.values())), (count, took, calls, waited)
    assert int(worst) == for_each.most_common(1)[0][0] and abs(int(share) - 100 * for_each[int(worst)] / sum(waited.values())) <= 1, (share, worst, waited)


def is_whole(call):
    """Its ranks have sent together what so many send."""
    about = call[0]["args"]
    sent = (2 if about["op"] == "all_reduce" else 1) * (len(call) - 1) * about["elements"] * SIZES[about["dtype"]]
    return sum(event["args"].get("bytes_sent", 0) for event in call) == sent


def tips_of(op, count):
    """What the blocks say that a rank has after a move and has not brought to it."""
    if op == "all_gather":
        return Counter({f"part {part}, from rank {part}": count - 1 for part in range(count)})
    return Counter({f"part {part}, summed over the ranks": count if op == "all_reduce" else 1 for part in range(count)})


def check_moves(picture, ranks):
    """A panel for each collective, in their order, with its unit and what a rank sends."""
    calls = [call for call in calls_of(ranks) if call[0]["args"]["op"] in MOVES and is_whole(call)]
    sent = [sum(event["args"].get("bytes_sent", 0) for event in call) // len(ranks) for call in calls]
    texts, tips = picture.texts(), Counter()
    panels = sorted((y, x, text) for x, y, text, _ in texts if text in MOVES)
    assert len(panels) == min(MOST_MOVES, len(calls)), (panels, calls)
    for (top, left, op), call, bytes_sent in zip(panels, calls, sent):
        about = call[0]["args"]
        words = [text for y, text in sorted((y, text) for x, y, text, _ in texts if x == left and top < y < top + 40)]
        unit = [[about["unit"]], [f"{about['unit']}, {call[0]['cat']}"]] if "unit" in about else [[]]
        assert op == about["op"] and words[:-1] in unit and is_said(quantity(words[-1], BYTES), bytes_sent), (op, words, call)
        tips += tips_of(op, len(ranks))
    assert Counter(tip for _, tip in picture.named("rect")) == tips, tips
    all_of_it, count = told(picture, r"A rank sends (.+?) in (\d+) collective")
    assert int(count) == len(calls) and is_said(quantity(all_of_it, BYTES), sum(sent)), (all_of_it, count, calls)


BEFORE = {"sharded": ("gathering", "gathered"), "gathering": ("sharded",), "gathered": ("gathering",)}


def changes_of(event):
    """When a unit becomes what; of one moment in this order."""
    begin, op = event["ts"], event["args"]["op"]
    if op == "all_gather":
        return [(begin, 1, "gathering"), (begin + event["dur"], 2, "gathered")]
    return [(begin, 0, "sharded")] if op == "reshard" else []


def states_of(events):
    """{unit: {what it is or does: [from, to], …}}, in microseconds."""
    begin, end = min(event["ts"] for event in events), max(event["ts"] + event["dur"] for event in events)
    units = {}
    for event in events:
        if "unit" in event["args"] and event["args"]["op"] != "wait":
            units.setdefault(event["args"]["unit"], []).append(event)
    found = {}
    for unit, mine in units.items():
        found[unit] = {"computes": moments_of(mine, COMPUTES), "sends gradients": moments_of(mine, {"reduce_scatter", "all_reduce"})}
        changes = sorted(change for event in mine for change in changes_of(event))
        state, since = "gathered" if changes and changes[0][2] == "sharded" else "sharded", begin
        for at, _, becomes in [*changes, (end, 3, None)]:
            if becomes is None or state in BEFORE[becomes]:
                found[unit].setdefault(state, []).append([since, at])
                state, since = becomes, at
    return {unit: {what: [[from_ - begin, to - begin] for from_, to in spans if from_ < to] for what, spans in of_unit.items()} for unit, of_unit in found.items()}


def most_at_once(states):
    now = most = 0
    spans = [span for of_unit in states.values() for what in ("gathering", "gathered") for span in of_unit.get(what, [])]
    for _, change in sorted(moment for begin, end in spans for moment in ((begin, 1), (end, -1))):
        now += change
        most = max(most, now)
    return most


def check_strip(picture, events):
    """Each bar is a state of its unit, from when to when; all that are longer than two pixels are there, in the row of their unit."""
    states = states_of(events)
    (axis,) = [line for line in picture.root.iter("line") if line.get("y1") == line.get("y2")]
    left, right = float(axis.get("x1")), float(axis.get("x2"))
    pixel = (max(event["ts"] + event["dur"] for event in events) - min(event["ts"] for event in events)) / (right - left)
    assert abs(picture.axis("middle", 0)[1] * picture.unit(SECONDS) / pixel - 1) < 0.05, pixel
    rows = {text: y for _, y, text, anchor in picture.texts() if anchor == "end" and text in states}
    assert rows.keys() == states.keys(), (rows, states)
    drawn = {}
    for bar, name in picture.named("rect"):
        unit, what, merged = re.fullmatch(r"(.+) (sharded|gathering|gathered|computes|sends gradients), .*?( and \d+ more)?", name).groups()
        x, y, width, height = (float(bar.get(key)) for key in ("x", "y", "width", "height"))
        assert abs(y + height / 2 + 5 - rows[unit]) <= (NEAR if what == "computes" else 12), (name, y, rows)
        begin, long = (x - left) * pixel, width * pixel
        same = [span for span in states[unit].get(what, []) if abs(span[0] - begin) <= NEAR * pixel]
        assert any(merged or abs(span[1] - span[0] - long) <= 2 * NEAR * pixel or width <= 1 for span in same), (name, begin, long, states[unit])
        drawn.setdefault((unit, what), []).append(begin)
    for unit, of_unit in states.items():
        for what, spans in of_unit.items():
            for begin, end in spans:
                assert end - begin <= 2 * pixel or any(abs(begin - at) <= NEAR * pixel for at in drawn.get((unit, what), [])), (unit, what, begin, end, drawn)
    most, count = map(int, told(picture, r"At most (\d+) of (\d+) units? in memory at a time\."))
    assert (most, count) == (most_at_once(states), len(states)), (most, count, states)


def check_steps(run):
    pictures = {picture.root.get("id"): picture for picture in pictures_on((run / "report.html").read_text())}
    ranks = of_last_step(json.loads((run / "trace.json").read_text())["traceEvents"])
    assert len(ranks) > 1, ranks.keys()
    check_waits(pictures["waits"], ranks)
    check_moves(pictures["moves"], ranks)
    check_strip(pictures["strip"], ranks[0])
