#pragma once
// What errors say.

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include <shardgrad/core/error.h>

namespace shardgrad::parallel::testing {

/// What the error that `body` throws says; empty when it throws none.
inline std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline void expect_message(const std::string& what, const std::string& part) {
  EXPECT_NE(what.find(part), std::string::npos) << "'" << what << "' does not say: " << part;
}

}  // namespace shardgrad::parallel::testing
