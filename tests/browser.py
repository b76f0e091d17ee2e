"""Headless Chromium for tests, over a pipe: a page opened, looked at, clicked in, and what it complained of.

It speaks the Chrome DevTools Protocol (https://chromedevtools.github.io/devtools-protocol/), JSON between zero bytes.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.polling import eventually

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_WITHIN_S: Final = 30.0
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # tests run as root in containers, where there is no other way
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--window-size=1360,900",
)


def program() -> str | None:
    """Where Chromium is; None where it is not installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab. ``errors`` are exceptions and errors of its console, ``asked`` what it wanted from elsewhere."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser: Final = browser
        self._target: Final = target
        self._session: Final = session
        self.errors: Final = list[str]()
        self.asked: Final = list[str]()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self.call("Network.emulateNetworkConditions", **offline)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, params, self._session)

    def close(self) -> None:
        """The tab is gone; the browser stays."""
        self._browser.forget(self._session)
        self._browser.call("Target.closeTarget", {"targetId": self._target})

    def open(self, url: str) -> float:
        """Seconds until its scripts are through."""
        began = time.monotonic()
        self.call("Page.navigate", url="about:blank")  # a mere change of the fragment would load nothing
        self.call("Page.navigate", url=url)
        eventually(lambda: self.is_true("document.documentElement?.dataset.ready === 'yes'"), what=f"{url} to be ready")
        return time.monotonic() - began

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives, as a plain value."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def is_true(self, expression: str) -> bool:
        return self.value(f"Boolean({expression})") is True

    def wait(self, expression: str) -> None:
        eventually(lambda: self.is_true(expression), within_s=_WITHIN_S, what=expression)

    def click(self, expression: str) -> None:
        """With the mouse, into the middle of the element that ``expression`` gives, once it stands still."""
        centre = (
            f"(() => {{ const box = ({expression}).getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        self.value(f"({expression}).scrollIntoView({{block: 'center'}})")
        places: list[list[float]] = []

        def still() -> bool:
            places.append(self.value(centre))
            return places[-1:] == places[-2:-1]

        eventually(still, what=f"{expression} to stand still")
        x, y = places[-1]
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def prefers(self, scheme: str) -> None:
        """As if the system were "light" or "dark"."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A screenshot as PNG, of what is seen or of the whole page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def heard(self, event: dict[str, Any]) -> None:
        """Something happened in the page."""
        params = event.get("params", {})
        match event["method"]:
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.errors.append(str(details.get("exception", {}).get("description") or details["text"]))
            case "Runtime.consoleAPICalled" if params["type"] in {"error", "assert"}:
                self.errors.append(str([each.get("value") for each in params["args"]]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.errors.append(params["entry"]["text"])
            case "Network.requestWillBeSent" if not params["request"]["url"].startswith(("file:", "data:", "blob:")):
                self.asked.append(params["request"]["url"])
            case _:
                pass


class Browser:
    """A process of its own, with a profile that is deleted at the end. Raises AssertionError where it is not there."""

    def __init__(self) -> None:
        found = program()
        assert found, f"none of {', '.join(NAMES)} is installed: apt-get install chromium (or `make browser` as root)"
        self._profile: Final = tempfile.mkdtemp(prefix="mirror-browser-")
        pipes = [os.pipe(), os.pipe()]
        # Clear of the two places that they are put into.
        its_input, its_output = (fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in (pipes[0][0], pipes[1][1]))
        self._input, self._output = pipes[0][1], pipes[1][0]
        self._process: Final = subprocess.Popen(
            # The shell puts the two ends where Chromium looks for them (by name: to dash, descriptors have one digit).
            [
                "sh",
                "-c",
                f'exec "$@" 3</dev/fd/{its_input} 4>/dev/fd/{its_output}',
                "sh",
                found,
                *_FLAGS,
                f"--user-data-dir={self._profile}",
            ],
            pass_fds=(its_input, its_output),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for one in (its_input, its_output, pipes[0][0], pipes[1][1]):
            os.close(one)
        self._calls = 0
        self._read = b""
        self._answers: Final = dict[int, dict[str, Any]]()
        self._pages: Final = dict[str, Page]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it and all its helpers are a group of their own
        self._process.wait(_WITHIN_S)
        os.close(self._input)
        os.close(self._output)
        shutil.rmtree(self._profile, ignore_errors=True)

    def page(self) -> Page:
        """A new tab."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, target, session)
        self._pages[session] = page
        return page

    def forget(self, session: str) -> None:
        """No caller needs this tab any more."""
        self._pages.pop(session, None)

    def call(self, method: str, params: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """One command and its answer; what happens meanwhile goes to its page."""
        self._calls += 1
        message: dict[str, Any] = {"id": self._calls, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._input, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _WITHIN_S
        while self._calls not in self._answers:
            ready, _, _ = select.select([self._output], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"{method}: Chromium did not answer within {_WITHIN_S:.0f} s"
            self._take_in(os.read(self._output, 1 << 20))
        answer = self._answers.pop(self._calls)
        assert "error" not in answer, f"{method}: {answer.get('error')}"
        result: dict[str, Any] = answer["result"]
        return result

    def _take_in(self, data: bytes) -> None:
        assert data, "Chromium has ended"
        *messages, self._read = (self._read + data).split(b"\0")
        for each in map(json.loads, messages):
            if "id" in each:
                self._answers[each["id"]] = each
            elif (page := self._pages.get(each.get("sessionId", ""))) is not None:
                page.heard(each)
