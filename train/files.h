#pragma once
// Writing small files of a run, whole (read_file.h reads them). Every failure is an Error(input) with the path and the
// system's reason: "cannot write 'runs/a/run.json': No space left on device".

#include <cstdint>
#include <string>

namespace shardgrad::train {

/// Makes or replaces the file.
void write_file(const std::string& path, const std::string& text);
/// The same as a whole, also when the machine fails: who reads it sees the old text or the new one. Where it fails,
/// nothing is left beside it.
void replace_file(const std::string& path, const std::string& text);
/// Gives the file `from` the name `to` when all of it has reached the disk.
void rename_when_safe(const std::string& from, const std::string& to);
/// Returns when a file's or a folder's contents have reached the disk.
void sync_path(const std::string& path);
/// Makes the file `count` bytes longer than `begin`, and finds out now whether the disk has them. Where the file system
/// promises no space the file only gets its length.
void take_space(const std::string& path, int64_t begin, int64_t count);
/// Throws Error(input) unless such a file can be made, with `count` bytes. It has no name while it takes them, and is
/// gone afterwards, also where this process is killed.
void check_space(const std::string& path, int64_t count);
/// Throws for the system call that has just failed with errno: `verb` is "read", "write", …
[[noreturn]] void cannot(const char* verb, const std::string& path);

/// `text` as a refusal repeats it: whole when it is short, else its beginning and its length.
std::string shortened(const std::string& text);

}  // namespace shardgrad::train
