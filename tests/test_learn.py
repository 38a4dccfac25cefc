"""Texts of lessons, and the server that shows them: to pages of its own, on this machine alone."""

import base64
import http.client
import json
import os
import re
import shlex
import socket
import threading
from contextlib import closing
from importlib import import_module
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

pytest.importorskip("marimo", reason="lessons need the extra `learn`")

import npusim
from npusim.cli.program import run
from npusim.course.catalogue import LessonPage, lessons
from npusim.course.explorer import KNOBS, Design, answer, offered
from npusim.course.export import with_first
from npusim.course.lesson import Exercise, drawing_spec
from npusim.course.machine import uncompiled
from npusim.course.pages import lesson_data, shown_at, stored_data, written
from npusim.course.server import LOOPBACK, bound_socket, serve
from npusim.errors import NpusimError

pytestmark = pytest.mark.usefixtures("own_main")
NAMES = [lesson.name for lesson in lessons()]
REMEDY = "`python scripts/first_pictures.py` writes them"


class Answer:
    """What the server said."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.text = answer.status, answer.headers, answer.read().decode()


class Client:
    """Asks a running server as a browser would."""

    def __init__(self, address: str, query: str) -> None:
        self.port, self.query = int(address.rstrip("/").rpartition(":")[2]), query
        self.cookie = {"cookie": f"npusim-{self.port}={query.removeprefix('?token=')}"}

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        with closing(http.client.HTTPConnection(LOOPBACK, self.port, timeout=60)) as connection:
            sent = body if body is None or isinstance(body, bytes) else json.dumps(body)
            connection.request(
                method, path, sent, {"content-type": "application/json", **self.cookie, **headers}
            )
            return Answer(connection.getresponse())


@pytest.fixture(scope="module")
def client() -> Client:
    """Return a client of a server that runs until the tests end."""
    said: Queue[tuple[str, str]] = Queue()
    threading.Thread(target=serve, args=(0, lambda *words: said.put(words)), daemon=True).start()
    return Client(*said.get(timeout=120))


STORED = [page for page in lessons() if stored_data(page)]
QUICK = "preprocessing"


@pytest.mark.few(4)
@pytest.mark.parametrize("page", lessons(), ids=NAMES)
def test_a_lesson_accepts_its_own_answer_and_does_not_show_it_before(page: LessonPage) -> None:
    lesson = import_module(page.module).LESSON
    data = lesson_data(page)
    shown = data["introduction"] + data["question"] + data["exercise"]["words"]
    assert "Exercise." in shown and "First a guess." in shown and "Right." not in shown
    assert lesson.question.right in lesson.question.options
    exercise = lesson.exercise
    assert exercise.verdict(f"{exercise.right:.6g}")[0].startswith("Right.")
    assert exercise.verdict(f"{exercise.right * 1.3 + 1:.6g}")[0].startswith("Not yet")


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[] if p.name == QUICK else pytest.mark.slow, id=p.name) for p in STORED],
)
def test_a_stored_first_picture_is_what_the_lesson_shows(page: LessonPage) -> None:
    stored, now = stored_data(page), with_first(page)
    texts = [name for name in now if name not in ("pool", "pictures")]
    assert {name: stored[name] for name in texts} == {name: now[name] for name in texts}, REMEDY
    for old, new in zip(stored["pictures"], now["pictures"], strict=True):
        assert {**old, "at": 0} == {**new, "at": 0} and list(old["at"]) == list(new["at"]), REMEDY
        for (_, *words), (_, *words_now) in zip(old["at"].values(), new["at"].values(), strict=True):
            assert [stored["pool"][at] for at in words] == [now["pool"][at] for at in words_now], REMEDY


def test_numbers_of_a_picture_have_single_precision() -> None:
    x, y = np.linspace(0.0, 1e-3, 7) / 3.0, [1.0 / 3.0] * 7
    trace = json.loads(drawing_spec(go.Figure(go.Scatter(x=x, y=y)), 100))["data"][0]
    packed = np.frombuffer(base64.b64decode(trace["x"]["bdata"]), trace["x"]["dtype"])
    assert packed.itemsize == 4 and np.allclose(packed, x, rtol=1e-6, atol=0.0)
    assert trace["y"] != y and np.allclose(trace["y"], y, rtol=1e-6)
    for value, shown in ((1.0, "1"), (0.1, "0.1"), (200000, "200000"), ("fp16", "fp16")):
        assert written(value) == shown


def test_calls_that_use_plain_kernels_may_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUSIM_KERNELS", "compiled")
    first, second = uncompiled(), uncompiled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ["NPUSIM_KERNELS"] == "plain"
    second.__exit__(None, None, None)
    assert os.environ["NPUSIM_KERNELS"] == "compiled"


def test_lessons_are_numbered_from_one() -> None:
    numbers = [lesson.number for lesson in lessons()]
    assert numbers[0] == 1 and numbers == sorted(set(numbers))


@pytest.mark.parametrize("given", ["__import__('os').system('true')", "1+1", "nan(", "", "1e999", "<b>7</b>"])
def test_what_a_visitor_types_is_a_number_or_nothing(given: str) -> None:
    shown, _ = Exercise("", 2.0, "Because. So.").verdict(given)
    assert "Right." not in shown and "<b>7" not in shown


def test_the_start_page_links_to_every_lesson(client: Client) -> None:
    page = client.ask("/")
    assert page.status == 200 and page.text.count("<main>") == 1
    assert re.findall(r'href="/lessons/(\w+)/"', page.text) == NAMES
    for lesson in lessons():
        shown = client.ask(f"/lessons/{lesson.name}/")
        assert shown.status == 200 and lesson.title in shown.text
    assert client.ask("/library.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:{port}"},
        {"host": f"{LOOPBACK}:1"},
        {"host": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"https://{LOOPBACK}:{{port}}"},
    ],
)
def test_foreign_pages_are_refused(client: Client, headers: dict[str, str]) -> None:
    sent = {name: value.format(port=client.port) for name, value in headers.items()}
    for path in ("/", f"/lessons/{NAMES[0]}/", f"/lessons/{NAMES[0]}/api/kernel/run"):
        assert client.ask(path, **sent).status == 403


@pytest.mark.parametrize(
    "path",
    [
        "/explorer/../../../../../../../etc/passwd",
        "/explorer/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/explorer/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/explorer/offers/..%2f..%2fetc%2fpasswd/gcn-cora",
        "/explorer/server.py",
        "/library/%2e%2e/%2e%2e/etc/passwd",
        "/lessons/..%2fserver.py",
        "/explorer/api/status/connections",
        "/lessons/{name}/at/0/../../../etc/passwd",
        "/lessons/{name}/at/0/..%2f..%2fetc%2fpasswd",
        "//etc/passwd",
    ],
)
def test_no_path_leads_to_other_files(client: Client, path: str) -> None:
    answer = client.ask(path.format(name=NAMES[0]))
    assert answer.status in (400, 403, 404, 405)
    assert "root:" not in answer.text and "uvicorn" not in answer.text


@pytest.mark.parametrize(
    "position",
    [
        "0/0",
        "0/0,0,0,0",
        "0/0,0,999",
        "0/-1,0,0",
        "0/00,0,0",
        "0/a,0,0",
        "0/1e1,0,0",
        "9/0,0,0",
        "-1/0,0,0",
        "0/",
    ],
)
def test_a_position_that_no_slider_has_is_refused(client: Client, position: str) -> None:
    assert client.ask(f"/lessons/{NAMES[0]}/at/{position}").status == 404
    assert client.ask("/lessons/nonsense/at/0/0,0,0").status == 404


def test_a_picture_at_a_position_is_what_the_model_shows(client: Client) -> None:
    (picture,) = import_module(lessons()[0].module).LESSON.pictures
    places = tuple(len(slider.values) - 1 for slider in picture.sliders.values())
    answer = client.ask(f"/lessons/{NAMES[0]}/at/0/{','.join(map(str, places))}")
    assert tuple(json.loads(answer.text)) == shown_at(picture, places)


def test_who_lacks_the_token_sees_nothing(client: Client) -> None:
    for cookie in ("", f"npusim-{client.port}=0", "npusim-1=" + client.query.removeprefix("?token=")):
        for path in ("/", f"/lessons/{NAMES[0]}/", "/?token=0", "/?token="):
            assert client.ask(path, cookie=cookie).status == 403
    answer = client.ask(f"/lessons/{NAMES[0]}/{client.query}", cookie="")
    assert answer.status == 303 and answer.headers["location"] == f"/lessons/{NAMES[0]}/"
    assert answer.headers["set-cookie"].startswith(client.cookie["cookie"] + "; HttpOnly")


def test_half_a_request_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npusim.course.server._PATIENCE_S", 0.2)
    for sent in (b"", b"GET / HTTP/1.1\r\nHost", b"POST / HTTP/1.1\r\n"):
        with socket.create_connection((LOOPBACK, client.port), timeout=30) as half:
            half.sendall(sent)
            assert half.recv(1) == b""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_sent(client: Client, method: str, capfd: pytest.CaptureFixture[str]) -> None:
    for path in ("/", f"/lessons/{NAMES[0]}/", f"/lessons/{NAMES[0]}/health", "/explorer/pictures/A"):
        for body in ({}, b"\xff\x00", b"[" * 100_000):
            assert client.ask(path, method, body).status == 405
    assert client.ask("/explorer/", method, **{"content-length": "-1"}).status in (400, 405)
    assert "Traceback" not in "".join(capfd.readouterr())


def test_a_web_socket_is_an_ordinary_request(client: Client) -> None:
    upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    said = client.ask("/explorer/ws", **upgrade, **{"sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="})
    assert said.status == 404 and "unknown address" in said.text


def test_pages_may_load_from_this_server_alone(client: Client) -> None:
    for path in ("/", f"/lessons/{NAMES[0]}/"):
        policy = client.ask(path).headers["content-security-policy"]
        named = re.findall(r"(?:https?|wss?)://[^ ;]+", policy)
        assert "default-src 'self'" in policy and all(f":{client.port}" in one for one in named)


def test_a_taken_port_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with closing(bound_socket(0)) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        assert taken.getsockname()[0] == LOOPBACK
        assert run(["learn", "--port", str(port), "--no-browser"]) == 2
    assert "--port" in capfd.readouterr().err


def test_an_unknown_lesson_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["learn", NAMES[0][:-1], "--no-browser"]) == 2
    said: Any = capfd.readouterr().err
    assert NAMES[0] in said


def test_a_design_of_the_explorer_is_its_command_and_its_sheet(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    soc = "core-ultra-series2"
    values = {knob.path: knob.sheet_value(soc) for knob in KNOBS}
    plain = Design.of(soc, "gcn-cora", "stagr", values)
    assert plain.settings == ()
    values |= {KNOBS[0].path: KNOBS[0].values(soc)[-1], KNOBS[3].path: KNOBS[3].values(soc)[0]}
    design = Design.of(soc, "gcn-cora", "stagr", values)
    assert len(design.settings) == 2
    for one in (plain, design):
        latency_s = one.estimate.latency_s
        assert run([*shlex.split(one.command)[1:], "--format", "json"]) == 0
        assert json.loads(capfd.readouterr().out)["latency_s"] == latency_s
        (tmp_path / "explored.yaml").write_text(one.sheet)
        explored = npusim.estimate(
            "gcn-cora", npusim.load_soc(tmp_path / "explored.yaml"), techniques="stagr", interval=False
        )
        assert explored.latency_s == latency_s


def test_the_explorer_begins_where_the_sheet_does_on_every_machine_it_offers() -> None:
    socs, kinds = offered()
    assert {"core-ultra-series1", "core-ultra-series2"} <= set(socs) and "gcn-cora" in kinds
    for soc in socs:
        for knob, slider in zip(KNOBS, answer(f"offers/{soc}/gcn-cora")["sliders"], strict=True):
            assert float(slider["values"][slider["start"]]) == pytest.approx(knob.sheet_value(soc))


DESIGN = "core-ultra-series2;gcn-cora;stagr;0,0,0,0"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "nonsense",
        "offers",
        "offers/core-ultra-series2",
        "offers/nonsense/gcn-cora",
        "offers/core-ultra-series2/..",
        "pictures/nonsense",
        f"pictures/{DESIGN}/more",
        f"pictures/{DESIGN},0",
        f"pictures/{DESIGN.replace('0,0', '0,99')}",
        f"pictures/{DESIGN.replace('stagr', 'symg')}",
        f"pictures/{DESIGN.replace('gcn-cora', 'llama3-8b')}",
        f"compared/{DESIGN}",
        "product/0/1/1/output_stationary",
        "product/-1/1/1/output_stationary",
        "product/65/1/1/output_stationary",
        "product/1/1/1/npu.tiles=9",
    ],
)
def test_what_the_explorer_does_not_offer_is_refused(address: str, client: Client) -> None:
    with pytest.raises(NpusimError):
        answer(address)
    if address:
        said = client.ask(f"/explorer/{address}")
        assert said.status == (200 if address.startswith("product") and "=" not in address else 404)
        assert ".." in address or list(json.loads(said.text)) == ["refused"]


def test_answers_of_the_explorer_are_the_design(client: Client) -> None:
    said = json.loads(client.ask(f"/explorer/compared/{DESIGN}/{DESIGN}").text)
    soc = "core-ultra-series2"
    values = {knob.path: knob.values(soc)[0] for knob in KNOBS}
    design = Design.of(soc, "gcn-cora", "stagr", values)
    for each in said["designs"]:
        assert (each["command"], each["sheet"], each["latency"]) == (
            design.command,
            design.sheet,
            design.latency,
        )
    titles = [json.loads(spec)["data"] for spec, _ in answer(f"pictures/{DESIGN}")["figures"]]
    assert len(titles) == 4 and all(titles)
    for address in (f"simulated/{DESIGN}", "product/4/5/6/row_stationary"):
        ((spec, words),) = answer(address)["figures"]
        assert json.loads(spec) and len(words) > 40
