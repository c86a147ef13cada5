"""What gin files and flags say, as data."""

import dataclasses
from collections.abc import Iterator
from typing import Any

REQUIRED = "gin.REQUIRED"
FLAGS = "flags"  # the source of what is not in a file


@dataclasses.dataclass(frozen=True)
class Reference:
    """`@scope/module.function` or, evaluated, `@scope/module.function()`."""

    scope: str
    selector: str
    evaluate: bool


@dataclasses.dataclass(frozen=True)
class Macro:
    """`%NAME`."""

    name: str


@dataclasses.dataclass(frozen=True)
class Import:
    """One import statement: in its file, `symbol` stands for `module` or the package above it."""

    module: str
    symbol: str
    source: str
    origin: str


@dataclasses.dataclass(frozen=True)
class Binding:
    """One value that was set; for a macro `selector` is empty and `parameter` its name.

    `source` is the file whose imports give the names their meaning, `origin` the place to show.
    """

    scope: str
    selector: str
    parameter: str
    value: Any
    source: str
    origin: str

    @property
    def name(self) -> str:
        """What was set, as it is written: `NAME` or `scope/module.function.parameter`."""
        path = f"{self.selector}.{self.parameter}" if self.selector else self.parameter
        return f"{self.scope}/{path}" if self.scope else path

    @property
    def macro(self) -> str:
        """The macro's name with its scope, or nothing for a parameter."""
        return "" if self.selector else self.name


@dataclasses.dataclass
class Statements:
    """All statements in the order in which they take effect, and what could not be read."""

    imports: list[Import] = dataclasses.field(default_factory=list)
    bindings: list[Binding] = dataclasses.field(default_factory=list)
    faults: list[str] = dataclasses.field(default_factory=list)
    unread: list[str] = dataclasses.field(default_factory=list)  # lines with syntax errors
    file_is_missing: bool = False

    def final_macros(self) -> dict[str, Binding]:
        """The last binding of each macro, in the order of the first."""
        return {binding.macro: binding for binding in self.bindings if binding.macro}


def references(value: Any) -> Iterator[Reference | Macro]:
    """All references and macros inside a value."""
    if isinstance(value, Reference | Macro):
        yield value
    elif isinstance(value, dict):
        for item in (*value.keys(), *value.values()):
            yield from references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references(item)
