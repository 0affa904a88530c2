// What happened: the ledger of bytes and the recorder of collectives, of this rank.

#include <shardgrad/autograd/progress.h>
#include <shardgrad/core/ledger.h>
#include <shardgrad/core/recorder.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {
namespace {

using ByCategory = std::map<std::string, int64_t>;

// The ledger and recorder of the context that the calling thread has.
struct LedgerNow {};
struct RecorderNow {};

Category::Kind category_named(const std::string& name) {
  for (Category::Kind category : context().ledger().categories())
    if (name == category.name()) return category;
  fail("ledger: there are no bytes of '", name, "'");
}

int64_t current(const LedgerNow&, const std::optional<std::string>& category) {
  Ledger& ledger = context().ledger();
  return category ? ledger.current(category_named(*category)) : ledger.current();
}
int64_t peak(const LedgerNow&, const std::optional<std::string>& category) {
  Ledger& ledger = context().ledger();
  return category ? ledger.peak(category_named(*category)) : ledger.peak();
}

ByCategory all(int64_t (Ledger::*bytes)(Category::Kind) const) {
  ByCategory found;
  const Ledger& ledger = context().ledger();
  for (Category::Kind category : ledger.categories()) found[category.name()] = (ledger.*bytes)(category);
  return found;
}

void bind_ledger(nb::module_& m) {
  nb::class_<LedgerNow>(m, "Ledger", "Who owns which byte of this rank.")
      .def(nb::init<>())
      .def("current", current, "category"_a = nb::none(), Enters(), "Bytes now, of all or of a category.")
      .def("peak", peak, "category"_a = nb::none(), Enters(), "The most since the peaks were reset.")
      .def(
          "categories", [](const LedgerNow&) { return all(&Ledger::current); }, Enters(), "Bytes now, by category.")
      .def(
          "peaks", [](const LedgerNow&) { return all(&Ledger::peak); }, Enters(), "Peaks, by category.")
      .def(
          "reset_peaks", [](const LedgerNow&) { context().ledger().reset_peaks(); }, Enters(),
          "Peaks begin at what there is now.");
}

void bind_recorder(nb::module_& m) {
  nb::class_<Record>(m, "Record", "A collective, or a unit's transition.")
      .def_ro("op", &Record::op, "Its name, such as all_gather.")
      .def_ro("unit", &Record::unit, "Of which unit of a sharded model; '' of none.")
      .def_ro("phase", &Record::phase, "In which part of a step: forward, backward, …")
      .def_ro("elements", &Record::elements, "How many elements it was of.")
      .def_ro("bytes_sent", &Record::bytes_sent, "Bytes that this rank has sent.")
      .def_ro("dtype", &Record::dtype, "The type of the elements.")
      .def_ro("begin", &Record::begin, "When it began.")
      .def_ro("end", &Record::end, "When it ended.")
      .def("__repr__", [](const Record& r) {
        return concat(r.op, r.unit.empty() ? "" : " of '" + r.unit + "'", r.phase.empty() ? "" : " in " + r.phase, ", ",
                      r.elements, " ", r.dtype, ", ", r.bytes_sent, " bytes sent");
      });
  nb::class_<RecorderNow>(m, "Recorder", "What this rank has sent, in order.")
      .def(nb::init<>())
      .def(
          "records", [](const RecorderNow&) { return context().recorder().records(); }, Enters(),
          "The newest 4,096 at least, and of the step that runs 65,536 (until a first step has ended: 16,384), in "
          "order.")
      .def(
          "bytes_sent", [](const RecorderNow&) { return context().recorder().total_bytes_sent(); }, Enters(),
          "Of every collective since the start.")
      .def(
          "clear", [](const RecorderNow&) { context().recorder().clear(); }, Enters(), "Forgets the records.");
}

}  // namespace

void bind_watch(nb::module_& m) {
  bind_ledger(m);
  bind_recorder(m);
  m.def(
      "set_progress",
      [](uint64_t step, std::optional<int64_t> first_sample) {
        progress() = {step, first_sample.value_or(-1)};
      },
      "step"_a, "first_sample"_a = nb::none(), Enters(),
      "Where the training loop is: random numbers and dropout's masks are a function of the step, and of the place in "
      "the global batch of this rank's first sample, so that any number of ranks draws the same.");
}

}  // namespace shardgrad::python
