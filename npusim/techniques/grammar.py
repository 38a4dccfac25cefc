"""The one grammar of technique stacks: `grad+nodepad:capacity=3000+grax2:form=rank2`.

A stack is like an order at a coffee bar: the customer may say the extras in any sequence, the barista always
makes them in the same one and reads the order back that way. Command line, YAML, JSON and Python all come
through here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from npusim.errors import IllegalTechniqueError, UnknownNameError, shown
from npusim.techniques.registry import ORDER, get
from npusim.techniques.technique import Parameters, Technique

__all__ = ["NONE", "Stack", "Step", "parse"]

NONE = "none"
"""How the empty stack is written."""


@dataclass(frozen=True, slots=True)
class Step:
    """One technique of a stack with its settings."""

    technique: Technique
    parameters: Parameters

    def __str__(self) -> str:
        said = self.parameters.model_dump(mode="json", exclude_defaults=True)
        return self.technique.name + "".join(
            f":{key}={_spelled(value)}" for key, value in sorted(said.items())
        )


@dataclass(frozen=True, slots=True)
class Stack:
    """Techniques in their legal order; `str()` is the canonical text."""

    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return "+".join(map(str, self.steps)) or NONE

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the techniques, in order."""
        return tuple(step.technique.name for step in self.steps)

    def to_data(self) -> list[str | dict[str, dict[str, Any]]]:
        """Return the stack as YAML and JSON hold it: names, and mappings from name to settings."""
        data: list[str | dict[str, dict[str, Any]]] = []
        for step in self.steps:
            said = step.parameters.model_dump(mode="json", exclude_defaults=True)
            data.append({step.technique.name: said} if said else step.technique.name)
        return data


def parse(what: Stack | str | Sequence[Any] | None) -> Stack:
    """Read a technique stack.

    Parameters
    ----------
    what : Stack, str, sequence or None
        The text of a stack; or a list, as in YAML and JSON, of texts of one technique and of mappings from a
        name to its settings. None, an empty text or list and "none" are the empty stack.

    Returns
    -------
    Stack
        In the legal order.

    Raises
    ------
    UnknownNameError
        For an unknown technique or setting; it names the nearest one.
    IllegalTechniqueError
        For a technique that stands twice, a setting without a value, or a value that is not allowed.

    Examples
    --------
    >>> str(parse("grax2:form=rank2 + nodepad:capacity=3000+grad"))
    'grad+nodepad:capacity=3000+grax2:form=rank2'
    >>> str(parse(["symg", {"nodepad": {"capacity": 3000}}]))
    'nodepad:capacity=3000+symg'
    >>> str(parse(""))
    'none'
    """
    if isinstance(what, Stack):
        return what
    items: list[Any] = []
    for item in [what] if what is None or isinstance(what, str | Mapping) else list(what):
        items.extend(item.split("+") if isinstance(item, str) else [item])
    items = [item for item in items if not _is_empty(item)]
    steps = [_from_mapping(item) if isinstance(item, Mapping) else _from_text(item) for item in items]
    names = [step.technique.name for step in steps]
    for name in names:
        if names.count(name) > 1:
            raise IllegalTechniqueError(name, "stands twice in the stack")
    return Stack(tuple(sorted(steps, key=lambda step: ORDER.index(step.technique.name))))


def _is_empty(item: Any) -> bool:
    return item is None or (isinstance(item, str) and item.strip().lower() in ("", NONE))


def _from_text(text: Any) -> Step:
    if not isinstance(text, str):
        raise IllegalTechniqueError(
            str(text), f"a technique is a name or a mapping from a name to settings, not {shown(text)}"
        )
    name, *settings = (part.strip() for part in text.strip().split(":"))
    said: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not key or not value:
            raise IllegalTechniqueError(
                name, f"setting {shown(setting)} has no value", f"write {name}:{key or 'key'}=value"
            )
        if key in said:
            raise IllegalTechniqueError(name, f"setting {shown(key)} stands twice")
        said[key] = value
    return _step(name, said)


def _from_mapping(item: Mapping[Any, Any]) -> Step:
    if len(item) != 1:
        raise IllegalTechniqueError(str(dict(item)), "a mapping names one technique and holds its settings")
    ((name, settings),) = item.items()
    if settings is not None and not isinstance(settings, Mapping):
        raise IllegalTechniqueError(
            str(name), f"settings are a mapping from key to value, not {shown(settings)}"
        )
    return _step(str(name), {str(key): value for key, value in (settings or {}).items()})


def _step(name: str, settings: Mapping[str, Any]) -> Step:
    technique = get(name)
    known = technique.parameters.model_fields
    for key in settings:
        if key not in known:
            raise UnknownNameError(f"setting of {technique.name}", key, known)
    try:
        return Step(technique, technique.parameters.model_validate(settings))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise IllegalTechniqueError(
            f"{technique.name}:{key}={settings.get(key)}",
            f"{first['msg'][0].lower()}{first['msg'][1:]}, found {shown(settings.get(key))}",
        ) from None


def _spelled(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
