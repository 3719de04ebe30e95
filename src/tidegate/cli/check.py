"""``tidegate check``: whether a release could start, without reading a record or spending anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import following, release_of

if TYPE_CHECKING:
    from tidegate.config import Config, Queries
    from tidegate.pipeline.logs import LogReader

EXAMPLE = "Example: tidegate check tidegate.toml --json"
PATIENCE = 10  # seconds for a broker's answer


def check(
    config: Annotated[Path, typer.Argument(help="The configuration.")],
    follow: Annotated[bool, typer.Option("--follow", help="As for `release --follow`.")] = False,
    as_json: Machine = False,
) -> None:
    """Check a configuration, its source, ledger and sink, as `release` does at its start.

    Reads no record (of a file only its header or schema), charges nothing and leaves nothing behind. Ends with 0
    if nothing was found that `release` would refuse, and with 2 otherwise.
    """
    from tidegate.config import read_queries
    from tidegate.errors import TidegateError, without_secrets
    from tidegate.report.wording import Words

    found: list[tuple[str, bool, str]] = []

    def attempt(name: str, look: Callable[[], str]) -> bool:
        try:
            found.append((name, True, without_secrets(look())))
        except TidegateError as error:
            found.append((name, False, without_secrets(str(error))))
        except OSError as error:
            found.append((name, False, f"{error.strerror or type(error).__name__}."))
        return found[-1][1]

    settings: list[Queries] = []

    def read() -> str:
        settings.append(read_queries(config, follow=follow))
        words = Words(settings[0].first)
        return f"protected is {words.in_one_line} (`tidegate explain` has all of it)."

    if attempt("configuration", read):
        attempt("source", lambda: _source(settings[0]))
        attempt("ledger", lambda: _ledger(settings[0]))
        for part in settings[0].parts:
            name = f"sink of {part.name}" if settings[0].listed else "sink"
            attempt(name, lambda part=part: _sink(part))  # type: ignore[misc]
    good = all(ok for _, ok, _ in found)
    if as_json:
        checks = [{"name": name, "ok": ok, "sentence": sentence} for name, ok, sentence in found]
        typer.echo(json.dumps({"ok": good, "checks": checks}, indent=2, ensure_ascii=False))
    else:
        for name, ok, sentence in found:
            typer.echo(f"{'ok    ' if ok else 'FAILED'}  {name}: {sentence}")
        if good:
            served = settings[0].first.source.location == "serve:"
            options = ["--follow"] if follow else []
            typer.echo(following("tidegate", "serve", config) if served else release_of(config, *options))
    if not good:
        raise typer.Exit(2)


def _source(queries: Queries) -> str:
    """Whether the input is there and has the columns that are needed."""
    config = queries.first
    from tidegate.config import input_columns
    from tidegate.ingest.schema import check_header
    from tidegate.ingest.sources.directory import FORMATS
    from tidegate.naming import listed
    from tidegate.servers.kafka import is_topic
    from tidegate.servers.postgres import is_table

    location = config.locate(config.source.location)
    if location.startswith(("mqtt:", "mqtts:")):
        return _broker(location)
    if is_topic(location):
        source = config.open(follow=True).source
        source.check()  # type: ignore[attr-defined]
        return f"{source.name} answers."
    if is_table(location):
        from tidegate.ingest.sources.postgres import TableSource

        table = TableSource(location, config.query.needed(config.schema), follow=config.source.follow)
        table.check()
        return f"{table.name} has the columns {listed(table.columns)}."
    if location == "-":
        return "standard input, which is not read here."
    if location == "serve:":
        return "events are sent to `tidegate serve`."
    path = Path(location)
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.glob(config.source.pattern) if file.suffix in FORMATS)[:1]
        if not files:
            return f"the folder {path.name!r} is there, and no file in it yet."
    needed = tuple(dict.fromkeys(name for part in queries.parts for name in part.query.needed(part.schema)))
    columns = input_columns(files[0], format=config.source.format, separator=config.source.separator)
    if config.source.format != "jsonl" and files[0].suffix not in (".jsonl", ".ndjson"):
        check_header(list(columns), needed, repr(files[0].name))  # a line of JSON may lack what others have
    return f"{files[0].name!r} has the columns {listed(needed)}."


def _ledger(queries: Queries) -> str:
    """Whether the ledger is that of this configuration, or can be made."""
    from tidegate.core.postgres_log import is_url
    from tidegate.errors import InvalidInput
    from tidegate.pipeline import read_stream
    from tidegate.pipeline.logs import log_exists, refuse_earlier_in_database, replication
    from tidegate.pipeline.stream_reader import stream_finished

    if is_url(queries.ledger):
        refuse_earlier_in_database(queries.ledger)
    if log_exists(queries.ledger):
        with read_stream(queries) as stream:
            words, count = f"it stands at step {stream.step:,}", queries.first.steps.count
            if stream.finished and (count is None or count > stream.step):
                raise stream_finished(stream.step)
            begins = {scope.name: scope.first - 1 for scope in stream.books[-1][1].alive}
            _receipts(queries, stream.identity, begins, stream.log)
    else:
        words, folder = "a new one will be made", Path(queries.ledger).absolute().parent
        if not is_url(queries.ledger) and not os.access(folder, os.W_OK):
            raise InvalidInput(
                f"the folder {folder} cannot be written; change its rights, or name another ledger."
            )
        _receipts(queries)
    warning = replication(queries.ledger) if is_url(queries.ledger) else ""
    return f"{words}; {warning}." if warning else f"{words}."


def _receipts(
    queries: Queries,
    identity: str = "",
    begins: Mapping[str, int] | None = None,
    log: LogReader | None = None,
) -> None:
    """Refuse what the receipts of outputs refuse: a new log beside releases of another one, and an older log."""
    from tidegate.core.postgres_log import is_url
    from tidegate.pipeline.outputs import placed, receipt_path
    from tidegate.pipeline.receipts import Origin, Receipt

    origin = Origin.of(identity, queries.fingerprint, queries.policy.budget, queries.first.window)
    ledger = None if is_url(queries.ledger) else Path(queries.ledger)
    for part in (each for edition in queries.editions for each in edition):
        config = part if begins is None else placed(part, begins)
        location = config.locate(config.sink.location)
        output = None if location == "-" or "://" in location else Path(location)
        receipt = Receipt(receipt_path(config, output, ledger, listed=queries.listed), origin)
        if receipt.of_another:
            raise receipt.refuse_another(location, begun=log is not None)
        if log is not None:
            receipt.refuse_older(log, location)


def _sink(config: Config) -> str:
    """Whether releases could be handed over."""
    from tidegate.errors import InvalidInput
    from tidegate.servers.kafka import is_topic
    from tidegate.servers.postgres import is_table

    location = config.locate(config.sink.location)
    if location.startswith(("mqtt:", "mqtts:")):
        return _broker(location)
    if is_topic(location):
        return _topic(location)
    if is_table(location):
        return _table(location)
    if location == "-":
        return "standard output."
    path = Path(location)
    folder = path if path.is_dir() else path.parent
    if not folder.is_dir():
        raise InvalidInput(f"the folder {folder} is not there; make it, or name another location in [sink].")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InvalidInput(
            f"{path} cannot be written; change its rights, or name another location in [sink]."
        )
    receipt = path.with_name(path.name + ".receipt")
    if path.is_file() and path.stat().st_size and not receipt.exists() and config.sink.receipt is None:
        raise InvalidInput(f"{path} is there and holds something else; name another location in [sink].")
    return f"{path.name!r} can be written."


def _topic(location: str) -> str:
    """Ask the brokers for a topic, and leave."""
    from tidegate.errors import InvalidInput
    from tidegate.servers.kafka import TopicAddress, library

    address = TopicAddress(location, ("partition",))
    kafka, admin = library(), library(".admin").AdminClient(address.settings())
    try:
        found = admin.list_topics(address.topic, timeout=PATIENCE).topics[address.topic]
    except kafka.KafkaException:
        raise InvalidInput(
            f"the brokers at {address.servers} cannot be reached; start them, or check the address."
        ) from None
    if found.error is not None:
        raise InvalidInput(f"there is no {address.shown}; make it, or correct its name.")
    return f"the {address.shown} answers."


def _table(location: str) -> str:
    """Connect to the database of a table, and leave."""
    from tidegate.servers.postgres import Session, TableAddress

    address = TableAddress(location, ("query",))
    session = Session(address, PATIENCE)
    try:
        there = session.row("SELECT to_regclass(%s) IS NOT NULL", [address.quoted])[0]
    finally:
        session.close()
    return f"the database answers, and {address.shown} {'is there' if there else 'is not there yet'}."


def _broker(location: str) -> str:
    """Connect to a broker under a name of its own, and leave."""
    import threading

    from tidegate.errors import InvalidInput
    from tidegate.servers.broker import BrokerAddress

    address = BrokerAddress(location)
    place = address.place
    answered, reasons = threading.Event(), []

    def connected(_client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        reasons.append(reason)
        answered.set()

    client = address.client(InvalidInput)
    client.on_connect = connected
    try:
        words = address.trouble()
        if words:
            raise OSError(0, words)
        client.connect(address.host, address.port, keepalive=30)
    except OSError as error:
        words = error.strerror or type(error).__name__
        raise InvalidInput(
            f"the broker at {place} cannot be reached ({words}); start it, or check the address."
        ) from None
    client.loop_start()
    try:
        if not answered.wait(PATIENCE):
            raise InvalidInput(f"the broker at {place} does not answer; check the address.")
    finally:
        client.disconnect()
        client.loop_stop()
    if reasons[0].is_failure:
        raise InvalidInput(f"the broker at {place} refuses the connection: {reasons[0]}; check the user.")
    return f"the broker at {place} answers."
