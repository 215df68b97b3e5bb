"""The HTML report in a real browser: what it shows, in light and dark, and that it asks for nothing.

Needs a browser on the machine (chromium or chrome on PATH, or one that ``playwright install chromium`` fetched).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import asyncops
from asyncops.checker import session
from tests.asyncops.lint.conftest import Run, Write
from tests.asyncops.lint.test_timelines import KERNELS

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless browser; the tests are skipped where none can be started."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    with playwright.sync_playwright() as driver:
        try:
            # The sandbox needs rights that containers do not have; the page is our own.
            started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"no browser can be started: {str(error).splitlines()[0]}")
        yield started
        started.close()


@pytest.fixture
def report(
    monkeypatch: pytest.MonkeyPatch, played_checker: None, write: Write, run: Run, tmp_path: Path
) -> str:
    """The address of a report about a wrong kernel and a right one."""
    monkeypatch.setattr(asyncops, "check", session.check)
    write("kernels.py", KERNELS)
    run("lint", "kernels.py", "--format", "html", "-o", "report.html", "--no-cache")
    return (tmp_path / "report.html").as_uri()


def test_it_shows_the_finding_its_cure_and_the_pictures(browser: Any, report: str) -> None:
    page = browser.new_page()
    requests: list[str] = []
    errors: list[Any] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(error))  # it sets attributes on its callbacks
    page.goto(report)
    assert page.title() == "asyncops: findings"
    assert "AO201" in page.locator("article h2").inner_text()
    assert page.locator("article mark:not(.related)").inner_text() == "buf[...]"
    assert "wait for the copy" in page.locator("article").inner_text()
    assert page.locator("article figure svg .clash").is_visible()
    assert page.locator("article figure svg rect.bad").count() == 3
    assert page.locator("details[open] figure svg").is_visible()
    assert not page.locator("details:not([open]) figure svg").is_visible()
    assert requests == [report]
    assert not errors
    page.close()


def test_the_marked_column_holds_the_racing_pair(browser: Any, report: str) -> None:
    page = browser.new_page()
    page.goto(report)
    column = page.locator("article svg .clash").bounding_box()
    copy = page.locator("article svg rect.copy.bad").last.bounding_box()
    read = page.locator("article svg rect.core.bad").bounding_box()
    assert column["x"] - 6 <= read["x"]
    assert read["x"] + read["width"] <= column["x"] + column["width"] + 6
    assert copy["x"] < column["x"] < copy["x"] + copy["width"]
    page.close()


def test_no_text_leaves_its_box(browser: Any, report: str) -> None:
    page = browser.new_page()
    page.goto(report)
    page.locator("details:not([open]) summary").first.click()
    wide = page.evaluate(
        """() => [...document.querySelectorAll('svg g > rect')].flatMap(box =>
          [...box.parentElement.querySelectorAll(':scope > text')].filter(text =>
            text.getBBox().x + text.getBBox().width > box.getBBox().x + box.getBBox().width + 1
          ).map(text => text.textContent))"""
    )
    assert not [text for text in wide if not text.isdigit()]
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_ground_of_a_picture_follow_the_reader(browser: Any, report: str, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(report)
    colour = "e => getComputedStyle(e).fill.match(/[0-9]+/g).slice(0, 3).map(Number)"
    ink = page.locator("article svg text").first.evaluate(colour)
    ground = page.locator("article svg .ground").evaluate(colour)
    assert (sum(ink) < sum(ground)) == (scheme == "light")
    assert abs(sum(ink) - sum(ground)) > 500
    page.close()
