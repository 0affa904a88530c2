"""Grades predictions of scripts/learn: a number beside what the program counted, and where they differ the formula with
this run's numbers, in which the term is marked that would explain the difference."""
import ast
import re
from fractions import Fraction

OPERATORS = {ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.Div: lambda a, b: a / b}


class Refused(Exception):
    """What somebody typed cannot be used; the message says why."""


def leaves(tree):
    """Names and numbers, in the order in which they are written."""
    return sorted((n for n in ast.walk(tree) if isinstance(n, (ast.Name, ast.Constant))), key=lambda n: n.col_offset)


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
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -value_of(node.operand, terms, instead)
    raise Refused(f"'{ast.unparse(node)}' is neither a number nor one of {', '.join(sorted(terms)) or 'no terms'}")


def parsed(formula):
    try:
        return ast.parse(formula.strip(), mode="eval")
    except SyntaxError:
        raise Refused(f"'{formula}' is not a number, nor a formula such as 4 * P / W") from None


def evaluate(formula, terms):
    try:
        return value_of(parsed(formula), terms)
    except ZeroDivisionError:
        raise Refused(f"'{formula}' divides by 0") from None


def plain(number):
    number = Fraction(number)
    return str(number.numerator) if number.denominator == 1 else f"{float(number):.6g}"


def agrees(said, counted, within):
    """Equal, or, where `within` is a factor, not further off than that."""
    if within is None:
        return said == counted
    return said > 0 and counted > 0 and max(said / counted, counted / said) <= Fraction(str(within))


def differing_leaf(tree, terms, said, within):
    """(leaf, the value that would explain `said`), or None: one that was left out, was off by one, doubled or halved, or is
    another term's."""
    own = {leaf: value_of(leaf, terms) for leaf in leaves(tree)}
    left_out = [(leaf, Fraction(value)) for value in (1, 0) for leaf in own]
    others = sorted(set(own.values()))
    changed = [(leaf, value) for leaf, v in own.items() for value in (v + 1, v - 1, v * 2, v / 2, *others)]
    for leaf, instead in left_out + changed:
        try:
            if instead != own[leaf] and agrees(value_of(tree, terms, (leaf, instead)), said, within and 1.01):
                return leaf, instead
        except ZeroDivisionError:
            continue
    return None


def extra_factor(said, counted, terms, meanings):
    """Words for a number that no term of the formula explains."""
    for name, value in sorted(terms.items()):
        for word, product in ("times", counted * value), ("divided by", counted / value if value else None):
            if said == product and value != 1:
                return f"yours is this {word} {name}" + (f", {meanings[name]}" if name in meanings else "")
    return (f"yours is {float(said / counted):.4g} of it; " if counted else "") + "no single term explains the difference"


def marked(formula, terms, leaf=None):
    """The formula over the same with numbers put in, over a mark below the leaf."""
    above = below = under = ""
    for token in re.finditer(r"[\w.]+|\s+|.", formula):
        word = token.group()
        number = plain(terms[word]) if word in terms else word
        width = max(len(word), len(number))
        is_it = leaf is not None and token.start() == leaf.col_offset
        above, below, under = above + word.ljust(width), below + number.ljust(width), under + ("^" if is_it else " ") * width
    return [line.rstrip() for line in (above, below, under)][:3 if leaf is not None else 2]


def explained(prediction, said, counted, terms, meanings):
    """What a wrong prediction is answered with, as lines."""
    formula, within = prediction["formula"], prediction.get("within")
    tree, unit = parsed(formula), prediction.get("unit", "")
    found = differing_leaf(tree, terms, said, within)
    lines = [f"{prediction['name']}: you said {plain(said)}, counted were {plain(counted)}{' ' + unit if unit else ''}"]
    lines += ["    " + line for line in marked(formula, terms, found and found[0])]
    if found:
        name = formula[found[0].col_offset:found[0].end_col_offset]
        what = f"{name}, {meanings[name]}," if name in meanings else f"this {name}"
        change = f"without {what}" if found[1] in (0, 1) else f"with {plain(found[1])} in the place of {what}"
        lines.append(f"    {change} it would be your number")
    else:
        lines.append("    " + extra_factor(Fraction(said), counted, terms, meanings))
    return lines + [f"    {name}  {meanings[name]}" for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", formula)) if name in meanings]


def parse_predictions(text):
    """{name: formula} of "a=1 b=3*P"; a formula may have spaces around its signs."""
    found = re.findall(r"(\w+)\s*=\s*([^=]+?)(?=\s+\w+\s*=|\s*$)", text.replace(",", " "))
    if not found:
        raise Refused(f"'{text}' has no NAME=NUMBER")
    begin = text[:re.search(r"\w+\s*=", text).start()].strip(" ,")
    if begin:
        raise Refused(f"'{begin}' is no NAME=NUMBER")
    return dict(found)
