"""The import rule, the purity rule and the rules of style, checked on the source.

Each rule is first shown to fire on a planted violation, then applied to the real source.
"""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from architecture_rules import (
    MAY_IMPORT,
    Module,
    home_violations,
    import_violations,
    imports,
    module,
    overlay_violations,
    purity_violations,
)

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "peersub"
MODULE_LINES_MAX = 600


def load(path: Path) -> Module:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    return Module(name, is_package, ast.parse(path.read_text(encoding="utf-8")))


MODULES = [load(path) for path in sorted(PACKAGE.rglob("*.py"))]
every_module = pytest.mark.parametrize("real", MODULES, ids=lambda real: real.name or "__init__")


# --- the import rule ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("events.kinds", "import peersub.filters"),
        ("events.kinds", "import peersub.filters as f"),
        ("events.kinds", "from peersub.filters import Filter"),
        ("events.kinds", "from peersub.filters.boxes import Box"),
        ("events.kinds", "from peersub import filters"),
        ("events.kinds", "from peersub import Filter"),
        ("events.kinds", "import peersub"),
        ("events.kinds", "from ..filters import Filter"),
        ("events.kinds", "from .. import filters"),
        ("events.deep.kinds", "from ...filters import Filter"),
        ("events.kinds", "def lazily():\n    from peersub.filters import Filter"),
        ("events.kinds", "import importlib\nimportlib.import_module('peersub.filters')"),
        ("events.kinds", "__import__('peersub.filters')"),
        ("events.kinds", "if TYPE_CHECKING:\n    from peersub.matching import Matcher"),
        ("filters.sql", "from peersub.files import read"),
        ("files.reader", "from peersub.matching import Matcher"),
        ("matching.naive", "from peersub.overlays import chord"),
        ("simulator.clock", "from peersub.runtime import node"),
        ("runtime.node", "from peersub.simulator import clock"),
        ("runtime.node", "from peersub.cli import main"),
        ("client.api", "from peersub.matching import Matcher"),
        ("pipeline.jobs", "from peersub.runtime import node"),
        ("unheard_of.thing", "import json"),
    ],
)
def test_a_planted_import_is_refused(importer, source):
    assert len(import_violations(module(importer, source))) == 1


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("events.kinds", "from peersub.events.envelope import Event"),
        ("events.kinds", "from .envelope import Event"),
        ("events.kinds", "from . import envelope"),
        ("filters.sql", "from peersub.events import kinds\nimport json, numpy"),
        ("simulator.clock", "from peersub.overlays import chord"),
        ("cli.match", "from peersub import Filter\nfrom peersub.files import read"),
        ("cli", "from peersub.pipeline import jobs"),
        ("", "from peersub.filters import Filter"),
    ],
)
def test_an_allowed_import_passes(importer, source):
    assert import_violations(module(importer, source)) == []


def test_a_package_climbs_from_itself():
    inner = module("events.deep", "from .x import a\nfrom ..y import b", is_package=True)
    assert [name for _, name in imports(inner)] == ["peersub.events.deep.x.a", "peersub.events.y.b"]


def test_the_table_names_only_its_own_rows():
    assert all(allowed <= MAY_IMPORT.keys() for allowed in MAY_IMPORT.values())


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("bench.matching", "import pyspark"),
        ("pipeline.kernels.blocks", "from pyspark.sql import SparkSession"),
        ("matching.compiled", "from numba import njit"),
        ("runtime.live_node", "import sqlite3"),
        ("matching.kernels_of_old", "import numba"),
        ("cli", "def lazily():\n    from pyspark.sql import SparkSession"),
        ("workloads.events", "import importlib\nimportlib.import_module('numba.core')"),
    ],
)
def test_a_package_away_from_home_is_refused(importer, source):
    assert len(home_violations(module(importer, source))) == 1


def test_packages_at_home_pass():
    assert home_violations(module("matching.kernels.scan", "from numba import njit")) == []
    assert home_violations(module("matching.kernels", "import numba", is_package=True)) == []
    assert home_violations(module("pipeline.session", "from pyspark.sql import functions")) == []


@every_module
def test_imports_follow_the_table(real):
    assert import_violations(real) + home_violations(real) == []


# --- overlays know their core, and their core asks what its interface says ----------------------


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("overlays.dag.peer", "from peersub.overlays.chord.ring import Ring"),
        ("overlays.core.shell", "from peersub.overlays.flood.router import FloodRouter"),
        ("overlays.routing.engine", "def lazily():\n    import peersub.overlays.tree.peer"),
        ("overlays.core.node", "def asked(overlay):\n    return hasattr(overlay, 'links')"),
        ("simulator.engine", "def asked(host):\n    return getattr(host.overlay, 'x', None)"),
        ("runtime.client_texts", "def asked(node):\n    return getattr(node, 'overlay')"),
    ],
)
def test_an_overlay_that_knows_another_and_a_probe_are_refused(name, source):
    assert len(overlay_violations(module(name, source))) == 1


def test_an_overlay_knows_its_own_and_an_error_may_lack_an_attribute():
    assert (
        overlay_violations(module("overlays.dag.peer", "import peersub.overlays.dag.layer")) == []
    )
    asked = "def asked(error):\n    return getattr(error, 'one_line', None)"
    assert overlay_violations(module("runtime.client_texts", asked)) == []


@every_module
def test_overlays_know_no_other_and_are_not_probed(real):
    assert overlay_violations(real) == []


# --- the purity rule ---------------------------------------------------------------------------

IMPURE_SOURCES = [
    "open('file')",
    "read = open",
    "print('hello')",
    "input()",
    "import os",
    "import os.path",
    "from os import environ",
    "import io",
    "from pathlib import Path",
    "import socket",
    "import asyncio",
    "import threading",
    "from threading import Thread",
    "from concurrent.futures import ThreadPoolExecutor",
    "import multiprocessing",
    "import time",
    "from time import monotonic as now",
    "import random",
    "import uuid",
    "import secrets",
    "import subprocess",
    "import logging",
    "import urllib.request",
    "def lazily():\n    import tempfile",
    "import importlib\nimportlib.import_module('random')",
    "import sys\nsys.stdout.write('x')",
    "from sys import argv",
    "import datetime\ndatetime.datetime.now()",
    "import datetime as dt\ndt.datetime.utcnow()",
    "from datetime import datetime\ndatetime.now(tz)",
    "from datetime import date\ndate.today()",
    "from datetime import date as day\ntoday = day.today",
    "import numpy as np\nnp.random.rand(3)",
    "import numpy as np\nnp.random.seed(3)",
    "import numpy\nnumpy.random.shuffle(x)",
    "from numpy.random import normal",
    "from numpy import random\nrandom.normal()",
    "import numpy as np\nnp.random.default_rng()",
    "import numpy as np\nnp.random.default_rng(None)",
    "import numpy as np\nnp.random.default_rng(seed=None)",
    "from numpy.random import default_rng\ndefault_rng()",
    "import numpy as np\nnp.random.Generator(np.random.PCG64())",
    "import numpy as np\nnp.load('file')",
    "import pyarrow.parquet",
    "from lxml import etree\netree.parse('file')",
    "if not TYPE_CHECKING:\n    from pathlib import Path",
    "if TYPE_CHECKING:\n    pass\nelse:\n    from pathlib import Path",
    "if TYPE_CHECKING:\n    from pathlib import Path\nPath.cwd()",
]

PURE_SOURCES = [
    "import math, re, json, hashlib, sys\nsys.intern('a')",
    "from urllib.parse import quote",
    "from datetime import datetime, timezone\ndatetime.fromisoformat('2020-01-01')",
    "def width(low, high, open):\n    return open",
    "def f(self):\n    return self.time, self.open(), self.now()",
    "import numpy as np\nnp.random.default_rng(seed)",
    "import numpy as np\nnp.random.Generator(np.random.PCG64(seed))",
    "import numpy as np\ndef f(generator: np.random.Generator):\n    return generator.random()",
    "from lxml import etree\netree.fromstring(b'<a/>')",
    "import pyarrow as pa\nimport pyarrow.compute",
    "if TYPE_CHECKING:\n    from pathlib import Path\ndef save(folder: Path): ...",
]


@pytest.mark.parametrize("source", IMPURE_SOURCES)
def test_a_planted_impurity_is_refused(source):
    assert purity_violations(module("filters.planted", source))


@pytest.mark.parametrize("source", PURE_SOURCES)
def test_pure_code_passes(source):
    assert purity_violations(module("filters.planted", source)) == []


def test_which_modules_are_pure():
    names = ["events.kinds", "filters", "matching.naive", "matching.kernels.scan", "trace.schema"]
    assert all(module(name, "").is_pure for name in [*names, "overlays.chord.bulk", "wire.bytes"])
    names = ["matching.storage", "matching.parallel", "runtime.node", "cli", "files.reader", ""]
    assert not any(module(name, "").is_pure for name in names)


@pytest.mark.parametrize(
    "real", [real for real in MODULES if real.is_pure], ids=lambda real: real.name
)
def test_the_core_is_pure(real):
    assert purity_violations(real) == []


# --- a light base ------------------------------------------------------------------------------

HEAVY = ["numpy", "numba", "llvmlite", "pyarrow", "pyspark", "duckdb", "pandas"]
NOT_FOR_HELP = [*HEAVY, "lxml", "sqlglot", "re2"]

REFUSE_HEAVY = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}} (refused)", name=name)
sys.meta_path.insert(0, Refuse())
"""


def run_python(source: str) -> subprocess.CompletedProcess[str]:
    variables = dict(os.environ) | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "error", "-c", source]
    return subprocess.run(command, capture_output=True, text=True, env=variables)


def test_the_refusal_of_heavy_packages_works():
    done = run_python(REFUSE_HEAVY + "import numpy.linalg")
    assert "refused" in done.stderr


def test_filters_work_without_heavy_packages():
    source = """
import peersub
assert peersub.Filter("a = 1").matches({"a": 1})
assert not peersub.Filter("a = 1").matches({"a": 2})
"""
    done = run_python(REFUSE_HEAVY + source)
    assert done.returncode == 0, done.stderr


def test_a_small_matcher_works_without_heavy_packages():
    source = """
from peersub import Filter, Matcher
matcher = Matcher()
for i in range(5):
    matcher.add(f"s{i}", Filter(f"a > {i} AND b LIKE 'x%'"))
assert sorted(matcher.match({"a": 3, "b": "xy"})) == ["s0", "s1", "s2"]
matcher.remove("s1")
assert sorted(matcher.match({"a": 3, "b": "xy"})) == ["s0", "s2"]
"""
    done = run_python(REFUSE_HEAVY + source)
    assert done.returncode == 0, done.stderr


HELP = """
import sys
sys.argv = ["peersub", "--help"]
from peersub.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""


def test_help_works_without_heavy_packages():
    done = run_python(REFUSE_HEAVY + HELP)
    assert done.returncode == 0, done.stderr
    assert "match" in done.stdout and "filter" in done.stdout


def test_help_loads_nothing_heavy():
    report = """
import json
print("loaded", json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
    done = run_python(HELP + report)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.rpartition("loaded ")[2])
    assert "typer" in loaded
    assert [name for name in NOT_FOR_HELP if name in loaded] == []


# --- style -------------------------------------------------------------------------------------


@every_module
def test_every_module_says_what_it_is(real):
    assert ast.get_docstring(real.tree)


def test_no_module_is_too_long():
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    assert {name: count for name, count in lines.items() if count > MODULE_LINES_MAX} == {}


# What must not be in the tree: where packages were fetched from, and folders of one machine.
# Put together here so that this file does not contain them.
UNWANTED = [
    re.compile(pattern)
    for pattern in (
        "--(extra-)?index" + "-url|--find" + "-links|--trusted" + "-host",
        "(index|extra-index)" + r"-url\s*=",
        "://[^ ]*/simple" + r"\b",
        r"files\.python" + "hosted",
        "/wo" + "rk/(main|shared|seeds)",
        "/ro" + r"ot/\.",
        "/tmp/" + "(x|brief|scaffold)/",
    )
]


def project_files() -> list[Path]:
    """What is, or could be, committed; without git, all that is not generated."""
    try:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        generated = re.compile(r"/(\.git|\.venv|\.\w+_cache|\.hypothesis|__pycache__|dist)/")
        paths = [p for p in ROOT.rglob("*") if not generated.search(f"/{p.relative_to(ROOT)}/")]
    return [path for path in paths if path.is_file()]


def unwanted(text: str) -> list[str]:
    return [match[0] for pattern in UNWANTED if (match := pattern.search(text))]


@pytest.mark.parametrize(
    "text",
    [
        "--index" + "-url=x",
        "https:" + "//host/pypi/simple",
        "/wo" + "rk/main/x",
        "/ro" + "ot/.cache",
    ],
)
def test_planted_addresses_and_paths_are_found(text):
    assert unwanted(text)


def test_no_index_address_and_no_path_of_one_machine():
    assert "pyproject.toml" in [path.name for path in project_files()]
    found = {
        str(path.relative_to(ROOT)): unwanted(path.read_text(encoding="utf-8", errors="replace"))
        for path in project_files()
    }
    assert {name: texts for name, texts in found.items() if texts} == {}
