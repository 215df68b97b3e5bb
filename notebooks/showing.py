"""What the notebooks show their results with. Import it first: it also prepares JAX and names the cells.

Colours are tints under the text, so that they are legible on light and dark pages; everything shown has a plain-text
form, too.
"""

from __future__ import annotations

import html
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that a checkout needs no installation

import jax

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_pprint_use_color", False)  # escape codes are not legible everywhere

from asyncops.compiled import operations
from asyncops.compiled.checking import check_compiled
from asyncops.compiled.hlo import Instruction, Module
from asyncops.compiled.parser import parse_hlo
from asyncops.compiled.sites import Sites

_TINTS = {
    "start": "rgba(84,174,255,.35)",
    "done": "rgba(74,194,107,.35)",
    "copy": "rgba(255,123,0,.40)",
    "work": "rgba(160,130,255,.25)",
    "bad": "rgba(255,90,90,.35)",
}
_WHEEL = ("#54aeff", "#ff9a3c", "#4ac26b", "#c297ff", "#ff8182", "#d4a72c", "#39c5cf")
_STYLE = """<style>
.shown pre, .shown td, .shown th { font-family: ui-monospace, monospace; font-size: 12px; line-height: 1.5;
  text-align: left; white-space: pre-wrap; }
.shown .code { display: block; padding: 0 .4em; border-radius: 3px; }
.shown i { opacity: .75; }
figure.shown { margin: 0; padding: 8px; border-radius: 6px; background: #ffffff; color: #1f2328; overflow-x: auto; }
figure.shown figcaption { font: 13px ui-sans-serif, system-ui, sans-serif; padding-top: 6px; }
figure.shown svg { max-width: max(100%, 900px); height: auto; }
@media (prefers-color-scheme: dark) { figure.shown { background: #0d1117; color: #e6edf3; } }
</style>"""


def _name_cells() -> None:
    """Lines of a cell are reported as "cell 3:7", where 3 is the number in its In[3], not by a temporary file."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        shell.compile.get_code_name = lambda raw, transformed, number: f"cell {number}"


_name_cells()


@dataclass(frozen=True)
class Shown:
    """Something to display: coloured where there is HTML, else as text."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return f'{_STYLE}<div class="shown">{self.html}</div>'

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Figure:
    """A picture with its caption."""

    svg: str
    caption: str

    def _repr_html_(self) -> str:
        caption = html.escape(self.caption)
        return f'{_STYLE}<figure class="shown">{self.svg}<figcaption>{caption}</figcaption></figure>'

    def __repr__(self) -> str:
        return f"[figure] {self.caption}"


def figure(picture: Any, caption: str) -> Figure:
    """``picture``: SVG text, or anything with ``to_svg()`` (a schedule, a timeline, a witness)."""
    return Figure(picture if isinstance(picture, str) else picture.to_svg(), caption)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], caption: str) -> Shown:
    """A table of texts and numbers."""
    lines = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    text = "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in [header, *lines]
    )
    cells = "".join(_row("td", row) for row in lines)
    page = f"<table>{_row('th', header)}{cells}</table><i>{html.escape(caption)}</i>"
    return Shown(page, f"{text}\n{caption}")


def _row(kind: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{kind}>{html.escape(c)}</{kind}>" for c in cells) + "</tr>"


def findings(report: Any) -> Shown:
    """The verdict, and each finding with its line and its cure, in short."""
    lines = [(f"verdict: {report.verdict}", "")]
    for d in report.diagnostics:
        place = f"{d.location}: " if d.location is not None else ""
        lines += [(f"{place}{d.code} {d.rule}: {d.message}", "bad" if d.severity != "info" else "")]
        lines += [(f"    {label}: {where}", "") for label, where in d.related[:2]]
        lines += [(f"    cure: {d.help}", "")] if d.help else []
    return _lines(lines)


def _lines(lines: Sequence[tuple[str, str]], marks: bool = False) -> Shown:
    """Lines with the name of their tint, or none."""
    tints = [f"background:{_TINTS[kind]}" if kind else "" for _, kind in lines]
    body = "".join(
        f'<span class="code" style="{tint}">{html.escape(line)}</span>'
        for (line, _), tint in zip(lines, tints, strict=True)
    )
    text = "\n".join(f"{kind:5} | {line}" if marks else line for line, kind in lines)
    return Shown(f"<pre>{body}</pre>", text)


# -- compiled programs --------------------------------------------------------------------------------


def hlo(compiled: Any) -> Shown:
    """The schedule of a compiled program: what takes time, in the order in which it runs.

    Blue: a kernel that starts a copy, green: one that waits, orange: a copy that the compiler made, violet: work.
    """
    (module,) = parse_hlo(compiled if isinstance(compiled, str) else compiled.as_text())
    schedule = check_compiled(compiled).schedule
    starts = {pair.start for pair in schedule.pairs}
    dones = {pair.done for pair in schedule.pairs}
    sites = Sites(module)
    bodies = [module.entry, *(module.computations[n] for n in _run_by(module, module.entry.name))]
    lines: list[tuple[str, str]] = []
    for body in bodies:
        found = [i for i in body.instructions if _kind(i, starts, dones)]
        if found:
            title = "the program" if body.is_entry else f"the computation %{body.name}"
            lines.append((title, ""))
            lines += [(f"  {_short(i, sites)}", _kind(i, starts, dones).strip("-")) for i in found]
    return _lines(lines, marks=True)


def _run_by(module: Module, name: str) -> list[str]:
    """Loops' bodies and branches, in the order in which they are met."""
    found: list[str] = []
    for i in module.computations[name].instructions:
        if i.opcode in operations.CONTROL:
            for callee in i.callees:
                if callee in module.computations and callee not in found:
                    found += [callee, *_run_by(module, callee)]
    return list(dict.fromkeys(found))


def _kind(instruction: Instruction, starts: set[str], dones: set[str]) -> str:
    """Its tint; "-" for what is shown without one, "" for what is not shown."""
    if instruction.opcode == "while" or instruction.opcode == "conditional":
        return "-"
    if instruction.shape.size <= 1 and instruction.name not in starts | dones:
        return ""
    if operations.is_copy(instruction) or instruction.opcode == "copy-done":
        return "copy"
    if instruction.name in starts:
        return "start"
    if instruction.name in dones:
        return "done"
    return "work" if operations.is_work(instruction) and instruction.opcode != "broadcast" else ""


def _short(instruction: Instruction, sites: Sites) -> str:
    home = sites.home(instruction)
    operands = ", ".join(_origin(name, home) for name in instruction.operands)
    leaves = list(instruction.shape.leaves())
    shape = ", ".join(map(_type, leaves[:4]))
    chain = [f.location for f in sites.chain(instruction) if f.location.file.startswith("cell ")]
    line = f"   # {chain[0].file}:{chain[0].line}" if chain else ""
    what = "kernel" if operations.is_kernel(instruction) else instruction.opcode
    return f"%{instruction.name} = {what}({operands}) -> {f'({shape})' if len(leaves) > 1 else shape}{line}"


def _type(leaf: Any) -> str:
    if leaf.is_semaphore:
        return "semaphore"
    return f"{leaf} in {leaf.place}" if leaf.size > 1 else str(leaf)


def _origin(name: str, home: Any) -> str:
    """An operand by the operation that made it: "start.1[2]" is the third result of %start.1."""
    path = ""
    while home is not None and (i := home.by_name.get(name)) is not None and i.operands:
        if i.opcode not in ("get-tuple-element", *operations.PASS_THROUGH):
            break
        if i.opcode == "get-tuple-element":
            path = f"[{i.index}]{path}"
        inner = home.by_name.get(i.operands[0])
        if i.opcode != "get-tuple-element" and inner is not None and inner.opcode == "tuple" and path:
            index, _, rest = path[1:].partition("]")
            name, path = inner.operands[int(index)], rest
        else:
            name = i.operands[0]
    if home is not None and name in home.by_name and home.by_name[name].opcode == "parameter":
        name = "argument" if home.is_entry else "carry"
        return f"{name}{path}"
    return f"%{name}{path}"


def count(compiled: Any) -> dict[str, int]:
    """How many array copies the compiler made: in all, in loops, and of arrays in flight; and its findings."""
    report = check_compiled(compiled)
    copies = report.schedule.copies
    return {
        "copies": len(copies),
        "in loops": sum(c.reason == "loop" or (c.times or 2) > 1 for c in copies),
        "in flight": sum(c.reason == "in flight" for c in copies),
        "overlapped": sum(
            not item.what.startswith("copy")
            for p in report.schedule.pairs
            if p.by == "Pallas"
            for item in p.overlapped
        ),
        "findings": sum(d.severity != "info" for d in report.diagnostics),
    }


# -- colouring buffers --------------------------------------------------------------------------------


def colouring(fn: Callable[..., Any], *args: Any) -> Shown:
    """Which values of a program must be one buffer: equal letter (and colour), one buffer.

    Two values are one buffer where a kernel gives an operand back in place, and where a loop's body takes what it
    returned before. A line says where two arrays of one letter are wanted at the same time: there, one must be copied.
    """
    jaxpr = jax.make_jaxpr(fn)(*args).jaxpr
    body, carried = _loop_body(jaxpr)
    classes, names = _Classes(), _Classes()
    for eqn in body.eqns:
        for source, result in dict(eqn.params.get("input_output_aliases", ())).items():
            classes.join(eqn.invars[source], eqn.outvars[result])
        if eqn.primitive.name == "optimization_barrier":  # the same values under other names
            for source, result in zip(eqn.invars, eqn.outvars, strict=True):
                names.join(source, result)
                classes.join(source, result)
    for before, after in carried:
        classes.join(before, after)
    return _coloured(body, classes, names)


class _Classes:
    """Values that share a buffer."""

    def __init__(self) -> None:
        self._parent: dict[Any, Any] = {}

    def of(self, value: Any) -> Any:
        """The value that stands for the class."""
        while value in self._parent:
            value = self._parent[value]
        return value

    def join(self, a: Any, b: Any) -> None:
        """Both are one buffer."""
        if not hasattr(a, "val") and not hasattr(b, "val") and self.of(a) is not self.of(b):
            self._parent[self.of(b)] = self.of(a)


def _loop_body(jaxpr: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """The body of the first loop with what each iteration hands to the next, or the program itself."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("while", "scan"):
            closed = eqn.params.get("body_jaxpr") or eqn.params["jaxpr"]
            body = getattr(closed, "jaxpr", closed)
            return body, list(
                zip(body.invars[len(body.invars) - len(body.outvars) :], body.outvars, strict=True)
            )
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", value)
            if eqn.primitive.name != "pallas_call" and hasattr(inner, "eqns"):
                found, carried = _loop_body(inner)
                if carried or any(e.primitive.name == "pallas_call" for e in found.eqns):
                    return found, carried
    return jaxpr, []


def _coloured(body: Any, classes: _Classes, same: _Classes) -> Shown:
    letters: dict[Any, tuple[str, str]] = {}

    def letter(value: Any) -> tuple[str, str]:
        key = classes.of(value)
        if key not in letters:
            letters[key] = chr(ord("A") + len(letters)), _WHEEL[len(letters) % len(_WHEEL)]
        return letters[key]

    def listed(values: Any) -> list[tuple[str, str]]:
        return [letter(v) for v in values if _is_array(v)]

    rows: list[Any] = [(listed(body.invars), "enters", [], "")]
    eqns = [e for e in body.eqns if e.primitive.name != "optimization_barrier"]
    for n, eqn in enumerate(eqns):
        if any(map(_is_array, (*eqn.outvars, *eqn.invars))):
            results, operands = listed(eqn.outvars), listed(eqn.invars)
            twice = [x for k, (x, _) in enumerate(results) if x in [y for y, _ in results[:k]]]
            later = {same.of(v) for e in eqns[n + 1 :] for v in e.invars if _is_array(v)}
            in_place = [eqn.invars[k] for k in dict(eqn.params.get("input_output_aliases", ()))]
            old = [letter(v)[0] for v in in_place if same.of(v) in later]
            clash = f"   <- two arrays in {twice[0]} at once" if twice else ""
            clash = clash or (f"   <- the {old[0]} from before is still wanted" if old else "")
            rows.append((results, _name(eqn), operands, clash))
    rows.append((listed(body.outvars), "leaves", [], ""))
    return _show_colours(rows)


def _is_array(value: Any) -> bool:
    return not hasattr(value, "val") and getattr(value.aval, "size", 0) > 1


def _name(eqn: Any) -> str:
    kernel = str(eqn.params.get("name") or "")
    return kernel if eqn.primitive.name == "pallas_call" and kernel else eqn.primitive.name


def _show_colours(rows: Any) -> Shown:
    def plain(values: list[tuple[str, str]]) -> str:
        return ", ".join(letter for letter, _ in values)

    def coloured(values: list[tuple[str, str]]) -> str:
        return ", ".join(
            f'<b style="background:{tint}66;padding:0 .3em;border-radius:3px">{letter}</b>'
            for letter, tint in values
        )

    text, page = [], []
    for results, what, operands, clash in rows:
        arrow = f" = {what}({plain(operands)})" if operands else f"   {what}"
        text.append(f"{plain(results)}{arrow}{clash}")
        inner = f" = {html.escape(what)}({coloured(operands)})" if operands else f"   {html.escape(what)}"
        page.append(f"{coloured(results)}{inner}<b>{html.escape(clash)}</b>")
    return Shown("<pre>" + "\n".join(page) + "</pre>", "\n".join(text))


def without_paths(text: str) -> str:
    """``text`` without the folders of this machine."""
    return re.sub(r"(/[\w.\-]+)+/(?=[\w.\-]+\.py)", "", text)
