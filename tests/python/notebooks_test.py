"""The notebooks of the first rungs: every cell gives what is written below it."""

import json
from pathlib import Path

import pytest
from notebooks import run_cells

FOLDER = Path(__file__).parents[2] / "tutorials" / "notebooks"


def written(cell):
    """Its output as the notebook has it: what was printed, and the last line's value."""
    found = {output["output_type"]: output for output in cell["outputs"]}
    assert set(found) <= {"stream", "execute_result"}, found.keys()
    printed = "".join(found["stream"]["text"]) if "stream" in found else ""
    return printed, "".join(found["execute_result"]["data"]["text/plain"]) if "execute_result" in found else None


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_cell_gives_what_is_written_below_it(path):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 5
    for cell, (printed, value) in zip(cells, run_cells(["".join(cell["source"]) for cell in cells])):
        assert (printed, value) == written(cell), "".join(cell["source"])


def test_there_are_three():
    assert len(list(FOLDER.glob("*.ipynb"))) == 3
