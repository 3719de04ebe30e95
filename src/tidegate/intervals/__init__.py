"""How far released values may be off: a fold over releases, (state, releases) -> (state, half-widths).

A fold sees releases and public configuration, never data, so its intervals are post-processing and cost nothing. Its
state has a public size. It resumes from that state, or by folding the releases again from the first.

==================  =====================================================================================
`Fold`              the interface: `begin`, `advance`, `attach`
`ByLaw`             every value is a measurement, and its noise says all (Uniform, counters)
`Held`              values stay until the next measurement (Sample, Budget Distribution, Budget Absorption)
`Filtered`          values of a Kalman filter (FAST, RescueDP)
`Sampled`           samples of a period, and final values when it has ended (OptStream)
`Smoothed`          means of groups of measurements (PeGaSus); `Averaged` of the last steps, `Pruned` in hierarchies
`Curves`            curves of whole periods (Fourier)
`Modelled`          a model that releases its own standard deviations (Tide)
`Phases`            infinite where no measurement was near that time of the day or the week
`History`           gives the releases of a session their intervals, when somebody asks for them
`Errors`            of what errors are made: what a step has alone, and what it shares with the steps before it
==================  =====================================================================================
"""

from tidegate.intervals.by_law import ByLaw as ByLaw
from tidegate.intervals.curves import Curves as Curves
from tidegate.intervals.fold import Errors as Errors
from tidegate.intervals.fold import Fold as Fold
from tidegate.intervals.fold import Intervals as Intervals
from tidegate.intervals.fold import State as State
from tidegate.intervals.fold import student as student
from tidegate.intervals.held import Filtered as Filtered
from tidegate.intervals.held import Held as Held
from tidegate.intervals.history import History as History
from tidegate.intervals.modelled import Modelled as Modelled
from tidegate.intervals.phases import Phases as Phases
from tidegate.intervals.sampled import Sampled as Sampled
from tidegate.intervals.smoothed import Averaged as Averaged
from tidegate.intervals.smoothed import Pruned as Pruned
from tidegate.intervals.smoothed import Smoothed as Smoothed
