"""Events that Apache Spark reads and bounds: a streaming DataFrame that is followed, or one of years for a backfill.

The only package that imports pyspark, when it is used. Executors map records to rows and bound contributions. The driver
has the public clock, the log and the mechanism, and sees one small matrix per step.
"""

from typing import TYPE_CHECKING, Any

from tidegate.errors import MissingPart

if TYPE_CHECKING:
    from tidegate.spark.finite import release
    from tidegate.spark.following import follow

__all__ = ["follow", "release"]


def __getattr__(name: str) -> Any:
    """Import what is asked for; without pyspark there is a sentence."""
    if name not in __all__:
        raise AttributeError(name)
    try:
        from tidegate.spark import finite, following
    except ImportError:
        pass
    else:
        return following.follow if name == "follow" else finite.release
    raise MissingPart('Spark needs the extra "spark"; install tidegate[spark], and Java 17 or newer.')
