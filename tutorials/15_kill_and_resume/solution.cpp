// What makes a run survive: a save that is whole or not there at all, and a loop that goes on where the last one was.

/// Puts a checkpoint on a disk whose power may go before any of these actions: `latest` always names one that is whole.
inline void save(Disk& disk, int step, const std::string& state) {
  std::string name = "step-" + std::to_string(step);
  // TODO(you): write(file, text), sync(file) and rename(from, to) are what a disk can do. What is not synced may be
  // torn when the power goes; a rename is done or not, and takes the place of what had that name.
  disk.write("unfinished", state);
  disk.sync("unfinished");
  disk.rename("unfinished", name);
  disk.write("latest.new", name);
  disk.sync("latest.new");
  disk.rename("latest.new", "latest");
  // end of TODO
}

/// Trains until `steps` steps are done, and saves after every `every` of them.
inline void train(Run& run, int64_t steps, int64_t every) {
  int64_t done = 0;
  std::optional<std::string> folder = sg::train::latest_checkpoint(run.folder);
  // TODO(you): where there is a checkpoint, run.load(folder) fills model and optimizer and says how many steps they
  // have been through.
  if (folder) done = run.load(*folder);
  // end of TODO
  while (done < steps) {
    run.step(done++);  // its samples are a function of its number
    // TODO(you): when is run.save(done) called?
    if (done % every == 0) run.save(done);
    // end of TODO
  }
}
