#pragma once
// The control pages of the machines of a job, kept alike. The first rank of each machine holds one TCP connection to
// rank 0 and a thread that sends what is new in the rows of its machine (dist/watch/page_news.h says what that is and
// when), heartbeats once a second, and the job's cause of failure; rank 0 passes everything on. So control and monitor
// need not know that there are several machines.
//
//     machine 0:  ranks 0-3 on one page  ==== rank 0 =========+
//     machine 1:  ranks 4-7 on one page  ==== rank 4 ---TCP---+
//
// Who connects proves that it knows a random word that rank 0 has sent through the bootstrap
// (dist/bootstrap/host.h), and what it says is checked (dist/watch/page_wire.h). A machine whose connection closes
// without a farewell has failed, and ends the job by name.
//
// Heartbeats leave their machine before other data. On a slow cable they may yet stand in line behind the program's own
// data, which an MPI queues by the megabyte, or wait for acknowledgements that do. While data go on between this
// machine and others, in either direction, what the kernel says of them counts as the heartbeats that are late: those
// of another machine for a minute after the last sign of its own. A machine that is stopped, or whose cable is cut,
// exchanges nothing, and mostly soon nobody does, for all wait for it.

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <shardgrad/core/thread.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/os/sockets.h>
#include <shardgrad/dist/watch/control_page.h>
#include <shardgrad/dist/watch/page_news.h>

namespace shardgrad::dist {

class PageLink {
 public:
  /// A machine at the other end.
  struct Far {
    Socket socket;
    int first_rank;  ///< whose process holds the other end
  };
  /// `addresses`: of machines whose data say that they are there; not this one's.
  PageLink(ControlPage page, const Bootstrap& bootstrap, std::vector<Far> far, std::set<std::string> addresses = {});
  /// Sends what is left, and farewell.
  ~PageLink();
  PageLink(const PageLink&) = delete;

 private:
  using Clock = PageNews::Clock;
  struct Connection;
  void loop();
  void look(Clock::time_point now);
  void note_beats();
  void hear_data(Clock::time_point now);
  std::map<std::string, uint64_t> exchanged_with_machines() const;
  void publish_tracers() const;
  bool tells_of(const Connection& connection, int rank) const;
  bool send(Connection& connection) const;
  bool fill(Connection& connection) const;
  bool receive(Connection& connection);
  void understand(Connection& connection, const std::string& message);
  void read_beats(const Connection& connection, const RankBits& beats) const;
  void lose(Connection& connection);
  void flush();

  ControlPage page_;
  const RankMap map_;
  int rank_;
  const std::set<std::string> addresses_;
  PageNews news_;
  std::vector<std::unique_ptr<Connection>> connections_;
  Clock::time_point next_look_{}, next_beats_{};
  std::atomic<bool> stop_{false};
  Thread thread_;
};

/// Connects the pages of all machines; null where there is nothing to do. Called by all ranks. When the machines cannot
/// be connected, `reason` says why on every rank. Does nothing when `reason` is not empty.
std::unique_ptr<PageLink> link_pages(Bootstrap& bootstrap, const ControlPage& page, std::string& reason);

}  // namespace shardgrad::dist
