"""What benchmark commands share: trials, seeds, JSON and the exit code."""

import json
from dataclasses import dataclass, field
from typing import Any

from peersub.bench.harness import Trial, plain_table, report, run_trials


@dataclass
class _Found:
    seed: int
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {"found": self.seed * 10}


def _trial(name: str, seed: int, *problems: str) -> Trial[_Found]:
    async def run(say):
        say("working")
        return _Found(seed, list(problems))

    return Trial(name, seed, run)


def test_trials_run_in_order_and_say_how_far_they_are():
    said: list[str] = []
    finished = run_trials([_trial("kill", 1), _trial("stop", 2)], said.append)
    assert said == ["kill, seed 1", "  working", "stop, seed 2", "  working"]
    assert [each.outcome.seed for each in finished] == [1, 2]


def test_several_trials_as_json_have_their_seeds_and_the_verdict(capsys):
    finished = run_trials([_trial("kill", 1), _trial("stop", 2, "late")], lambda _: None)
    assert report(finished, as_json=True, tables=list, facts={"bound": 3}) == 1
    assert json.loads(capsys.readouterr().out) == {
        "trials": [
            {"trial": "kill", "seed": 1, "found": 10},
            {"trial": "stop", "seed": 2, "found": 20},
        ],
        "bound": 3,
        "problems": ["stop, seed 2: late"],
        "is_good": False,
    }


def test_a_single_trial_as_json_is_its_own_values(capsys):
    assert report(run_trials([_trial("kill", 1)], lambda _: None), as_json=True, tables=list) == 0
    assert json.loads(capsys.readouterr().out) == {"found": 10}


def test_tables_lines_and_problems_are_for_people(capsys):
    finished = run_trials([_trial("kill", 1)], lambda _: None)
    table = plain_table("Seen", ("story",), ("found",))
    table.add_row("kill", "10")
    shown = [table, "all [sorts] of things"]
    assert report(finished, as_json=False, tables=lambda: shown, problems=["too dear"]) == 1
    out = capsys.readouterr().out
    assert "Seen" in out
    assert "all [sorts] of things" in out
    assert "too dear" in out
