"""HLO text to data. Reads what any version prints: what is not understood is kept as text, never guessed.

One pass over the lines, linear in their number. Input may be cut or hostile: the only exception is
`HloError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from asyncops.compiled.brackets import closing, split_commas
from asyncops.compiled.frames import Frames
from asyncops.compiled.hlo import UNKNOWN_OPCODE, Computation, Instruction, Module
from stateful.errors import HloError

MAX_CHARACTERS = 1 << 29

_MODULE = re.compile(r"HloModule\s+([^\s,]+)")
_COMPUTATION = re.compile(r"(ENTRY\s+)?%?([\w.\-]+)\s*(?:\(.*)?\{$", re.DOTALL)
_END = re.compile(r"\}(?:\s*//.*|,\s*execution_thread=.*)?$")
_STATEMENT = re.compile(r"\s+(?:ROOT\s+)?%?[\w.\-]+\s+=\s")
_HEAD = re.compile(r"\s*(ROOT\s+)?%?([\w.\-]+)\s+=\s+")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_ROW = re.compile(r'(\d{1,9})\s+(?:"(.*)"|\{(.*)\})$')
_FIELD = re.compile(r"(\w+)=(\d{1,9})")
_TABLES = {
    "FileNames": "files",
    "FunctionNames": "functions",
    "FileLocations": "places",
    "StackFrames": "stack",
}
_LITERALS = frozenset({"constant", "parameter", "iota"})


def parse_hlo(text: str) -> tuple[Module, ...]:
    """The modules that ``text`` holds (usually one), as printed by ``compiled.as_text()`` or dumped by XLA.

    Raises:
      HloError: there is no module or no entry computation in it, or it is too long to be followed.
    """
    if len(text) > MAX_CHARACTERS:
        raise HloError(
            f"the HLO text has {len(text):,} characters, more than the {MAX_CHARACTERS:,} that are read"
        )
    modules = tuple(_Reader(lines).module() for lines in _modules(text.splitlines()))
    if not modules:
        raise HloError(
            "there is no HLO module in the text: it should begin with a line 'HloModule name, ...'; "
            "give compiled.as_text(), or a dump of --xla_dump_to"
        )
    return modules


def _modules(lines: list[str]) -> Iterator[list[str]]:
    """The lines of each module."""
    starts = [i for i, line in enumerate(lines) if line.startswith("HloModule")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        yield lines[start:end]


class _Reader:
    """Reads the lines of one module."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self._notes: list[str] = []
        self._frames = Frames()
        self._computations: dict[str, Computation] = {}

    def module(self) -> Module:
        header = self._header()
        name = _MODULE.match(header)
        while self._at < len(self._lines):
            self._section(self._lines[self._at])
        entry = next((c for c in self._computations.values() if c.is_entry), None)
        if name is None or entry is None:
            missing = "name" if name is None else "ENTRY computation"
            raise HloError(f"the HLO module has no {missing}: the text is cut, or it is no HLO")
        attributes = dict(_pair(part) for part in split_commas(header[name.end() :]))
        return Module(name[1], self._computations, entry, attributes, self._frames, tuple(self._notes))

    def _header(self) -> str:
        """The module line; some attributes spread over several lines, up to the first empty one or table."""
        begin = self._at
        self._at += 1
        while self._at < len(self._lines) and not self._begins_section(self._lines[self._at]):
            self._at += 1
        return "\n".join(self._lines[begin : self._at])

    def _begins_section(self, line: str) -> bool:
        return not line.strip() or line in _TABLES or _is_computation(line)

    def _section(self, line: str) -> None:
        if line in _TABLES:
            self._table(_TABLES[line])
        elif _is_computation(line):
            self._computation(line)
        else:
            self._at += 1

    def _table(self, name: str) -> None:
        """Rows of names, or of fields; a row of the other kind is skipped."""
        table = getattr(self._frames, name)
        names = name in ("files", "functions")
        self._at += 1
        while self._at < len(self._lines) and (row := _ROW.match(self._lines[self._at])):
            number, quoted, fields = row.groups()
            if names == (quoted is not None):
                table[int(number)] = quoted if names else {k: int(v) for k, v in _FIELD.findall(fields)}
            self._at += 1

    def _computation(self, line: str) -> None:
        match = _COMPUTATION.match(line)
        assert match is not None
        self._at += 1
        instructions = tuple(map(_instruction, self._statements(match[2])))
        unknown = [i for i in instructions if i.opcode == UNKNOWN_OPCODE]
        self._notes += [f"instruction not understood in %{match[2]}: {_short(i.text)}" for i in unknown]
        self._computations[match[2]] = Computation(match[2], instructions, is_entry=match[1] is not None)

    def _statements(self, name: str) -> Iterator[str]:
        """Instructions as text: a line that begins none continues the one before (literals, metadata)."""
        statement: list[str] = []
        while self._at < len(self._lines) and not _END.match(self._lines[self._at]):
            line = self._lines[self._at]
            if _STATEMENT.match(line) and statement:
                yield "\n".join(statement)
                statement = []
            if line.strip():
                statement.append(line)
            self._at += 1
        if statement:
            yield "\n".join(statement)
        if self._at >= len(self._lines):
            self._notes.append(f"the text ends inside the computation %{name}")
        self._at += 1


def _is_computation(line: str) -> bool:
    """Computations begin in the first column and open a brace at the end of the line."""
    return line[:1] not in ("", " ", "\t") and line.endswith("{") and _COMPUTATION.match(line) is not None


def _instruction(text: str) -> Instruction:
    head = _HEAD.match(text)
    if head is None:
        return Instruction("", UNKNOWN_OPCODE, text=text.strip())
    unknown = Instruction(head[2], UNKNOWN_OPCODE, text=text.strip(), is_root=head[1] is not None)
    end = _shape_end(text, head.end())
    opcode = _OPCODE.match(text, end) if end > 0 else None
    close = closing(text, opcode.end() - 1) if opcode else -1
    if opcode is None or close < 0:
        return unknown
    inside = text[opcode.end() : close]
    return Instruction(
        name=head[2],
        opcode=opcode[1],
        operands=() if opcode[1] in _LITERALS else _operands(inside),
        shape_text=text[head.end() : end],
        inside=inside,
        attribute_text=text[close + 1 :].lstrip(", "),
        is_root=head[1] is not None,
    )


def _shape_end(text: str, start: int) -> int:
    """Where the type that begins at ``start`` ends: at the first space outside brackets; -1: nowhere."""
    space = text.find(" ", start)
    bracket = text.find("(", start, space if space >= 0 else len(text))
    if bracket < 0:
        return space
    if bracket == start:
        return closing(text, start) + 1
    close = closing(text, bracket)  # a tile, as in {1,0:T(8,128)}, or b(...)
    return text.find(" ", close) if close >= 0 else -1


def _operands(inside: str) -> tuple[str, ...]:
    """Operand names; some printers put the operand's type before its name."""
    if not inside:
        return ()
    if "/*" in inside:
        inside = _COMMENT.sub("", inside)
    return tuple(part.split(" ")[-1].lstrip("%") for part in split_commas(inside))


def _pair(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return name.strip(), value.strip()


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 120 else text[:117] + "..."
