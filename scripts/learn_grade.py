"""Grades predictions of scripts/learn: a number beside what the program counted, and where they differ the formula with
this run's numbers, in which the term is marked that would explain the difference."""
import ast
import math
import re
from fractions import Fraction

OPERATORS = {ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.Div: lambda a, b: a / b, ast.FloorDiv: lambda a, b: Fraction(a // b), ast.Mod: lambda a, b: a % b,
             ast.Pow: lambda a, b: power(a, b)}
FUNCTIONS = {"ceil": lambda a: Fraction(math.ceil(a)), "max": max, "min": min}
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9, "bytes": 1, "seconds": 1, "s": 1,
         "ms": Fraction(1, 1000)}


class Refused(Exception):
    """What somebody typed cannot be used; the message says why."""


def power(base, exponent):
    if exponent not in range(9):
        raise Refused(f"an exponent of {plain(exponent)}: 0 to 8 are taken")
    return base ** int(exponent)


def leaves(tree):
    """Names and numbers, in the order in which they are written."""
    functions = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call)]
    return sorted((n for n in ast.walk(tree) if isinstance(n, (ast.Name, ast.Constant)) and n not in functions), key=lambda n: n.col_offset)


def value_of(node, terms, instead=None):
    """The arithmetic of a formula, exactly. `instead`: (leaf, its value) to try another one."""
    if isinstance(node, ast.Expression):
        return value_of(node.body, terms, instead)
    if instead and node is instead[0]:
        return instead[1]
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        if node.value in (float("inf"), float("-inf")):
            raise Refused("a number is too large")
        return Fraction(str(node.value))
    if isinstance(node, ast.Name) and node.id in terms:
        return Fraction(str(terms[node.id]))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](value_of(node.left, terms, instead), value_of(node.right, terms, instead))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
        raise Refused(f"'{ast.unparse(node)}': for a power write D*D or D**2")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -value_of(node.operand, terms, instead)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords:
        try:
            return FUNCTIONS[node.func.id](*(value_of(argument, terms, instead) for argument in node.args))
        except TypeError:
            raise Refused(f"'{ast.unparse(node)}' has too few numbers, or too many") from None
    raise Refused(f"'{ast.unparse(node)}' is neither a number nor one of {', '.join(sorted(terms)) or 'no terms'}")


def parsed(formula):
    """A tree of arithmetic. A number may have a unit: "12 MiB" is 12 * 1048576."""
    def without_unit(found):
        return f"({found[1]} * {UNITS[found[2]].numerator} / {UNITS[found[2]].denominator})" if UNITS[found[2]] != 1 else found[1]
    units = "|".join(sorted(UNITS, key=len, reverse=True))
    try:
        return ast.parse(re.sub(rf"(?<![\w.])(\d[\d.]*)\s*({units})\b", without_unit, formula.strip()), mode="eval")
    except SyntaxError:
        raise Refused(f"'{formula}' is not a number, nor a formula such as 4 * P / W") from None


def evaluate(formula, terms):
    try:
        return value_of(parsed(formula), terms)
    except ZeroDivisionError:
        raise Refused(f"'{formula}' divides by 0") from None


def plain(number):
    number = Fraction(number)
    if number.denominator == 1:
        return str(number.numerator)
    return f"{float(number):.2f}".rstrip("0") if abs(number) >= 1000 else f"{float(number):.6g}"


def agrees(said, counted, within):
    """Equal, or, where `within` is a factor, not further off than that."""
    if within is None:
        return said == counted
    return said > 0 and counted > 0 and max(said / counted, counted / said) <= Fraction(str(within))


def candidates(tree, names, formula):
    """[(what a leaf may be instead of itself, as a tree), …] in tiers: left out; and, of what was written as a `formula`, off by one,
    or a number doubled or halved; another's. A mere number is no more than one of these by coincidence."""
    def made(left, operator, number):
        return ast.BinOp(left, operator(), ast.Constant(number))
    own = leaves(tree)
    yield [(leaf, ast.Constant(number)) for leaf in own for number in (1, 0)]
    if formula:
        often = [leaf.id for leaf in own if isinstance(leaf, ast.Name)]
        yield [(leaf, made(leaf, operator, number)) for leaf in own for operator, number in ((ast.Add, 1), (ast.Sub, 1), (ast.Mult, 2), (ast.Div, 2))
               if isinstance(leaf, ast.Constant) or (number == 1 and often.count(leaf.id) == 1)]
        yield [(leaf, ast.Name(name)) for leaf in own for name in sorted(names) if getattr(leaf, "id", None) != name]


def terms_of(tree):
    return {leaf.id for leaf in leaves(tree) if isinstance(leaf, ast.Name)}


def elsewhere(terms, used):
    """These terms, and other numbers of those in `used`, of which no two are equal or one apart."""
    yield terms
    for numbers in ((11, 29, 5, 53, 17, 83, 131), (19, 7, 41, 13, 97, 151, 31)):
        yield terms | {name: Fraction(numbers[place % 7] + 200 * (place // 7)) for place, name in enumerate(sorted(used))}


def same_everywhere(one, other, points, within=None):
    """Whether two formulas are equal at all points; each may be a tree, or a pair (tree, (leaf, its tree instead))."""
    for terms in points:
        try:
            first, second = (value_of(tree, terms, instead and (instead[0], value_of(instead[1], terms)))
                             for tree, instead in (one, other))
        except (ZeroDivisionError, Refused):
            return False
        if not agrees(first, second, within):
            return False
    return True


def differing_leaves(tree, said, terms, within):
    """[(leaf, what would explain `said`, a tree), …] of the first tier that has any, at most one of a leaf: compared as
    formulas where `said` has terms, at this run's numbers where it has none, where several may explain it."""
    used = terms_of(said)
    names = terms_of(tree) | used
    for moved in [names, used, set()] if used else [set()]:
        points = list(elsewhere(terms, moved)) if moved else [terms]
        for tier in candidates(tree, terms, bool(used)):
            found = {}
            for leaf, instead in tier:
                if leaf not in found and not same_everywhere((tree, None), (tree, (leaf, instead)), points) and same_everywhere(
                        (tree, (leaf, instead)), (said, None), points, within and 1.01):
                    found[leaf] = instead
            if found:
                return list(found.items())
    return []


def extra_factor(tree, said, terms, meanings):
    """Words for what no term of the formula explains; empty where nothing does."""
    points = list(elsewhere(terms, terms)) if terms_of(said) else [terms]
    for name, value in sorted(terms.items()):
        for word, operator in ("times", ast.Mult()), ("divided by", ast.Div()):
            if value not in (0, 1) and same_everywhere((ast.BinOp(tree.body, operator, ast.Name(name)), None), (said, None), points):
                return f"yours is this {word} {name}" + (f", {meanings[name]}" if name in meanings else "")
    return ""


def only_here(prediction, said, terms):
    """Words for a formula that gives what was counted, and at other numbers of its terms something else; empty for one that is
    right. Terms in whose place it has numbers stay as they are."""
    tree, mine = parsed(prediction["formula"]), parsed(said)
    used, within = terms_of(mine), prediction.get("within") and 1.01
    apart, ones = [], [] if within else [terms | {name: Fraction(1)} for name in used]  # 1 divides everything
    for points in ([terms | {name: terms[name] * factor for name, factor in zip(sorted(used), factors * 3)} for factors in ((3, 5, 7, 11, 13), (13, 3, 11, 5, 7))],
                   list(elsewhere(terms, used | terms_of(tree)))[1:]):
        apart = [point for point in points + ones if used and not same_everywhere((tree, None), (mine, None), [point], within)]
        if not apart:
            return ""
    others = ", ".join(f"{name} = {plain(apart[0][name])}" for name in sorted(used | terms_of(tree)))
    try:
        return f"right with this run's numbers, but not as a formula: with {others} it gives {plain(evaluate(said, apart[0]))}, and not {plain(evaluate(prediction['formula'], apart[0]))}"
    except Refused:
        return f"right with this run's numbers, but not as a formula: with {others} it gives nothing"


def beside(number, counted, unit):
    """By which factor, where it is a simple one, or by how much a number is off; empty where both are far and neither simple."""
    ratio, apart = (Fraction(number) / counted if counted else Fraction(0)), abs(number - counted)
    if ratio > 0 and max(ratio.numerator, ratio.denominator) <= 64 and min(ratio.numerator, ratio.denominator) <= 12:
        return "yours is " + {Fraction(2): "twice", Fraction(1, 2): "half of"}.get(ratio, f"{ratio} times" if ratio.denominator == 1 else f"{ratio} of") + " it"
    if apart <= abs(counted) / 10:
        return f"yours is {plain(apart)} {unit.removesuffix('s') if apart == 1 else unit}".rstrip() + (" more" if number > counted else " less")
    return ""


def remarks(prediction, said, counted, terms):
    """What there is to say about a number by itself."""
    number, unit = evaluate(said, terms), prediction.get("unit", "")
    rounded = re.fullmatch(r"\s*\d+\.(\d+)\s*([kKMG]i?B)\s*", said)
    if rounded and abs(number - counted) <= Fraction(UNITS.get(rounded[2], 1), 10**len(rounded[1])):
        yield "    this is rounded; I compare to the byte: say all digits, or a formula"
    elif unit and "within" not in prediction and number.denominator != 1:
        yield f"    that is no whole number of {unit}"


def marked(formula, terms, spots=()):
    """The formula over the same with numbers put in, over a mark below the leaves that begin at `spots`."""
    above = below = under = ""
    for token in re.finditer(r"[\w.]+|\s+|.", formula):
        word = token.group()
        number = plain(terms[word]) if word in terms else word
        width = max(len(word), len(number))
        above, below = above + word.ljust(width), below + number.ljust(width)
        under += ("^" if token.start() in spots else " ") * width
    return [line.rstrip() for line in (above, below, under)][:3 if spots else 2]


def written(formula, leaf, meanings):
    name = formula[leaf.col_offset:leaf.end_col_offset]
    return f"{name}, {meanings[name]}," if name in meanings else f"this {name}"


def difference(prediction, said, terms, meanings):
    """([leaf, …], words) of what would explain a wrong answer."""
    formula = prediction["formula"]
    tree, mine = parsed(formula), parsed(said)
    found = differing_leaves(tree, mine, terms, prediction.get("within"))
    if len(found) > 1:
        return [leaf for leaf, _ in found], "without one of those that are marked, or with another in its place, it would be your number"
    for leaf, instead in found:
        what = written(formula, leaf, meanings)
        if isinstance(instead, ast.Constant):
            return [leaf], f"without {what} it would be your number"
        other = plain(value_of(instead, terms)) if isinstance(leaf, ast.Constant) and not isinstance(instead, ast.Name) else ast.unparse(instead)
        return [leaf], f"with {other} in the place of {what} it would be your number"
    return [], extra_factor(tree, mine, terms, meanings)


def hint(prediction, said, counted, terms, meanings):
    """What a first wrong prediction is answered with, as lines: where to look, and not yet what was counted."""
    number, formula = evaluate(said, terms), prediction["formula"]
    found, words = difference(prediction, said, terms, meanings)
    names = {formula[leaf.col_offset:leaf.end_col_offset] for leaf in found}
    if agrees(number, counted, prediction.get("within")):
        return [f"{prediction['name']}: {plain(number)} is {only_here(prediction, said, terms)}", "    say it again, as a number or another formula"]
    lines = [f"{prediction['name']}: not {plain(number)}, which is too {'small' if number < counted else 'large'}", *remarks(prediction, said, counted, terms)]
    apart = beside(number, counted, prediction.get("unit", ""))
    lines += ["    " + apart] if apart else []
    if counted and abs(number / counted - 1) < Fraction(1, 50):
        lines.append("    within 2 %: a small part is missing or too much")
    if len(names) == 1 and names <= set(meanings):
        lines.append(f"    look at {names.copy().pop()}, {meanings[names.pop()]}: what does it do there?")
    elif names or words:
        lines.append("    one number or factor is another: what happens how often, and on how many?")
    elif not (apart and terms_of(parsed(said))):
        lines.append("    the text above '## Predict' says what is counted; write a formula of " + ", ".join(sorted(terms)))
    return [*lines, "    say it again; after a second wrong answer the formula is shown"]


def explained(prediction, said, counted, terms, meanings):
    """What a wrong prediction is answered with at last, as lines. `said`: as it was written."""
    formula, number, unit = prediction["formula"], evaluate(said, terms), prediction.get("unit", "")
    found, words = difference(prediction, said, terms, meanings)
    apart = beside(number, counted, unit) or (f"yours is {float(number / counted):.4g} of it" if counted else "")
    if agrees(number, counted, prediction.get("within")):
        lines, apart = [f"{prediction['name']}: {plain(number)} is {only_here(prediction, said, terms)}"], ""
    else:
        lines = [f"{prediction['name']}: you said {plain(number)}, counted were {plain(counted)}{' ' + unit if unit else ''}", *remarks(prediction, said, counted, terms)]
    lines += ["    " + line for line in marked(formula, terms, [leaf.col_offset for leaf in found])]
    lines.append("    " + "; ".join(part for part in (apart, words or "no single term explains the difference") if part))
    return lines + [f"    {name}  {meanings[name]}" for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", formula)) if name in meanings]


def parse_predictions(text):
    """{name: formula} of "a=1 b=3*P"; a formula may have spaces around its signs."""
    text = re.sub(r"(?<![\w.,(])\d{1,3}(,\d{3})+(?!\w|[,.]\d)", lambda digits: digits[0].replace(",", ""), text)  # 24,024,000
    text = re.sub(r",(?=\s*(\w+\s*=|$))", " ", text)
    found = re.findall(r"(\w+)\s*=\s*([^=]+?)(?=\s+\w+\s*=|\s*$)", text)
    if not found:
        raise Refused(f"'{text}' has no NAME=NUMBER")
    begin = text[:re.search(r"\w+\s*=", text).start()].strip(" ,")
    if begin:
        raise Refused(f"'{begin}' is no NAME=NUMBER")
    return dict(found)
