// A ring all-reduce: each rank talks only to its right neighbour.
//
// The vector is cut into W chunks, one for each rank. In a step every rank passes one chunk on: first until each chunk
// has been at all ranks, and its sum is whole on one of them, then until the whole sums have been passed around.

/// `data`: this rank's `count` numbers, which become the sum over all ranks. W divides count.
inline void ring_all_reduce(Wire& wire, ProcessGroup& world, float* data, int64_t count) {
  const int ranks = world.size();
  const int64_t size = count / ranks;
  auto chunk = [&](int i) { return data + (i % ranks + ranks) % ranks * size; };  // chunk(-1) is the last one
  // TODO(you): how many steps are there?
  const int steps = 2 * (ranks - 1);
  // end of TODO
  for (int step = 0; step < steps; ++step) {
    // Rank r begins with its own chunk, and then passes on what it got in the step before.
    int out = world.rank() - step;
    std::vector<float> received = wire.pass_right(world, chunk(out), size);
    // TODO(you): which chunk has come from the left? In the first half of the steps it is added to this rank's, in the
    // second half it is whole and takes its place.
    bool adding = step < ranks - 1;
    for (int64_t i = 0; i < size; ++i) {
      float& element = chunk(out - 1)[i];
      element = adding ? element + received[size_t(i)] : received[size_t(i)];
    }
    // end of TODO
  }
}
