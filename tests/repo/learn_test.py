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
from learn_grade import Refused, evaluate, explained, parse_predictions  # noqa: E402

# Compiles a shell script: puts the file of YOURS in the place of the line that includes it. Links what is compiled, kernels
# before what launches them.
COMPILER = r"""#!/bin/sh
for word; do case $word in -DYOURS=*) yours=${word#-DYOURS=\"}; yours=${yours%\"} ;; esac; done
while [ $# -gt 0 ]; do case $1 in -c) source=$2 ;; -o) out=$2; shift ;; *.o) objects="'$1' $objects" ;; esac; shift; done
if [ -n "$source" ]; then
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
printf '{"counters": {"sent_bytes": 96, "seconds": 0.25}, "terms": {"P": 64, "W": 2, "F": 1}}' >"$2/counters.json"
echo '<svg/>' >"$2/picture.svg"
"""
SOLUTION = "# // TODO(you): the answer\nanswer=42\n# // end of TODO\n"
README = "# 7. Sending\n\n## Predict\n\nHow many bytes?\n\n## Run\n\n```text\ncomputed\n```\n"
FACTS = {
    "title": "Sending", "minutes": 5, "needs": [], "terms": {"P": "parameters", "W": "ranks"},
    "predictions": [{"name": "sent_bytes", "unit": "bytes", "formula": "3 * F * P * (W - 1) / W"},
                    {"name": "seconds", "formula": "W / 10", "within": 1.5}],
    "breaks": [{"name": "other_answer", "what": "gives another answer", "sentence": "answer is '41', not 42", "seconds": 5,
                "edit": {"file": "solution.cpp", "changes": [["answer=42", "answer=41"]]}, "answers": ["right", "wrong", "strange"]}],
    "where": [{"question": "Which?", "file": "core/ledger.h", "symbol": "Ledger"}] * 3,
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
                 "build/lib/libshardgrad_sim_kernels.so": "", "compiler": COMPILER, "core/ledger.h": "class Ledger;\n", "tutorials/rung.h": "", "rung/README.md": README,
                 "rung/main.cpp": MAIN, "rung/solution.cpp": SOLUTION, "rung/exercise.cpp": SOLUTION.replace("answer=42\n", ""),
                 "rung/rung.json": json.dumps(FACTS)}
        if instead.pop("kernels", False):  # exercise and solution are these
            files["rung/README.md"] += "\n```cuda\nanswer=42\n```\n"
            for name in "solution", "exercise":
                files[f"rung/{name}.cu"] = files.pop(f"rung/{name}.cpp")
        for name, text in files.items():
            path = self.root / name.replace("rung/", "tutorials/07_sending/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(instead.get(Path(name).stem, text) if name.startswith("rung/") else text)
        (self.root / "compiler").chmod(0o755)
        (self.root / "scripts").mkdir()
        for script in "learn", "learn_grade.py", "learn_rung.py":
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


def a_learner_climbs():
    with tempfile.TemporaryDirectory(prefix="learn test ") as folder:
        tree = Tree(folder)
        says(tree, [], 0, "Sending", "5 minutes in all")
        says(tree, ["7"], 0, "How many bytes?", '--predict "sent_bytes=… seconds=…"')
        says(tree, ["7", "--predict", "sent_bytes=64 seconds=0.2"], 1, "you said 64, counted were 96 bytes", "1 of 2 right", "seconds: right")
        says(tree, ["7", "--predict", "sent_bytes = 3*P*(W-1)/W, seconds=0.3"], 0, "2 of 2 right", "look at it: build/learn/07_sending/picture.svg")
        says(tree, ["7", "--predict", "bytes=1"], 1, "counts no bytes; it counts sent_bytes, seconds")
        says(tree, ["7", "--break"], 0, "--break other_answer: gives another answer")
        _, said = tree.learn("7", "--break", "other_answer")
        expect("-answer=42" in said.replace(" ", "") and "answer is '41', not 42" in said, "a break shows its change and its sentence", said)
        for number in "123":
            right = f"  {number}  right" in said
            says(tree, ["7", "--break", "other_answer", "--answer", number], 0 if right else 1, "yes" if right else "no;")
        says(tree, ["7", "--solution"], 1, "after 2 tries with --exercise; so far: 0")
        says(tree, ["7", "--exercise"], 1, "copied for you", "answer is '', not 42", "tries: 0")
        mine = tree.root / "learn/07_sending.cpp"
        mine.write_text("answer=41\n")
        for _ in range(3):  # the same file is one try
            says(tree, ["7", "--exercise"], 1, "answer is '41', not 42", "tries: 1")
        mine.write_text("does not compile\n")
        says(tree, ["7", "--exercise"], 1, "it does not compile", "error: here", "tries: 2")
        says(tree, ["7", "--solution"], 0, "+answer=42")
        mine.write_text("answer=42\n")
        says(tree, ["7", "--exercise"], 0, "right")
        old = mine.stat().st_mtime - 3600
        mine.write_text("answer=41\n")
        os.utime(mine, (old, old))  # as a copy that was kept
        says(tree, ["7", "--exercise"], 1, "answer is '41', not 42")
        says(tree, ["7", "--where"], 0, "1  Which?")
        says(tree, ["7", "--where", "1=Tensor"], 1, "no;")
        says(tree, ["7", "--where", "1=Ledger"], 0, "yes: Ledger in core/ledger.h")
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
        (tree.root / "build/lib/libshardgrad.so").unlink()
        says(tree, ["7"], 1, "run scripts/quickstart first")


def a_learner_writes_kernels():
    with tempfile.TemporaryDirectory(prefix="learn test ") as folder:
        edit = {"file": "solution.cu", "changes": [["answer=42", "answer=41"]]}
        tree = Tree(folder, kernels=True, rung=facts(breaks=[FACTS["breaks"][0] | {"edit": edit}]))
        says(tree, ["7", "--ci"], 0, "every rung does what it says")
        says(tree, ["7", "--predict", "sent_bytes=96 seconds=0.2"], 0, "2 of 2 right")
        says(tree, ["7", "--exercise"], 1, "copied for you", "answer is '', not 42")
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
    checks_find("a quote of other output", "quotes what is not in the program's output", README=README.replace("computed", "calculated"))
    checks_find("a text that is too long", "README.md has 129 lines", README=README + 118 * "\n")
    checks_find("a solution of too much code", "solution.cpp has 2 lines of code, and is to have fewer than 2", rung=facts(code_lines=2),
                solution=SOLUTION.replace("# //", "//") + "more=1\n")
    checks_find("a symbol that nobody uses", "does not use all_gather", rung=facts(introduces=["all_gather"]))
    checks_find("a rung that is not before", "needs rung 3", rung=facts(needs=[3]))


def a_wrong_number_is_explained():
    terms, meanings = {"P": 64, "W": 4, "F": 4}, {"W": "ranks"}
    sent = {"name": "sent", "unit": "bytes", "formula": "3 * F * P * (W - 1) / W"}
    for said, mark, words in ((2304, 23, "without W, ranks, it"), (768, 18, "without this 1 it"), (384, 0, "with 2 in the place of this 3 it"), (144, 4, "without this F it")):
        lines = explained(sent, evaluate(str(said), terms), evaluate(sent["formula"], terms), terms, meanings)
        marks = [line.index("^") - 4 for line in lines if set(line.strip()) == {"^"}]
        expect(marks == [mark] and any(words in line for line in lines), f"{said} in the place of 576 is not explained:", "\n".join(lines))
    few = {"name": "few", "formula": "F * P"}
    lines = explained(few, Fraction(768), Fraction(256), {**terms, "L": 3}, {"L": "layers"})
    expect("yours is this times L, layers" in "\n".join(lines), "a factor too many is not named:", "\n".join(lines))
    lines = explained(sent, evaluate("577", terms), evaluate(sent["formula"], terms), terms, meanings)
    expect("no single term explains the difference" in "\n".join(lines), "577 is explained by a term", "\n".join(lines))
    for bad in ("__import__('os')", "P.real", "Q", "1 +", "1 / (W - 4)"):
        try:
            expect(False, f"'{bad}' is taken for a number: {evaluate(bad, terms)}")
        except Refused:
            pass
    expect(parse_predictions("a=1 b = 3 * P, c=2") == {"a": "1", "b": "3 * P", "c": "2"}, "predictions with spaces are misread")


a_learner_climbs()
a_learner_writes_kernels()
checks_can_fail()
a_wrong_number_is_explained()
sys.exit("\n\n".join(faults) or 0)
