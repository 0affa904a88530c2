#pragma once
// What the ranks of a job use to know each other where strangers can reach them: a token that all of them were given
// proves itself without being sent, as HMAC-SHA256 (RFC 2104, FIPS 180-4) of what both sides have just said.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shardgrad::dist {

using Digest = std::array<uint8_t, 32>;
/// Random bytes that are said once, so that what was overheard in one conversation proves nothing in another.
using Nonce = std::array<uint8_t, 16>;

/// Fresh random bytes from the system. Throws Error(missing) when it has none.
Nonce make_nonce();
/// The same as a word, for a token that a bootstrap carries.
std::string random_word();
Digest sha256(std::string_view bytes);
Digest hmac_sha256(std::string_view key, std::string_view message);
/// Takes as long for digests that differ early as for those that differ late.
bool same(const Digest& a, const Digest& b);

}  // namespace shardgrad::dist
