"""Errors that a user can cause: what is wrong, where, and what to do.

Each is an `NpusimError` with a complete message: the command line prints it and ends with `exit_status`,
without a traceback.
"""

from __future__ import annotations

import copyreg
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

_LONGEST_PROBLEM = 1_000
_SHOWN_CHARACTERS = 80  # most characters of an offending value that a message repeats
_LONGEST_NAME, _MOST_CHOICES = 200, 20_000
"""A longer name is no misspelling; more choices would take long to compare."""
_MOST_SHOWN, _MOST_ALIKE = 60, 12
"""Names that a message lists in full; of more names so many that resemble the unknown one."""
_LONGEST_WORD = 240
"""A longer name is data that somebody made; paths are shorter."""
_ENDLESS = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that a misspelt name most likely means; None if nothing is close.

    That is the choice that differs in case only, else the closest by difflib's ratio of at least 0.6.
    """
    known = list(choices)
    if len(name) > _LONGEST_NAME or len(known) > _MOST_CHOICES:
        return None
    folded = {choice.lower(): choice for choice in reversed(known)}
    same = folded.get(name.lower())
    if same is not None:
        return same
    import difflib  # needed only when something went wrong

    wanted = name.lower()
    close = difflib.get_close_matches(wanted, list(folded), n=3, cutoff=0.6)
    if not close:
        return None
    # Among equally close names the one with the same beginning wins: `tilez` means `tiles`, not `title`.
    ratios = {name: round(difflib.SequenceMatcher(None, name, wanted).ratio(), 9) for name in close}
    best = [name for name, ratio in ratios.items() if ratio == ratios[close[0]]]
    return folded[max(best, key=lambda name: [a == b for a, b in zip(name, wanted, strict=False)])]


def printable(text: str) -> str:
    """Return a text with control characters escaped and endless words cut; line feeds and tabs stay."""
    text = _ENDLESS.sub(lambda match: brief(match[0]), text)
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def is_text(name: str) -> bool:
    """Return whether a name is valid Unicode; a file system allows others."""
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def brief(name: str) -> str:
    """Return a name as tables and messages show it: an endless one is cut, with its length."""
    if len(name) <= _LONGEST_WORD:
        return name
    return f"{name[:_SHOWN_CHARACTERS]}... ({len(name):,} letters)"


def shown(value: object) -> str:
    """Return a value as messages repeat it: quoted, on one line, not too long."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = value if isinstance(value, str) else repr(value)
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    cut = f"`{text[:_SHOWN_CHARACTERS]}...` ({len(text):,} letters)"
    return f"`{text}`" if len(text) <= _SHOWN_CHARACTERS else cut


def as_list(texts: str | Sequence[Any] | None) -> list[str]:
    """Return the texts of a list, or of one text that parts them by commas; none for None."""
    if texts is None:
        return []
    parts = [str(text).strip() for text in (texts.split(",") if isinstance(texts, str) else texts)]
    if isinstance(texts, str) and "" in parts:
        raise ConfigError(shown(texts), allowed="a list parted by commas, with nothing left out")
    return parts


class NpusimError(Exception):
    """An error that a user can cause and correct."""

    exit_status: int = 2
    """Exit status of the command line: 2, bad input or usage."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle rebuilds it from; the default would call `__init__` with the message alone."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


@dataclass(eq=False, repr=False)
class ConfigError(NpusimError):
    """A wrong configuration: ``file:line: key: found ...; allowed ...; did you mean ...?``.

    `found` is the offending value, such as "`3 MiB`", or the problem; `file` a file or a command-line option;
    `key` the path of the key, such as ``devices.npu.dpu.clock``; `suggestion` the nearest valid name.
    `others` are further errors of the same file, one a line; `more` counts those that are not shown.
    """

    found: str
    _: KW_ONLY
    file: str | None = None
    line: int | None = None
    key: str | None = None
    allowed: str | None = None
    suggestion: str | None = None
    others: Sequence[ConfigError] = ()
    more: int = 0

    def __post_init__(self) -> None:
        if len(self.found) > _LONGEST_PROBLEM:
            self.found = f"{self.found[:_LONGEST_PROBLEM]}... ({len(self.found):,} letters)"
        lines = [self.headline, *(f"  also {other.headline}" for other in self.others)]
        if self.more:
            lines.append(f"  and {self.more} more")
        super().__init__("\n".join(lines))

    @property
    def headline(self) -> str:
        """This error without the others, in one line."""
        place = self.file or ""
        if place and self.line is not None:
            place += f":{self.line}"
        clauses = [f"found {self.found}"]
        if self.allowed:
            clauses.append(f"allowed: {self.allowed}")
        if self.suggestion:
            clauses.append(f"did you mean `{self.suggestion}`?")
        return ": ".join(part for part in (place, self.key, "; ".join(clauses)) if part)

    def with_(self, **changes: Any) -> ConfigError:
        """Return a copy with some of the parameters changed."""
        return replace(self, **changes)

    def with_keys(self, named: Callable[[str], str]) -> ConfigError:
        """Return the same error with every key as `named` writes it."""
        key = None if self.key is None else named(self.key)
        return self.with_(key=key, others=[other.with_keys(named) for other in self.others])


class UnknownNameError(NpusimError):
    """An unknown name of a SoC, workload, technique, operator, dtype or suite.

    `kind` is the kind of the name, such as "SoC"; `hint` says what else is accepted.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(set(known)))
        self.suggestion = nearest(name, self.known)
        text = f"unknown {kind} {shown(name)}"
        text += f"; did you mean `{self.suggestion}`?" if self.suggestion else "."
        text += f" Known: {self._shown()}" if self.known else " None are known"
        super().__init__(text + (f"; {hint}" if hint else ""))

    def _shown(self) -> str:
        """Return all names; of very many those that resemble the unknown one."""
        if len(self.known) <= _MOST_SHOWN:
            return ", ".join(self.known)
        import difflib

        alike = difflib.get_close_matches(self.name[:_LONGEST_NAME], self.known, _MOST_ALIKE, 0.0)
        return f"{len(self.known)} names, such as {', '.join(sorted(alike))}"


class FileError(NpusimError):
    """A file that is missing, a directory, unreadable or not text; `remedy` says what to do."""

    def __init__(self, path: str, problem: str, remedy: str = "") -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{path}: {problem}" + (f"; {remedy}" if remedy else ""))


class ModelFileError(FileError):
    """An OpenVINO IR or ONNX file that cannot be read as a model."""


class ShapeError(NpusimError):
    """Shapes that do not fit together; the message names the operator and both shapes."""


class DynamicShapeError(ShapeError):
    """A model with dynamic inputs, whose work cannot be counted.

    Parameters
    ----------
    inputs : mapping of str to str
        Name and shape, as the model writes it, of each dynamic input.
    """

    def __init__(self, inputs: dict[str, str]) -> None:
        self.inputs = dict(inputs)
        listed = ", ".join(f"{name} {shape}" for name, shape in inputs.items())
        fixes = " ".join(f"--shape '{name}=[...]'" for name in inputs)
        super().__init__(f"the model has dynamic shapes: {listed}; give each a fixed one: {fixes}")


class UnfixedSizeError(ShapeError):
    """A tensor inside a model whose size depends on values; `shape` is the known part of its shape."""

    def __init__(self, operator: str, kind: str, shape: str) -> None:
        self.operator = operator
        super().__init__(
            f"operator {shown(operator)} ({kind}): its result {shape} has no fixed size although the inputs "
            "have; export the model with sizes that do not depend on values (NonZero, Unique and masks make "
            "them so)"
        )


class GraphError(NpusimError):
    """Operators and tensors that form no graph: a clash of names, a cycle, a tensor without a writer."""


class EmptyGraphError(GraphError):
    """A graph without operators."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name}: the graph has no operators; give a model with at least one operator")


class IllegalTechniqueError(NpusimError):
    """A technique, written with its parameters, that a graph or a stack does not allow."""

    def __init__(self, technique: str, reason: str, remedy: str = "") -> None:
        self.technique, self.reason, self.remedy = technique, reason, remedy
        super().__init__(f"technique `{technique}`: {reason}" + (f"; {remedy}" if remedy else ""))


class InfeasibleError(NpusimError):
    """Work that the machine cannot do, for example an operator that no device runs.

    Parameters
    ----------
    problem : str
        What was asked, and why it cannot be.
    needed, available : float, optional
        What it takes at least, and what there is.
    unit : str
        Their unit, such as "bytes".
    levers : sequence of str
        What would make it feasible, each as a request to the user.
    """

    def __init__(
        self,
        problem: str,
        *,
        needed: float | None = None,
        available: float | None = None,
        unit: str = "",
        levers: Sequence[str] = (),
    ) -> None:
        self.problem, self.needed, self.available = problem, needed, available
        self.unit, self.levers = unit, tuple(levers)
        super().__init__("; ".join([self.reason, *self.levers]))

    @property
    def reason(self) -> str:
        """The message without the levers."""
        amounts = (("needed", self.needed), ("available", self.available))
        stated = [f"{name}: {_amount(amount)} {self.unit}" for name, amount in amounts if amount is not None]
        return "; ".join([self.problem, ", ".join(stated)]) if stated else self.problem


def _amount(amount: float) -> str:
    """Return an amount in whole units, or with four digits where it is below 1,000."""
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:.4g}"
