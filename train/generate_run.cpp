#include <shardgrad/train/generate_run.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include <shardgrad/train/hf/config.h>
#include <shardgrad/train/kept_tokenizer.h>
#include <shardgrad/train/text.h>
#include <shardgrad/train/trained.h>

namespace shardgrad::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

nn::Child<nn::LanguageModel> language_model_of(nn::Module& module, const std::string& from) {
  auto* model = dynamic_cast<nn::LanguageModel*>(&module);
  SG_CHECK(model, "'", from, "' has a ", module.type_name(),
           ", which is no language model; generate works on gpt2 and llama");
  return nn::Child<nn::LanguageModel>(std::shared_ptr<nn::LanguageModel>(std::shared_ptr<void>(), model));
}

// Of texts in a Hugging Face folder: eos_token_id is a number, several, or null.
Tokens stops_in_folder(const std::string& folder) {
  hf::TokenIds ids = hf::read_token_ids(folder);
  auto found = ids.find("eos_token_id");
  if (found == ids.end()) return {};
  nlohmann::json value = nlohmann::json::parse(found->second, nullptr, false);
  if (value.is_number_integer()) return {value.get<int64_t>()};
  Tokens stops;
  for (const auto& each : value)
    if (each.is_number_integer()) stops.push_back(each.get<int64_t>());
  return stops;
}

// What comes of the texts, on rank 0. Nothing is written before there is something.
class Screen {
 public:
  Screen(const std::vector<std::string>& prompts, std::ostream& out) : prompts_(prompts), out_(out) {}
  void tell(std::string_view text) {
    if (prompts_.size() > 1) return;
    if (!std::exchange(begun_, true)) out_ << prompts_[0];
    out_ << text << std::flush;
  }
  void end(const std::vector<std::string>& texts) {
    if (texts.size() == 1) tell("\n");
    for (size_t i = 0; i < texts.size() && texts.size() > 1; ++i)
      out_ << (i > 0 ? "\n" : "") << prompts_[i] << texts[i] << "\n";
    out_ << std::flush;
  }

 private:
  const std::vector<std::string>& prompts_;
  std::ostream& out_;
  bool begun_ = false;
};

// When tokens came, and how many.
struct Pace {
  Clock::time_point begin = Clock::now(), first{};
  int64_t steps = 0, tokens = 0;
  void add(int64_t prompts) {
    if (steps++ == 0) first = Clock::now();
    tokens += prompts;
  }
  std::string text() const {
    double reading = seconds_between(begin, first), rest = seconds_between(first, Clock::now());
    std::string speed =
        steps > 1
            ? concat(", ", format_fixed(double(tokens) * double(steps - 1) / double(steps) / rest, 1), " tokens/s")
            : "";
    return concat("first token after ", format_fixed(reading, 2), " s", speed, ", ", tokens, " tokens");
  }
};

}  // namespace

void generate_run(Config config, const std::string& from, dist::ProcessGroup& world, const TextRequest& request,
                  std::ostream& out, std::ostream& notes) {
  bool is_folder = hf::is_model_folder(from), first_rank = world.rank() == 0;
  std::shared_ptr<const text::Tokenizer> tokenizer = is_folder ? text::load_tokenizer(from) : kept_tokenizer(from);
  if (world.size() == 1) config.strategy = "ddp";
  if (request.dtype) config.fsdp.options.param_dtype.reset();  // of copies beside the parameters
  Trained trained(config, from, world, request.dtype);
  nn::Child<nn::LanguageModel> model = language_model_of(trained.task->module(), from);
  GenerateOptions options = request.options;
  if (options.stop.empty() && is_folder) options.stop = stops_in_folder(from);
  if (options.stop.empty() && tokenizer->eos()) options.stop = {*tokenizer->eos()};
  Pace pace;
  options.agree = [&](const Tokens& drawn) {
    pace.add(std::ssize(drawn));
    if (world.size() == 1) return drawn;
    Tokens all = world.share(drawn, {"", "generate"});
    all.resize(drawn.size());  // rank 0's
    return all;
  };
  Screen screen(request.prompts, out);
  auto tell = [&](int64_t, std::string_view text) {
    if (first_rank) screen.tell(text);
  };
  std::vector<std::string> texts = generate(model, *tokenizer, request.prompts, options, tell);
  if (!first_rank) return;
  screen.end(texts);
  notes << pace.text() << (is_folder ? "" : concat(", step ", trained.step)) << std::endl;
}

}  // namespace shardgrad::train
