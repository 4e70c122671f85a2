"""The pages of the client listener in a real browser: what a person sees and can do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from llmgw.wire import watch_v1 as wire
from tests.browser.devtools import Page, browser_page
from tests.gateway.toolkit import (
    DONE,
    HEAD,
    KEY,
    LAST,
    MODEL,
    USAGE,
    Engine,
    Rig,
    Script,
    Talk,
    answers,
    begins_and_hangs,
    event,
    rig,
    says,
    snapshot,
)

LAST_TEXT = "[...document.querySelectorAll('.turn .text')].pop().textContent"


def models(engines: list[Engine]) -> wire.Snapshot:
    simulated = wire.ModelEntry("a-simulation", "always", owned_by="llmgw-sim")
    return snapshot(
        engines,
        models=(simulated, wire.ModelEntry("z-big", "always", starting=True), MODEL),
        endpoints=(
            *snapshot(engines).endpoints,
            msgspec.structs.replace(snapshot(engines).endpoints[0], id="s-0", model="a-simulation"),
        ),
    )


@asynccontextmanager
async def chat(tmp_path: Path, script: Script, *, enter: bool = True) -> AsyncIterator[tuple[Rig, Page]]:
    """The chat page before an engine, with the key entered."""
    async with rig(tmp_path, script, table=models) as served, browser_page(tmp_path / "profile") as page:
        await page.go(f"http://{served.address}/chat")
        if enter:
            await page.type(KEY.text)
            await page.press("Enter")
            await page.until("!document.getElementById('room').hidden")
        yield served, page


async def say(page: Page, text: str) -> None:
    await page.type(text)
    await page.press("Enter")


async def test_a_key_a_question_and_an_answer_by_keyboard_alone(tmp_path: Path) -> None:
    async with chat(tmp_path, answers("Hello ", "<b>there</b>")) as (served, page):
        await say(page, "hi")
        await page.until("document.querySelector('.figures')")
        assert await page.evaluate(LAST_TEXT) == "Hello <b>there</b>"
        figures = await page.evaluate("document.querySelector('.figures').textContent")
        assert "first token after" in figures and "tokens/s" in figures and "3 tokens" in figures
        await say(page, "and then?")
        await page.until("document.querySelectorAll('.figures').length === 2")
        assert served.engines[0].asked[1].json()["messages"] == [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Hello <b>there</b>"},
            {"role": "user", "content": "and then?"},
        ]
        assert page.problems == []


async def test_there_is_no_data_before_a_key_and_none_of_it_from_elsewhere(tmp_path: Path) -> None:
    async with chat(tmp_path, answers(), enter=False) as (served, page):
        assert await page.evaluate("document.getElementById('model').options.length") == 0
        loaded = await page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
        assert loaded and all(name.startswith(f"http://{served.address}/assets/") for name in loaded)
        await page.go(f"http://{served.address}/")
        assert f"http://{served.address}/v1" in await page.evaluate("document.body.innerText")
        assert page.problems == []


async def test_a_wrong_key_is_told_so_and_not_kept(tmp_path: Path) -> None:
    async with chat(tmp_path, answers(), enter=False) as (_, page):
        await say(page, "sk-llmgw-wrong")
        await page.until("document.getElementById('key-error').textContent.includes('not valid here')")
        assert await page.evaluate("sessionStorage.length") == 0
        assert await page.evaluate("document.getElementById('key').value") == ""


async def test_the_key_is_kept_for_this_tab_and_forgotten_on_request(tmp_path: Path) -> None:
    async with chat(tmp_path, answers()) as (served, page):
        assert await page.evaluate("localStorage.length") == 0
        await page.go(f"http://{served.address}/chat")
        await page.until("!document.getElementById('room').hidden")
        await page.evaluate("document.getElementById('leave').click()")
        await page.until("!document.getElementById('gate').hidden")
        assert await page.evaluate("sessionStorage.getItem('llmgw-key')") is None


async def test_real_models_come_before_simulated_ones_and_say_their_state(tmp_path: Path) -> None:
    async with chat(tmp_path, answers()) as (_, page):
        shown = await page.evaluate("[...document.getElementById('model').options].map((one) => one.text)")
        assert shown == ["m", "z-big (loading)", "a-simulation (simulated)"]
        assert await page.evaluate("document.getElementById('model').value") == "m"


async def test_text_shows_as_it_comes_and_stop_ends_the_engines_work(tmp_path: Path) -> None:
    async with chat(tmp_path, begins_and_hangs(event("Once "), event("upon "))) as (served, page):
        await say(page, "tell me")
        await page.until(f"{LAST_TEXT} === 'Once upon '")
        assert await page.evaluate("document.getElementById('send').hidden")
        await page.press("Escape")
        await page.until("document.body.innerText.includes('stopped')")
        await asyncio.wait_for(served.engines[0].asked[0].gone.wait(), 5)
        assert (await served.control.row()).status == 499
        assert not await page.evaluate("document.getElementById('send').hidden")


async def test_a_refusal_is_shown_with_its_words(tmp_path: Path) -> None:
    said = {"error": {"message": "temperature must be below 2", "code": 400}}
    async with chat(tmp_path, says(400, said)) as (_, page):
        await say(page, "hi")
        await page.until("document.querySelector('.turn .problem')")
        shown = await page.evaluate("document.querySelector('.turn .problem').textContent")
        assert shown == "temperature must be below 2"


async def test_an_answer_that_breaks_off_says_so_and_keeps_what_came(tmp_path: Path) -> None:
    shown = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.send(HEAD)
        await talk.chunk(event("half"))
        await shown.wait()
        talk.reset()

    async with chat(tmp_path, script) as (_, page):
        await say(page, "hi")
        await page.until(f"{LAST_TEXT} === 'half'")
        shown.set()
        await page.until("document.querySelector('.turn .problem')")
        assert await page.evaluate(LAST_TEXT) == "half"
        # The error event, or, when the browser saw the connection end first, the page's own words.
        problem = await page.evaluate("document.querySelector('.turn .problem').textContent")
        assert "before its answer was whole" in problem or "before the answer was whole" in problem


async def test_a_new_chat_begun_during_an_answer_starts_empty(tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.send(HEAD)
        await talk.chunk(event("old"))
        if len(talk.asked.json()["messages"]) == 1 and not waiting.is_set():
            waiting.set()
            await talk.wait_gone()
            return
        await talk.chunk(LAST + USAGE + DONE)
        await talk.send(b"0\r\n\r\n")

    async with chat(tmp_path, script) as (served, page):
        await say(page, "first")
        await page.until(f"{LAST_TEXT} === 'old'")
        await page.evaluate("document.getElementById('clear').click()")
        await page.until("!document.getElementById('send').hidden")
        await say(page, "second")
        await page.until("document.querySelector('.figures')")
        assert served.engines[0].asked[-1].json()["messages"] == [{"role": "user", "content": "second"}]
