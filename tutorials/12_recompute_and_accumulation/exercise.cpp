// Fewer bytes for more computing, and fewer messages for more bytes.

/// Blocks in turn, in regions of `region` neighbours, whose inside is not kept but run again in backward; 0: none.
inline Tensor run_blocks(const Blocks& blocks, Tensor x, int region) {
  if (region == 0) {
    for (const auto& block : blocks) x = block(x);
    return x;
  }
  for (auto first = blocks.begin(); first < blocks.end(); first += region) {
    Blocks some(first, std::min(first + region, blocks.end()));
    // TODO(you): x through `some`, as one region.
    // end of TODO
  }
  return x;
}

/// The gradients of a batch that comes in parts. `count`: elements of all parts of all ranks. `once`: they are added up
/// on each rank, and sent with those of the last part.
inline void accumulate(const sg::nn::Child<Net>& model, sg::fsdp::Sharded& sharded, const std::vector<Tensor>& parts,
                       double count, bool once) {
  for (size_t i = 0; i < parts.size(); ++i) {
    std::optional<sg::fsdp::NoSync> stay;
    // TODO(you): in whose scope nothing is sent.
    // TODO(you): what the model says of parts[i] is to be its absolute value: forward, loss, backward.
    // end of TODO
  }
}
