#pragma once
// Configurations written in tests, and what is said about them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <shardgrad/core/error.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/registry.h>

#include "temporary_folder.h"

namespace shardgrad {

inline train::Config config_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  TemporaryFolder folder;
  folder.write("a.json", text);
  return train::read_config(folder / "a.json", overrides, {});
}

// Why a configuration file with this text is refused.
inline std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  TemporaryFolder folder;
  folder.write("a.json", text);
  std::string message = error_of([&] { train::read_config(folder / "a.json", overrides, {}); });
  for (size_t at; (at = message.find(folder.path() + "/")) != std::string::npos;)
    message.erase(at, folder.path().size() + 1);
  return message;
}

}  // namespace shardgrad
