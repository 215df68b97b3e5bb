"""``# asyncops: ignore[CODE] reason``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.asyncops.lint.conftest import Run, Write


def lint_with(run: Run, race: Path, comment: str, *options: str) -> list[str]:
    race.write_text(race.read_text().replace("# a comment", comment))
    lines = run("lint", race, "--format", "concise", *options).stdout.splitlines()
    return [line.split(": ", 1)[1] for line in lines[:-1]] + lines[-1:]


def test_a_named_rule_is_suppressed(run: Run, race: Path) -> None:
    lines = lint_with(run, race, "# asyncops: ignore[AO201] written by one core only")
    assert lines == ["no findings in 1 target, 1 kernel; 1 suppressed"]


def test_other_comments_may_stand_before(run: Run, race: Path) -> None:
    assert len(lint_with(run, race, "# noqa: F841  # asyncops: ignore[ AO302 , AO201 ]")) == 2


@pytest.mark.parametrize("comment", ["#asyncops:ignore[AO201]", "# asyncops: ignore [AO201]: why"])
def test_spacing_is_free(run: Run, race: Path, comment: str) -> None:
    assert len(lint_with(run, race, comment)) == 1


def test_an_unused_one_is_reported(run: Run, race: Path) -> None:
    lines = lint_with(run, race, "# asyncops: ignore[AO201, AO202]")
    assert lines[0].startswith("AO901 warning: the comment suppresses AO202, which is not found here")


def test_an_unused_one_counts(run: Run, targets: Write) -> None:
    clean = "x = 1  # asyncops: ignore[AO201] old\n@lint_target()\ndef clean():\n    return Report()\n"
    file = targets("kernels.py", clean)
    assert run("lint", file).exit_code == 1
    assert run("lint", file, "--ignore", "AO901").exit_code == 0
    assert run("lint", f"{file}:clean").exit_code == 0


def test_a_rule_that_is_not_selected_is_not_called_unused(run: Run, race: Path) -> None:
    assert lint_with(run, race, "# asyncops: ignore[AO201] known", "--ignore", "AO201")[-1].startswith(
        "1 error"
    )


def test_nothing_is_called_unused_where_not_all_was_checked(run: Run, targets: Write) -> None:
    comment = "x = 1  # asyncops: ignore[AO201]\n"
    text = "@lint_target()\ndef odd():\n    return Report(unknowns=('sort',))\n"
    assert run("lint", targets("kernels.py", comment + text)).exit_code == 0


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("# asyncops: ignore", "the comment names no rule and suppresses nothing"),
        ("# asyncops: ignore[] because", "the comment names no rule and suppresses nothing"),
        ("# asyncops: ignore[A0201]", "no rule 'A0201' (did you mean AO201?)"),
        ("# asyncops: ignore[read-before-arrival]", "rules are named by their code here, AO201"),
    ],
)
def test_a_comment_that_names_no_rule_is_reported(run: Run, race: Path, comment: str, message: str) -> None:
    lines = lint_with(run, race, comment)
    assert any(line.startswith("AO902") and message in line for line in lines)
    assert any(line.startswith("AO201") for line in lines)


def test_the_comment_may_stand_on_any_line_of_the_statement(run: Run, targets: Write) -> None:
    file = targets(
        "kernels.py",
        """\
        value = max(
            1,
            2,
        )  # asyncops: ignore[AO201] known

        @lint_target()
        def target():
            return Report((finding("AO201", "    1,"),))
        """,
    )
    assert run("lint", file).exit_code == 0


def test_text_in_a_string_is_no_comment(run: Run, targets: Write) -> None:
    text = '@lint_target()\ndef f():\n    return Report((finding("AO201", "x ="),))\n'
    assert run("lint", targets("kernels.py", 'x = "# asyncops: ignore[AO201]"\n' + text)).exit_code == 1


def test_what_follows_can_be_suppressed_on_its_own(run: Run, race: Path) -> None:
    race.write_text(
        race.read_text().replace("second.start()", "second.start()  # asyncops: ignore[AO302] why")
    )
    lines = run("lint", race, "--format", "concise").stdout
    assert "AO302" not in lines
    assert "AO201" in lines
    assert "AO901" not in lines
