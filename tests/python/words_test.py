"""Everything public has words beside its signature."""

import enum
import inspect

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
