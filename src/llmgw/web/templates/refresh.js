"use strict";
// Fetches the page again and puts its content in place of the old one, so that nothing has to be reloaded.
(() => {
  const EVERY_MS = 2000;
  const silent = document.getElementById("silent");
  let last = new Date();

  const reading = () => document.hidden || String(document.getSelection()) !== "";

  const replace = (html) => {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    for (const id of ["live", "lead"]) {
      const [from, to] = [fresh.getElementById(id), document.getElementById(id)];
      if (from && to && from.innerHTML !== to.innerHTML) to.replaceWith(from);
    }
    document.title = fresh.title;
  };

  const refresh = async () => {
    if (reading()) return;
    try {
      const open = [...document.querySelectorAll("details[open]")].map((d) => d.id);
      const answer = await fetch("/", { headers: { accept: "text/html" } });
      if (answer.redirected) return location.reload();
      if (!answer.ok) throw new Error(answer.status);
      replace(await answer.text());
      for (const id of open) document.getElementById(id)?.setAttribute("open", "");
      last = new Date();
      silent.hidden = true;
    } catch {
      silent.textContent = `No answer from the server since ${last.toLocaleTimeString()}. What is below is from then.`;
      silent.hidden = false;
    }
  };

  const again = () => refresh().finally(() => setTimeout(again, EVERY_MS));
  setTimeout(again, EVERY_MS);
})();
