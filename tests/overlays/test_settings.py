"""Settings by flat names, and the overlays that there are."""

import pytest

from peersub.overlays.core.identity import PeerId
from peersub.overlays.flood.router import FloodSettings
from peersub.overlays.registry import OVERLAYS, make_overlay
from peersub.overlays.settings import SettingsError, settings_from, settings_table


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_overlay_can_be_made(name):
    overlay = make_overlay(name, PeerId("n1"), 1)
    assert overlay.name == name
    assert overlay.me == PeerId("n1")


def test_inner_settings_count_as_own():
    settings = settings_from(FloodSettings, {"degree": "3", "seen_events_max": 10})
    assert settings.degree == 3
    assert settings.shell.home.seen_events_max == 10
    assert settings.shell.home.history_horizon_ms == FloodSettings().shell.home.history_horizon_ms
    assert settings_table(FloodSettings)["history_horizon_ms"] is int


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"degre": 3}, "there is no setting 'degre'; there are: degree, "),
        ({"degree": "many"}, "degree is a whole number, not 'many'"),
        ({"degree": 2.5}, "degree is a whole number, not 2.5"),
        ({"degree": True}, "degree is a whole number, not True"),
    ],
)
def test_what_cannot_be_set_is_named(values, complaint):
    with pytest.raises(SettingsError) as caught:
        settings_from(FloodSettings, values)
    assert str(caught.value).startswith(complaint)


def test_an_unknown_overlay_is_named():
    with pytest.raises(SettingsError, match="there is no overlay 'cord'; there are: chord"):
        make_overlay("cord", PeerId("n1"), 1)


def test_what_is_repeated_must_be_remembered_for_longer():
    times = {"give_up_ms": 20_000, "replay_horizon_ms": 10_000}
    make_overlay("chord", PeerId("n1"), 1, {**times, "history_horizon_ms": 30_000})
    with pytest.raises(SettingsError, match="give_up_ms \\+ replay_horizon_ms, 30,000 here"):
        make_overlay("chord", PeerId("n1"), 1, {**times, "history_horizon_ms": 29_999})
