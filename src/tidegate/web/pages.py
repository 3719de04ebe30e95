"""The pages: files inside the package, no template, no inline script."""

from __future__ import annotations

from importlib import resources

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as Path

from tidegate.web.public_routes import PublicRoutes, sent
from tidegate.web.routes import Refused

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
    "embed": "Chart",
}  # of pages, each with a script of its name


class Pages:
    """Handlers of pages and their files, all of them read once.

    Parameters
    ----------
    reading
        The public handlers, which know the streams.
    embedded
        Whether pages of others may show charts in a frame.
    """

    def __init__(self, reading: PublicRoutes, *, embedded: bool = False) -> None:
        self.reading, self.embedded = reading, embedded
        folder = resources.files("tidegate.web") / "static"
        self.files = {
            entry.name: entry.read_bytes()
            for entry in folder.iterdir()
            if entry.is_file() and "." + entry.name.rpartition(".")[2] in TYPES
        }
        frame, bare = (self.files.pop(name).decode() for name in ("frame.html", "embed_frame.html"))
        for script, title in TITLES.items():
            around = bare if script == "embed" else frame
            main = self.files[f"{script}.html"].decode()
            page = around.replace("{title}", title).replace("{script}", script).replace("{main}", main)
            self.files[f"{script}.html"] = page.encode()

    @property
    def paths(self) -> list[Path]:
        """Pages and files."""
        return [
            Path("/", self.home),
            Path("/view/{name}", self.view),
            Path("/view/{name}/{query}", self.view),
            Path("/embed/{name}", self.embed),
            Path("/embed/{name}/{query}", self.embed),
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

    async def embed(self, request: Request) -> Response:
        """The chart of one stream, or of one of its queries, for a frame in a page of somebody else."""
        if not self.embedded:
            raise Refused(404, "charts are not embedded here; the service is started with --embed for that.")
        driver = self.reading.driver(request)
        if driver.queries.listed and "query" not in request.path_params:
            return RedirectResponse(request.url.replace(path=f"/embed/{driver.first.name}"))
        self.reading.find(request)
        return self._send(request, "embed.html")

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
