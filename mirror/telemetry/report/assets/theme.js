"use strict";
// This script is in the head, so that the page never appears in the wrong colours.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const KEY = "mirror-report-theme";
  let choice = "auto";
  try {
    choice = localStorage.getItem(KEY) || "auto";
  } catch {
    // A page from a file may have no storage.
  }

  function apply() {
    document.documentElement.dataset.theme = choice === "auto" ? (system.matches ? "dark" : "light") : choice;
    document.dispatchEvent(new Event("mirror-theme"));
  }

  window.mirrorTheme = {
    get choice() {
      return choice;
    },
    choose(wanted) {
      choice = wanted;
      try {
        localStorage.setItem(KEY, wanted);
      } catch {
        // A page from a file may have no storage.
      }
      apply();
    },
  };
  system.addEventListener("change", apply);
  apply();
})();
