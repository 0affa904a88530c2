// Writes all samples into a folder, for well_formed.py.

#include "tests/picture/samples.h"

#include <fstream>

int main(int, char** words) {
  for (const auto& [name, text] : shardgrad::picture::testing::all_samples())
    std::ofstream(std::string(words[1]) + "/" + name + ".svg") << text;
}
