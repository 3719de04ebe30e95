from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tests.audit import racing
from tests.audit.racing import Race

from tidegate.audit import subjects
from tidegate.audit.events import learn
from tidegate.audit.neighbours import Counts
from tidegate.audit.subjects import Callee, Stopwatch, Subject
from tidegate.noise import current, laplace
from tidegate.policy import Event, Pure


@dataclass(frozen=True)
class _Angle:
    subject: Subject
    steps: int = 1
    share: float = 1.0


def _noisy(scale: float) -> Callee:
    def call(stream: Counts, count: int) -> np.ndarray:
        drawn = stream.reshape(-1) + laplace(current(), "test", 0, scale, (count, stream.size))
        return np.asarray(drawn, dtype=np.float64)

    return Callee(call, Event(epsilon="1"), many=True)


def test_the_worst_angle_wins_the_race_and_a_sound_subject_is_not_accused() -> None:
    """One angle of three has half of the noise; without it nothing is proved. The error of each is 10⁻⁹."""
    sound, half = _Angle(_noisy(1.0), share=2.0), _Angle(_noisy(0.5))
    race = Race([sound, sound, half], seconds=1.5, error=1e-9)
    assert race.run().loss > 1
    assert race.angle is half
    alone = Race([sound, sound], seconds=1.0, error=1e-9).run()
    assert 0.5 < alone.loss < 1
    assert alone.trials > 0


def test_the_error_is_divided_among_all_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many look plain, all tests together have the error of the race."""
    spent: list[float] = []
    prove = racing.prove

    def counted(*arguments: object) -> object:
        spent.append(float(arguments[4]))  # type: ignore[arg-type]
        return prove(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(racing, "prove", counted)
    monkeypatch.setattr(racing, "PLAIN", 0.0)
    Race([_Angle(_noisy(1.0)) for _ in range(10)], seconds=1.0, error=1e-9).run()
    assert len(spent) > 1
    assert sum(spent) <= 1e-9 * (1 + 1e-12)


def test_few_transcripts_do_not_teach_the_noise_of_many_features() -> None:
    """One number of forty tells something; the rule that is chosen keeps nearly all of what it promises."""
    random = np.random.default_rng(3)

    def drawn(side: int, count: int) -> np.ndarray:
        rows = np.rint(random.normal(0, 3, (count, 40)))
        rows[:, 0] = side + laplace(current(), "test", 0, 1.0, (count,))
        return rows

    learnt = learn(drawn(0, 600), drawn(1, 600), 40, Pure(epsilon=1), 20_000, 1e-6)
    sides = drawn(0, 20_000), drawn(1, 20_000)
    one, other = sides if learnt.event.sign > 0 else sides[::-1]
    often = [np.mean(learnt.event.scores(side) >= learnt.event.threshold) for side in (one, other)]
    assert np.log(often[0] / often[1]) > 0.6  # of 1; with a ridge on steps only it is about 0.4


def test_time_in_line_for_a_processor_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting audit is charged for a part of it, a working one for all of its work."""
    worked, elapsed = [5.0], [100.0]
    monkeypatch.setattr(subjects.time, "process_time", lambda: worked[0])
    monkeypatch.setattr(subjects, "_elapsed", lambda: elapsed[0])
    watch = Stopwatch()
    elapsed[0] += 0.3
    assert watch.seconds() == pytest.approx(0.3 / subjects.PATIENCE)
    worked[0] += 0.3
    elapsed[0] += 0.3
    assert watch.seconds() == pytest.approx(0.3)
