#include <shardgrad/train/report/page.h>

#include <filesystem>

#include <shardgrad/core/error.h>
#include <shardgrad/train/about.h>
#include <shardgrad/train/report/html.h>
#include <shardgrad/train/shallow_json.h>

namespace shardgrad::train {
namespace {

// The inks are those of the pictures, in light and dark.
constexpr const char* kStyle = R"(<style>
:root{color-scheme:light dark;--ground:#f6f8fa;--sg-paper:#fff;--sg-text:#1f2328;--sg-faint:#59636e;--sg-grid:#d8dee4;
--sg-blue:#0072b2;--sg-green:#009e73;--sg-red:#d55e00}
@media(prefers-color-scheme:dark){:root{--ground:#010409;--sg-paper:#0d1117;--sg-text:#e6edf3;--sg-faint:#9aa4af;
--sg-grid:#30363d;--sg-blue:#4fa8e0;--sg-green:#34c69a;--sg-red:#ff8a4c}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--sg-text);
font:16px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;-webkit-text-size-adjust:100%}
main,header,footer{max-width:1200px;margin:0 auto;padding:0 16px}
header{padding-top:28px}
h1{margin:0;font-size:1.7rem;line-height:1.2;overflow-wrap:anywhere}
h2{margin:36px 0 4px;font-size:1.2rem}
p{margin:4px 0 12px;color:var(--sg-faint);max-width:75ch;overflow-wrap:anywhere}
a{color:var(--sg-blue)}
nav{margin:12px 0 0;display:flex;flex-wrap:wrap;gap:4px 16px;font-size:.9rem}
.state{display:inline-block;padding:1px 10px;border-radius:99px;border:1px solid;font-size:.9rem;color:var(--sg-green)}
.state.open{color:var(--sg-red)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:12px;margin:16px 0}
.tile,figure{background:var(--sg-paper);border:1px solid var(--sg-grid);border-radius:8px}
.tile{padding:10px 14px;min-width:0}
.tile b{display:block;font-size:1.35rem;line-height:1.3;font-weight:600;overflow-wrap:anywhere}
.tile span{color:var(--sg-faint);font-size:.85rem}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px;align-items:start}
figure{margin:0 0 16px;padding:10px;min-width:0}
.grid figure{margin:0}
figure svg{display:block;width:100%}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:4px 10px;border-bottom:1px solid var(--sg-grid);text-align:right;white-space:nowrap}
th:first-child,.words td,.words th{text-align:left}
.words td{white-space:normal;overflow-wrap:anywhere}
thead th{color:var(--sg-faint);font-weight:500}
tbody th{font-weight:500}
tr:last-child>*{border-bottom:0}
.same{color:var(--sg-green)}.differs{color:var(--sg-red)}.mark{font-weight:600}
.nothing{font-style:italic}
details{margin:0 0 16px}summary{cursor:pointer;color:var(--sg-blue);padding:4px 0}
footer{padding-top:24px;padding-bottom:40px;font-size:.85rem}
@media(max-width:480px){main,header,footer{padding-left:8px;padding-right:8px}figure{padding:8px 3px}}
@media print{body{background:#fff}figure,.tile{break-inside:avoid}}
</style>
)";

constexpr const char* kPlaces = R"(<nav><a href="#learning">Learning</a><a href="#memory">Memory</a>
<a href="#communication">Communication</a><a href="#units">Units</a><a href="#settings">Settings</a></nav>
)";

std::string name_of(const RunFiles& run) {
  std::filesystem::path path = std::filesystem::path(run.folder).lexically_normal();
  std::string name = path.has_filename() ? path.filename() : path.parent_path().filename();
  return name.empty() || name == "." ? std::filesystem::current_path().filename().string() : name;
}

std::string parts_of(const RunFiles& run) {
  return concat(summary_part(run), learning_part(run), memory_part(run), communication_part(run), units_part(run),
                settings_part(run));
}

// Draws `parts`, or says why these files cannot be drawn.
std::string fault_of(const RunFiles& run, std::string& parts) {
  try {
    parts = parts_of(run);
  } catch (const RunFiles::Json::exception& error) {
    return in_words(error);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    return error.what();
  }
  return "";
}

// A file that is JSON, and lacks what belongs there, is left out as a damaged one is. Added one by one, to find it.
RunFiles without_faults(RunFiles run) {
  using File = RunFiles::Json RunFiles::*;
  RunFiles good = run;
  good.about = good.ledger = nullptr;
  std::string unused;
  if (std::string fault = fault_of(good, unused); !fault.empty())
    fail("'", run.folder, "/config.json' lacks what belongs there: ", fault);
  for (auto [name, file] :
       {std::pair<const char*, File>(kAboutFile, &RunFiles::about), {"ledger.json", &RunFiles::ledger}}) {
    good.*file = run.*file;
    std::string fault = fault_of(good, unused);
    if (fault.empty()) continue;
    run.notes.push_back(concat("'", run.folder, "/", name, "' lacks what belongs there, and is left out: ", fault));
    run.*file = good.*file = nullptr;
  }
  return run;
}

}  // namespace

std::string page(const RunFiles& run) {
  std::string name = html::text(name_of(run));
  std::string parts;
  if (!fault_of(run, parts).empty()) parts = parts_of(without_faults(run));
  return concat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>",
      name, " – shardgrad</title>\n", kStyle, "</head>\n<body>\n<header>\n<h1>", name, "</h1>\n", kPlaces,
      "</header>\n<main>\n", parts,
      "</main>\n<footer>Drawn by <code>shardgrad report</code> of the files in the run's folder.",
      "</footer>\n</body>\n</html>\n");
}

}  // namespace shardgrad::train
