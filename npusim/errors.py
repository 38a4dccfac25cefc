"""Errors that a user can cause: what is wrong, where, and what to do.

Every error a user can cause is an `NpusimError`; its text is
complete by itself, so the command line prints it and ends with `exit_status`, without a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "ConfigError",
    "DynamicShapeError",
    "EmptyGraphError",
    "FileError",
    "GraphError",
    "IllegalTechniqueError",
    "InfeasibleError",
    "ModelFileError",
    "NpusimError",
    "ShapeError",
    "UnfixedSizeError",
    "UnknownNameError",
    "nearest",
    "printable",
    "shown",
]

_SHOWN_CHARACTERS = 80
"""How much of an offending value a message repeats; a pasted megabyte helps nobody."""
_LONGEST_NAME, _MOST_CHOICES = 200, 20_000
"""Beyond these a name is no misspelling, and comparing it would take long."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that `name` most likely means, or None where nothing is close.

    Parameters
    ----------
    name : str
        What was written.
    choices : iterable of str
        What would have been valid.

    Returns
    -------
    str or None
        The closest choice: the same but for case, then by difflib's ratio of at least 0.6.
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
    # Of equally close names the one that begins alike: `tilez` means `tiles`, not `title`.
    ratio = [round(difflib.SequenceMatcher(None, one, wanted).ratio(), 9) for one in close]
    best = [one for one, each in zip(close, ratio, strict=True) if each == ratio[0]]
    return folded[max(best, key=lambda one: [a == b for a, b in zip(one, wanted, strict=False)])]


def printable(text: str) -> str:
    """Return a text without characters that a terminal obeys instead of showing; line feeds and tabs stay."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def shown(value: object) -> str:
    """Return a value as a message repeats it: quoted, on one line, not too long."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = value if isinstance(value, str) else repr(value)
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return f"`{text}`" if len(text) <= _SHOWN_CHARACTERS else f"`{text[:_SHOWN_CHARACTERS]}...`"


class NpusimError(Exception):
    """Anything a user can cause and mend; the message is complete and says what to do.

    Attributes
    ----------
    exit_status : int
        What the command line ends with: 2, bad input or usage.
    """

    exit_status: int = 2

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes whole: the default would call `__init__` with the message alone."""
        return _revive, (type(self), self.args, self.__dict__)


def _revive(cls: type[NpusimError], args: tuple[Any, ...], state: dict[str, Any]) -> NpusimError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigError(NpusimError):
    """An impossible configuration: place, what was found, what is allowed, what was meant.

    Parameters
    ----------
    found : str
        What stands there, for example "`3 MiB`"; or what is the matter.
    file : str, optional
        File, or the command-line option, that holds it.
    line : int, optional
        Line in the file, from 1.
    key : str, optional
        Path of the key, for example ``devices.npu.dpu.clock``.
    allowed : str, optional
        What may stand there.
    suggestion : str, optional
        The nearest valid name or spelling.
    others : sequence of ConfigError, optional
        Further errors of the same file, shown one per line.
    more : int, optional
        How many errors beyond those are not shown.

    Notes
    -----
    The text reads ``file:line: key: found ...; allowed ...; did you mean ...?``.
    """

    def __init__(
        self,
        found: str,
        *,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        allowed: str | None = None,
        suggestion: str | None = None,
        others: Sequence[ConfigError] = (),
        more: int = 0,
    ) -> None:
        self.found, self.file, self.line, self.key = found, file, line, key
        self.allowed, self.suggestion = allowed, suggestion
        self.others, self.more = tuple(others), more
        lines = [self.headline, *(f"  also {other.headline}" for other in self.others)]
        if more:
            lines.append(f"  and {more} more")
        super().__init__("\n".join(lines))

    @property
    def headline(self) -> str:
        """This error alone, in one line."""
        place = self.file or ""
        if place and self.line is not None:
            place += f":{self.line}"
        said = [f"found {self.found}"]
        if self.allowed:
            said.append(f"allowed: {self.allowed}")
        if self.suggestion:
            said.append(f"did you mean `{self.suggestion}`?")
        return ": ".join(part for part in (place, self.key, "; ".join(said)) if part)

    def with_keys(self, named: Callable[[str], str]) -> ConfigError:
        """Return the same error with every key as `named` writes it."""
        return ConfigError(
            self.found,
            file=self.file,
            line=self.line,
            key=None if self.key is None else named(self.key),
            allowed=self.allowed,
            suggestion=self.suggestion,
            others=[other.with_keys(named) for other in self.others],
            more=self.more,
        )


class UnknownNameError(NpusimError):
    """A name nobody knows: a SoC, workload, technique, operator, dtype, suite.

    Parameters
    ----------
    kind : str
        What the name should have named, for example "SoC".
    name : str
        What was written.
    known : iterable of str
        The valid names.
    hint : str, optional
        What else may be given in the name's place, for example "or the path of a YAML file".
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        self.suggestion = nearest(name, self.known)
        text = f"unknown {kind} {shown(name)}"
        if self.suggestion:
            text += f"; did you mean `{self.suggestion}`?"
        text += f" Known: {', '.join(self.known)}" if self.known else " None are known"
        super().__init__(text + (f"; {hint}" if hint else ""))


class FileError(NpusimError):
    """A file that is missing, a directory, unreadable or not text.

    Parameters
    ----------
    path : str
        The file as it was named.
    problem : str
        What is the matter with it.
    remedy : str, optional
        What to do.
    """

    def __init__(self, path: str, problem: str, remedy: str = "") -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{path}: {problem}" + (f"; {remedy}" if remedy else ""))


class ModelFileError(FileError):
    """An OpenVINO IR or ONNX file that cannot be read as a model."""


class ShapeError(NpusimError):
    """Shapes that do not go together; the message names the operator and both shapes."""


class DynamicShapeError(ShapeError):
    """A model whose input has no fixed shape, so that nothing can be counted.

    Parameters
    ----------
    inputs : mapping of str to str
        Name and shape, as written in the model, of each input that is dynamic.
    """

    def __init__(self, inputs: dict[str, str]) -> None:
        self.inputs = dict(inputs)
        listed = ", ".join(f"{name} {shape}" for name, shape in inputs.items())
        fixes = " ".join(f"--shape '{name}=[...]'" for name in inputs)
        super().__init__(f"the model has dynamic shapes: {listed}; give each a fixed one: {fixes}")


class UnfixedSizeError(ShapeError):
    """A tensor inside a model whose size depends on values.

    Parameters
    ----------
    operator : str
        Name of the operator that makes it.
    kind : str
        OpenVINO operation name.
    shape : str
        Its shape as far as it is known.
    """

    def __init__(self, operator: str, kind: str, shape: str) -> None:
        self.operator = operator
        super().__init__(
            f"operator {shown(operator)} ({kind}): its result {shape} has no fixed size although the inputs "
            "have; export the model with sizes that do not depend on values (NonZero, Unique and masks make "
            "them so)"
        )


class GraphError(NpusimError):
    """Operators and tensors that make no graph: a clash of names, a cycle, a tensor nobody writes."""


class EmptyGraphError(GraphError):
    """A graph without an operator: there is nothing to estimate."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name}: the graph has no operators; give a model with at least one operator")


class IllegalTechniqueError(NpusimError):
    """A technique that this graph, or this stack, does not allow.

    Parameters
    ----------
    technique : str
        Name of the technique, with its parameters.
    reason : str
        Why it cannot be applied.
    remedy : str, optional
        What to do instead.
    """

    def __init__(self, technique: str, reason: str, remedy: str = "") -> None:
        self.technique, self.reason, self.remedy = technique, reason, remedy
        super().__init__(f"technique `{technique}`: {reason}" + (f"; {remedy}" if remedy else ""))


class InfeasibleError(NpusimError):
    """Work that no schedule on this machine can do, for example an operator that no device runs."""
