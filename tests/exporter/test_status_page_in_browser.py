"""The page about all flows in a real browser: at a desk and on a telephone, in light and dark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.exporter.page import render
from tests.browser import Browser
from tests.exporter.sample_readings import CLUSTERS, FLOWS, NOW

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.browser, pytest.mark.cluster, pytest.mark.timeout(120)]

LOADED = "document.readyState === 'complete' && document.querySelectorAll('section.flow').length > 0"
FAINT_TEXTS = """(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => {
    const linear = (n) => n <= .03928 ? n / 12.92 : ((n + .055) / 1.055) ** 2.4;
    const [r, g, b] = rgb.slice(0, 3).map((n) => linear(n / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = numbers(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("body *")]
    .filter((one) => [...one.childNodes].some((each) => each.nodeType === 3 && each.textContent.trim()))
    .map((one) => {
      const [a, b] = [light(numbers(getComputedStyle(one).color)), light(behind(one))].sort((x, y) => y - x);
      return [(a + .05) / (b + .05), one.textContent.trim().slice(0, 40), one.className];
    })
    .filter(([ratio]) => ratio < 4.5);
})()"""


def test_it_fits_a_telephone_and_can_be_read_in_both_colours(tmp_path: Path) -> None:
    file = tmp_path / "status.html"
    file.write_text(render(FLOWS, CLUSTERS, NOW), encoding="utf-8")
    with Browser() as browser:
        page = browser.page()
        for scheme in ("light", "dark"):
            for width, height in ((1280, 900), (390, 844), (320, 640)):
                page.size(width, height)
                page.prefers(scheme)
                page.call("Page.navigate", url="about:blank")
                page.call("Page.navigate", url=file.as_uri())
                page.wait(LOADED)
                page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
                assert page.value("document.documentElement.scrollWidth") == width, "nothing is beside the screen"
                assert page.value(FAINT_TEXTS) == [], scheme
                assert page.value("document.documentElement.dataset.theme") == scheme
        page.value("document.querySelector('.index a').click()")
        assert page.is_true("document.querySelector('section.flow').getBoundingClientRect().top < 200")
        assert (page.errors, page.asked) == ([], [])
