"""`pledger check`: what workflow code does that a replay would not repeat, found without running it."""

from __future__ import annotations

import os
import tokenize
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pledger import errors
from pledger.cli import options, words
from pledger.cli.exits import Exit
from pledger.cli.output import Output
from pledger.machine.lint import Finding, lint

#: Folders of other people's code, besides hidden ones and virtual environments.
_FOREIGN = frozenset({"__pycache__", "node_modules", "site-packages"})


def check(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH", help="Files, or folders with all below them; by default this folder.", show_default=False
        ),
    ] = None,
    *,
    waits: Annotated[
        bool, typer.Option("--waits", help="Also workflows and waits that have no deadline, or no owner.")
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Find calls in workflow code that are not deterministic, or reach outside.

    Reads the files and runs none of them. A comment `# pledger: allow` on the line of a call lets it through; say why
    behind it. The exit code is 1 when something was found.
    """
    output = Output(as_json=as_json)
    files = list(dict.fromkeys(file for path in paths or ["."] for file in _python_files(Path(path))))
    found = [(file, finding) for file in files for finding in _lint(file, waits=waits)]
    if as_json:
        findings = [{"file": str(file), **asdict(finding)} for file, finding in found]
        output.document({"ok": not found, "files": len(files), "findings": findings})
    else:
        _show(output, found, len(files))
    return Exit.BAD_NEWS if found else Exit.OK


def _python_files(path: Path) -> Iterator[Path]:
    """In an order that is the same everywhere."""
    if not path.is_dir():
        if not path.exists():
            raise errors.UsageError(f"{path} does not exist")
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(each for each in folders if not _is_foreign(Path(folder, each)))
        yield from (Path(folder, each) for each in sorted(files) if each.endswith(".py"))


def _is_foreign(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in _FOREIGN or (folder / "pyvenv.cfg").exists()


def _lint(file: Path, *, waits: bool) -> list[Finding]:
    try:
        with tokenize.open(file) as opened:  # in the encoding that the file declares
            source = opened.read()
    except OSError as error:
        raise errors.UsageError(f"{file} cannot be read: {error.strerror}") from None
    except (SyntaxError, UnicodeDecodeError) as error:
        return [Finding(1, 1, "syntax error", str(error), "save it as UTF-8, or declare its encoding")]
    return lint(source, waits=waits)


def _show(output: Output, found: list[tuple[Path, Finding]], files: int) -> None:
    for file, finding in found:
        place, within = f"{file}:{finding.line}:{finding.column}", f" in {finding.workflow}" if finding.workflow else ""
        output.lines(f"{place}: {finding.what}{within}: {finding.reason}. Instead: {finding.remedy}")
    counted = words.count(files, "file")
    output.note(f"{words.count(len(found), 'finding')} in {counted}" if found else f"nothing found in {counted}")
