// The chat page: asks for a key, lists the models it may use, streams answers and says how fast they came.
//
// Laws: the key lives in sessionStorage alone (this tab) and goes nowhere but into the Authorization header;
// whatever came from outside reaches the page as text, never as markup.
"use strict";

const KEY = "llmgw-key";
const MODEL = "llmgw-model";
const SIMULATED_OWNER = "llmgw-sim";
const $ = (id) => document.getElementById(id);

const page = {
  gate: $("gate"), room: $("room"), controls: $("controls"), log: $("log"), empty: $("empty"),
  key: $("key"), keyError: $("key-error"), enter: $("enter"), model: $("model"),
  text: $("text"), send: $("send"), stop: $("stop"),
};

let messages = []; // what the model is sent: the turns that ended well
let running = null; // the AbortController of the answer at hand

// ---------------------------------------------------------------- talking to the gateway

class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

function headers() {
  return { Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}`, "Content-Type": "application/json" };
}

async function refusalOf(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // not JSON: the status has to do
  }
  return new Refused(response.status, error.code ?? "", error.message ?? `The gateway answered with status ${response.status}.`);
}

async function listModels() {
  const response = await fetch("/v1/models", { headers: headers() });
  if (!response.ok) throw await refusalOf(response);
  return (await response.json()).data;
}

// The data of every event of a response, as it comes.
async function* events(response) {
  // No pipe: it would hold pieces back, and those are lost when the connection breaks.
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += decoder.decode(value, { stream: true });
    const parts = held.split(/\r?\n\r?\n/);
    held = parts.pop();
    for (const part of parts) {
      const lines = part.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      if (lines.length) yield lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
    }
  }
}

// ---------------------------------------------------------------- the key

async function enter(key) {
  page.keyError.hidden = true;
  page.enter.disabled = true;
  sessionStorage.setItem(KEY, key);
  try {
    showModels(await listModels());
    page.gate.hidden = true;
    page.room.hidden = page.controls.hidden = false;
    page.text.focus();
  } catch (problem) {
    leave(problem instanceof Refused ? problem.message : "The gateway cannot be reached.");
    if (problem.status !== 401) page.key.value = key; // the key may well be good
  } finally {
    page.enter.disabled = false;
  }
}

function leave(why) {
  sessionStorage.removeItem(KEY);
  running?.abort();
  clear();
  page.key.value = "";
  page.gate.hidden = false;
  page.room.hidden = page.controls.hidden = true;
  page.keyError.textContent = why ?? "";
  page.keyError.hidden = !why;
  page.key.focus();
}

// ---------------------------------------------------------------- the models

// Real models before simulated ones, ready before the rest, then by name.
function rank(model) {
  return [model.owned_by === SIMULATED_OWNER, model.state !== "ready"].map(Number).join("") + model.id;
}

function label(model) {
  const notes = [];
  if (model.owned_by === SIMULATED_OWNER) notes.push("simulated");
  if (model.state && model.state !== "ready") notes.push(model.state);
  return notes.length ? `${model.id} (${notes.join(", ")})` : model.id;
}

function showModels(models) {
  const chosen = page.model.value || sessionStorage.getItem(MODEL);
  models.sort((a, b) => (rank(a) < rank(b) ? -1 : 1));
  const same = models.length === page.model.options.length
    && models.every((model, i) => page.model.options[i].text === label(model));
  if (same) return; // an open list would close
  page.model.replaceChildren(...models.map((model) => new Option(label(model), model.id)));
  if (models.some((model) => model.id === chosen)) page.model.value = chosen;
  page.model.disabled = models.length === 0;
  page.empty.textContent = models.length ? "Ask something." : "There is no model this key may use.";
  page.send.disabled = models.length === 0;
}

// ---------------------------------------------------------------- the log

function addTurn(kind, who) {
  page.empty.hidden = true;
  const turn = document.createElement("article");
  turn.className = `turn ${kind}`;
  const name = document.createElement("p");
  name.className = "who";
  name.textContent = who;
  const text = document.createElement("div");
  text.className = "text";
  turn.append(name, text);
  page.log.append(turn);
  return { turn, text };
}

function addLine(turn, kind, text) {
  const line = document.createElement("p");
  line.className = kind;
  line.textContent = text;
  turn.append(line);
}

function atEnd() {
  return page.log.scrollHeight - page.log.scrollTop - page.log.clientHeight < 60;
}

function toEnd() {
  page.log.scrollTop = page.log.scrollHeight;
}

function clear() {
  running?.abort();
  messages = [];
  page.log.replaceChildren(page.empty);
  page.empty.hidden = false;
  page.text.value = "";
  grow();
}

// ---------------------------------------------------------------- one answer

function figures(clock, usage) {
  const parts = [];
  if (clock.first === null) return "";
  parts.push(`first token after ${((clock.first - clock.sent) / 1000).toFixed(2)} s`);
  const tokens = usage?.completion_tokens ?? clock.pieces;
  const seconds = (clock.last - clock.first) / 1000;
  if (tokens > 1 && seconds > 0) parts.push(`${((tokens - 1) / seconds).toFixed(1)} tokens/s`);
  parts.push(`${tokens} tokens`);
  return parts.join(" · ");
}

function take(data, clock, show) {
  const chunk = JSON.parse(data);
  if (chunk.error) throw new Refused(200, chunk.error.code, chunk.error.message);
  const delta = chunk.choices?.[0]?.delta?.content;
  if (delta) {
    clock.last = performance.now();
    clock.first ??= clock.last;
    clock.pieces += 1;
    show(delta);
  }
  return chunk.usage ?? null;
}

async function answer(model, thread, turn, text) {
  const clock = { sent: performance.now(), first: null, last: null, pieces: 0 };
  const body = { model, messages: thread, stream: true, stream_options: { include_usage: true } };
  let usage = null;
  let whole = "";
  let ended = false;
  const show = (delta) => {
    const follow = atEnd();
    turn.className = "turn assistant streaming";
    whole += delta;
    text.append(delta);
    if (follow) toEnd();
  };
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal,
    });
    if (!response.ok) throw await refusalOf(response);
    for await (const data of events(response)) {
      if (data === "[DONE]") ended = true;
      else usage = take(data, clock, show) ?? usage;
    }
    if (!ended) throw new Refused(200, "cut", "The answer was cut off.");
  } finally {
    turn.className = "turn assistant";
    const line = figures(clock, usage);
    if (line) addLine(turn, "figures", line);
  }
  return whole;
}

async function ask(question) {
  const model = page.model.value;
  running = new AbortController();
  page.send.hidden = true;
  page.stop.hidden = false;
  page.model.disabled = true;
  addTurn("user", "You").text.textContent = question;
  const thread = messages; // a new chat begun meanwhile has its own
  thread.push({ role: "user", content: question });
  const { turn, text } = addTurn("assistant waiting", model);
  toEnd();
  try {
    const whole = await answer(model, thread, turn, text);
    thread.push({ role: "assistant", content: whole });
  } catch (problem) {
    failed(problem, thread, turn, text.textContent);
  } finally {
    running = null;
    page.send.hidden = false;
    page.stop.hidden = true;
    page.model.disabled = false;
    toEnd();
    if (!page.room.hidden) page.text.focus();
  }
}

function failed(problem, thread, turn, whole) {
  // A question without an answer would make the next request two questions in a row.
  if (whole) thread.push({ role: "assistant", content: whole });
  else thread.pop();
  if (problem.name === "AbortError") addLine(turn, "figures", "stopped");
  else if (problem.status === 401) leave(problem.message);
  else if (problem instanceof Refused) addLine(turn, "problem", problem.message);
  else addLine(turn, "problem", "The connection broke before the answer was whole.");
}

// ---------------------------------------------------------------- hands on the page

function grow() {
  page.text.style.height = "auto";
  page.text.style.height = `${page.text.scrollHeight + 2}px`;
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  enter(page.key.value.trim());
});
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = page.text.value.trim();
  if (!question || running || page.send.disabled) return;
  page.text.value = "";
  grow();
  ask(question);
});
page.text.addEventListener("input", grow);
page.text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("ask").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
});
page.stop.addEventListener("click", () => running?.abort());
page.model.addEventListener("change", () => sessionStorage.setItem(MODEL, page.model.value));
page.model.addEventListener("focus", async () => {
  try {
    showModels(await listModels());
  } catch {
    // what is listed stays; the next question says what is wrong
  }
});
$("clear").addEventListener("click", () => {
  clear();
  page.text.focus();
});
$("leave").addEventListener("click", () => leave());

if (sessionStorage.getItem(KEY)) enter(sessionStorage.getItem(KEY));
