"""The pipeline: source → session → sinks, from a configuration file.

A block of closed steps becomes one commit of the log: charges, releases, state and position. Only then does anything
leave. After a crash a block that was not committed is read again and gets fresh noise; a committed block is sent again,
byte for byte, to every sink that lacks it.

What is guaranteed, and where:

======================================================  ================================================================
invariant                                               where it lives
======================================================  ================================================================
nothing leaves before its charge is committed           `core.Session`: a push returns after its commit
a step is released once per log                         `core.Session`: steps only grow, the head is compared and swapped
exactly once to each sink                               `delivery.SinkState`: number of the last release that it has; the
                                                        sink removes what comes twice (`sinks`, fence tokens)
resent bytes are the same                               `numbered_releases.ReleaseReader`: rows are made from
                                                        committed bytes only, also the first time
every record counts once                                the position is part of the commit; records that a source cannot
                                                        repeat are in `side_tables` before the source may forget them
an older copy of the log is noticed                     `receipts.Receipt`, written before releases leave
two budgets for one output are never spent silently     `receipts`, `outputs.archive_previous_outputs`, ``--new-stream``
blocks end at public steps                              `ingest.blocks.Cutter`; missing readings, which are public, cut
                                                        them further (`Pipeline.process`)
missing readings are withheld                           `numbered_releases`: masks are stored before the commit
lateness                                                `ingest.Intake`: the public clock closes steps
releases stay until every sink has them                 the log; then `archive` moves them into files
a backup has no secrets                                 `backup`; a restored log has silent steps
late data have editions of their own                    scopes with their own steps: `Pipeline.editions`
a changed query never gets the budget of an old one     scopes that end and begin: `amend`
intervals are functions of releases                     `intervals`, folded by `numbered_releases.ReleaseReader`
======================================================  ================================================================

Who reads what was released asks `Pipeline.released`: numbered releases, steps in a range, what windows have spent. Who
reads only opens the log with `read_stream`, which has the same `released`, and neither writes nor fences.
"""

from tidegate.pipeline.live import Live
from tidegate.pipeline.pipeline import Pipeline, open_pipeline
from tidegate.pipeline.query_releases import Released
from tidegate.pipeline.stream_reader import StreamReader, read_stream

__all__ = ["Live", "Pipeline", "Released", "StreamReader", "open_pipeline", "read_stream"]
