"""The pages: files inside the package, no template, no inline script."""

from __future__ import annotations

from importlib import resources

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as Path

from tidegate.web.answers import Refused
from tidegate.web.reading import Reading, sent

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}

TITLES = {
    "home": "Streams",
    "view": "Stream",
    "operator": "Operator",
}  # of pages, each with a script of its name


class Pages:
    """Handlers of pages and their files, all of them read once.

    Parameters
    ----------
    reading
        The public handlers, which know the streams.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        folder = resources.files("tidegate.web") / "static"
        self.files = {
            entry.name: entry.read_bytes()
            for entry in folder.iterdir()
            if entry.is_file() and "." + entry.name.rpartition(".")[2] in TYPES
        }
        frame = self.files.pop("frame.html").decode()
        for script, title in TITLES.items():
            main = self.files[f"{script}.html"].decode()
            page = frame.replace("{title}", title).replace("{script}", script).replace("{main}", main)
            self.files[f"{script}.html"] = page.encode()

    @property
    def paths(self) -> list[Path]:
        """Pages and files."""
        return [
            Path("/", self.home),
            Path("/view/{name}", self.view),
            Path("/view/{name}/{query}", self.view),
            Path("/operator", self.operator),
            Path("/static/{file}", self.file),
            Path("/favicon.ico", self.icon),
        ]

    async def home(self, request: Request) -> Response:
        """All streams."""
        return self._send(request, "home.html")

    async def view(self, request: Request) -> Response:
        """One stream; where it has several queries, one of them, the first if none is named."""
        driver = self.reading.driver(request)
        if driver.queries.listed and "query" not in request.path_params:
            return RedirectResponse(f"/view/{driver.first.name}")
        self.reading.find(request)
        return self._send(request, "view.html")

    async def operator(self, request: Request) -> Response:
        """The operator's page; it asks for a token and shows nothing without one."""
        return self._send(request, "operator.html")

    async def file(self, request: Request) -> Response:
        """A script, a style or a licence."""
        return self._send(request, request.path_params["file"])

    async def icon(self, request: Request) -> Response:
        """The icon, where browsers look for one."""
        return self._send(request, "icon.svg")

    def _send(self, request: Request, name: str) -> Response:
        content = self.files.get(name)
        if content is None:
            raise Refused(404, "there is nothing at this path.")
        return sent(request, content, TYPES["." + name.rpartition(".")[2]])
