"""The key goes to the right endpoints only, and is in no file and no printed text."""

import base64
import json
import re
import subprocess
import sys
import traceback
import urllib.parse

import numpy as np
import pytest

from jbias import ask
from jbias.asking import keys, ledger
from tests import cases, chat_server
from tests.asking import stub_images

Reply = chat_server.Reply
KEY = stub_images.KEY
OPENAI = "https://api.openai.com/v1"

pytestmark = pytest.mark.usefixtures("endpoint_environment")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


FORMS = (
    KEY,
    f"Incorrect API key provided: {KEY}.",
    KEY.upper(),
    KEY[::-1],
    urllib.parse.quote(f"Bearer {KEY}"),
    "".join(f"%{ord(letter):02X}" for letter in KEY),
    "".join(f"%25{ord(letter):02x}" for letter in KEY),
    _base64(KEY),
    _base64(f"Bearer {KEY}"),
    _base64(f"user:{KEY}!"),
    base64.urlsafe_b64encode(f"??{KEY}??".encode()).decode(),
    KEY.encode().hex(),
    "".join(f"\\u{ord(letter):04x}" for letter in KEY),
    "".join(f"\\\\u{ord(letter):04x}" for letter in KEY),
    "".join(f"\\x{ord(letter):02x}" for letter in KEY),
    "".join(f"&#{ord(letter)};" for letter in KEY),
    " ".join(KEY),
    f"{KEY[:9]}\n{KEY[9:]}",
    f"{KEY[:9]}\\n{KEY[9:]}",
    f'{KEY[:9]}\\"{KEY[9:]}',
    f"{KEY[:9]}\u200b{KEY[9:]}",
    "".join(chr(ord(letter) + 0xFEE0) for letter in KEY),  # Full width.
    f"{KEY[:15]} ...",
)


@cases.each("text", FORMS)
def test_the_key_is_replaced_in_every_form(text):
    hidden = keys.Key(KEY).redact(f'{{"A": "{text}"}}')
    assert "***" in hidden
    assert not _shows_key(hidden)


def _shows_key(text: str) -> bool:
    """Return True for a text that shows half of the key, also after decoding."""
    texts = [text, urllib.parse.unquote(urllib.parse.unquote(text)), text[::-1]]
    for word in re.findall(r"[A-Za-z0-9+/_-]{8,}", text):
        plain = word.replace("-", "+").replace("_", "/")
        for start in range(4):
            part = plain[start : start + (len(plain) - start) // 4 * 4]
            texts.append(base64.b64decode(part).decode("latin-1"))
    texts += [bytes.fromhex(x).decode("latin-1") for x in re.findall(r"(?:[0-9a-f]{2}){8,}", text)]  # fmt: skip
    half = len(KEY) // 2 + 1
    halves = [KEY[i : i + half] for i in range(len(KEY) - half + 1)]
    return any(part in plain.lower() for part in halves for plain in texts)


def test_other_texts_stay_and_placeholders_are_no_keys():
    rng = np.random.default_rng(0)
    key = keys.Key(KEY)
    for _ in range(100):
        text = "".join(map(chr, rng.integers(1, 0x250, 300)))
        assert key.redact(text) == text
    assert key.redact("sk-...cdef and D. bird %41 \\u0041") == (
        "sk-...cdef and D. bird %41 \\u0041"
    )
    assert keys.Key("EMPTY").redact("EMPTY") == "EMPTY"
    assert repr(key) == "Key(***)"


def test_hostile_texts_take_no_time():
    key = keys.Key(KEY)
    for part in ("\\", "%25", "&amp;", "\\u00", "sk-", KEY[:12], KEY, "=", " "):
        key.redact(part * (100_000 // len(part)))


@pytest.mark.parametrize(
    ("endpoint", "variable", "value"),
    [
        (OPENAI, None, KEY),
        ("https://api.openai.com:443/v1", None, KEY),
        ("https://api.openai.com:8443/v1", None, "none"),
        ("https://api.openai.com.evil.org/v1", None, "none"),
        ("https://evil.org/api.openai.com/v1", None, "none"),
        ("http://localhost:8000/v1", None, KEY),
        ("http://127.0.0.2:8000/v1", None, KEY),
        ("http://[::1]:8000/v1", None, KEY),
        ("http://localhost.evil.org/v1", None, "none"),
        ("http://127.0.0.1.evil.org/v1", None, "none"),
        ("https://openrouter.ai/api/v1", None, "none"),
        ("http://192.168.0.2:8000/v1", None, "none"),
        ("https://openrouter.ai/api/v1", "OTHER_KEY", "other-key"),
        ("https://openrouter.ai/api/v1", "OPENAI_API_KEY", KEY),
        ("http://127.0.0.1:8000/v1", "OTHER_KEY", "other-key"),
    ],
)
def test_the_default_key_goes_to_openai_and_to_this_machine(
    monkeypatch, endpoint, variable, value
):
    monkeypatch.setenv("OTHER_KEY", "other-key")
    keys.check_endpoint(endpoint)
    assert keys.read(variable, endpoint=endpoint).reveal() == value


@pytest.mark.parametrize("host", ["192.168.0.2:8000", "evil.org", "128.0.0.1"])
def test_no_key_is_sent_in_clear_text(host):
    with pytest.raises(ValueError, match="begin with https://.*clear text"):
        keys.read("OPENAI_API_KEY", endpoint=f"http://{host}/v1")


def test_without_a_key_one_line_names_the_variable_before_any_image_is_read(
    monkeypatch, tmp_path
):
    """Nothing slow is imported, so that the line appears in less than a second."""
    monkeypatch.delenv("OPENAI_API_KEY")
    code = (
        "import sys; from jbias import ask; "
        f"code = ask.main(['--model=x', '--stimuli={tmp_path / 'nowhere'}']); "
        "print(code, *{'jax', 'scipy', 'numpy', 'openai'} & {*sys.modules})"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == ["2"]
    (line,) = process.stderr.splitlines()
    assert "OPENAI_API_KEY: must be set to a key for https://api.openai.com/v1" in line


def test_headers_for_openai_and_proxies_do_not_reach_other_endpoints(
    monkeypatch, tmp_path
):
    """And a request to this machine passes no proxy."""
    images = stub_images.write(tmp_path / "stimuli", stub_images.draw_names(1))
    for name, value in {
        "OPENAI_ORG_ID": "my-org",
        "OPENAI_PROJECT_ID": "my-project",
        "OPENAI_CUSTOM_HEADERS": "X-Mine: my-header",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "",
    }.items():
        monkeypatch.setenv(name, value)
    with chat_server.ChatServer(images) as server:
        assert stub_images.run(tmp_path, server.url) == 0
        (request,) = server.requests
    assert request.key == f"Bearer {KEY}"
    assert not [x for x in request.headers.values() if x.startswith("my-")]


def test_the_key_is_in_no_file_message_or_traceback(tmp_path, capsys, monkeypatch):
    """An endpoint echoes the key in every field and form that it can."""
    images = stub_images.write(tmp_path / "stimuli", stub_images.draw_names(20))
    monkeypatch.setenv("JBIAS_TRACEBACK", "1")

    def answer(question):
        number = len(server.requests) - 1
        text = FORMS[number % len(FORMS)]
        kind = number % 5
        if kind == 0:
            return Reply(text, status=413)
        if kind == 1:
            return Reply(text, status=500, code=text)
        if kind == 2:
            return Reply(body=f"<html>{text}</html>".encode())
        long_text = "x" * 190 + text  # Would be cut off in the middle of the key.
        fields = {"model": long_text, "id": text, "system_fingerprint": text}
        refusal = text if kind == 3 else None
        words = None if kind == 3 else text
        return Reply(words, refusal=refusal, finish_reason=text, fields=fields)

    with chat_server.ChatServer(images, answer=answer) as server:
        args = ("--tries=1", "--parallel=1")
        assert stub_images.run(tmp_path, server.url, *args) == 1
        assert len(server.requests) == len(images)
        assert stub_images.run(tmp_path, server.url, *args) == 1
        assert {x.key for x in server.requests} == {f"Bearer {KEY}"}
        broken = RuntimeError("a bug")
        monkeypatch.setattr(ledger.Ledger, "answer", lambda *_, **__: _raise(broken))
        with pytest.raises(RuntimeError) as error:
            arguments = stub_images.arguments(tmp_path, server.url)[:-1]
            ask.main([*arguments, f"--out={tmp_path / 'other'}"])
    shown = "".join(traceback.format_exception(error.value))
    printed = capsys.readouterr()
    assert "413: ***" in printed.err and "500: ***" in printed.err
    texts = [printed.out, printed.err, shown]
    for path in [*(tmp_path / "out").iterdir(), *(tmp_path / "other").iterdir()]:
        texts.append(path.read_text())
        if path.suffix == ".jsonl":
            texts += [str(json.loads(line)) for line in path.read_text().splitlines()]
    assert len(texts) > 30
    assert not [text[:500] for text in texts if _shows_key(text)]


def _raise(error: Exception):
    raise error
