#include <shardgrad/train/text/pre_tokenizer.h>

#include <span>

namespace shardgrad::text {

static void cut_from(std::string_view piece, std::span<const CutStep> steps, const TakeWord& word) {
  if (piece.empty()) return;
  if (steps.empty()) return word(piece);
  const CutStep& step = steps[0];
  std::string with_space;
  if (step.space_before && piece[0] != ' ') piece = with_space.append(" ").append(piece);
  std::span<const CutStep> rest = steps.subspan(1);
  if (!step.pattern) return cut_from(piece, rest, word);
  size_t done = 0;
  auto gap = [&](size_t end) {
    if (step.keep_gaps) cut_from(piece.substr(done, end - done), rest, word);
  };
  step.pattern->for_each(piece, [&](size_t begin, size_t end) {
    gap(begin);
    if (step.keep_matches) cut_from(piece.substr(begin, end - begin), rest, word);
    done = end;
  });
  gap(piece.size());
}

void cut(std::string_view text, const CutSteps& steps, const TakeWord& word) { cut_from(text, steps, word); }

}  // namespace shardgrad::text
