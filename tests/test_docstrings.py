"""Every public name is documented: what it is, its parameters, and an example that runs with the other doctests."""

import importlib
import importlib.util
import inspect
import pkgutil

import pytest

import tidegate

ROOMS = [
    "tidegate",
    *(
        f"tidegate.{room.name}"
        for room in pkgutil.iter_modules(tidegate.__path__)
        if not room.name.startswith("_")
    ),
]
# what is made and shown by a function that has an example, or what runs until it is stopped
ELSEWHERE = {
    "tidegate.web": {"Service", "serve"},  # docs/howto/service.md
    "tidegate.pipeline": {"Pipeline", "Released", "StreamReader"},  # open_pipeline, read_stream
    "tidegate.sinks": {"Sink"},  # open_sink; who writes one begins with a class of tidegate.sinks
    "tidegate.spark": {"follow", "release"},  # docs/howto/engines.md
}


def public():
    """Public classes and functions of every room."""
    for room in ROOMS:
        if room == "tidegate.spark" and importlib.util.find_spec("pyspark") is None:
            continue
        module = importlib.import_module(room)
        for name in getattr(module, "__all__", ()):
            member = getattr(module, name)
            failure = inspect.isclass(member) and issubclass(member, BaseException)
            if (inspect.isclass(member) or inspect.isfunction(member)) and not failure:
                yield pytest.param(room, name, member, id=f"{room}.{name}")


def parameters(member):
    """What a caller gives."""
    called = member.__init__ if inspect.isclass(member) else member
    try:
        names = list(inspect.signature(called).parameters)
    except (TypeError, ValueError):
        return []
    return [name for name in names if name not in ("self", "args", "kwargs", "values", "named")]


@pytest.mark.parametrize(("room", "name", "member"), list(public()))
def test_a_public_name_is_documented(room, name, member):
    """A summary, a section of parameters or attributes where there are any, and an example."""
    text = inspect.getdoc(member) or ""
    assert text
    if name in ELSEWHERE.get(room, ()):
        return
    sections = "\nParameters\n---" in text or "\nAttributes\n---" in text
    assert sections or not parameters(member)
    assert ">>>" in text
