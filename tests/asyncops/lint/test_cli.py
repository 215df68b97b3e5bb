"""The command line: exit status, options, and what goes where."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from asyncops.lint import cli as cli_module
from tests.asyncops.lint.conftest import Run, Write

CLEAN = "@lint_target()\ndef clean():\n    return Report()\n"
UNKNOWN = "@lint_target()\ndef odd():\n    return Report(unknowns=('sort at kernels.py:3',))\n"
RAISES = "@lint_target()\ndef broken():\n    raise TypeError('no such shape')\n"
WARNS = "@lint_target()\ndef slow():\n    return Report((finding('AO505', 'def slow', 'warning'),))\n"
NOTES = "@lint_target()\ndef noted():\n    return Report((finding('AO401', 'def noted', 'info'),))\n"


@pytest.mark.parametrize(
    ("text", "options", "status"),
    [
        (CLEAN, [], 0),
        (NOTES, [], 0),
        (WARNS, [], 1),
        (WARNS, ["--exit-zero"], 0),
        (UNKNOWN, [], 0),
        (UNKNOWN, ["--strict"], 3),
        (UNKNOWN, ["--strict", "--exit-zero"], 0),
        (UNKNOWN + WARNS, ["--strict"], 1),
        (RAISES, [], 2),
        (RAISES + WARNS, ["--exit-zero"], 2),
    ],
)
def test_exit_status(run: Run, targets: Write, text: str, options: list[str], status: int) -> None:
    result = run("lint", targets("kernels.py", text), *options)
    assert result.exit_code == status, result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_file.py"], "no_such_file.py: no such file or folder"),
        (["no.such.module"], "no.such.module: no such file, folder or module"),
        (["empty.py"], "no lint target in empty.py: put @asyncops.lint_target(*example_arguments) above a"),
        ([], "say what to lint"),
        (["empty.py", "--select", "A0201"], "no rule matches 'A0201'"),
        (["empty.py", "--format", "yaml"], "'yaml' is not one of"),
    ],
)
def test_wrong_usage_says_what_to_do(run: Run, write: Write, arguments: list[str], message: str) -> None:
    write("empty.py", "x = 1\n")
    result = run("lint", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_a_hook_may_pass_files_without_targets(run: Run, write: Write) -> None:
    result = run("lint", write("plain.py", "x = 1\n"), "--pass-with-no-targets")
    assert result.exit_code == 0


def test_a_failure_names_the_line_of_the_user(run: Run, targets: Write) -> None:
    result = run("lint", targets("kernels.py", RAISES), "--format", "concise")
    line = next(n for n, text in enumerate(Path("kernels.py").read_text().splitlines(), 1) if "raise" in text)
    assert f"kernels.py:{line}: error: kernels.py:broken could not be checked: TypeError: no such shape" in (
        result.stdout
    )


def test_a_file_that_cannot_be_loaded_does_not_stop_the_others(run: Run, targets: Write) -> None:
    targets("folder/bad.py", "import no_such_module\n")
    targets("folder/good.py", WARNS)
    result = run("lint", "folder", "--format", "concise")
    assert result.exit_code == 2
    assert "folder/bad.py could not be loaded: ModuleNotFoundError" in result.stdout
    assert "AO505" in result.stdout


def test_output_of_the_users_code_stays_out_of_the_report(run: Run, targets: Write) -> None:
    file = targets("kernels.py", "print('loading')\n" + CLEAN.replace("return", "print('checking'); return"))
    result = run("lint", file, "--format", "json")
    assert json.loads(result.stdout)["verdict"] == "clean"
    assert "loading" in result.stderr
    assert "checking" in result.stderr


def test_output_file(run: Run, race: Path) -> None:
    result = run("lint", race, "--format", "json", "--output-file", "reports/out.json")
    assert result.exit_code == 1
    assert not result.stdout
    assert json.loads(Path("reports/out.json").read_text())["verdict"] == "findings"


def test_select_and_ignore(run: Run, targets: Write) -> None:
    file = targets("kernels.py", WARNS + NOTES)
    assert "AO505" not in run("lint", file, "--ignore", "AO5").stdout
    assert run("lint", file, "--ignore", "AO505,AO4").exit_code == 0


def test_statistics(run: Run, race: Path) -> None:
    assert "    1  AO201  read-before-arrival" in run("lint", race, "--statistics").stdout


@pytest.mark.slow
def test_jobs_do_not_change_the_order(race: Path, targets: Write, run: Run) -> None:
    """The stand-in checker is not there in other processes, so that the targets fail there, in the same order."""
    targets("other.py", CLEAN)
    runs = [json.loads(run("lint", ".", "--format", "json", "--jobs", n).stdout) for n in (1, 2)]
    names = [[target["name"] for target in found["targets"]] for found in runs]
    assert names[0] == names[1] == ["kernels.py:racy", "other.py:clean"]
    assert [target["verdict"] for target in runs[1]["targets"]] == ["failed", "failed"]


def test_an_unforeseen_error_is_not_taken_for_findings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr(cli_module, "cli", broken)
    with pytest.raises(SystemExit) as exit_:
        cli_module.main()
    assert exit_.value.code == 2
    assert "internal error" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["lint", "--help"], ["--version"], ["--explain", "AO901"]])
def test_help_starts_neither_jax_nor_numpy(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom asyncops.lint.cli import cli\n"
        f"try: cli({arguments!r})\nexcept SystemExit: pass\n"
        "loaded = {'jax', 'numpy', 'rich'} & set(sys.modules); assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=60)


def test_explain_shows_the_page_in_order(run: Run) -> None:
    page = run("--explain", "AO901").stdout
    headings = [line for line in page.splitlines() if line.startswith("#")]
    assert headings == [
        "# AO901 unused-suppression",
        "## What it does",
        "## Why it is bad",
        "## Example",
        "## Cure",
        "## Known limits",
    ]
    assert run("lint", "--explain", "unused-suppression").stdout == page


def test_explain_all_lists_every_rule(run: Run) -> None:
    assert "AO901  unused-suppression" in run("--explain", "all").stdout


def test_explain_an_unknown_rule(run: Run) -> None:
    result = run("--explain", "AO999")
    assert result.exit_code == 2
    assert "no rule 'AO999'" in result.output
