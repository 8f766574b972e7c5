"""The identity of the code that makes transitions: 12 hex digits over the user's sources.

A run that is blocked is taken up again by code of another identity. Two things follow:

- Whatever the workflows can reach must change it, or the fix in a helper un-blocks nothing.
- The same code must give the same identity in every process, whatever that process has loaded besides. Otherwise two
  workers with the same bug would hand a blocked run to each other for ever.

So it is a function of source files alone: those of the modules that define the workflows, and those that their import
statements lead to, wherever these stand. Only the user's code counts: not the standard library, not what is installed
in site-packages (except the package of a workflow itself), not Pledger, whose version goes in instead.

Import statements are found by pattern, not by parsing, which costs several times as much. Text that merely looks like
one takes in a file more than needed, and only if there is such a file. A module imported by a computed name is missed.

Functions without a source file (a prompt, a notebook, `python -c`) count by their bytecode, and so do the functions and
classes beside them that they name; the values of global variables do not.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

_DIGEST_BYTES: Final = 6
_PLEDGER: Final = __name__.partition(".")[0]

_COMMENT_OR_CONTINUATION: Final = re.compile(r"#[^\n]*|\\\r?\n")
_IMPORT: Final = re.compile(
    r"""
    (?: ^ | [:;] ) [ \t]*
    (?: from \b [ \t]* (?P<base> [.\w]+ ) [ \t]+ import \b [ \t]* (?: \( (?P<many> [^)]* ) | (?P<names> [^\n;]* ) )
      | import [ \t]+ (?P<modules> [^\n;]* )
    )
    """,
    re.MULTILINE | re.VERBOSE,
)


def code_identity(definitions: Iterable[Callable[..., Any]], *, version: str) -> str:
    """The identity of the code of these workflow functions and classes. version: Pledger's own."""
    code = _UserCode(definitions)
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    digest.update(_part(version.encode()))
    for name, content in sorted(code.sources.items()):
        digest.update(_part(name.encode()) + _part(content))
    for module, function, bytecode in sorted(code.functions):
        digest.update(_part(module.encode()) + _part(function.encode()) + _part(bytecode))
    return digest.hexdigest()


def user_modules(definitions: Iterable[Callable[..., Any]]) -> list[ModuleType]:
    """The loaded modules that count for the identity of these workflows, sorted by name."""
    code = _UserCode(definitions)
    return [sys.modules[name] for name in sorted(code.loaded_as) if name in sys.modules]


class _UserCode:
    """The code that the definitions reach.

    sources: content by module name. functions: (module, name, digest of the bytecode) of those without a source.
    loaded_as: the names of all these modules in `sys.modules`, where they are loaded.
    """

    def __init__(self, definitions: Iterable[Callable[..., Any]]) -> None:
        self.sources: dict[str, bytes] = {}
        self.functions: set[tuple[str, str, bytes]] = set()
        self.loaded_as: set[str] = set()
        self._specs: dict[str, ModuleSpec | None] = {}
        self._projects: set[str] = set()
        self._seen: set[str] = set()
        for definition in definitions:
            module = definition.__module__
            self.loaded_as.add(module)
            spec = _defining_spec(module)
            if spec is None:
                self._add_bytecode(definition, module)
            else:
                self._specs[spec.name] = spec
                self._projects.add(spec.name.partition(".")[0])
                self._add_source(spec.name)

    # By source --------------------------------------------------------------------------------------------------------

    def _add_source(self, name: str) -> None:
        """Take in the module, the packages it is in and what they import, as far as this is user code."""
        pending = [name]
        while pending:
            name = pending.pop()
            if name in self._seen:
                continue
            self._seen.add(name)
            spec = self._find(name) if self._is_user_code(name) else None
            content = None if spec is None else _content(spec)
            if spec is None or content is None:
                continue
            self.sources[name] = content
            self.loaded_as.add(name)
            pending += _packages(name)
            if str(spec.origin).endswith(".py"):
                pending += _imports(content.decode(errors="replace"), spec)

    def _is_user_code(self, name: str) -> bool:
        top = name.partition(".")[0]
        if top in self._projects:
            return True
        if top == _PLEDGER or top in sys.stdlib_module_names:
            return False
        spec = self._find(top)
        if spec is None:
            return False
        places = [spec.origin or "", *(spec.submodule_search_locations or ())]
        return not any("site-packages" in place or "dist-packages" in place for place in places)

    def _find(self, name: str) -> ModuleSpec | None:
        """The module's spec, without importing anything: `importlib.util.find_spec` would import its packages."""
        if name not in self._specs:
            self._specs[name] = getattr(sys.modules.get(name), "__spec__", None) or self._search(name)
        return self._specs[name]

    def _search(self, name: str) -> ModuleSpec | None:
        parent = name.rpartition(".")[0]
        path = None
        if parent:
            package = self._find(parent)
            path = None if package is None else package.submodule_search_locations
            if path is None:
                return None
        found = (finder.find_spec(name, path) for finder in sys.meta_path)
        return next((spec for spec in found if spec is not None), None)

    # By bytecode ------------------------------------------------------------------------------------------------------

    def _add_bytecode(self, definition: object, module: str) -> None:
        """Take in the definition and what its code names, from its own module by bytecode, from others by source."""
        pending = [definition]
        while pending:
            value = pending.pop()
            if isinstance(value, ModuleType):
                self._add_source(value.__name__)
            for function in _functions_of(value):
                # Code that was run in a dictionary without a name has no module; it counts as what names it.
                if function.__module__ not in (module, None):
                    self._add_source(function.__module__)
                    continue
                found = (module, function.__qualname__, _code_digest(function.__code__))
                if found not in self.functions:
                    self.functions.add(found)
                    pending += _named_by(function)


# Sources --------------------------------------------------------------------------------------------------------------


def _defining_spec(module_name: str) -> ModuleSpec | None:
    """Of a module that defines workflows; None when its source cannot be read.

    What runs as `__main__` goes by the name that it has when another process imports it.
    """
    module = sys.modules.get(module_name)
    spec: ModuleSpec | None = getattr(module, "__spec__", None)
    file = getattr(module, "__file__", None)
    if spec is None and file is not None:
        spec = spec_from_file_location(Path(file).stem if module_name == "__main__" else module_name, file)
    return None if spec is None or _content(spec) is None else spec


def _content(spec: ModuleSpec) -> bytes | None:
    """What the module is loaded from; None for a namespace package and for what is in no file."""
    if spec.origin is None:
        return None
    try:
        return Path(spec.origin).read_bytes()
    except OSError:
        read = getattr(spec.loader, "get_data", None)  # it may be inside an archive
    try:
        return None if read is None else bytes(read(spec.origin))
    except OSError:
        return None


def _imports(source: str, spec: ModuleSpec) -> list[str]:
    """Names of modules that the source may import: of `from a import b` both a and a.b."""
    package = spec.name if spec.submodule_search_locations is not None else spec.name.rpartition(".")[0]
    names = []
    for found in _IMPORT.finditer(_COMMENT_OR_CONTINUATION.sub("", source)):
        if found["base"] is None:
            names += _listed(found["modules"])
        else:
            base = _absolute(found["base"], package)
            names += [base, *(f"{base}.{name}" for name in _listed(found["many"] or found["names"]))]
    return [name for name in names if all(map(str.isidentifier, name.split(".")))]


def _listed(names: str) -> list[str]:
    """The names of `a, b.c as d`."""
    return [words[0] for words in map(str.split, names.split(",")) if words]


def _absolute(name: str, package: str) -> str:
    """What `..name` means within the package."""
    relative = name.lstrip(".")
    level = len(name) - len(relative)
    if level == 0:
        return name
    parts = package.split(".")
    return ".".join(filter(None, [*parts[: len(parts) - level + 1], relative]))


def _packages(name: str) -> list[str]:
    """The packages that the module is in: they are imported with it."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


# Bytecode -------------------------------------------------------------------------------------------------------------


def _functions_of(value: object) -> Iterator[FunctionType]:
    """The Python functions of a function, a method, a property, a class, or of what wraps one of them."""
    if isinstance(value, type):
        for cls in value.__mro__:
            for member in vars(cls).values():
                if not isinstance(member, type):
                    yield from _functions_of(member)
    elif isinstance(value, property):
        for accessor in (value.fget, value.fset, value.fdel):
            yield from _functions_of(accessor)
    else:
        plain = inspect.unwrap(getattr(value, "__func__", value))  # type: ignore[arg-type] # takes any object
        if isinstance(plain, FunctionType):
            yield plain


def _named_by(function: FunctionType) -> list[object]:
    """The values that the function's code names: globals, modules within these, and what it closes over."""
    names = list(_names(function.__code__))
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    for value in values:  # grows: of `shop.rules.rate` the code names every part
        if isinstance(value, ModuleType):
            inner = [vars(value)[name] for name in names if name in vars(value)]
            values += [
                one for one in inner if isinstance(one, ModuleType) and not any(one is known for known in values)
            ]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # the cell is not filled yet
            continue
    return values


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _code_digest(code: CodeType) -> bytes:
    """Of what the code does: not of its file, line numbers or the names of what it is in."""
    digest = hashlib.blake2b(digest_size=16)
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    for part in (code.co_code, code.co_exceptiontable, repr((shape, names)).encode(), _constant(code.co_consts)):
        digest.update(_part(part))
    return digest.digest()


def _constant(value: object) -> bytes:
    """The constant in a form that does not depend on hash randomization, with its type (1, 1.0 and True differ)."""
    match value:
        case CodeType():
            return _code_digest(value)
        case tuple():
            parts = [_constant(one) for one in value]
        case frozenset():
            parts = sorted(_constant(one) for one in value)
        case _:
            parts = [repr(value).encode()]
    return b"".join(map(_part, [type(value).__name__.encode(), *parts]))


def _part(content: bytes) -> bytes:
    """With its length before it, so that parts do not run into each other."""
    return len(content).to_bytes(8, "big") + content
