"use strict";
// In the head, so that nothing is shown in the wrong colours first.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const KEY = "mirror-report-theme";
  let choice = "auto";
  try {
    choice = localStorage.getItem(KEY) || "auto";
  } catch {
    // Files may have no storage.
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
        // As above.
      }
      apply();
    },
  };
  system.addEventListener("change", apply);
  apply();
})();
