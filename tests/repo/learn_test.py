#!/usr/bin/env python3
"""scripts/learn as a learner meets it, and its checks, which must be able to fail. The compiler and the rung's program are
pretended: a rung of shell scripts.

    learn_test.py SOURCE_DIR
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

SOURCE = Path(sys.argv[1])
sys.path.insert(0, str(SOURCE / "scripts"))
from learn_grade import Refused, evaluate, explained, hint, only_here, parse_predictions, plain  # noqa: E402
from learn_rung import all_rungs  # noqa: E402

# Compiles a shell script: puts the file of YOURS in the place of the line that includes it. Links what is compiled, kernels
# before what launches them.
COMPILER = r"""#!/bin/sh
for word; do case $word in -DYOURS=*) yours=${word#-DYOURS=\"}; yours=${yours%\"} ;; esac; done
while [ $# -gt 0 ]; do case $1 in -c) source=$2 ;; -o) out=$2; shift ;; *.o) objects="'$1' $objects" ;; esac; shift; done
if [ -n "$source" ]; then
  echo "$source, ${yours:-alone}" >>"$(dirname "$0")/compiled"
  grep -q 'does not compile' "${yours:-$source}" && { echo "error: here" >&2; exit 1; }
  sed -e "/^#include YOURS/{r ${yours:-/dev/null}
d}" "$source" >"$out"
else
  { echo '#!/bin/sh'; eval "cat $objects"; } >"$out" && chmod +x "$out"
fi
"""
MAIN = """#!/bin/sh
#include YOURS
[ "$answer" = 42 ] || { echo "answer is '$answer', not 42" >&2; exit 2; }
echo computed
printf '{"counters": {"sent_bytes": '"${sent:-96}"', "seconds": 0.25}, "terms": {"P": 64, "W": 2, "F": 1}}' >"$2/counters.json"
echo '<svg/>' >"$2/picture.svg"
"""
SOLUTION = "# // TODO(you): the answer\nanswer=42\n# // end of TODO\n"
README = "# 7. Sending\n\n## Predict\n\nHow many bytes? The rest is in AFTERWARDS.md.\n"
AFTERWARDS = "# 7. Sending: what it says\n\n```text\ncomputed\n```\n\nwhy so many\n\n![bytes over time](../../docs/pictures/bytes.svg)\n"
FACTS = {
    "title": "Sending", "minutes": 5, "needs": [], "terms": {"P": "parameters", "W": "ranks"},
    "predictions": [{"name": "sent_bytes", "unit": "bytes", "formula": "3 * F * P * (W - 1) / W", "what": "all that is sent"},
                    {"name": "seconds", "formula": "W / 10", "within": 1.5}],
    "breaks": [{"name": "other_answer", "what": "gives another answer", "sentence": "answer is '41', not 42", "seconds": 5,
                "edit": {"file": "solution.cpp", "changes": [["answer=42", "answer=41"]]}, "answers": ["right", "wrong", "strange"], "why": "41 is not 42"}],
    "where": [{"question": "Which?", "file": "core/ledger.h", "symbol": "Ledger"},
              {"question": "Which member?", "file": "core/ledger.h", "symbol": "Ledger::change", "also": ["Ledger::add"]},
              {"question": "Which again?", "file": "core/ledger.h", "symbol": "change"}],
}
faults = []


def expect(right, what, shown=""):
    if not right:
        faults.append(f"{what}\n{shown}")


class Tree:
    """A tree with one rung, of which some files may be others."""

    def __init__(self, folder, **instead):
        self.root = Path(folder) / "a tree"
        files = {"build/CMakeCache.txt": f"CMAKE_CXX_COMPILER:FILEPATH={self.root}/compiler\n", "build/lib/libshardgrad.so": "",
                 "build/lib/libshardgrad_sim_kernels.so": "", "compiler": COMPILER, "core/ledger.h": "class Ledger { void add(); void change(); };\n", "docs/architecture.md": "## Where is it?\n\n| where? | `core/ledger.h` |\n", "tutorials/rung.h": "", "rung/README.md": README, "rung/AFTERWARDS.md": AFTERWARDS,
                 "rung/main.cpp": MAIN, "rung/solution.cpp": SOLUTION, "rung/exercise.cpp": SOLUTION.replace("answer=42\n", ""),
                 "rung/rung.json": json.dumps(FACTS)}
        if instead.pop("kernels", False):  # exercise and solution are these
            files["rung/README.md"] += "\n```cuda\nanswer=42\n```\n"
            for name in "solution", "exercise":
                files[f"rung/{name}.cu"] = files.pop(f"rung/{name}.cpp")
        for name, text in files.items():
            path = self.root / name.replace("rung/", "tutorials/07_sending/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(instead.get(Path(name).stem, text) if name.startswith(("rung/", "docs/")) else text)
        (self.root / "compiler").chmod(0o755)
        (self.root / "scripts").mkdir()
        for script in "learn", "learn_build.py", "learn_check.py", "learn_grade.py", "learn_rung.py", "common.sh":
            shutil.copy(SOURCE / "scripts" / script, self.root / "scripts")

    def learn(self, *words):
        """(exit code, what it said)"""
        done = subprocess.run([sys.executable, "scripts/learn", *words], cwd=self.root, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
        return done.returncode, done.stdout


def says(tree, words, code, *texts):
    found, said = tree.learn(*words)
    for text in texts:
        expect(text in said, f"scripts/learn {' '.join(words)} does not say '{text}':", said)
    expect(found == code, f"scripts/learn {' '.join(words)} ends with {found}, not {code}:", said)
    return said


def a_learner_climbs():
    with tempfile.TemporaryDirectory(prefix="learn test ") as folder:
        tree = Tree(folder)
        says(tree, [], 0, "Sending", "5 minutes in all")
        said = says(tree, ["7"], 0, "How many bytes?", '--predict "sent_bytes=… seconds=…"', "the answers, shown when all is graded: tutorials/07_sending/AFTERWARDS.md")
        expect("why so many" not in said, "the answers are shown with the question", said)
        for _ in range(2):  # the same number is one answer, of which a hint gives nothing away
            said = says(tree, ["7", "--predict", "sent_bytes=64 seconds=0.2"], 1, "not 64, which is too small", "1 of 2 right", "seconds: right")
            expect(not any(told in said for told in ("96", "computed", "why so many", "3 * F", "picture")), "a hint says what is asked", said)
        said = says(tree, ["7", "--predict", "seconds=0.2"], 0, "not right yet: sent_bytes")
        expect("computed" not in said, "what the program says is shown while something is not predicted", said)
        says(tree, ["7", "--predict", "sent_bytes=65 seconds=0.2"], 1, "you said 65, counted were 96 bytes", "3 * F * P", "computed", "why so many")
        said = says(tree, ["7", "--predict", "sent_bytes = 3*P*(W-1)/W, seconds=0.3"], 0, "2 of 2 right", "why so many", "look at it: build/learn/07_sending/picture.svg")
        expect("what it says" not in said and "```" not in said and said.count("computed") == 1 and "\nbytes over time: docs/pictures/bytes.svg\n" in said, "the answers are shown as they are written", said)
        says(tree, ["7", "--predict", "sent_bytes=0.09375 KiB seconds=200 ms"], 0, "2 of 2 right")
        says(tree, ["7", "--predict", "sent_bytes=3*P*W/4"], 1, "96 is right with this run's numbers, but not as a formula", "you had it right before, which stands", "right before: seconds")
        says(tree, ["7"], 0, "How many bytes?")
        says(tree, [], 0, "5  predicted")
        for words in "scripts/learn", "scripts/learn 7":  # into what reads nothing
            done = subprocess.run(f"'{sys.executable}' {words} | true", shell=True, cwd=tree.root, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            expect(done.stdout == "", f"{words} whose output nobody reads says:", done.stdout)
        says(tree, ["7", "--predict", "bytes=1"], 1, "counts no bytes; it counts sent_bytes, seconds")
        says(tree, ["7", "--break"], 0, "--break other_answer: gives another answer")
        _, said = tree.learn("7", "--break", "other_answer")
        expect(" # // TODO(you): the answer\n-answer=42\n+answer=41\n # // end of TODO\n" in said and "answer is '41', not 42" in said, "a break shows its change and its sentence", said)
        for number in "123":
            right = f"  {number}  right" in said
            says(tree, ["7", "--break", "other_answer", "--answer", number], 0 if right else 1, "yes: 41 is not 42" if right else "no;")
        (tree.root / "tutorials/07_sending/rung.json").write_text(facts(breaks=[FACTS["breaks"][0] | {"asks": "Which answer is given?"}]))
        _, said = tree.learn("7", "--break", "other_answer")
        expect("+answer=41" in said and "\n\nWhich answer is given?\n" in said and "not 42" not in said, "what a break asks before it runs", said)
        for number in "123":
            right = f"  {number}  right" in said
            says(tree, ["7", "--break", "other_answer", "--answer", number], 0 if right else 1, "answer is '41', not 42\n\nyes: 41 is not 42" if right else "no; go through the program")
        says(tree, ["7", "--solution"], 1, "after 2 tries with --exercise; so far: 0")
        says(tree, ["7", "--exercise"], 0, "copied for you")
        for _ in range(2):  # with nothing filled in nothing is run
            said = says(tree, ["7", "--exercise"], 1, "are still empty")
            expect("answer is" not in said and "tries" not in said, "an empty exercise is run", said)
        mine = tree.root / "learn/07_sending.cpp"
        mine.write_text("answer=41\n")
        for _ in range(3):  # the same file is one try
            says(tree, ["7", "--exercise"], 1, "answer is '41', not 42", "tries: 1")
        mine.write_text("does not compile\n")
        says(tree, ["7", "--exercise"], 1, "it does not compile", "error: here", "tries: 2")
        mine.write_text("kill -SEGV $$\n")
        says(tree, ["7", "--exercise"], 1, "died by signal 11 (SIGSEGV): it read or wrote through a pointer", "tries: 3")
        says(tree, ["7", "--solution"], 0, "+answer=42")
        mine.write_text("answer=42\nsent=64\n")
        says(tree, ["7", "--exercise"], 1, "right bits, but sent_bytes is 64, not 96: all that is sent", "right bits, other counts than the solution's; for the rung not yet (tries: 4")
        mine.write_text("answer=42\n")
        says(tree, ["7", "--exercise"], 0, "right", "your file counts: sent_bytes 96, seconds 0.25")
        old = mine.stat().st_mtime - 3600
        mine.write_text("answer=41\n")
        os.utime(mine, (old, old))  # as a copy that was kept
        says(tree, ["7", "--exercise"], 1, "answer is '41', not 42")
        says(tree, ["7", "--where"], 0, "1  Which?")
        says(tree, ["7", "--where", "1=Tensor"], 1, "no, not Tensor; look in core/", "1  Which?")
        for name in "Ledger", "sg::Ledger", "core/ledger.h", "ledger.h", "core/ledger.h:Ledger":
            says(tree, ["7", "--where", f"1={name}"], 0, "yes: Ledger in core/ledger.h")
        for name in "Ledger::change", "sg::Ledger::change()", "change", "add", "Ledger::add", "Ledger":
            says(tree, ["7", "--where", f"2={name}"], 0, "yes: Ledger::change in core/ledger.h")
        says(tree, ["7", "--where", "2=Ledger::sub"], 1, "no, not Ledger::sub", "2  Which member?")
        said = says(tree, [], 0, "5  predicted, broken, written")
        expect("all\n" not in said.replace("in all", ""), "a rung with a where-question left is done", said)
        says(tree, ["7", "--where", "3=Ledger::change"], 0, "yes: change in core/ledger.h")
        says(tree, [], 0, "5  all")
        says(tree, ["--exercise"], 1, "of which rung?")
        says(tree, ["7", "--predict", ""], 1, "has no NAME=NUMBER")
        says(tree, ["7", "--break", "other_answer", "--answer", "4"], 1, "there is no answer 4; there are 1 to 3")
        says(tree, ["7", "--predict", "sent_bytes=1e400"], 1, "is too large")
        says(tree, ["7", "--predict", "junk sent_bytes=96"], 1, "'junk'")
        says(tree, ["7", "--answer", "2"], 1, "--answer belongs to --break")
        says(tree, ["7", "--predict", "sent_bytes=96", "--exercise"], 1, "one thing at a time: --predict or --exercise")
        says(tree, ["--mine=elsewhere"], 0, "5 minutes in all")
        says(tree, ["8"], 1, "there is no rung 8; there are 7")
        (tree.root / "learn/progress.json").write_text('{"7": ')
        says(tree, [], 1, "has notes that cannot be read")
        (tree.root / "learn/progress.json").unlink()
        says(tree, ["7", "--ci"], 0, "every rung does what it says")
        (tree.root / "compiled").unlink()
        for library in "older", "newer":  # of which all is made anew, and once
            os.utime(tree.root / "build/lib/libshardgrad.so", times=(1, {"older": 1, "newer": 2}[library]))
            for _ in range(2):
                says(tree, ["--all", "--ci"], 0, "built in ", ", ran in ", " of processors)", "every rung does what it says")
        compiled = (tree.root / "compiled").read_text().splitlines()
        expect(len(compiled) == 2 * 3 and all(compiled.count(one) == 2 for one in compiled), "--all --ci has compiled:", "\n".join(compiled))
        (tree.root / "build/lib/libshardgrad.so").unlink()
        says(tree, ["7"], 1, "run scripts/quickstart first")


def a_learner_writes_kernels():
    with tempfile.TemporaryDirectory(prefix="learn test ") as folder:
        edit = {"file": "solution.cu", "changes": [["answer=42", "answer=41"]]}
        tree = Tree(folder, kernels=True, rung=facts(breaks=[FACTS["breaks"][0] | {"edit": edit}]))
        says(tree, ["7", "--ci"], 0, "every rung does what it says")
        says(tree, ["7", "--predict", "sent_bytes=96 seconds=0.2"], 0, "2 of 2 right")
        says(tree, ["7", "--exercise"], 0, "copied for you")
        mine = tree.root / "learn/07_sending.cu"
        mine.write_text("does not compile\n")
        says(tree, ["7", "--exercise"], 1, "it does not compile", "error: here")
        mine.write_text("answer=42\n")
        says(tree, ["7", "--exercise"], 0, "right")
        says(tree, ["7", "--solution"], 0, "+++ solution.cu", "+answer=42")
    checks_find("an exercise of kernels that passes", "exercise.cu passes with its holes", kernels=True, exercise=SOLUTION.replace("answer=42", "answer=42 # mine"))


def checks_find(what, expected, **instead):
    with tempfile.TemporaryDirectory(prefix="learn test ") as folder:
        code, said = Tree(folder, **instead).learn("--all", "--ci")
        expect(code == 1 and expected in said, f"{what} is not found: '{expected}' is missing, exit code {code}:", said)


def facts(**changes):
    return json.dumps(FACTS | changes)


def checks_can_fail():
    predicted, broken = FACTS["predictions"], FACTS["breaks"][0]
    checks_find("a wrong formula", "sent_bytes: the formula gives 64, counted were 96", rung=facts(predictions=[predicted[0] | {"formula": "P"}]))
    checks_find("a time that is further off", "seconds: the formula gives 2,", rung=facts(predictions=[predicted[1] | {"formula": "W"}]))
    checks_find("a counter that is not there", "predicts ['steps']", rung=facts(predictions=[{"name": "steps", "formula": "1"}]))
    checks_find("a break with another sentence", "without 'nothing'", rung=facts(breaks=[broken | {"sentence": "nothing"}]))
    checks_find("a break that breaks nothing", "ends with 0", rung=facts(breaks=[broken | {"edit": {"file": "solution.cpp", "changes": []}}]))
    checks_find("a break of what is not there", "stands 0 times", rung=facts(breaks=[broken | {"edit": {"file": "main.cpp", "changes": [["@", ""]]}}]))
    checks_find("a break that ends late", "had not ended after 1 s", main=MAIN.replace('[ "$answer"', '[ "$answer" != 41 ] || sleep 9\n[ "$answer"'),
                rung=facts(breaks=[broken | {"seconds": 1}]))
    checks_find("a thing to try that does something else", "what the README tells to try, other, does not say 'again'",
                rung=facts(tries=[{"name": "other", "edit": {"file": "main.cpp", "changes": [["computed", "recomputed"]]}, "says": "again"}]))
    checks_find("an exercise without holes", "has no holes", exercise=SOLUTION)
    checks_find("an exercise that passes", "passes with its holes", exercise=SOLUTION.replace("answer=42", "answer=42 # mine"))
    checks_find("a solution that is another file", "differ outside", solution=SOLUTION + "more=1\n")
    checks_find("a place that is not there", "core/ledger.h has no Storage", rung=facts(where=[{"question": "", "file": "core/ledger.h", "symbol": "Storage"}] * 3))
    checks_find("a place that the table lacks", "does not name core/ledger.h", architecture="`core/ledger.h`\n## Where is it?\n| where? | `core/other.h` |\n")
    checks_find("a quote of other output", "AFTERWARDS.md quotes what is not in the program's output", AFTERWARDS=AFTERWARDS.replace("computed", "calculated"))
    checks_find("answers that nobody finds", "README.md does not name AFTERWARDS.md", README=README.replace("AFTERWARDS.md", "a file"))
    checks_find("a text that is too long", "README.md has 123 lines", README=README + 118 * "\n")
    checks_find("a solution of too much code", "solution.cpp has 2 lines of code, and is to have fewer than 2", rung=facts(code_lines=2),
                solution=SOLUTION.replace("# //", "//") + "more=1\n")
    checks_find("a symbol that nobody uses", "does not use all_gather", rung=facts(introduces=["all_gather"]))
    checks_find("a rung that is not before", "needs rung 3", rung=facts(needs=[3]))


def a_wrong_number_is_explained():
    terms, meanings = {"P": 64, "W": 6, "F": 4}, {"W": "ranks"}
    sent = {"name": "sent", "unit": "bytes", "formula": "3 * F * P * (W - 1) / W"}

    def shown(one, said):
        return explained(one, said, evaluate(one["formula"], terms), terms, meanings)

    def marks(lines):
        return [place - 4 for line in lines if set(line) == {" ", "^"} for place, sign in enumerate(line) if sign == "^"]
    for said, mark, words in (("3840", 23, "without W, ranks, it"), ("768", 18, "without this 1 it"), ("160", 4, "without this F it"),
                              ("2*F*P*(W-1)/W", 0, "with 2 in the place of this 3 it"), ("3*F*P*(W-1)", 23, "without W, ranks, it"),
                              ("3*F*F*P*(W-1)/W", None, "yours is this times F"), ("3*P*(W-1)/W", 4, "without this F it")):
        lines = shown(sent, said)
        expect(marks(lines) == ([mark] if mark is not None else []) and any(words in line for line in lines), f"{said} in the place of 640 is not explained:", "\n".join(lines))
    same = {"name": "same", "formula": "3 * L * (W - 1)"}  # where L is 3 and W - 1 is 3, only a formula says what was left out
    for said, places in (("L*(W-1)", [0]), ("3*(W-1)", [4]), ("9", [0, 4])):
        lines = explained(same, said, Fraction(27), {"L": 3, "W": 4}, {})
        expect(marks(lines) == places, f"{said} marks other terms than {places}:", "\n".join(lines))
    lines = explained({"name": "few", "formula": "F * P"}, "768", Fraction(256), {**terms, "L": 3}, {"L": "layers"})
    expect("yours is this times L, layers" in "\n".join(lines), "a factor too many is not named:", "\n".join(lines))
    lines = shown(sent, "641")
    expect("no single term explains the difference" in "\n".join(lines), "641 is explained by a term", "\n".join(lines))
    for said, words in (("1280", "yours is twice it"), ("641", "yours is 1 byte more"), ("0.63 KiB", "this is rounded; I compare to the byte"), ("640.5", "no whole number of bytes"),
                        ("F*P*(W-1)/2", "with F = 11, P = 29, W = 5 it gives 638, and not 765.6"), ("3840", "look at W, ranks"), ("641", "within 2 %"), ("160", "one number or factor"), ("1", "write a formula of F, P, W")):
        lines = hint(sent, said, Fraction(640), terms, meanings)
        expect(words in "\n".join(lines) and (said in ("640.5", "F*P*(W-1)/2") or "640" not in "\n".join(lines)), f"the hint to {said} is another:", "\n".join(lines))
    for said, number in (("12 MiB", 12 * 2**20), ("3KiB + P", 3 * 2**10 + 64), ("ceil(P / W) * max(F, 2)", 44), ("P**2 // 5 % 7", 0), ("8 bytes", 8), ("0.5 ms", Fraction(1, 2000))):
        expect(evaluate(said, terms) == number, f"{said} is {evaluate(said, terms)}, not {number}")
    squares = {"name": "squares", "unit": "bytes", "formula": "F * (D * D + D)"}
    lines = explained(squares, str(4 * (1000 * 1000 + 2000)), Fraction(4 * 1001000), {"F": 4, "D": 1000}, {})
    expect("in the place" not in "\n".join(lines) and "yours is 4000 bytes more" in "\n".join(lines), "a coincidence explains a number:", "\n".join(lines))
    seconds = {"name": "seconds", "formula": "W * (latency + N / speed)", "within": 1.7}
    moved = {"W": 6, "latency": Fraction(1, 50), "N": 200000, "speed": 10**7}
    for said, right in (("W*latency", False), ("W*(latency + N/speed)", True), ("6*(latency + 200000/speed)", True), ("W*N/speed", False), ("0.24", True)):
        expect((only_here(seconds, said, moved) == "") == right, f"'{said}' is compared otherwise:", only_here(seconds, said, moved))
    parts = {"name": "parts", "formula": "F * ceil(P / W)"}
    for said, right in (("F * (P // W + 1)", False), ("F * ((P + W - 1) // W)", True), ("4 * ceil(P / W)", True), ("4 * 11", True)):
        expect((only_here(parts, said, terms) == "") == right, f"'{said}' is compared otherwise:", only_here(parts, said, terms))
    expect(plain(Fraction(35353600, 3)) == "11784533.33", "digits of a large number are lost", plain(Fraction(35353600, 3)))
    try:
        evaluate("F*P^2", terms)
        expect(False, "P^2 is taken")
    except Refused as error:
        expect("write D*D or D**2" in str(error), "P^2 is not explained", str(error))
    expect(parse_predictions("a=24,024,000, b=max(F, 2) c = 3,") == {"a": "24024000", "b": "max(F, 2)", "c": "3"}, "commas are misread")
    for bad in ("__import__('os')", "P.real", "Q", "1 +", "1 / (W - 6)", "ceil()", "ceil(P, W)", "P ** W ** W", "P.MiB"):
        try:
            expect(False, f"'{bad}' is taken for a number: {evaluate(bad, terms)}")
        except Refused:
            pass
    expect(parse_predictions("a=1 b = 3 * P, c=2") == {"a": "1", "b": "3 * P", "c": "2"}, "predictions with spaces are misread")


def texts_of_all_rungs_are_true():
    """What needs no build, whichever rungs a test of the tutorials runs."""
    for rung in all_rungs():
        for fault in rung.faults_of_text():
            expect(False, f"{rung.folder.name}: {fault}")


a_learner_climbs()
a_learner_writes_kernels()
texts_of_all_rungs_are_true()
checks_can_fail()
a_wrong_number_is_explained()
sys.exit("\n\n".join(faults) or 0)
