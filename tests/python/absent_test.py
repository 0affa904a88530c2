"""Names of PyTorch's that are not here say what is."""

import importlib
from pathlib import Path

import pytest
import shardgrad as sg
from shardgrad._absent import ABSENT, section

ROOMS = [sg, sg.autograd, sg.nn, sg.nn.functional, sg.nn.utils, sg.nn.utils.rnn, sg.optim, sg.optim.lr_scheduler, sg.utils, sg.cuda]


def owner_of(name):
    above = name.rpartition(".")[0]
    return importlib.import_module(f"shardgrad.{above}" if above else "shardgrad"), name.rpartition(".")[2]


@pytest.mark.parametrize("name", ABSENT)
def test_a_name_says_what_to_use_instead(name):
    room, last = owner_of(name)
    assert not hasattr(room, last)
    with pytest.raises(AttributeError) as error:
        getattr(room, last)
    assert str(error.value) == f"module '{room.__name__}' has no attribute '{last}': {ABSENT[name]}"


@pytest.mark.parametrize("room", ROOMS)
def test_another_name_is_missed_as_by_any_module(room):
    with pytest.raises(AttributeError, match=f"^module '{room.__name__}' has no attribute 'reshap'$"):
        room.reshap
    with pytest.raises(ImportError, match="cannot import name 'reshap'"):
        exec(f"from {room.__name__} import reshap")


def test_the_documentation_has_the_same_table():
    text = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    assert section() in text, "shardgrad._absent.section() is what belongs there"


def test_files_say_what_they_hold(tmp_path):
    sg.save({"w": sg.ones(2)}, tmp_path / "state")
    state = sg.load(tmp_path / "state", map_location="cpu", weights_only=True)
    assert state["w"].tolist() == [1, 1]
    for wrong, says in ((sg.nn.Linear(2, 2), "a Linear where"), ({"epoch": 3}, "a int under 'epoch'"), ({"model": {}}, "a dict under 'model'")):
        with pytest.raises(sg.InputError, match=f"save: {says}.* tensors by name"):
            sg.save(wrong, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    for extra in range(500, 600):  # a header that is as long as a pickle's first bytes say
        sg.save({"x" * (1 + extra): sg.ones(1)}, tmp_path / "long")
        if (tmp_path / "long").read_bytes()[:2] == b"\x80\x02":
            break
    assert (tmp_path / "long").read_bytes()[:2] == b"\x80\x02" and sg.load(tmp_path / "long")["x" * (1 + extra)].tolist() == [1]
    for begin in b"PK\3\4", b"\x80\x02\x8a\n":
        (tmp_path / "model.pt").write_bytes(begin + b"..")
        with pytest.raises(sg.InputError, match="model.pt' is a pickle of PyTorch's.*safetensors.torch.save_file"):
            sg.load(tmp_path / "model.pt")
