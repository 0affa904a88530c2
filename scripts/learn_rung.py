"""A rung of scripts/learn: a folder of tutorials/, its program, and what must hold of it."""
import json
import os
import re
import signal
import subprocess
from fractions import Fraction
from functools import partial

from learn_build import ROOT, NotBuilt
from learn_grade import agrees, evaluate, plain

TEXTS = re.compile(r"^```(cpp|cuda|text)\n(.*?)^```$", re.M | re.S)


def outside_of_holes(text):
    """The lines of a file without those that stand between a comment that begins with TODO(you), and the next one or
    `// end of TODO`."""
    kept, hole = [], "no"
    for line in text.splitlines():
        if "// TODO(you)" in line:
            hole = "comment"
        elif "// end of TODO" in line:
            hole = "no"
        elif hole == "comment" and not line.strip().startswith("//"):
            hole = "code"
        if hole != "code":
            kept.append(line)
    return kept


class Run:
    """What a program said, and what it counted."""

    def __init__(self, program, reports, seconds):
        self.folder = folder = program.parent
        for old in ("counters.json", "picture.svg"):
            (folder / old).unlink(missing_ok=True)
        try:
            done = subprocess.run([program, *(["--report", folder] if reports else [])], capture_output=True, text=True, timeout=seconds,
                                  env=os.environ | {"OMP_NUM_THREADS": "1"})
            self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            self.code, self.out, self.err = None, "", f"it had not ended after {late.timeout:g} s"
        report = folder / "counters.json"
        found = json.loads(report.read_text()) if report.exists() else {"counters": {}, "terms": {}}
        self.counters = {name: Fraction(str(value)) for name, value in found["counters"].items()}
        self.terms = {name: Fraction(str(value)) for name, value in found["terms"].items()}

    @property
    def picture(self):
        return self.folder / "picture.svg"

    def death(self):
        """Which signal ended the program, in words; empty for one that has ended by itself."""
        if self.code is None or self.code >= 0:
            return ""
        name = signal.Signals(-self.code).name
        why = ": it read or wrote through a pointer that points to nothing, such as that of a tensor or unique_ptr that a hole has left empty"
        return f"the program died by signal {-self.code} ({name}){why if -self.code == signal.SIGSEGV else ''}"


class Rung:
    def __init__(self, folder):
        self.folder = folder
        self.id = folder.name.split("_")[0].lstrip("0")
        facts = json.loads((folder / "rung.json").read_text())
        self.title, self.minutes, self.needs = facts["title"], facts["minutes"], facts["needs"]
        self.introduces, self.meanings = facts.get("introduces", []), facts.get("terms", {})
        self.predictions, self.breaks = facts.get("predictions", []), facts.get("breaks", [])
        self.tries, self.where = facts.get("tries", []), facts["where"]
        self.code_lines = facts.get("code_lines")
        self.readme = (folder / "README.md").read_text()
        self.answers = self.file("AFTERWARDS.md").read_text() if self.file("AFTERWARDS.md").exists() else ""

    def file(self, name):
        return self.folder / name

    def has_kernels(self):
        """Of the learner: then exercise and solution are these, in CUDA's language."""
        return self.file("exercise.cu").exists()

    def exercise(self):
        return self.file("exercise.cu" if self.has_kernels() else "exercise.cpp")

    def solution(self):
        return self.exercise().with_stem("solution")

    def has_exercise(self):
        return self.exercise().exists()

    def question(self):
        """The part of the README that asks for the prediction."""
        return self.part("Predict")

    def afterwards(self):
        """What AFTERWARDS.md tells, which has the answers and so is no part of the README: less its heading, and the program's
        output, which it quotes and which is shown beside it; of a picture its words and its place."""
        text = re.sub(r"!\[([^]]*)\]\((?:\.\./)*([^)]*)\)", r"\1: \2", self.answers)
        text = re.sub(r"\A# [^\n]*\n|```text\n.*?```\n", "", text, flags=re.S)
        return re.sub(r"\n{3,}", "\n\n", text).strip()

    def part(self, name):
        found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", self.readme, re.M | re.S)
        return found[1].strip() if found else ""

    def program(self, build, yours=None, strict=False):
        """Built if need be. `yours`: a path; without one the solution."""
        if self.has_kernels():
            build.make_simulator()
        yours = yours or self.solution()
        yours = yours if yours.exists() else self.file("main.cpp")  # a rung without an exercise
        program = build.folder / "learn" / self.folder.name / yours.stem
        build.compile(self.file("main.cpp"), yours.resolve(), program, strict)
        return program

    def further_programs(self, build):
        """What makes each program beside the solution's that `faults` runs."""
        for one in self.breaks + self.tries:
            yield partial(self.changed, build, one)
        if self.has_exercise():
            yield partial(self.program, build, self.exercise())

    def run(self, program, seconds=120):
        return Run(program, bool(self.predictions), seconds)

    def changed(self, build, one):
        """The program with the changes of one of `breaks` or `tries`."""
        edit, folder = one["edit"], build.folder / "learn" / self.folder.name / one["name"]
        folder.mkdir(parents=True, exist_ok=True)
        files = {}
        for name in ("main.cpp", self.solution().name if self.has_exercise() else "main.cpp"):
            text = self.file(name).read_text()
            if self.has_kernels() and name != edit["file"]:
                files[name] = self.file(name)  # whose object is there already
                continue
            for before, after in edit["changes"] if name == edit["file"] else []:
                if text.count(before) != 1:
                    raise NotBuilt(f"'{one['name']}' changes what stands {text.count(before)} times in {name}:\n{before}")
                text = text.replace(before, after)
            files[name] = folder / name
            if not files[name].exists() or files[name].read_text() != text:
                files[name].write_text(text)
        program = folder / "program"
        build.compile(files["main.cpp"], files[name], program, False)
        return program

    def other_counts(self, run):
        """In words, where a file that is not the solution counts something else than that does, of which the formulas are; no times."""
        for one in self.predictions:
            counted, said = run.counters[one["name"]], evaluate(one["formula"], run.terms)
            if "within" not in one and said != counted:
                yield f"{one['name']} is {plain(counted)}, not {plain(said)}" + (f": {one['what']}" if "what" in one else "")

    # --- what must hold; each gives what is wrong --------------------------------------------------------------------
    def faults(self, build):
        yield from self.faults_of_text()
        program = self.program(build, strict=True)
        run = self.run(program)
        if run.code != 0:
            yield f"the program ends with {run.code}:\n{run.out}{run.err}"
            return
        yield from self.faults_of_quotes(run)
        yield from self.faults_of_predictions(program, run)
        for one in self.breaks:
            yield from self.faults_of_break(build, one)
        for one in self.tries:
            tried = self.run(self.changed(build, one))
            if one["says"] not in tried.out + tried.err:
                yield f"what the README tells to try, {one['name']}, does not say '{one['says']}':\n{tried.out}{tried.err}"
        if self.has_exercise():
            yield from self.faults_of_exercise(build)

    def faults_of_text(self):
        for name, most in ("README.md", 120), ("main.cpp", 150):
            lines = len(self.file(name).read_text().splitlines())
            if lines > most:
                yield f"{name} has {lines} lines, and may have {most}"
        code = [line for line in self.file("solution.cpp").read_text().splitlines() if line.strip() and not line.strip().startswith("//")] if self.code_lines else []
        if self.code_lines and len(code) >= self.code_lines:
            yield f"solution.cpp has {len(code)} lines of code, and is to have fewer than {self.code_lines}"
        if self.answers and "AFTERWARDS.md" not in self.readme:
            yield "README.md does not name AFTERWARDS.md"
        if self.predictions and not self.question():
            yield "README.md has no part '## Predict'"
        if len(self.where) != 3:
            yield f"rung.json has {len(self.where)} where-questions, not three"
        for place in self.where:
            file = ROOT / place["file"]
            for name in place["symbol"], *place.get("also", []):
                if not file.exists() or not all(re.search(rf"\b{re.escape(part)}\b", file.read_text()) for part in name.split("::")):
                    yield f"{place['file']} has no {name}, of which a where-question is"
            table = re.search(r"^## Where is it\?\n(.*?)(?=^## |\Z)", (ROOT / "docs/architecture.md").read_text(), re.M | re.S)
            if not table or f"`{place['file']}`" not in table[1]:
                yield f"the table of docs/architecture.md does not name {place['file']}, of which a where-question is"

    def code(self):
        """Names that the rung's programs use."""
        texts = [path.read_text() for path in self.folder.iterdir() if path.suffix in (".cpp", ".cu", ".h")]
        return set(re.findall(r"[A-Za-z_]\w*", "\n".join(re.sub(r"//.*", "", text) for text in texts)))

    def faults_of_quotes(self, run):
        def stripped(text):
            return "\n".join(line.strip() for line in text.strip().splitlines())
        sources = [path.read_text() for path in (self.file(n) for n in ("main.cpp", "solution.cpp", "solution.cu", "kernels.cu")) if path.exists()]
        wholes = {"cpp": stripped("\n".join(sources)), "cuda": stripped("\n".join(sources)), "text": stripped(run.out)}
        for name, text in ("README.md", self.readme), ("AFTERWARDS.md", self.answers):
            for kind, block in TEXTS.findall(text):
                if stripped(block) not in wholes[kind]:
                    yield f"{name} quotes what is not in the program's {'output' if kind == 'text' else 'text'}:\n{block}the output is:\n{run.out}"

    def faults_of_predictions(self, program, run):
        names = {one["name"] for one in self.predictions}
        if not names <= set(run.counters):
            yield f"rung.json predicts {sorted(names)}, and the program counts only {sorted(run.counters)}"
            return
        for one in self.predictions:
            for _ in range(5 if "within" in one else 1):  # a busy machine takes longer than the formula says, not always
                said = evaluate(one["formula"], run.terms)
                if agrees(said, run.counters[one["name"]], one.get("within")):
                    break
                last, run = run, self.run(program)
            else:
                yield f"{one['name']}: the formula gives {plain(said)}, counted were {plain(last.counters[one['name']])}"

    def faults_of_break(self, build, one):
        run = self.run(self.changed(build, one), one["seconds"])
        if run.code in (None, 0) or one["sentence"] not in run.err:
            yield f"--break {one['name']} ends with {run.code}, without '{one['sentence']}':\n{run.err}"

    def faults_of_exercise(self, build):
        name, exercise, solution = self.exercise().name, self.exercise().read_text(), self.solution().read_text()
        if "// TODO(you)" not in exercise or exercise == solution:
            yield f"{name} has no holes below // TODO(you)"
        if outside_of_holes(exercise) != outside_of_holes(solution):
            yield f"{name} and {self.solution().name} differ outside of what stands below // TODO(you)"
        run = self.run(self.program(build, self.exercise()), seconds=60)
        if run.code == 0:
            yield f"{name} passes with its holes"
        if run.code is None:
            yield f"{name} with its holes: {run.err}"


def all_rungs(root=ROOT):
    found = [Rung(path.parent) for path in (root / "tutorials").glob("*/rung.json")]
    return sorted(found, key=lambda rung: (not rung.id.isdigit(), int(rung.id) if rung.id.isdigit() else 0, rung.id))
