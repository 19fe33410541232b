"""The folder of a run: whole or not at all, one run, one process."""

import json
import os
import subprocess
import sys

import pytest

from peersub.pipeline.workspace import Workspace, WorkspaceError


def writer(**files):
    def work(staging):
        for name, text in files.items():
            path = staging / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return {"files": len(files)}

    return work


class InterruptionError(BaseException):
    """Stands for the end of the process."""


def interrupted(staging):
    (staging / "deliveries").mkdir()
    (staging / "deliveries" / "part").write_text("half")
    raise InterruptionError


def test_a_finished_step_is_in_place_and_on_record(tmp_path):
    with Workspace.opened(tmp_path / "out") as space:
        step = space.run("events", {"file": "a"}, writer(events__part="x"))
        assert step.counts == {"files": 1}
        assert space.is_finished("events", {"file": "a"})
    assert (tmp_path / "out/events/part").read_text() == "x"
    with Workspace.opened(tmp_path / "out") as space:
        assert space.is_finished("events", {"file": "a"})
        assert space.steps["events"].outputs == ("events",)


def test_other_settings_are_refused_by_name(tmp_path):
    with Workspace.opened(tmp_path) as space:
        space.run("plan:chord", {"nodes": 64}, writer(plans__chord="x"))
        with pytest.raises(WorkspaceError, match=r"nodes = 64, and this asks for 128.*--out"):
            space.is_finished("plan:chord", {"nodes": 128})
        with pytest.raises(WorkspaceError, match=r"degree = None, and this asks for 4"):
            space.is_finished("plan:chord", {"nodes": 64, "degree": 4})


def test_an_interrupted_step_leaves_nothing_and_is_done_again(tmp_path):
    with Workspace.opened(tmp_path) as space:
        space.run("events", {}, writer(events__part="x"))
        with pytest.raises(InterruptionError):
            space.run("match", {}, interrupted)
    assert not (tmp_path / "deliveries").exists()
    with (
        pytest.raises(WorkspaceError, match=r"interrupted in the step match.*--resume"),
        Workspace.opened(tmp_path),
    ):
        pass
    with Workspace.opened(tmp_path, resume=True) as space:
        assert space.is_finished("events", {})
        assert not space.is_finished("match", {})
        assert not (tmp_path / ".work").exists()
        space.run("match", {}, writer(deliveries__part="whole"))
    assert (tmp_path / "deliveries/part").read_text() == "whole"


def test_a_first_step_that_fails_leaves_the_folder_as_new(tmp_path):
    def failing(staging):
        (staging / "half").write_text("x")
        raise ValueError("no such file")

    with Workspace.opened(tmp_path) as space, pytest.raises(ValueError, match="no such file"):
        space.run("events", {}, failing)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    with Workspace.opened(tmp_path):
        pass


def test_outputs_that_were_moved_but_not_recorded_are_cleared(tmp_path):
    with Workspace.opened(tmp_path) as space:
        space.run("plan:tree", {}, writer(plans__tree="t"))
        space.run("plan:chord", {}, writer(plans__chord="c", placement="p"))
    record = json.loads((tmp_path / "run.json").read_text())
    del record["steps"]["plan:chord"]
    record["under_way"] = "plan:chord"
    (tmp_path / "run.json").write_text(json.dumps(record))
    with Workspace.opened(tmp_path, resume=True):
        assert (tmp_path / "plans/tree").exists()
        assert not (tmp_path / "plans/chord").exists()
        assert not (tmp_path / "placement").exists()


def test_steps_of_one_kind_stand_beside_each_other(tmp_path):
    with Workspace.opened(tmp_path) as space:
        space.run("plan:tree", {}, writer(plans__tree="t"))
        space.run("plan:chord", {}, writer(plans__chord="c"))
    assert sorted(path.name for path in (tmp_path / "plans").iterdir()) == ["chord", "tree"]


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(WorkspaceError, match="other files"), Workspace.opened(tmp_path):
        pass
    assert (tmp_path / "thesis.tex").exists()


def test_a_file_is_refused(tmp_path):
    (tmp_path / "out").write_text("x")
    with pytest.raises(WorkspaceError, match="is a file"), Workspace.opened(tmp_path / "out"):
        pass


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "steps": 3}'])
def test_a_damaged_record_is_refused(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(WorkspaceError, match="cannot be understood"), Workspace.opened(tmp_path):
        pass


def test_another_version_is_refused(tmp_path):
    (tmp_path / "run.json").write_text('{"version": 99, "steps": {}, "under_way": null}')
    with pytest.raises(WorkspaceError, match="version 99"), Workspace.opened(tmp_path):
        pass


def test_two_processes_do_not_work_in_one_folder(tmp_path):
    script = (
        "import sys\n"
        "from peersub.pipeline.workspace import Workspace, WorkspaceError\n"
        "try:\n"
        "    with Workspace.opened(sys.argv[1]): print('in')\n"
        "except WorkspaceError as error: print(error)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    with Workspace.opened(tmp_path):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert "another run works in" in done.stdout
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "in\n"
