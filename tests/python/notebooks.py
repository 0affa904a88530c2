"""Runs the code of notebooks, in this process, as Jupyter does."""

import ast
import contextlib
import io


def run_cell(text, names):
    """What it prints, and how its last line's value is shown, or None."""
    tree = ast.parse(text)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(last, "cell", "eval"), names) if last else None
    return out.getvalue(), None if value is None else repr(value)


def run_cells(texts):
    names = {"__name__": "__main__"}
    return [run_cell(text, names) for text in texts]
