"""Everything public has words beside its signature."""

import enum
import inspect
import re
from pathlib import Path

import pytest
import shardgrad as sg

ROOMS = [sg, sg.autograd, sg.nn, sg.nn.functional, sg.nn.init, sg.nn.utils, sg.nn.utils.rnn, sg.optim, sg.optim.schedule, sg.optim.lr_scheduler, sg.fsdp, sg.dist, sg.parallel,
         sg.cuda, sg.utils, sg.utils.data]


def public(owner):
    return {name: getattr(owner, name) for name in getattr(owner, "__all__", dir(owner)) if not name.startswith("_")}


def has_words(thing):
    """Of the extension's functions: of each overload; a property's are its getter's."""
    getter = getattr(thing, "fget", thing)
    if hasattr(getter, "__nb_signature__"):
        return all(doc and doc.strip() for _, doc, *_ in getter.__nb_signature__)
    return bool((thing.__doc__ or "").strip())


def members_of(kind):
    """Methods and properties that are its own or its base's, but not Python's."""
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        inherited = any(name in vars(base) for base in (object, int, str, list, tuple, dict, enum.Enum) if issubclass(kind, base))
        if not name.startswith("_") and not inherited and (callable(member) or isinstance(member, (property, classmethod, staticmethod))):
            yield name, getattr(member, "__func__", member)


def without_words():
    for room in ROOMS:
        for name, thing in public(room).items():
            if inspect.isclass(thing):
                yield from (f"{room.__name__}.{name}.{each}" for each, member in members_of(thing) if not has_words(member))
            if (callable(thing) or inspect.ismodule(thing)) and not has_words(thing):
                yield f"{room.__name__}.{name}"


def test_everything_public_has_words():
    assert sorted(set(without_words())) == []


@pytest.mark.parametrize("empty", [lambda x: x, type("Empty", (), {})])
def test_what_has_none_is_found(empty):
    assert not has_words(empty)


def shown(page):
    """The modules of which the page shows all that they define or name in __all__, and the names that it shows beside."""
    modules, names = set(), set()
    for kind, what, options in re.findall(r"^\.\. auto(\w+):: (\S+)\n((?: +:.*\n)*)", page, re.M):
        members = re.search(r":members: *(.*)", options)
        if kind != "module":
            names.add(what)
        elif members and members[1]:
            names |= {f"{what}.{name.strip()}" for name in members[1].split(",")}
        elif members:
            modules.add(what)
    return modules, names


def not_shown(page):
    modules, names = shown(page)
    for room in ROOMS:
        whole = room.__name__ in modules and hasattr(room, "__all__")
        for name, thing in public(room).items():
            if inspect.ismodule(thing) or not callable(thing) or whole or not thing.__module__.startswith("shardgrad"):
                continue
            places = {f"{at}.{name}" for at in (room.__name__, thing.__module__, "shardgrad")}
            if thing.__module__ not in modules and not places & names:
                yield f"{room.__name__}.{name}"


def test_the_page_of_the_api_shows_everything_public():
    page = (Path(__file__).parents[2] / "docs" / "site" / "python-api.md").read_text()
    assert sorted(set(not_shown(page))) == []
    without = page.replace(".. automodule:: shardgrad.nn.utils\n   :members:\n", "").replace(".. autofunction:: shardgrad.save\n", "")
    assert {"shardgrad.nn.utils.clip_grad_norm_", "shardgrad.save"} <= set(not_shown(without))
