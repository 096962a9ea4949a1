"""Chromium without a window, driven over a pipe by its DevTools protocol."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

EXECUTABLE = os.environ.get("CHROME") or shutil.which("chromium")
needed = pytest.mark.skipif(not EXECUTABLE, reason="needs chromium")
SILENCE_SECONDS = 60
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)


class Page:
    """A page of the browser."""

    def __init__(self, browser: "Browser"):
        self.browser = browser
        context = browser.send("Target.createBrowserContext")["browserContextId"]
        target = browser.send(
            "Target.createTarget", {"url": "about:blank", "browserContextId": context}
        )["targetId"]
        attached = browser.send(
            "Target.attachToTarget", {"targetId": target, "flatten": True}
        )
        self.session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.send(f"{domain}.enable")

    def send(self, method: str, params: Mapping[str, Any] | None = None) -> dict:
        """Return the result of a command of the protocol."""
        return self.browser.send(method, params, session=self.session)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window in pixels; below 500 it is a phone's with a touch screen."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.send(
            "Emulation.setDeviceMetricsOverride", {**metrics, "mobile": width < 500}
        )

    def open(self, url: str, *, script: str = "") -> None:
        """Open an address, and wait until it is loaded; script: run before those of the page."""
        if script:
            self.send("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        self.send("Page.navigate", {"url": url})
        self.browser.wait("Page.loadEventFired", self.session)

    def reload(self) -> list[str]:
        """Load the page again, and leave it if it asks; return the kinds of questions."""
        loaded, question = "Page.loadEventFired", "Page.javascriptDialogOpening"
        place = len(self.browser.events)
        self.send("Page.reload")
        kinds: list[str] = []
        while True:
            if place == len(self.browser.events):
                self.browser.receive()
                continue
            event = self.browser.events[place]
            place += 1
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == question:
                kinds.append(event["params"]["type"])
                self.send("Page.handleJavaScriptDialog", {"accept": True})
            if event["method"] == loaded:
                return kinds

    def touch(self) -> None:
        """Emulate a touch screen without a mouse."""
        self.send("Emulation.setTouchEmulationEnabled", {"enabled": True})

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page, or of its promise."""
        options = {"awaitPromise": True, "returnByValue": True}
        result = self.send("Runtime.evaluate", {"expression": script, **options})
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key, such as "a", "Tab" or "Enter"."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        code = codes.get(key, ord(key.upper()) if len(key) == 1 else 0)
        options = {"key": key, "windowsVirtualKeyCode": code}
        down = {"type": "keyDown" if text else "rawKeyDown", "text": text, **options}
        self.send("Input.dispatchKeyEvent", down)
        self.send("Input.dispatchKeyEvent", {"type": "keyUp", **options})

    def screenshot(self) -> bytes:
        """Return the window as a PNG file."""
        return base64.b64decode(self.send("Page.captureScreenshot")["data"])

    def requests(self) -> list[str]:
        """Return the addresses that the page has asked for, with those of data and of files."""
        return [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event.get("sessionId") == self.session
            and event["method"] == "Network.requestWillBeSent"
        ]

    def errors(self) -> list[str]:
        """Return the errors of the page's scripts."""
        return [
            json.dumps(event["params"]["exceptionDetails"])
            for event in self.browser.events
            if event.get("sessionId") == self.session
            and event["method"] == "Runtime.exceptionThrown"
        ]


class Browser:
    """A browser process."""

    def __init__(self, folder: str):
        commands, self._output = os.pipe()
        self._input, answers = os.pipe()
        script = f'exec "$0" "$@" 3<&{commands} 4>&{answers}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, EXECUTABLE, *_FLAGS, f"--user-data-dir={folder}"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._buffer = b""
        self._count = 0
        self.events: list[dict] = []

    def send(
        self, method: str, params: Mapping[str, Any] | None = None, *, session: str = ""
    ) -> dict:
        """Return the result of a command of the protocol."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method}
        message["params"] = dict(params or {})
        if session:
            message["sessionId"] = session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._output, text) :]
        while (answer := self.receive()).get("id") != self._count:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def wait(self, method: str, session: str) -> None:
        """Wait for an event of a page, unless the page has had one."""
        is_known = [
            event["method"] == method and event.get("sessionId") == session
            for event in self.events
        ]
        while not any(is_known):
            answer = self.receive()
            is_known = [
                answer.get("method") == method and answer.get("sessionId") == session
            ]

    def receive(self) -> dict:
        """Return the next message; events are added to `events`.

        AssertionError if there is none for SILENCE_SECONDS; the browser is then killed.
        """
        while b"\0" not in self._buffer:
            if not select.select([self._input], [], [], SILENCE_SECONDS)[0]:
                self._process.kill()
                raise AssertionError(f"chromium was silent for {SILENCE_SECONDS} s")
            data = os.read(self._input, 2**20)
            assert data, "chromium has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(AssertionError, OSError):
            self.send("Browser.close")
        os.close(self._output)
        os.close(self._input)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def started(folder: str) -> Iterator[Browser]:
    """Yield a browser with its settings in an empty folder; it ends with the context."""
    browser = Browser(folder)
    try:
        yield browser
    finally:
        browser.close()
