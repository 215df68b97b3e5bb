"""Exceptions a user can see. Each docstring shows an example and the cure."""

from __future__ import annotations


class StatefulError(Exception):
    """Base class of everything this distribution raises on purpose.

    Catch it to tell a refused input from a defect of the library.
    """


class InvalidArgumentError(StatefulError, ValueError):
    """An argument has a value the function cannot take.

    Example: ``asyncops.check(fn, calls=0)``. The message names the argument and the values that are allowed.
    """


class UnmodelledError(StatefulError, NotImplementedError):
    """A primitive or parameter has no model here.

    Example: discharging a kernel that calls a primitive of your own. The cure is
    ``stateful.register_effects(primitive, rule)``; the message names the primitive and the line.
    """


class LintUsageError(StatefulError):
    """The linter was asked for something it cannot do; nothing was checked.

    Example: ``asyncops lint no_such_file.py``, or an unknown key under ``[tool.asyncops]``. The message names the
    argument or the key, and what is allowed there.
    """


class FindingsError(StatefulError):
    """Kernels that were checked on the way have findings.

    Raised at the end of ``with asyncops.checking():``; the message is the report. Mend the kernels, or collect the
    findings instead: ``asyncops.checking(on_finding="collect")``.
    """


class CompilerError(StatefulError):
    """A program does not compile ahead of time, or the compiler is not there.

    Example: ``asyncops.compile_for("v5e:2x2", fn, x)`` without ``libtpu``; the message names the cure
    (``pip install libtpu``), or what the kernel compiler refuses and on which line.
    """


class HloError(StatefulError, ValueError):
    """A text is no HLO module that can be followed.

    Example: ``asyncops.check_compiled("")``. Give ``compiled.as_text()``, or a file that ``--xla_dump_to`` wrote
    after optimization; the message tells what is missing or which limit was exceeded.
    """
