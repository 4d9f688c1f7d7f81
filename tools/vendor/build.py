"""Builds what the console takes from npm, and compares it with what lies in the repository.

    python tools/vendor/build.py            # build, and fail if a byte differs
    python tools/vendor/build.py --write    # build, and take it

npm installs exactly what package-lock.json names, with its hashes; esbuild makes one file of each entry beside this
script. Nobody needs node to use or to test Lithify: what comes out lies in `src/lithify/http/console/static/vendor`
(and axe-core, for the tests, in `tests/http/console/vendor`), with licences, and `VENDOR.md` names versions and hashes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SHIPPED = Path("src/lithify/http/console/static/vendor")
TESTED = Path("tests/http/console/vendor")
# What each file is made of: the entry beside this script, and the packages whose code ends up in it.
BUNDLES = {
    "preact.js": ("preact", "htm"),
    "uplot.js": ("uplot",),
    "codemirror.js": (
        "codemirror",
        "@codemirror/autocomplete",
        "@codemirror/commands",
        "@codemirror/lang-sql",
        "@codemirror/language",
        "@codemirror/state",
        "@codemirror/view",
        "@lezer/common",
        "@lezer/highlight",
        "@lezer/lr",
        "@marijn/find-cluster-break",
        "crelt",
        "style-mod",
        "w3c-keyname",
    ),
}
ESBUILD = ("--bundle", "--minify", "--format=esm", "--target=es2022", "--legal-comments=none", "--charset=utf8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="take what was built")
    write = parser.parse_args().write
    with tempfile.TemporaryDirectory() as scratch:
        built = build(Path(scratch))
    if write:
        for path, content in built.items():
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_bytes(content)
        print(f"wrote {len(built)} files")
        return 0
    others = [path for path, content in built.items() if not same(ROOT / path, content)]
    for path in others:
        print(f"{path} differs from what npm and esbuild make of tools/vendor", file=sys.stderr)
    print(f"{len(built) - len(others)} of {len(built)} files are as npm and esbuild make them")
    return 1 if others else 0


def same(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def build(folder: Path) -> dict[Path, bytes]:
    for each in HERE.iterdir():
        if each.suffix in (".js", ".json"):
            shutil.copy(each, folder)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True)
    modules = folder / "node_modules"
    # The program itself, not the package's script in JavaScript, which an install without scripts leaves in place.
    (esbuild,) = (modules / "@esbuild").glob("*/bin/esbuild")
    made: dict[Path, bytes] = {}
    for name in BUNDLES:
        done = subprocess.run([esbuild, name, *ESBUILD], cwd=folder, check=True, capture_output=True)
        made[SHIPPED / name] = done.stdout
    done = subprocess.run(
        [esbuild, "node_modules/uplot/dist/uPlot.min.css", "--minify"], cwd=folder, check=True, capture_output=True
    )
    made[SHIPPED / "uplot.css"] = done.stdout
    made[SHIPPED / "LICENSES.txt"] = licences(modules, [package for each in BUNDLES.values() for package in each])
    made[TESTED / "axe.min.js"] = (modules / "axe-core" / "axe.min.js").read_bytes()
    made[TESTED / "LICENSE.txt"] = (modules / "axe-core" / "LICENSE").read_bytes()
    made[SHIPPED / "VENDOR.md"] = description(made, modules).encode()
    return made


def licences(modules: Path, packages: list[str]) -> bytes:
    parts = []
    for package in sorted(set(packages)):
        found = next(path for path in (modules / package).iterdir() if path.name.upper().startswith("LICENSE"))
        parts.append(f"{package} {facts(modules, package)['version']}\n\n{found.read_text().strip()}\n")
    return ("\n" + "-" * 80 + "\n\n").join(parts).encode()


def facts(modules: Path, package: str) -> dict[str, str]:
    return dict(json.loads((modules / package / "package.json").read_text()))


def description(made: dict[Path, bytes], modules: Path) -> str:
    lines = [
        "# What the console takes from npm",
        "",
        "`make vendor` builds these files again from `tools/vendor` and compares them. Licences: LICENSES.txt.",
        "",
        "| file | of | SHA-256 |",
        "|---|---|---|",
    ]
    for path, content in made.items():
        of = BUNDLES.get(path.name, ("uplot",) if path.name == "uplot.css" else ())
        of = ("axe-core",) if path.name == "axe.min.js" else of
        if of:
            named = ", ".join(
                f"{each} {facts(modules, each)['version']} ({facts(modules, each)['license']})" for each in of
            )
            shown = path.name if path.parent == SHIPPED else path.as_posix()
            lines.append(f"| {shown} | {named} | `{hashlib.sha256(content).hexdigest()}` |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
