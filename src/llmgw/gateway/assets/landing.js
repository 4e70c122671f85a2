// Adds a copy button to every snippet. Without a clipboard (plain http on another host) there is none.
"use strict";

if (navigator.clipboard) {
  for (const snippet of document.querySelectorAll(".snippet")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(snippet.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    snippet.append(button);
  }
}
