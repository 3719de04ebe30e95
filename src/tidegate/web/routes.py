"""Routes as declarations: what a path takes and answers, for the router and for the OpenAPI document alike."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]
JSON = ("application/json",)
CROWDED = "more answers are on their way than fit into the memory for answers; try again later."


class Refused(Exception):
    """A request that is answered with one sentence.

    Parameters
    ----------
    status
        The HTTP status.
    sentence
        Why; never anything that was sent.
    """

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers, self.more = status, sentence, dict(headers or {}), more


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Response(text.encode(), status, dict(headers or {}), media_type="application/json")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a request, checked and documented by the same words.

    Parameters
    ----------
    name, doc
        As it is in the address, and what it means.
    schema
        JSON schema: the types used are integer (with minimum), string (with enum), and array of strings.
    place
        "query", "path" or "header".
    """

    name: str
    doc: str
    schema: dict[str, Any]
    place: str = "query"
    required: bool = False

    def read(self, request: Request) -> Any:
        """The value, or the default, or a refusal."""
        given = request.query_params.getlist(self.name)
        if not given:
            return self.schema.get("default")
        if self.schema["type"] == "array":
            return given
        if len(given) > 1:
            raise Refused(400, f"{self.name} is given twice; give it once.")
        text = given[0]
        if self.schema["type"] == "integer":
            least, most = self.schema.get("minimum", 0), self.schema.get("maximum", 2**62)
            if not re.fullmatch(r"-?[0-9]{1,19}", text) or not least <= int(text) <= most:
                raise Refused(400, f"{self.name} must be a whole number from {least} to {most}.")
            return int(text)
        choices = self.schema.get("enum")
        if choices and text not in choices:
            raise Refused(400, f"{self.name} must be one of {', '.join(choices)}.")
        return text


def read_query(request: Request, parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """All parameters of a query; an unknown one is refused."""
    known = {each.name: each for each in parameters if each.place == "query"}
    for name in request.query_params:
        if name not in known:
            raise Refused(
                400, f"there is a parameter that is none of {', '.join(known) or 'those known here'}."
            )
    return {name: each.read(request) for name, each in known.items()}


@dataclass(frozen=True)
class Route:
    """One path and method.

    Parameters
    ----------
    method, path, handler
        What it answers.
    summary
        One sentence.
    role
        "public", "producer" or "operator".
    parameters
        What it takes.
    answers
        Status → (media types, what it says); what every route of its kind may answer besides is added.
    body
        Media types of the request's body.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    role: str = "public"
    parameters: tuple[Parameter, ...] = ()
    answers: Mapping[int, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    body: tuple[str, ...] = ()

    @property
    def all_answers(self) -> dict[int, tuple[tuple[str, ...], str]]:
        """Its own answers, and the refusals that follow from path and role."""
        found = {400: (JSON, "A parameter is wrong; the sentence says which.")}
        if "{name}" in self.path:
            found[404] = (JSON, "There is no such stream.")
        if self.role != "public":
            found |= {401: (JSON, "A token is needed."), 403: (JSON, "The token has another role.")}
        return {**found, **self.answers}


def reads(
    path: str,
    handler: Handler,
    summary: str,
    said: str,
    parameters: tuple[Parameter, ...] = (),
    *,
    kinds: tuple[str, ...] = JSON,
    role: str = "public",
    besides: Mapping[int, tuple[tuple[str, ...], str]] = MappingProxyType({}),
) -> Route:
    """A route that is read: it answers with what is `said`, or with what is `besides`."""
    return Route("GET", path, handler, summary, role, parameters, {200: (kinds, said), **besides})


ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}, "line": {"type": "integer"}, "rule": {"type": "string"}},
}


def openapi(routes: tuple[Route, ...], version: str) -> dict[str, Any]:
    """The OpenAPI document of some routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": version,
            "description": "Released values of streams under differential privacy. Nothing here is exact data.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.handler.__name__ + ("" if route.method == "GET" else f"_{route.method.lower()}"),
        "responses": {},
    }
    if route.parameters:
        found["parameters"] = [
            {
                "name": each.name,
                "in": each.place,
                "required": each.required or each.place == "path",
                "description": each.doc,
                "schema": each.schema,
                **({"style": "form", "explode": True} if each.schema.get("type") == "array" else {}),
            }
            for each in route.parameters
        ]
    if route.body:
        schema = {"type": "string"}
        found["requestBody"] = {
            "required": True,
            "content": {kind: {"schema": schema} for kind in route.body},
        }
    if route.role != "public":
        found["security"] = [{"token": []}]
    for status, (kinds, words) in sorted(route.all_answers.items()):
        entry: dict[str, Any] = {"description": words}
        if kinds:
            schema = {"$ref": "#/components/schemas/Error"} if status >= 400 else {}
            entry["content"] = {kind: ({"schema": schema} if schema else {}) for kind in kinds}
        found["responses"][str(status)] = entry
    return found
