#pragma once

#include <sys/inotify.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace shardgrad {

/// How many times `call` opens this file.
inline int times_opened(const std::string& path, const std::function<void()>& call) {
  int watch = inotify_init1(IN_NONBLOCK);
  inotify_add_watch(watch, path.c_str(), IN_OPEN | IN_CLOSE);  // equal events in a row would be one
  call();
  int opened = 0;
  alignas(inotify_event) char events[4096];
  for (ssize_t size; (size = read(watch, events, sizeof(events))) > 0;)
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(events + at);
      opened += (event->mask & IN_OPEN) != 0;
      at += ssize_t(sizeof(inotify_event) + event->len);
    }
  close(watch);
  return opened;
}

}  // namespace shardgrad
