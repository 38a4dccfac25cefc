"""The server of the lessons: this machine's own browser may read, and nobody's code is run."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from importlib import import_module

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from npusim.course import pages
from npusim.course.catalogue import LessonPage, lessons
from npusim.course.words import word
from npusim.errors import ConfigError, NpusimError, UnknownNameError

LOOPBACK = "127.0.0.1"
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "frame-ancestors 'none'; form-action 'none'; base-uri 'self'; object-src 'none'"
)
"""What a browser may do with a page: load from this server, and from nowhere else."""
_POLICIES = {
    b"content-security-policy": _POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
}
_READS = ("GET", "HEAD")
_PATIENCE_S = 20.0
"""Time in which a request must be complete."""


class OwnPagesOnly:
    """Refuse whatever no page of this server, in this machine's browser, asks.

    A page elsewhere can point a name of its own at 127.0.0.1, or ask this server from its own origin: the
    first shows in the header Host, the second in Origin. Other users of this machine lack the token, which
    the printed address carries and a cookie keeps. Nothing can be sent.
    """

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        """Take the port that the server listens on, and the token of this run."""
        self._app, self._token, self._cookie = app, token, f"npusim-{port}"
        self._hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost")}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is not None:
            status, words = refusal
            await PlainTextResponse(f"{words}\n", status_code=status)(scope, receive, send)
            return
        if scope["query_string"] == f"token={self._token}".encode():
            response = RedirectResponse("/" + scope["path"].lstrip("/"), status_code=303)
            response.set_cookie(self._cookie, self._token, httponly=True, samesite="lax")
            await response(scope, receive, send)
            return

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_POLICIES.items()]
            await send(message)

        await self._app(scope, receive, send_with_policy)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Return status and words for what no page of this server asks; None for what a page asks."""
        path, origin = scope["path"], headers.get("origin")
        if headers.get("host") not in self._hosts or (origin is not None and origin not in self._origins):
            return 403, "This server answers pages of its own, under 127.0.0.1 or localhost, and nobody else."
        cookies = cookie_parser(headers.get("cookie", ""))
        tokens = cookies.get(self._cookie, ""), scope["query_string"].decode("latin-1").removeprefix("token=")
        if not any(secrets.compare_digest(token.encode(), self._token.encode()) for token in tokens):
            return 403, "Open the address that `npusim learn` has printed, with its token."
        if scope["method"] not in _READS:
            return 405, "Pages are read, and take nothing."
        return (404, "Not open.") if ".." in path else None


_ONE_AT_A_TIME: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""By lesson: it is imported, and its pictures are calculated, one after the other."""


def _address(name: str) -> str:
    return f"/lessons/{name}/" if name else "/"


_library = cache(pages.libraries)


def _send_library(_: Request) -> Response:
    return Response(_library(), media_type="text/javascript", headers={"cache-control": "max-age=86400"})


def _start(_: Request) -> Response:
    """Answer with the list of lessons."""
    more = f'<p><a href="/explorer/">{word("explorer")}</a>: {word("explorer_link")}</p>'
    return HTMLResponse(pages.list_document(lessons(), _address, more))


def _lesson(request: Request) -> LessonPage:
    for page in lessons():
        if page.name == request.path_params["name"]:
            return page
    raise HTTPException(404, "No such page.")


def _send_lesson(request: Request) -> Response:
    page = _lesson(request)
    live = {**pages.stored_data(page), "isLive": True}
    return HTMLResponse(pages.lesson_document(page, _address, live, "/library.js"))


def _send_data(request: Request) -> Response:
    page = _lesson(request)
    with _ONE_AT_A_TIME[page.name]:
        return JSONResponse(pages.lesson_data(page))


def _send_position(request: Request) -> Response:
    """Answer with what a picture shows at a position of its sliders."""
    page, number = _lesson(request), request.path_params["number"]
    with _ONE_AT_A_TIME[page.name]:
        for picture in import_module(page.module).LESSON.pictures[number : number + 1]:
            counts = [len(slider.values) for slider in picture.sliders.values() for _ in pages.thumbs(slider)]
            places = pages.places_of(request.path_params["places"], counts)
            if places:
                return JSONResponse(pages.shown_at(picture, places))
    raise HTTPException(404, "No such page.")


def _explore(request: Request) -> Response:
    """Answer with the explorer's page, or with what that asks; a refusal says why."""
    from npusim.course import explorer

    with _ONE_AT_A_TIME["explorer"]:
        address = request.path_params["address"]
        if not address:
            return HTMLResponse(explorer.explorer_document(_address, "/library.js"))
        try:
            return JSONResponse(explorer.answer(address))
        except NpusimError as error:
            status = 404 if isinstance(error, UnknownNameError) else 200
            return JSONResponse({"refused": str(error)}, status)


def application(port: int, token: str) -> ASGIApp:
    """Return the application: the list of lessons at `/`, each lesson, and the explorer.

    Parameters
    ----------
    port : int
        Port that the application will be reached at.
    token : str
        What a browser must know.
    """
    return Starlette(
        routes=[
            Route("/", _start),
            Route("/library.js", _send_library),
            Route("/lessons/{name}/", _send_lesson),
            Route("/lessons/{name}/data", _send_data),
            Route("/lessons/{name}/at/{number:int}/{places}", _send_position),
            Route("/explorer/{address:path}", _explore),
        ],
        middleware=[Middleware(OwnPagesOnly, port=port, token=token)],
    )


def bound_socket(port: int) -> socket.socket:
    """Return a socket on the loopback address.

    Parameters
    ----------
    port : int
        0 takes one that is free.

    Raises
    ------
    ConfigError
        The port is taken, or not ours to take.
    """
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((LOOPBACK, port))
    except (OSError, OverflowError) as error:
        opened.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"port {port}: {reason}", file="--port", allowed="a free port, or 0 for any"
        ) from None
    return opened


def serve(port: int, ready: Callable[[str, str], None]) -> None:
    """Serve the lessons until interrupted.

    Parameters
    ----------
    port : int
        0 takes one that is free.
    ready : callable
        Called when the list of lessons can be opened, with its address and the query with the token.

    Raises
    ------
    ConfigError
        The port is taken.
    """
    with bound_socket(port) as opened:
        actual, token = opened.getsockname()[1], secrets.token_hex(16)
        app = application(actual, token)
        config = uvicorn.Config(app, http=_Patient, log_level="error", ws="none")
        # While the browser starts; lessons are imported after their first pictures, which come with npusim.
        threading.Thread(target=_library, daemon=True).start()
        opened.listen()  # who asks before the server answers waits
        ready(f"http://{LOOPBACK}:{actual}/", f"?token={token}")
        uvicorn.Server(config).run(sockets=[opened])


class _Patient(H11Protocol):
    """A connection that is closed where a request stays half."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take data, and wait for the end of the request where none is awaited yet."""
        super().data_received(data)
        if self._waiting is None:
            self._wait()

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(_PATIENCE_S, self._close_half)

    def _close_half(self) -> None:
        self._waiting = None
        is_answered = self.cycle is None or self.cycle.response_complete
        if is_answered and self.transport.get_protocol() is self and not self.transport.is_closing():
            self.transport.close()
