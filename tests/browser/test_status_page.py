"""The admin pages in a real Chromium: logging in, a fleet that changes by itself, nothing blocked."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.browser.devtools import PATIENCE_S, Page, browser_page
from tests.ctl.conftest import Running, running
from tests.web.stub import BUSY, TOKEN

__all__ = ["running"]

CELL = "document.querySelector('#live').innerText"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with browser_page(tmp_path / "profile") as page:
        yield page


async def shows(page: Page, expression: str) -> None:
    """Wait until an expression is true, also while the browser goes from one page to another."""
    async with asyncio.timeout(PATIENCE_S):
        while not await holds(page, expression):  # noqa: ASYNC110  the page has no event to wait for
            await asyncio.sleep(0.02)


async def holds(page: Page, expression: str) -> bool:
    try:
        return bool(await page.evaluate(f"Boolean({expression})"))
    except AssertionError:  # there is no page yet, or not this part of it
        return False


async def log_in(page: Page, running: Running) -> None:
    await page.go(running.url)
    await shows(page, "document.activeElement.name === 'token'")
    await page.type(TOKEN)
    await page.press("Enter")
    await shows(page, "document.querySelector('#live')")


async def test_a_wrong_token_is_said_and_the_right_one_opens_the_fleet(page: Page, running: Running) -> None:
    await page.go(running.url)
    await page.type("wrong")
    await page.press("Enter")
    await shows(page, "document.querySelector('[role=alert]').innerText.includes('not the admin token')")
    page.problems.clear()  # the browser reports the 401
    await page.type(TOKEN)
    await page.press("Enter")
    await shows(page, f"{CELL}.includes('needs 4 cards of class h100')")
    assert page.problems == []
    assert await page.evaluate("getComputedStyle(document.querySelector('.badge.bad')).borderRadius") == "9px"
    assert await page.evaluate("document.cookie") == ""


async def test_it_follows_the_fleet_by_itself_and_keeps_what_was_opened(page: Page, running: Running) -> None:
    await log_in(page, running)
    await page.evaluate("document.querySelector('details').open = true")
    fleet = running.admin.fleet
    status = msgspec.structs.replace(fleet.status, problems=("a fan of gpu-02 stands still",))
    running.admin.fleet = msgspec.structs.replace(fleet, status=status)
    await shows(page, f"{CELL}.includes('a fan of gpu-02 stands still')")
    assert await page.evaluate("document.querySelector('details').open")
    assert page.problems == []


async def test_hostile_names_run_nothing(page: Page, running: Running) -> None:
    evil = "<img src=x onerror='document.title=1'><script>document.title=1</script>"
    nodes = (msgspec.structs.replace(BUSY.nodes[0], id=evil, reasons=(evil,)),)
    running.admin.fleet = msgspec.structs.replace(BUSY, nodes=nodes)
    await log_in(page, running)
    await shows(page, f"{CELL}.includes('onerror')")
    assert await page.evaluate("document.querySelectorAll('img').length") == 0
    assert await page.evaluate("document.title") != "1"
    assert page.problems == []


async def test_a_server_that_is_gone_is_said_above_what_was_last_seen(page: Page, running: Running) -> None:
    await log_in(page, running)
    running.stop()
    await shows(
        page, "document.querySelector('#silent').innerText.includes('No answer from the server since')"
    )
    assert await page.evaluate(f"{CELL}.includes('gpu-01')")


async def test_logging_out_shows_the_login_form(page: Page, running: Running) -> None:
    await log_in(page, running)
    await page.evaluate("document.querySelector('header button').click()")
    await shows(page, "document.querySelector('#token')")
    await page.go(running.url)
    assert await page.evaluate("location.pathname") == "/login"
    assert page.problems == []


@pytest.mark.parametrize("width", [1300, 700])
async def test_no_page_is_wider_than_the_window(page: Page, running: Running, width: int) -> None:
    await page.dress(width=width)
    await log_in(page, running)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
